//! Jobs over MCP: submitted by one client, done after it has left, seen by another.

use std::fs;
use std::time::Duration;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::postgres::{Durability, Postgres};
use testkit::{McpClient, Signal};

use super::{CodexFixture, VERSION, assert_error, on_oldest_and_newest, structured, text};
use crate::SETSID;
use crate::jobs::{Worker, wait_for_file};

on_oldest_and_newest!(
    job_outlives_its_client_and_is_continued,
    cancelled_job_ends_with_its_processes,
    progress_of_a_waiting_call_names_the_current_step,
);

/// A stage whose idle worker leaves soon.
pub(super) async fn stage(release: &str, script: Script) -> CodexFixture {
    let stage = CodexFixture::new(release, script).await;
    stage.configure("worker_idle_secs = 1\nsandbox = \"danger-full-access\"");
    stage
}

fn file_model() -> Script {
    Script::new()
        .on("go on", [Reply::say("Two.")])
        .otherwise([Reply::shell("echo x > made.txt"), Reply::say("One.")])
}

/// Calls a tool, which must succeed; returns its structured content.
pub(super) async fn call_ok(client: &mut McpClient, tool: &str, arguments: Value) -> Value {
    let result = client.call_tool(tool, arguments).await;
    assert_ne!(result["isError"], true, "{result:#}");
    let object = structured(&result).clone();
    assert_eq!(text(&result, 0).parse::<Value>().unwrap(), object);
    object
}

/// Submits a job; returns its ID.
async fn submit(client: &mut McpClient, arguments: Value) -> String {
    let queued = call_ok(client, "call_codex", arguments).await;
    assert_eq!(queued["status"], "queued", "{queued:#}");
    queued["job_id"].as_str().unwrap().to_owned()
}

async fn wait_for_job(client: &mut McpClient, job: &str) -> Value {
    let arguments = json!({ "job_id": job, "wait_ms": 60_000 });
    call_ok(client, "call_status", arguments).await
}

