//! Runs over MCP, which are jobs.

use std::fs;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::{McpClient, Signal};

use super::job_tools::{call_ok, stage};
use super::{CodexFixture, assert_error, on_oldest_and_newest, structured, text};
use crate::SETSID;
use crate::jobs::{Worker, wait_for_file};

on_oldest_and_newest!(
    promising_run_is_nudged_into_work_while_the_caller_waits,
    cancelled_run_reports_its_partial_work,
);

/// The shell command with which the model commits.
const COMMIT: &str = "echo x > made.txt && git add made.txt && git commit -qm 'Make it'";

/// Short leases, so that the jobs of a killed worker are found soon.
const SHORT_LEASE: [&str; 4] = ["--lease-ms", "5000", "--heartbeat-ms", "250"];

async fn newest(script: Script) -> CodexFixture {
    stage(testkit::codex::newest(), script).await
}

/// A model that promises first, and works when it is nudged.
fn promising_model() -> Script {
    Script::new()
        .on("words only", [Reply::shell(COMMIT), Reply::say("Done.")])
        .otherwise([Reply::say("I will make it.")])
}

/// A model that creates one of two files and then hangs.
fn hanging_model() -> Script {
    let half = format!("echo x > half.txt; {SETSID} sleep 1000 & touch started.txt; sleep 1000");
    Script::new().otherwise([Reply::shell(half), Reply::say("never")])
}

async fn wait_for_job(client: &mut McpClient, job: &Value) -> Value {
    let arguments = json!({ "job_id": job, "wait_ms": 60_000, "tail": 50 });
    call_ok(client, "call_status", arguments).await
}

/// Starts a run without waiting for it; returns its job ID.
async fn start_run(client: &mut McpClient, mut arguments: Value) -> Value {
    arguments["wait_ms"] = json!(0);
    let begun = call_ok(client, "codex_run", arguments).await;
    let is_under_way = begun["status"] == "queued" || begun["status"] == "running";
    assert!(is_under_way, "{begun:#}");
    let message = begun["message"].as_str().unwrap();
    assert!(message.contains("call_status"), "{message}");
    begun["job_id"].clone()
}

/// Ends the client, and waits until the worker and all other processes are gone.
async fn finish(stage: &CodexFixture, client: McpClient) {
    assert!(client.finish().await.success());
    stage.until_processes_end().await;
}

fn words(status: &Value) -> String {
    let events = status["events"].as_array().unwrap().iter();
    let words = events.filter_map(|event| event["data"]["words"].as_str());
    words.collect::<Vec<_>>().join("\n")
}

async fn promising_run_is_nudged_into_work_while_the_caller_waits(release: &str) {
    let stage = stage(release, promising_model()).await;
    let mut client = stage.client(&["--identity", "arch"]).await;
    stage.codex_is_ready(&mut client).await;
    let arguments = json!({ "task": "make it", "exit_criteria": { "commits": 1, "clean": true } });
    let done = call_ok(&mut client, "codex_run", arguments).await;
    assert_eq!(done["ok"], true, "{done:#}");
    assert_eq!(
        (&done["status"], &done["turns"]),
        (&json!("completed"), &json!(2))
    );
    assert_eq!(done["artifacts"][0]["type"], "commit");
    assert_eq!(done["artifacts"][0]["subject"], "Make it");
    assert_eq!(done["evidence"]["log"][0]["commands"], 0);
    assert_eq!(done["evidence"]["log"][1]["prompt"], "nudge");
    assert_eq!(done["response"], "Done.");

    let status = wait_for_job(&mut client, &done["job_id"]).await;
    assert_eq!(status["tool_name"], "codex_run");
    assert_eq!(status["task_name"], "make it");
    assert_eq!(status["session_id"], done["thread_id"]);
    assert_eq!(status["result"], done);
    let words = words(&status);
    for expected in [
        "run in ",
        "turn 1 of 10",
        "nothing was executed; 1 of 3",
        "all 3 criteria",
    ] {
        assert!(words.contains(expected), "{expected:?} is missing: {words}");
    }
    let file = done["evidence_file"].as_str().unwrap();
    let runs = stage.home.state_home().join("codex-mcp/runs");
    assert!(file.starts_with(runs.to_str().unwrap()), "{file}");
    assert_eq!(fs::read_to_string(file).unwrap().lines().count(), 2);
    let audit = stage
        .home
        .atm_home()
        .join(".config/atm/codex-sessions/arch/audit.jsonl");
    let audit = fs::read_to_string(audit).unwrap();
    let first: Value = audit.lines().next().unwrap().parse().unwrap();
    assert_eq!(
        (&first["event"], &first["summary"]),
        (&json!("codex_run"), &json!("make it"))
    );
    finish(&stage, client).await;
}

