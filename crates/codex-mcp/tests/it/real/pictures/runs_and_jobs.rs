//! Pictures in runs and jobs.

use std::fs;

use serde_json::{Value, json};
use testkit::McpClient;

use super::super::{CodexFixture, on_oldest_and_newest, structured};
use super::{SEEN, look_at, looking_model};

on_oldest_and_newest!(
    run_at_a_shell_gets_its_requested_picture,
    jobs_get_their_requested_pictures,
    calls_of_our_tools_are_steps_of_a_job,
);

async fn run_at_a_shell_gets_its_requested_picture(release: &str) {
    let stage = CodexFixture::new(release, looking_model()).await;
    let bytes = stage.picture("a.png");
    let ran = stage.run(&[&look_at("a.png")]).await;
    assert_eq!(ran.result["response"], SEEN, "{}", ran.stderr);
    ran.assert_done(&["initial"]);
    stage.assert_shown(&bytes);
}

/// A request for a missing picture is no work.
#[tokio::test]
async fn run_with_only_refused_pictures_is_not_done() {
    let stage = CodexFixture::new(testkit::codex::newest(), looking_model()).await;
    let args = [&look_at("nothing.png"), "--max-turns", "1"];
    let ran = stage.run(&args).await;
    ran.assert_not_done("max_turns_exceeded");
    let turn = &ran.result["evidence"]["log"][0];
    assert_eq!(
        (&turn["tool_calls"], &turn["failed_calls"]),
        (&json!(1), &json!(1))
    );
    assert!(
        ran.stderr.contains("nothing was executed"),
        "{}",
        ran.stderr
    );
    let errors = turn["errors"].to_string();
    assert!(errors.contains("file does not exist"), "{errors}");
}

/// A stage whose idle worker leaves soon.
async fn with_worker(release: &str, settings: &str) -> CodexFixture {
    let stage = CodexFixture::new(release, looking_model()).await;
    stage.configure(&format!("worker_idle_secs = 1\n{settings}"));
    stage
}

/// Runs a job or a run with this prompt; returns its record. A job works in a subdirectory.
async fn finished_record(
    client: &mut McpClient,
    stage: &CodexFixture,
    tool: &str,
    prompt: &str,
) -> Value {
    let arguments = match tool {
        "call_codex" => json!({ "prompt": prompt, "cwd": stage.file("sub") }),
        _ => json!({ "task": prompt, "wait_ms": 0 }),
    };
    let begun = client.call_tool(tool, arguments).await;
    let job = &structured(&begun)["job_id"];
    let status = json!({ "job_id": job, "wait_ms": 60_000 });
    let ended = client.call_tool("call_status", status).await;
    structured(&ended).clone()
}

async fn jobs_get_their_requested_pictures(release: &str) {
    let stage = with_worker(release, "").await;
    let mut client = stage.quiet_client(&[]).await;
    client.set_time_limit(std::time::Duration::from_secs(120));
    for tool in ["call_codex", "codex_run"] {
        let bytes = stage.picture(&format!("sub/{tool}.png"));
        let prompt = look_at(&format!("sub/{tool}.png"));
        let ended = finished_record(&mut client, &stage, tool, &prompt).await;
        assert_eq!(ended["status"], "completed", "{tool}: {ended:#}");
        assert_eq!(ended["response"], SEEN, "{tool}: {ended:#}");
        stage.assert_shown(&bytes);
    }
    stage.finish_with_worker(client).await;
}

async fn calls_of_our_tools_are_steps_of_a_job(release: &str) {
    let stage = with_worker(release, "").await;
    let mut client = stage.quiet_client(&[]).await;
    client.set_time_limit(std::time::Duration::from_secs(120));
    stage.picture("sub/a.png");
    let seen = finished_record(&mut client, &stage, "call_codex", &look_at("sub/a.png")).await;
    assert_eq!(seen["metadata"]["evidence"]["tool_calls"], 1, "{seen:#}");
    assert_eq!(seen["metadata"]["failed_steps"], json!(null), "{seen:#}");
    let status = json!({ "job_id": seen["job_id"], "tail": 50 });
    let events = client.call_tool("call_status", status).await.to_string();
    assert!(events.contains("request_image"), "{events}");
    assert!(!events.contains("base64"), "{events}");

    let refused = finished_record(&mut client, &stage, "call_codex", &look_at("sub/b.png")).await;
    let step = &refused["metadata"]["failed_steps"][0];
    assert_eq!(step["what"], "request_image", "{refused:#}");
    let reason = step["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("does not exist"), "{refused:#}");
    stage.finish_with_worker(client).await;
}

/// For jobs, the worker's configuration applies.
#[tokio::test]
async fn request_image_can_be_switched_off_for_runs_and_jobs() {
    let stage = with_worker(testkit::codex::newest(), "request_image = false").await;
    fs::create_dir(stage.file("sub")).unwrap();
    let ran = stage.run(&["x"]).await;
    assert_eq!(ran.result["response"], "ok", "{}", ran.stderr);
    assert!(
        !stage.offered_tools().contains("request_image"),
        "{}",
        stage.offered_tools()
    );
    let mut client = stage.quiet_client(&[]).await;
    client.set_time_limit(std::time::Duration::from_secs(120));
    for tool in ["call_codex", "codex_run"] {
        finished_record(&mut client, &stage, tool, "x").await;
        assert!(
            !stage.offered_tools().contains("request_image"),
            "{tool}: {}",
            stage.offered_tools()
        );
    }
    stage.finish_with_worker(client).await;
}
