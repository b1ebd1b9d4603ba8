//! Parameters with other names than the listed ones, and with wrong names.

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::McpClient;

use super::{CodexFixture, assert_error, structured, text};

/// A stage whose idle worker leaves soon.
async fn stage() -> CodexFixture {
    let script = Script::new()
        .on(
            "make it",
            [Reply::shell("echo x > made.txt"), Reply::say("Done.")],
        )
        .otherwise([Reply::say("ok")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    stage.configure("worker_idle_secs = 1\nsandbox = \"danger-full-access\"");
    stage
}

async fn call_ok(client: &mut McpClient, tool: &str, arguments: Value) -> Value {
    let result = client.call_tool(tool, arguments).await;
    assert_ne!(result["isError"], true, "{result:#}");
    structured(&result).clone()
}

async fn end(stage: &CodexFixture, client: McpClient) {
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

#[tokio::test]
async fn other_names_of_parameters_are_accepted() {
    let stage = stage().await;
    let mut client = stage.client(&[]).await;
    let work = stage.home.work();
    let begin = json!({ "task": "hello", "repo": work, "approvalPolicy": "never",
        "task_name": "label", "wait_ms": 60_000 });
    let begun = call_ok(&mut client, "codex", begin).await;
    assert_eq!(begun["status"], "completed", "{begun:#}");
    for name in ["thread_id", "session_id", "sessionId", "resume_session_id"] {
        let reply = json!({ "prompt": "again", name: begun["threadId"] });
        let answer = call_ok(&mut client, "codex-reply", reply).await;
        assert_eq!(answer["threadId"], begun["threadId"], "{name}");
    }
    let look = json!({ "action": "poll", "session_id": begun["sessionId"], "max_events": 5 });
    let polled = call_ok(&mut client, "codex_check", look).await;
    assert_eq!(polled["result"]["output"], "ok", "{polled:#}");
    let threads = call_ok(&mut client, "codex_threads", json!({})).await;
    assert_eq!(threads["threads"][0]["tag"], "label", "{threads:#}");

    // The first job has no session to resume, the second resumes that of the first.
    let mut session = Value::Null;
    for _ in 0..2 {
        let call = json!({ "task": "hello", "repo": work, "timeoutMs": 60_000,
            "threadId": session });
        let job = call_ok(&mut client, "call_codex", call).await;
        let look = json!({ "jobId": job["job_id"], "wait-ms": 60_000 });
        let done = call_ok(&mut client, "call_status", look).await;
        assert_eq!(done["response"], "ok", "{done:#}");
        assert_eq!(done["resume_session_id"], session, "{done:#}");
        session = done["session_id"].clone();
    }

    let run = json!({ "prompt": "make it", "cwd": work, "waitMs": 60_000,
        "exitCriteria": { "files": "made.txt" } });
    let done = call_ok(&mut client, "codex_run", run).await;
    assert_eq!(done["ok"], true, "{done:#}");
    end(&stage, client).await;
}

#[tokio::test]
async fn unknown_parameter_is_refused_with_the_nearest() {
    let stage = stage().await;
    for (api, tool, arguments, said) in [
        (
            "classic",
            "codex",
            json!({ "promt": "x" }),
            "unknown parameter `promt`; did you mean `prompt`?",
        ),
        (
            "sessions",
            "codex",
            json!({ "prompt": "x", "approvalPolicy": "never", "sandbox": "read-only",
                "advanced": { "output_schema": {} } }),
            "unknown parameter `output_schema` in `advanced`; did you mean `outputSchema`?",
        ),
        (
            "sessions",
            "codex_session",
            json!({ "action": "get", "sesionId": "x" }),
            "unknown parameter `sesionId`; did you mean `sessionId`?",
        ),
        (
            "classic",
            "call_codex",
            json!({ "prompt": "x", "cwd": "/", "timeout": 1 }),
            "unknown parameter `timeout`; did you mean `timeout_ms`?",
        ),
        (
            "classic",
            "codex_run",
            json!({ "task": "x", "exit_criteria": { "comits": 1 } }),
            "unknown parameter `comits` in `exit_criteria`; did you mean `commits`?",
        ),
        (
            "classic",
            "codex_status",
            json!({ "verbose": true }),
            "unknown parameter `verbose`; this takes none",
        ),
        (
            "classic",
            "call_codex",
            json!({ "prompt": "x", "cwd": "/", "repo": "/tmp" }),
            "`repo` is another name of `cwd`, and they differ",
        ),
    ] {
        let mut client = stage.client(&["--api", api]).await;
        let refused = client.call_tool(tool, arguments).await;
        assert_error(&refused, "INVALID_ARGUMENT");
        assert!(text(&refused, 0).contains(said), "{refused:#}");
        end(&stage, client).await;
    }
    assert_eq!(stage.model.request_count(), 0);
}