async fn cancelled_run_reports_its_partial_work(release: &str) {
    let stage = stage(release, hanging_model()).await;
    let mut client = stage.client(&[]).await;
    stage.codex_is_ready(&mut client).await;
    let arguments =
        json!({ "task": "make both", "exit_criteria": { "files": ["half.txt", "whole.txt"] } });
    let job = start_run(&mut client, arguments).await;
    wait_for_file(&stage.file("started.txt")).await;
    let cancelled = call_ok(&mut client, "call_cancel", json!({ "job_id": job })).await;
    assert_eq!(cancelled["new_status"], "cancelled", "{cancelled:#}");
    let left = format!("{:?}", stage.home.processes());
    assert!(!left.contains("sleep"), "{left}");
    // The one guard is that of the server's own app-server.
    assert!(left.matches("guard").count() <= 1, "{left}");

    let status = wait_for_job(&mut client, &job).await;
    assert_eq!(status["status"], "cancelled");
    let result = &status["result"];
    assert_eq!(
        (&result["ok"], &result["reason"]),
        (&json!(false), &json!("cancelled"))
    );
    let partial = result["partial"].to_string();
    assert!(partial.contains("half.txt"), "{result:#}");
    assert!(
        result["missing"].to_string().contains("whole.txt"),
        "{result:#}"
    );
    assert_eq!(result["thread_id"], status["session_id"]);
    finish(&stage, client).await;
}

/// Runs work the same with Codex's own MCP server as the backend.
#[tokio::test]
async fn run_tool_works_on_the_proxy() {
    let stage = stage("0.153.4", promising_model()).await;
    let mut client = stage.client(&["--backend", "mcp-server"]).await;
    let arguments = json!({ "task": "make it", "repo": stage.home.work(),
        "exit_criteria": { "commits": 1 }, "task_name": "a name" });
    let done = call_ok(&mut client, "codex_run", arguments).await;
    assert_eq!(done["ok"], true, "{done:#}");
    assert_eq!(
        wait_for_job(&mut client, &done["job_id"]).await["task_name"],
        "a name"
    );
    let refused = client.call_tool("codex_run", json!({ "task": "" })).await;
    assert_error(&refused, "INVALID_ARGUMENT");
    finish(&stage, client).await;
}

/// A waiting call gets progress of the turns.
#[tokio::test]
async fn waiting_caller_gets_progress() {
    let waits = "until [ -e go.txt ]; do sleep 0.05; done";
    let script = Script::new().otherwise([Reply::shell(waits), Reply::say("Done.")]);
    let stage = newest(script).await;
    let mut client = stage.client(&[]).await;
    let call = json!({ "name": "codex_run", "arguments": { "task": "wait" },
        "_meta": { "progressToken": "mine" } });
    let id = client.request("tools/call", call);
    loop {
        let told = client.notification("notifications/progress").await;
        let told = &told["params"];
        assert_eq!(told["progressToken"], "mine");
        if told["message"].as_str().unwrap().contains("go.txt") {
            break;
        }
    }
    fs::write(stage.file("go.txt"), "").unwrap();
    client.ignore("notifications/progress");
    let done = client.result(&id).await;
    assert_eq!(structured(&done)["ok"], true, "{done:#}");
    finish(&stage, client).await;
}

/// The client is killed at once; a person at a shell sees the run, resumes it, and retries it.
#[tokio::test]
async fn run_outlives_its_client_and_is_shown_at_a_shell() {
    let go_on = [Reply::say("Went on.")];
    let script = promising_model_after(Script::new().on("go on", go_on));
    let stage = newest(script).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({ "task": "make it", "exit_criteria": { "commits": 1 } });
    let job = start_run(&mut client, arguments).await;
    let id = job.as_str().unwrap();
    client.signal(Signal::SIGKILL);
    client.exited().await;

    assert_eq!(stage.jobs(&["wait", id]).await, "Done.\n");
    let page = stage.jobs(&["show", id]).await;
    for words in [
        "State     completed",
        "Result\n  done after 2 turns",
        "commit ",
        "Wanted\n  commits=1",
        "10 turns",
    ] {
        assert!(page.contains(words), "{words:?} is missing: {page}");
    }
    let log = stage.jobs(&["logs", id]).await;
    for words in [
        "turn 2 of 10: the last turn executed nothing",
        "1 step executed; all 1",
    ] {
        assert!(log.contains(words), "{words:?} is missing: {log}");
    }
    assert_eq!(
        stage.jobs(&["resume", id, "--wait", "go on"]).await,
        "Went on.\n"
    );
    let asked = stage.model.requests().pop().unwrap();
    assert!(asked.assistant_messages().contains(&"I will make it."));

    // Without this commit, the same file would be no change for the retry.
    fs::remove_file(stage.file("made.txt")).unwrap();
    stage.home.git(&["commit", "-qam", "Remove it"]);
    let again = stage.jobs(&["retry", id, "--wait", "--json"]).await;
    let again: Value = again.parse().unwrap();
    assert_eq!(again["result"]["ok"], true, "{again:#}");
    assert_ne!(again["job_id"], job);
    let listed = stage.jobs(&["list", "--tool", "codex_run"]).await;
    assert!(listed.ends_with("\n2 of 2\n"), "{listed}");
    stage.until_processes_end().await;
}