/// Checks with a new client that all jobs are done.
async fn assert_all_done(stage: &CodexFixture, jobs: &[String]) {
    let mut client = stage.client(&[]).await;
    // A Codex that was killed while it made its index has the next one wait for 30 s (0.169.0).
    client.set_time_limit(Duration::from_secs(90));
    for job in jobs {
        assert_eq!(wait_for_job(&mut client, job).await["response"], "One.");
    }
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

fn job_arguments(stage: &CodexFixture, prompt: &str) -> Value {
    json!({ "prompt": prompt, "cwd": stage.home.work() })
}

async fn job_outlives_its_client_and_is_continued(release: &str) {
    let stage = stage(release, file_model()).await;
    let mut client = stage.client(&[]).await;
    let job = submit(
        &mut client,
        job_arguments(&stage, "make it, the number is 7"),
    )
    .await;
    assert!(client.finish().await.success());

    let mut other = stage.client(&["--api", "sessions"]).await;
    let first = wait_for_job(&mut other, &job).await;
    assert_eq!(first["status"], "completed", "{first:#}");
    assert_eq!(first["response"], "One.");
    assert_eq!(first["agent_source"], "testkit");
    assert_eq!(first["metadata"]["changed_files"][0]["path"], "made.txt");
    assert_eq!(first["metadata"]["commands"][0]["exit_code"], 0);
    assert!(first["metadata"]["usage"]["input_tokens"].as_u64().unwrap() > 0);

    let mut arguments = job_arguments(&stage, "go on");
    arguments["continue_latest"] = json!(true);
    let job = submit(&mut other, arguments).await;
    let second = wait_for_job(&mut other, &job).await;
    assert_eq!(second["response"], "Two.", "{second:#}");
    assert_eq!(second["session_id"], first["session_id"]);
    assert_eq!(second["resume_session_id"], first["session_id"]);
    let asked = stage.model.requests().pop().unwrap();
    assert!(asked.user_messages().contains(&"make it, the number is 7"));
    assert!(asked.assistant_messages().contains(&"One."));

    let listed = call_ok(&mut other, "call_jobs", json!({})).await;
    assert_eq!(listed["total"], 2);
    assert_eq!(listed["jobs"][0]["job_id"], job);
    assert_eq!(listed["jobs"][1]["job_id"], first["job_id"]);
    assert!(other.finish().await.success());
    stage.until_processes_end().await;
}

async fn progress_of_a_waiting_call_names_the_current_step(release: &str) {
    let waits = "until [ -e go.txt ]; do sleep 0.05; done";
    let script = Script::new().otherwise([Reply::shell(waits), Reply::say("Done.")]);
    let stage = stage(release, script).await;
    let mut client = stage.client(&[]).await;
    let job = submit(&mut client, job_arguments(&stage, "wait")).await;
    let call = json!({ "name": "call_status", "_meta": { "progressToken": "mine" },
        "arguments": { "job_id": job, "wait_ms": 600_000 } });
    let id = client.request("tools/call", call);
    loop {
        let told = client.notification("notifications/progress").await;
        let message = told["params"]["message"].as_str().unwrap();
        if message.starts_with(&format!("running {waits}")) {
            break;
        }
    }
    std::fs::write(stage.file("go.txt"), "").unwrap();
    client.ignore("notifications/progress");
    let done = client.result(&id).await;
    assert_eq!(structured(&done)["status"], "completed", "{done:#}");
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

async fn cancelled_job_ends_with_its_processes(release: &str) {
    let busy = format!("{SETSID} sleep 1000 & touch started.txt; sleep 1000");
    let script = Script::new().otherwise([Reply::shell(busy), Reply::say("never")]);
    let stage = stage(release, script).await;
    let mut client = stage.client(&[]).await;
    let mut arguments = job_arguments(&stage, "work");
    arguments["timeout_ms"] = json!(600_000);
    let job = submit(&mut client, arguments).await;
    wait_for_file(&stage.file("started.txt")).await;
    let status = json!({ "job_id": job, "tail": 5 });
    let running = call_ok(&mut client, "call_status", status).await;
    assert_eq!(running["status"], "running");
    assert!(running["session_id"].is_string(), "{running:#}");

    let cancelled = call_ok(&mut client, "call_cancel", json!({ "job_id": job })).await;
    assert_eq!(cancelled["previous_status"], "running");
    assert_eq!(cancelled["new_status"], "cancelled");
    assert_eq!(cancelled["was_running_in_registry"], true);
    let message = cancelled["message"].as_str().unwrap();
    assert!(
        message.contains("turn and commands have ended"),
        "{message}"
    );
    let left = stage.home.processes();
    assert!(!format!("{left:?}").contains("sleep"), "{left:?}");

    let again = call_ok(&mut client, "call_cancel", json!({ "job_id": job })).await;
    assert_eq!(again["message"], "Job already cancelled");
    assert_eq!(wait_for_job(&mut client, &job).await["status"], "cancelled");
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

/// Jobs work the same with Codex's own MCP server as the backend.
#[tokio::test]
async fn job_tools_work_on_the_proxy() {
    let stage = stage("0.153.4", file_model()).await;
    let mut client = stage.client(&["--backend", "mcp-server"]).await;
    let mut arguments = job_arguments(&stage, "make it");
    arguments["expose_stream"] = json!(true);
    arguments["task_name"] = json!("a name");
    let job = submit(&mut client, arguments).await;
    let done = wait_for_job(&mut client, &job).await;
    assert_eq!(done["response"], "One.", "{done:#}");
    assert_eq!(done["task_name"], "a name");
    let events = done["metadata"]["stream_events"].as_array().unwrap();
    assert_eq!(events[0]["type"], "thread.started");
    let nonsense = json!({ "job_id": "nonsense" });
    let refused = client.call_tool("call_status", nonsense).await;
    assert_error(&refused, "INVALID_ARGUMENT");
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

/// Two jobs wait for each other, so each needs a worker of its own.
#[tokio::test]
async fn two_workers_share_the_jobs_of_one_postgres() {
    let meet = |mine: &str, other: &str| {
        let script = format!("touch {mine}; until [ -e {other} ]; do sleep 0.05; done");
        [Reply::shell(script), Reply::say("Met.")]
    };
    let script = Script::new()
        .on("go on", [Reply::say("Gone on.")])
        .on("the first", meet("a.txt", "b.txt"))
        .on("the second", meet("b.txt", "a.txt"));
    let stage = stage(testkit::codex::newest(), script).await;
    let server = Postgres::start(Durability::Unsynced);
    let store = server.database("jobs");
    let codex = testkit::codex::native_binary(&stage.release);
    let workers =
        [(); 2].map(|()| Worker::start(&stage.home, &store, &codex, &["--concurrency", "1"]));
    for worker in &workers {
        worker.says("takes jobs from").await;
    }

    let args = ["--store", store.as_str()];
    let mut client = stage.client(&args).await;
    let first = submit(&mut client, job_arguments(&stage, "the first")).await;
    let second = submit(&mut client, job_arguments(&stage, "the second")).await;
    assert!(client.finish().await.success());

    let mut other = stage.client(&args).await;
    let first = wait_for_job(&mut other, &first).await;
    let second = wait_for_job(&mut other, &second).await;
    assert_eq!(first["response"], "Met.", "{first:#}");
    assert_eq!(second["response"], "Met.", "{second:#}");
    assert_ne!(first["worker"], second["worker"]);

    let mut arguments = job_arguments(&stage, "go on");
    arguments["resume_session_id"] = first["session_id"].clone();
    let third = submit(&mut other, arguments).await;
    let third = wait_for_job(&mut other, &third).await;
    assert_eq!(third["response"], "Gone on.", "{third:#}");
    assert_eq!(third["session_id"], first["session_id"]);
    let asked = stage.model.requests().pop().unwrap();
    assert!(asked.user_messages().contains(&"the first"));
    assert!(other.finish().await.success());
    for worker in workers {
        worker.finish().await;
    }
    assert_eq!(stage.home.processes(), []);
}

#[tokio::test]
async fn job_of_a_killed_client_is_done() {
    let stage = stage(testkit::codex::newest(), file_model()).await;
    let mut jobs = Vec::new();
    for number in 0..3 {
        let mut client = stage.client(&[]).await;
        let id = client.request_tool(
            "call_codex",
            job_arguments(&stage, &format!("job {number}")),
        );
        let queued = client.result(&id).await;
        client.signal(Signal::SIGKILL);
        jobs.push(structured(&queued)["job_id"].as_str().unwrap().to_owned());
        client.exited().await;
    }
    assert_all_done(&stage, &jobs).await;
}

/// A script that is piped into a server behaves so.
#[tokio::test]
async fn job_of_a_client_that_left_before_the_answer_is_done() {
    let stage = stage(testkit::codex::newest(), file_model()).await;
    let mut jobs = Vec::new();
    for number in 0..4 {
        let mut client = stage.client(&[]).await;
        let id = client.request_tool(
            "call_codex",
            job_arguments(&stage, &format!("job {number}")),
        );
        client.close_stdin();
        let queued = client.result(&id).await;
        jobs.push(structured(&queued)["job_id"].as_str().unwrap().to_owned());
        assert!(client.exited().await.success());
    }
    assert_all_done(&stage, &jobs).await;
}

/// The store's URL may hold a password.
#[tokio::test]
async fn commands_of_codex_do_not_see_the_store_url() {
    let looks = "env | grep -c '^CODEX_MCP_STORE=' > seen.txt; true";
    let script = Script::new().otherwise([Reply::shell(looks), Reply::say("Looked.")]);
    let stage = stage(testkit::codex::newest(), script).await;
    let mut client = stage.client(&[]).await;
    let job = submit(&mut client, job_arguments(&stage, "look")).await;
    assert_eq!(wait_for_job(&mut client, &job).await["response"], "Looked.");
    assert_eq!(
        fs::read_to_string(stage.file("seen.txt")).unwrap().trim(),
        "0"
    );
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

/// Calls with invalid arguments: the tool, the arguments, and a part of the error.
const INVALID_CALLS: [(&str, &str, &str); 14] = [
    (
        "call_codex",
        r#"{"prompt": "", "cwd": "."}"#,
        "prompt must not be empty",
    ),
    (
        "call_codex",
        r#"{"prompt": "x", "cwd": ""}"#,
        "cwd must not be empty",
    ),
    ("call_codex", r#"{"prompt": "x"}"#, "missing field `cwd`"),
    (
        "call_codex",
        r#"{"prompt": "x", "cwd": "/not/there"}"#,
        "there is no directory",
    ),
    (
        "call_codex",
        r#"{"prompt": "x", "cwd": ".", "continue_latest": true,
            "resume_session_id": "01a200a4-327e-7ce2-b260-3fbdb333d5ff"}"#,
        "cannot be used together",
    ),
    (
        "call_codex",
        r#"{"prompt": "x", "cwd": ".", "continue_latest": true}"#,
        "there is no job of",
    ),
    (
        "call_codex",
        r#"{"prompt": "x", "cwd": ".", "timeout_ms": 0}"#,
        "timeout_ms",
    ),
    (
        "call_codex",
        r#"{"prompt": "x", "cwd": ".", "sandbox": "none"}"#,
        "sandbox",
    ),
    (
        "call_codex",
        r#"{"prompt": "x", "cwd": ".", "made_up": 1}"#,
        "made_up",
    ),
    ("call_status", r#"{"job_id": "../x"}"#, "is not a job ID"),
    (
        "call_status",
        r#"{"job_id": "00000000-0000-4000-8000-000000000000", "tail": 101}"#,
        "at most 100",
    ),
    ("call_jobs", r#"{"limit": 0}"#, "from 1 to 100"),
    ("call_jobs", r#"{"limit": 101}"#, "from 1 to 100"),
    (
        "call_jobs",
        r#"{"status_filter": "x' OR 1=1"}"#,
        "status_filter",
    ),
];

#[tokio::test]
async fn invalid_arguments_of_job_tools_are_refused() {
    let stage = stage(testkit::codex::newest(), file_model()).await;
    let mut client = stage.client(&[]).await;
    let work = stage.home.work();
    let session = "01a200a4-327e-7ce2-b260-3fbdb333d5ff";
    let unknown = "00000000-0000-4000-8000-000000000000";
    for (tool, arguments, why) in INVALID_CALLS {
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        let refused = client.call_tool(tool, arguments).await;
        assert_error(&refused, "INVALID_ARGUMENT");
        let message = text(&refused, 0);
        assert!(message.contains(why), "{message}");
    }
    for (tool, unknown) in [
        ("call_status", unknown),
        ("call_cancel", unknown),
        ("call_status", &unknown[..8]),
    ] {
        let refused = client.call_tool(tool, json!({ "job_id": unknown })).await;
        assert_error(&refused, "JOB_NOT_FOUND");
        let message = text(&refused, 0);
        assert!(message.contains("Job not found: 00000000"), "{message}");
    }
    let arguments = json!({ "prompt": "x", "cwd": work, "resume_session_id": "01234567" });
    let refused = client.call_tool("call_codex", arguments).await;
    assert_error(&refused, "THREAD_NOT_FOUND");
    // An unknown session is an error of the job, not of the call.
    let mut arguments = job_arguments(&stage, "go on");
    arguments["resume_session_id"] = json!(session);
    let job = submit(&mut client, arguments).await;
    let failed = wait_for_job(&mut client, &job).await;
    assert_eq!(failed["status"], "failed", "{failed:#}");
    assert_eq!(failed["metadata"]["failure"]["class"], "unknown_session");
    let beginning = json!({ "job_id": job[..8] });
    let status = client.call_tool("call_status", beginning).await;
    assert_eq!(structured(&status)["job_id"], job, "{status:#}");
    let arguments = json!({ "job_id": job });
    let refused = client.call_tool("call_cancel", arguments).await;
    assert!(text(&refused, 0).contains("Cannot cancel job in 'failed' status"));
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

#[tokio::test]
async fn submitted_job_is_audited_before_it_runs() {
    let stage = stage(testkit::codex::newest(), file_model()).await;
    let mut client = stage.client(&["--identity", "arch"]).await;
    let job = submit(
        &mut client,
        job_arguments(&stage, "make it with sk-proj-0123456789abcdefghij"),
    )
    .await;
    wait_for_job(&mut client, &job).await;
    let kept = stage
        .home
        .atm_home()
        .join(".config/atm/codex-sessions/arch/audit.jsonl");
    let lines = fs::read_to_string(kept).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| line.parse().unwrap()).collect();
    let [line, end] = lines.as_slice() else {
        panic!("{lines:#?}");
    };
    assert_eq!(end["outcome"], "done");
    assert_eq!(end["id"], job);
    assert_eq!(line["event"], "call_codex");
    assert_eq!(line["outcome"], "begun");
    assert_eq!(line["id"], job);
    assert_eq!(line["identity"], "arch");
    let summary = line["summary"].as_str().unwrap();
    assert!(
        summary.starts_with("make it with") && !summary.contains("0123456789"),
        "{summary}"
    );
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

#[tokio::test]
async fn unusable_store_is_an_error_of_the_call() {
    let stage = stage(testkit::codex::newest(), file_model()).await;
    fs::write(
        stage.file("text"),
        "no database, but long enough to be read as one",
    )
    .unwrap();
    let store = stage.file("text");
    let args = ["--store", store.to_str().unwrap()];
    let mut client = McpClient::connect(&stage.launch(&args), VERSION, json!({})).await;
    let refused = client
        .call_tool("call_codex", job_arguments(&stage, "x"))
        .await;
    assert_eq!(refused["isError"], true);
    assert_eq!(
        structured(&refused)["error"]["code"],
        "JOB_STORE",
        "{refused:#}"
    );
    assert!(
        text(&refused, 0).contains("is not a job store"),
        "{refused:#}"
    );
    stage.finish(client).await;
}