/// A script that is piped into a server behaves so.
#[tokio::test]
async fn client_that_leaves_before_the_answer_gets_the_job() {
    for backend in ["app-server", "mcp-server"] {
        let stage = stage("0.153.4", promising_model()).await;
        let mut client = stage.client(&["--backend", backend]).await;
        let arguments = json!({ "task": "make it", "exit_criteria": { "commits": 1 } });
        let id = client.request_tool("codex_run", arguments);
        client.close_stdin();
        let begun = structured(&client.result(&id).await).clone();
        assert_eq!(begun["status"], "running", "{begun:#}");
        assert!(client.exited().await.success());
        let mut other = stage.client(&["--backend", backend]).await;
        let status = wait_for_job(&mut other, &begun["job_id"]).await;
        assert_eq!(status["result"]["ok"], true, "{status:#}");
        finish(&stage, other).await;
    }
}

fn promising_model_after(script: Script) -> Script {
    script
        .on("words only", [Reply::shell(COMMIT), Reply::say("Done.")])
        .otherwise([Reply::say("I will make it.")])
}

#[tokio::test]
async fn missed_criteria_are_no_error_of_the_call() {
    let script = Script::new().otherwise([Reply::say("It is done already.")]);
    let stage = newest(script).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({ "task": "make it", "max_turns": 2, "exit_criteria": { "files": "*.tex" },
        "notify": ["command:tee told.json"] });
    let done = call_ok(&mut client, "codex_run", arguments).await;
    assert_eq!(
        (&done["ok"], &done["status"]),
        (&json!(false), &json!("failed")),
        "{done:#}"
    );
    assert_eq!(done["reason"], "max_turns_exceeded");
    assert_eq!((&done["turns"], &done["partial"]), (&json!(2), &json!([])));
    assert!(done["missing"][0].as_str().unwrap().contains("*.tex"));
    assert_eq!(done["notified"], json!([{ "to": "command:tee told.json" }]));
    let heard: Value = fs::read_to_string(stage.file("told.json"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(heard["turns"], 2);
    let status = wait_for_job(&mut client, &done["job_id"]).await;
    let error = status["error"].as_str().unwrap();
    assert!(
        error.starts_with("not satisfied: ") && error.contains("*.tex"),
        "{error}"
    );
    assert_eq!(status["metadata"]["failure"]["class"], "not_satisfied");
    finish(&stage, client).await;
}

#[tokio::test]
async fn read_only_run_that_needs_a_change_is_refused_before_it_is_a_job() {
    let stage = newest(promising_model()).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({ "task": "make it", "sandbox": "read-only",
        "exit_criteria": { "commits": 1 } });
    let refused = client.call_tool("codex_run", arguments).await;
    assert_error(&refused, "COULD_NOT_RUN");
    let result = structured(&refused);
    let why = result["error"]["message"].as_str().unwrap();
    assert!(why.contains("`sandbox: \"workspace-write\"`"), "{why}");
    assert_eq!(result["job_id"], Value::Null, "{result:#}");
    finish(&stage, client).await;
}

#[tokio::test]
async fn run_that_could_not_begin_is_an_error_of_the_call() {
    let stage = newest(promising_model()).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({ "task": "make it", "exit_criteria": { "pushed": true } });
    let refused = client.call_tool("codex_run", arguments).await;
    assert_eq!(refused["isError"], true, "{refused:#}");
    let result = structured(&refused);
    assert_eq!(
        (&result["ok"], &result["reason"]),
        (&json!(false), &json!("could_not_run"))
    );
    let why = result["why"].as_str().unwrap();
    assert!(why.contains("git remote add"), "{why}");
    assert!(result["job_id"].is_string());
    assert_error(&refused, "COULD_NOT_RUN");
    let error = &result["error"];
    assert_eq!(error["message"], result["why"], "{result:#}");
    assert_eq!(error["retryable"], false);
    assert_eq!(result["isError"], true);
    finish(&stage, client).await;
}

/// The job fails, and the call is no error: a turn was run.
#[tokio::test]
async fn run_that_turns_out_to_need_a_change_names_the_parameter_of_the_sandbox() {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("I can't.")]);
    let stage = newest(script).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({ "task": "make it", "sandbox": "read-only",
        "exit_criteria": { "command": "test -e made.txt" } });
    let done = call_ok(&mut client, "codex_run", arguments).await;
    let ended = (&done["reason"], &done["turns"]);
    assert_eq!(ended, (&json!("read_only"), &json!(1)), "{done:#}");
    let why = done["why"].as_str().unwrap();
    assert!(why.contains("`sandbox: \"workspace-write\"`"), "{why}");
    let status = wait_for_job(&mut client, &done["job_id"]).await;
    assert_eq!(status["metadata"]["failure"]["class"], "not_satisfied");
    finish(&stage, client).await;
}

#[tokio::test]
async fn thread_of_a_run_is_resolved_by_id_prefix_or_refused() {
    let stage = newest(promising_model()).await;
    let mut client = stage.client(&[]).await;
    for unknown in ["01234567-89ab-7def-8123-456789abcdef", "01234567"] {
        let arguments = json!({ "task": "x", "thread_id": unknown });
        let refused = client.call_tool("codex_run", arguments).await;
        assert_error(&refused, "THREAD_NOT_FOUND");
    }
    assert_eq!(
        call_ok(&mut client, "call_jobs", json!({})).await["total"],
        0
    );
    let begin = json!({ "task": "make it", "exit_criteria": { "commits": 1 } });
    let first = call_ok(&mut client, "codex_run", begin).await;
    assert_eq!(first["ok"], true, "{first:#}");
    let thread = first["thread_id"].as_str().unwrap();
    let again = json!({ "task": "look", "thread_id": thread[..13], "max_turns": 1 });
    let second = call_ok(&mut client, "codex_run", again).await;
    assert_eq!(second["thread_id"], thread, "{second:#}");
    finish(&stage, client).await;
}

#[tokio::test]
async fn invalid_arguments_of_a_run_are_refused_with_advice() {
    let stage = newest(promising_model()).await;
    let mut client = stage.client(&[]).await;
    for (arguments, why) in [
        (json!({}), "missing field `task`"),
        (json!({ "task": " " }), "the task is empty"),
        (
            json!({ "task": "x", "repo": "/not/there" }),
            "there is no directory /not/there",
        ),
        (json!({ "task": "x", "repo": "" }), "repo must not be empty"),
        (
            json!({ "task": "x", "max_turns": 0 }),
            "from 1 to 100 turns",
        ),
        (
            json!({ "task": "x", "max_turns": 1e10 }),
            "from 1 to 100 turns",
        ),
        (
            json!({ "task": "x", "total_timeout_ms": 0 }),
            "total_timeout_ms: a run takes more than 0 s and at most 24 h",
        ),
        (
            json!({ "task": "x", "exit_criteria": { "commits": "many" } }),
            "commits=2@main",
        ),
        (
            json!({ "task": "x", "exit_criteria": { "tests": true } }),
            "unknown parameter `tests` in `exit_criteria`",
        ),
        (json!({ "task": "x", "approve": "ask" }), "`never`"),
        (json!({ "task": "x", "notify": ["pigeon:x"] }), "notify[0]"),
        (json!({ "task": "x", "thread_id": "last" }), "thread_id"),
        (
            json!({ "task": "x", "retry": 11 }),
            "retry must be at most 10",
        ),
        (
            json!({ "task": "x", "task_name": "a\nb" }),
            "task_name must have",
        ),
        (json!({ "task": "x", "wait_ms": -1 }), "wait_ms"),
    ] {
        let refused = client.call_tool("codex_run", arguments.clone()).await;
        assert_error(&refused, "INVALID_ARGUMENT");
        let message = text(&refused, 0);
        assert!(message.contains(why), "{message}");
    }
    assert_eq!(
        call_ok(&mut client, "call_jobs", json!({})).await["total"],
        0
    );
    finish(&stage, client).await;
}

#[tokio::test]
async fn run_in_a_worktree_leaves_the_directory_unchanged() {
    let stage = newest(promising_model()).await;
    let mut client = stage.client(&[]).await;
    let arguments =
        json!({ "task": "make it", "worktree": true, "exit_criteria": { "commits": 1 } });
    let done = call_ok(&mut client, "codex_run", arguments).await;
    assert_eq!(done["ok"], true, "{done:#}");
    let path = done["worktree"]["path"].as_str().unwrap();
    let home = stage.home.state_home().join("codex-mcp/worktrees");
    assert!(path.starts_with(home.to_str().unwrap()), "{path}");
    assert!(fs::exists(format!("{path}/made.txt")).unwrap());
    assert!(!stage.file("made.txt").exists());
    finish(&stage, client).await;
}

/// A worker of the test's own, which it can kill.
fn worker(stage: &CodexFixture) -> Worker {
    let store = stage.home.state_home().join("codex-mcp/jobs.db");
    let codex = testkit::codex::native_binary(&stage.release);
    Worker::start(&stage.home, store.to_str().unwrap(), &codex, &SHORT_LEASE)
}

#[tokio::test]
async fn run_whose_worker_is_killed_fails_and_names_its_thread() {
    let stage = newest(hanging_model()).await;
    let first = worker(&stage);
    first.says("takes jobs from").await;
    let mut client = stage.client(&[]).await;
    let job = start_run(&mut client, json!({ "task": "make it" })).await;
    wait_for_file(&stage.file("started.txt")).await;
    first.signal(Signal::SIGKILL);
    first.ended().await;
    let second = worker(&stage);
    let status = wait_for_job(&mut client, &job).await;
    assert_eq!(
        (&status["status"], &status["error"]),
        (&json!("failed"), &json!("worker lost"))
    );
    let result = &status["result"];
    assert_eq!(
        (&result["ok"], &result["reason"]),
        (&json!(false), &json!("worker_lost"))
    );
    assert!(result["thread_id"].is_string(), "{status:#}");
    second.finish().await;
    finish(&stage, client).await;
}

#[tokio::test]
async fn retryable_run_whose_worker_is_killed_continues_in_its_thread() {
    let work = format!(
        "if [ -e started.txt ]; then rm started.txt; {COMMIT}; else touch started.txt; sleep 1000; fi"
    );
    let script = Script::new().otherwise([Reply::shell(work), Reply::say("Done.")]);
    let stage = newest(script).await;
    let first = worker(&stage);
    first.says("takes jobs from").await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({ "task": "make it", "retry": 1, "exit_criteria": { "commits": 1 } });
    let job = start_run(&mut client, arguments).await;
    wait_for_file(&stage.file("started.txt")).await;
    let thread = call_ok(&mut client, "call_status", json!({ "job_id": job })).await;
    first.signal(Signal::SIGKILL);
    first.ended().await;
    let second = worker(&stage);
    let status = wait_for_job(&mut client, &job).await;
    assert_eq!(status["result"]["ok"], true, "{status:#}");
    assert_eq!(status["attempts"], 2);
    assert_eq!(status["session_id"], thread["session_id"]);
    let warnings = status["result"]["warnings"].to_string();
    assert!(warnings.contains("began again after"), "{warnings}");
    let asked = stage.model.requests().pop().unwrap();
    let prompts = asked.user_messages().into_iter();
    assert_eq!(
        prompts.filter(|prompt| prompt.contains("make it")).count(),
        2
    );
    second.finish().await;
    finish(&stage, client).await;
}

/// The worker gets SIGTERM and has no grace time for the run.
#[tokio::test]
async fn stopped_worker_leaves_no_processes_of_a_run() {
    let stage = newest(hanging_model()).await;
    let store = stage.home.state_home().join("codex-mcp/jobs.db");
    let codex = testkit::codex::native_binary(&stage.release);
    let args = ["--grace", "1ms"];
    let worker = Worker::start(&stage.home, store.to_str().unwrap(), &codex, &args);
    worker.says("takes jobs from").await;
    let mut client = stage.client(&[]).await;
    let job = start_run(&mut client, json!({ "task": "make it" })).await;
    wait_for_file(&stage.file("started.txt")).await;
    worker.finish().await;
    let left = format!("{:?}", stage.home.processes());
    assert!(!left.contains("sleep"), "{left}");
    let status = wait_for_job(&mut client, &job).await;
    assert_eq!(status["error"], "worker stopped", "{status:#}");
    assert_eq!(status["result"]["reason"], "worker_lost");
    assert!(status["session_id"].is_string());
    finish(&stage, client).await;
}
