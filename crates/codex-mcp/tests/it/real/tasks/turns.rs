//! Tasks of the calls that wait for a turn, in a host: `codex`, `codex-reply` and `codex_review`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::McpClient;
use testkit::process::Process;

use super::{CodexFixture, EXTENSION, TIME_LIMIT, begin, cancel_during_a_command, capabilities};
use super::{get, kill, questions, until};
use crate::jobs::wait_for;
use crate::on_oldest_and_newest;
use crate::real::{assert_completed, assert_error, structured, text, thread_of};

on_oldest_and_newest!(
    task_of_codex_has_the_result_of_the_plain_call,
    task_of_a_failed_turn_has_the_error_of_the_plain_call,
    question_of_a_codex_task_is_answered_over_a_new_server,
    settings_of_a_codex_task_reach_the_model,
    reply_task_continues_a_thread_that_the_server_holds,
    reply_task_continues_the_thread_of_a_codex_task,
    reply_task_is_refused_while_a_turn_runs,
    second_reply_task_of_a_thread_fails_while_the_first_runs,
    reply_task_leaves_commands_running,
    task_without_a_sandbox_has_that_of_the_plain_call,
    task_of_a_review_has_the_result_of_the_plain_call,
    calls_out_of_bounds_are_refused_as_without_tasks,
    cancelled_task_ends_its_commands,
);

/// A client of a host, see [`super::client_of`].
fn client_of(stage: &CodexFixture, args: &[&str], extensions: Value) -> McpClient {
    super::client_of(stage, &[&["--host"], args].concat(), extensions)
}

pub(super) fn with_tasks(stage: &CodexFixture) -> McpClient {
    client_of(stage, &[], json!({ EXTENSION: {} }))
}

pub(super) async fn finish(stage: CodexFixture, client: McpClient) {
    assert!(client.finish().await.success());
    stage.stop_hosts().await;
    assert_eq!(stage.home.processes(), []);
}

/// A client with a task whose turn waits for the model, which says "hello" when the gate is opened.
pub(super) async fn waiting_task(release: &str) -> (CodexFixture, McpClient, String, Gate) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("hello").behind(&gate)]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = with_tasks(&stage);
    let task = begin(&mut client, "codex", json!({ "prompt": "x" })).await;
    gate.reached(1).await;
    (stage, client, task, gate)
}

/// A model that waits at the gate if the prompt is "wait", and says "hello" to any other one.
fn model_that_waits(gate: &Gate) -> Script {
    Script::new()
        .on("wait", [Reply::say("waited").behind(gate)])
        .otherwise([Reply::say("hello")])
}

/// From here on, the client's requests declare tasks, or do not.
fn declare_tasks(client: &mut McpClient, declares: bool) {
    let extensions = match declares {
        true => json!({ EXTENSION: {} }),
        false => json!({}),
    };
    client.describe_each_request("2026-07-28", capabilities(extensions));
}

/// The result of a call that is answered by a task.
pub(super) async fn result_of_task(client: &mut McpClient, tool: &str, arguments: Value) -> Value {
    let task = begin(client, tool, arguments).await;
    until(client, &task, "completed").await["result"].clone()
}

/// A result without the IDs of its thread and session.
fn without_ids(result: &Value) -> Value {
    let mut words = result.to_string();
    for id in ["threadId", "sessionId"] {
        if let Some(id) = structured(result)[id].as_str() {
            assert!(!id.is_empty(), "{result:#}");
            words = words.replace(id, "ID");
        }
    }
    serde_json::from_str(&words).unwrap()
}

/// Checks that a plain call and a task of the same arguments have the same result, and returns it.
async fn same_result(client: &mut McpClient, tool: &str, arguments: Value) -> Value {
    declare_tasks(client, false);
    let plain = client.call_tool(tool, arguments.clone()).await;
    declare_tasks(client, true);
    let of_task = result_of_task(client, tool, arguments).await;
    assert_eq!(without_ids(&of_task), without_ids(&plain));
    let listed = client.call("tools/list", json!({})).await;
    let mut tools = listed["tools"].as_array().unwrap().iter();
    let schema = &tools.find(|listed| listed["name"] == tool).unwrap()["outputSchema"];
    testkit::schema::check(structured(&of_task), schema).unwrap();
    of_task
}

async fn task_of_codex_has_the_result_of_the_plain_call(release: &str) {
    let script = Script::new().otherwise([Reply::shell("echo hi"), Reply::say("hello")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = with_tasks(&stage);
    let arguments = json!({ "prompt": "work", "approval-policy": "never", "wait-ms": 60_000 });
    let result = same_result(&mut client, "codex", arguments).await;
    assert_completed(&result, "hello");
    assert_eq!(text(&result, 0), "hello");
    // A policy that Codex has given up is a warning to the caller, once for each server.
    let arguments = json!({ "prompt": "work", "approval-policy": "on-failure" });
    let warned = result_of_task(&mut client, "codex", arguments).await;
    assert!(structured(&warned)["warnings"][0].is_string(), "{warned:#}");
    finish(stage, client).await;
}

async fn task_of_a_failed_turn_has_the_error_of_the_plain_call(release: &str) {
    let wrong = || {
        let no = Reply::fail(400, "{\"error\":{\"message\":\"no\"}}");
        [Reply::shell(Shell::new("exit 3")), no]
    };
    let long = || [Reply::error("context_length_exceeded", "too long")];
    let script = Script::new().on("wrong", wrong()).on("long", long());
    let stage = CodexFixture::new(release, script).await;
    let mut client = with_tasks(&stage);
    for (prompt, code) in [("wrong", "TURN_FAILED"), ("long", "CONTEXT_WINDOW")] {
        let arguments = json!({ "prompt": prompt });
        let result = same_result(&mut client, "codex", arguments).await;
        assert_error(&result, code);
        assert!(!thread_of(&result).is_empty());
    }
    finish(stage, client).await;
}

async fn question_of_a_codex_task_is_answered_over_a_new_server(release: &str) {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("Done.")]);
    let stage = CodexFixture::new(release, script).await;
    let mut first = with_tasks(&stage);
    let arguments = json!({ "prompt": "ask", "sandbox": "read-only",
        "approval-policy": "on-request" });
    let task = begin(&mut first, "codex", arguments).await;
    let state = until(&mut first, &task, "input_required").await;
    let [(key, request)] = questions(&state).try_into().unwrap();
    let field = &request["params"]["requestedSchema"]["properties"]["decision"];
    assert_eq!(field["default"], "accept", "{state:#}");
    let choices = field["oneOf"].as_array().unwrap().iter();
    assert!(choices.clone().any(|choice| choice["const"] == "decline"));
    kill(first).await;

    let mut second = with_tasks(&stage);
    let state = until(&mut second, &task, "input_required").await;
    assert_eq!(questions(&state), [(key.clone(), request)]);
    let accept = json!({ "action": "accept", "content": { "decision": "accept" } });
    let params = json!({ "taskId": task, "inputResponses": { &key: accept } });
    second.call("tasks/update", params).await;
    let state = until(&mut second, &task, "completed").await;
    assert_completed(&state["result"], "Done.");
    assert!(stage.file("made.txt").exists());
    finish(stage, second).await;
}

async fn settings_of_a_codex_task_reach_the_model(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("ok")])).await;
    let mut client = with_tasks(&stage);
    let arguments = json!({
        "prompt": "hello",
        "base-instructions": "BASE-WORDS",
        "developer-instructions": "DEVELOPER-WORDS",
        "config": { "model": "another-model" },
    });
    let result = result_of_task(&mut client, "codex", arguments).await;
    assert_completed(&result, "ok");
    let request = stage.model.requests().pop().unwrap();
    assert_eq!(request.model(), "another-model");
    assert_eq!(request.prompt(), "hello");
    let body = request.body().to_string();
    assert!(body.contains("BASE-WORDS"), "{body}");
    let developer = request.developer_messages().join("\n");
    assert!(developer.contains("DEVELOPER-WORDS"), "{developer}");
    finish(stage, client).await;
}

/// A model that creates the file that the prompt names, and then says what it said before.
fn touching() -> Script {
    let touch = Reply::with(|request| Reply::shell(format!("touch {}", request.prompt())));
    let said = Reply::with(|request| {
        let messages = request.assistant_messages().len();
        Reply::say(format!("message {}", messages + 1))
    });
    Script::new().otherwise([touch, said])
}

/// Begins a thread in the directory `inner`, where its commands may write.
fn beginning(prompt: &str) -> Value {
    json!({ "prompt": prompt, "cwd": "inner", "sandbox": "workspace-write",
        "approval-policy": "never", "config": { "model": "another-model" } })
}

/// Checks the last turn: the number of its message, its model, and the file that it has created.
#[track_caller]
fn assert_turn(stage: &CodexFixture, result: &Value, number: usize, file: &Path) {
    assert_completed(result, &format!("message {number}"));
    assert_eq!(
        stage.model.requests().pop().unwrap().model(),
        "another-model"
    );
    assert!(file.exists(), "{}: {result:#}", file.display());
}

async fn reply_task_continues_a_thread_that_the_server_holds(release: &str) {
    let stage = CodexFixture::new(release, touching()).await;
    let inner = stage.file("inner");
    std::fs::create_dir(&inner).unwrap();
    let mut client = client_of(&stage, &[], json!({}));
    let begun = client.call_tool("codex", beginning("one")).await;
    assert_turn(&stage, &begun, 1, &inner.join("one"));
    let thread = thread_of(&begun);
    let reply = |prompt: &str| json!({ "prompt": prompt, "threadId": thread });

    declare_tasks(&mut client, true);
    for (prompt, number) in [("two", 2), ("three", 3)] {
        let result = result_of_task(&mut client, "codex-reply", reply(prompt)).await;
        assert_turn(&stage, &result, number, &inner.join(prompt));
        assert_eq!(thread_of(&result), thread);
    }
    declare_tasks(&mut client, false);
    let plain = client.call_tool("codex-reply", reply("four")).await;
    assert_turn(&stage, &plain, 4, &inner.join("four"));
    declare_tasks(&mut client, true);
    let result = result_of_task(&mut client, "codex-reply", reply("five")).await;
    assert_turn(&stage, &result, 5, &inner.join("five"));
    finish(stage, client).await;
}

async fn reply_task_continues_the_thread_of_a_codex_task(release: &str) {
    let stage = CodexFixture::new(release, touching()).await;
    let inner = stage.file("inner");
    std::fs::create_dir(&inner).unwrap();
    let mut first = with_tasks(&stage);
    let begun = result_of_task(&mut first, "codex", beginning("one")).await;
    assert_turn(&stage, &begun, 1, &inner.join("one"));
    let thread = thread_of(&begun);
    let reply = |prompt: &str| json!({ "prompt": prompt, "conversationId": thread });
    let result = result_of_task(&mut first, "codex-reply", reply("two")).await;
    assert_turn(&stage, &result, 2, &inner.join("two"));
    declare_tasks(&mut first, false);
    let plain = first.call_tool("codex-reply", reply("three")).await;
    assert_turn(&stage, &plain, 3, &inner.join("three"));
    kill(first).await;

    let mut second = with_tasks(&stage);
    let result = result_of_task(&mut second, "codex-reply", reply("four")).await;
    assert_turn(&stage, &result, 4, &inner.join("four"));
    assert_eq!(thread_of(&result), thread);
    finish(stage, second).await;
}

async fn reply_task_is_refused_while_a_turn_runs(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, model_that_waits(&gate)).await;
    let mut client = client_of(&stage, &[], json!({}));
    let begun = client
        .call_tool("codex", json!({ "prompt": "begin" }))
        .await;
    let thread = thread_of(&begun);
    let arguments = json!({ "prompt": "wait", "threadId": thread });
    let waiting = client.request_tool("codex-reply", arguments);
    gate.reached(1).await;

    let arguments = json!({ "prompt": "more", "threadId": thread });
    let plain = client.call_tool("codex-reply", arguments.clone()).await;
    assert_error(&plain, "SESSION_BUSY");
    declare_tasks(&mut client, true);
    let refused = result_of_task(&mut client, "codex-reply", arguments.clone()).await;
    assert_eq!(refused["structuredContent"], plain["structuredContent"]);
    gate.release();
    assert_completed(&client.result(&waiting).await, "waited");
    let result = result_of_task(&mut client, "codex-reply", arguments).await;
    assert_completed(&result, "hello");
    finish(stage, client).await;
}

async fn second_reply_task_of_a_thread_fails_while_the_first_runs(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, model_that_waits(&gate)).await;
    let mut client = with_tasks(&stage);
    let begun = result_of_task(&mut client, "codex", json!({ "prompt": "begin" })).await;
    let reply = |prompt: &str| json!({ "prompt": prompt, "threadId": thread_of(&begun) });
    let first = begin(&mut client, "codex-reply", reply("wait")).await;
    gate.reached(1).await;
    let second = result_of_task(&mut client, "codex-reply", reply("more")).await;
    assert_error(&second, "SESSION_BUSY");
    gate.release();
    let state = until(&mut client, &first, "completed").await;
    assert_completed(&state["result"], "waited");
    let third = result_of_task(&mut client, "codex-reply", reply("more")).await;
    assert_completed(&third, "hello");
    finish(stage, client).await;
}

async fn reply_task_leaves_commands_running(release: &str) {
    let sleep = Shell::new("exec sleep 1000").waiting(Duration::from_millis(250));
    let script = Script::new()
        .on("begin", [Reply::shell(sleep), Reply::say("left running")])
        .otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = with_tasks(&stage);
    declare_tasks(&mut client, false);
    let arguments = json!({ "prompt": "begin", "sandbox": "danger-full-access",
        "approval-policy": "never" });
    let begun = client.call_tool("codex", arguments).await;
    assert_completed(&begun, "left running");
    let runs = |process: &Process| process.command.contains("sleep 1000");
    let is_left = || stage.home.processes().iter().any(runs);
    assert!(is_left());
    declare_tasks(&mut client, true);
    let arguments = json!({ "prompt": "go on", "threadId": thread_of(&begun) });
    let result = result_of_task(&mut client, "codex-reply", arguments).await;
    assert_completed(&result, "hello");
    assert!(is_left());
    finish(stage, client).await;
}

/// A job of `call_codex` would have `workspace-write`.
async fn task_without_a_sandbox_has_that_of_the_plain_call(release: &str) {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("tried")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = with_tasks(&stage);
    let arguments = json!({ "prompt": "x", "approval-policy": "never" });
    same_result(&mut client, "codex", arguments).await;
    assert!(!stage.file("made.txt").exists());
    let arguments = json!({ "prompt": "x", "sandbox": "workspace-write" });
    result_of_task(&mut client, "codex", arguments).await;
    assert!(stage.file("made.txt").exists());
    finish(stage, client).await;
}

async fn task_of_a_review_has_the_result_of_the_plain_call(release: &str) {
    let review = json!({
        "findings": [{
            "title": "[P1] Check the length",
            "body": "It breaks.",
            "confidence_score": 0.9,
            "priority": 1,
            "code_location": {
                "absolute_file_path": "/home/you/new.txt",
                "line_range": { "start": 1, "end": 2 },
            },
        }],
        "overall_correctness": "patch is incorrect",
        "overall_explanation": "A fault.",
        "overall_confidence_score": 0.9,
    });
    let touch = Reply::shell("touch by-the-reviewer.txt");
    let script = Script::new().otherwise([touch, Reply::say(review.to_string())]);
    let stage = CodexFixture::new(release, script).await;
    std::fs::write(stage.file("new.txt"), "x").unwrap();
    let mut client = with_tasks(&stage);
    let result = same_result(&mut client, "codex_review", json!({})).await;
    let content = structured(&result)["content"].as_str().unwrap();
    assert!(content.contains("[P1] Check the length"), "{content}");
    assert!(!stage.file("by-the-reviewer.txt").exists());
    finish(stage, client).await;
}

async fn calls_out_of_bounds_are_refused_as_without_tasks(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("ok")])).await;
    let outside = tempfile::tempdir().unwrap();
    let work = stage.home.work();
    let bounds = ["--max-sandbox", "workspace-write", "--allow-dir"];
    let bounds: Vec<&str> = bounds.into_iter().chain(work.to_str()).collect();
    let mut client = client_of(&stage, &bounds, json!({}));
    let wrong = [
        (
            json!({ "prompt": "x", "sandbox": "danger-full-access" }),
            "OUT_OF_BOUNDS",
        ),
        (
            json!({ "prompt": "x", "cwd": outside.path() }),
            "OUT_OF_BOUNDS",
        ),
        (
            json!({ "prompt": "x", "config": { "notify": ["x"] } }),
            "OUT_OF_BOUNDS",
        ),
        (
            json!({ "prompt": "x", "profile": "none" }),
            "INVALID_ARGUMENT",
        ),
    ];
    for (arguments, code) in wrong {
        declare_tasks(&mut client, false);
        let plain = client.call_tool("codex", arguments.clone()).await;
        assert_error(&plain, code);
        declare_tasks(&mut client, true);
        assert_eq!(client.call_tool("codex", arguments).await, plain);
    }
    assert_eq!(stage.model.request_count(), 0);
    let nowhere = json!({ "prompt": "x", "cwd": "nowhere" });
    let result = result_of_task(&mut client, "codex", nowhere).await;
    assert_error(&result, "INVALID_ARGUMENT");
    let result = result_of_task(&mut client, "codex", json!({ "prompt": "x" })).await;
    assert_completed(&result, "ok");
    finish(stage, client).await;
}

/// Without a host, a caller that declares tasks gets a plain answer.
#[tokio::test]
async fn call_without_a_host_is_answered_plainly() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut client = McpClient::start(&stage.launch(&[]));
    declare_tasks(&mut client, true);
    let answered = client.call_tool("codex", json!({ "prompt": "x" })).await;
    assert_completed(&answered, "hello");
    stage.finish(client).await;
}

/// A caller that does not declare tasks is answered when the turn has ended.
#[tokio::test]
async fn caller_without_tasks_gets_the_turn() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut client = client_of(&stage, &[], json!({}));
    let begun = client.call_tool("codex", json!({ "prompt": "x" })).await;
    assert_completed(&begun, "hello");
    let arguments = json!({ "prompt": "y", "threadId": thread_of(&begun) });
    assert_completed(&client.call_tool("codex-reply", arguments).await, "hello");
    finish(stage, client).await;
}

/// A task is working until its turn has ended, and the turn continues without the client.
#[tokio::test]
async fn task_of_codex_outlives_its_server() {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("hello").behind(&gate)]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut first = with_tasks(&stage);
    let task = begin(&mut first, "codex", json!({ "prompt": "x", "tag": "mine" })).await;
    gate.reached(1).await;
    assert_eq!(get(&mut first, &task).await["status"], "working");
    kill(first).await;
    let mut second = with_tasks(&stage);
    assert_eq!(get(&mut second, &task).await["status"], "working");
    gate.release();
    let state = until(&mut second, &task, "completed").await;
    assert_completed(&state["result"], "hello");
    assert_eq!(stage.model.request_count(), 1);
    finish(stage, second).await;
}

async fn cancelled_task_ends_its_commands(release: &str) {
    let script =
        Script::new().otherwise([Reply::shell("touch begun; sleep 1000"), Reply::say("never")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = with_tasks(&stage);
    cancel_during_a_command(&mut client, &stage, "codex").await;
    let runs = |process: &Process| process.command.contains("sleep 1000");
    wait_for("the end of the command", async || {
        (!stage.home.processes().iter().any(runs)).then_some(())
    })
    .await;
    finish(stage, client).await;
}

/// Nobody knows of a task whose call was cancelled before it was answered.
#[tokio::test]
async fn call_cancelled_before_its_task_is_created_begins_no_turn() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut client = with_tasks(&stage);
    client.call("tools/list", json!({})).await;
    let mut too_late = 0;
    loop {
        let call = client.request_tool("codex", json!({ "prompt": "x" }));
        client.notify("notifications/cancelled", json!({ "requestId": call }));
        // If the cancellation comes too late, the call is answered before this.
        client.call("tools/list", json!({})).await;
        match client.response_so_far(&call) {
            Some(response) if response["result"]["resultType"] == "task" => too_late += 1,
            _ => {
                client.abandon(&call);
                break;
            }
        }
    }
    let directory = stage.home.state_home().join("codex-mcp/tasks");
    wait_for("the end of the tasks", async || {
        let files = std::fs::read_dir(&directory).ok()?;
        let texts = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
        let ended = texts.filter(|text| text.contains("\"ended\":{"));
        (ended.count() == too_late + 1).then_some(())
    })
    .await;
    assert_eq!(stage.model.request_count(), too_late);
    finish(stage, client).await;
}

/// A client of another host than the other clients: its environment differs.
pub(super) fn of_another_host(stage: &CodexFixture) -> McpClient {
    let launch = stage.launch(&["--host"]).env("ANOTHER", "environment");
    let mut client = McpClient::start(&launch);
    client.set_time_limit(TIME_LIMIT);
    declare_tasks(&mut client, true);
    client
}

#[tokio::test]
async fn task_is_found_through_another_host() {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new()
        .on("ask", [touch, Reply::say("Done.")])
        .otherwise([Reply::shell("sleep 1000"), Reply::say("never")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut first = with_tasks(&stage);
    let asking = json!({ "prompt": "ask", "sandbox": "read-only",
        "approval-policy": "on-request" });
    let task = begin(&mut first, "codex", asking).await;
    let asked = questions(&until(&mut first, &task, "input_required").await);
    let endless = begin(&mut first, "codex", json!({ "prompt": "wait" })).await;

    let mut second = of_another_host(&stage);
    assert_eq!(questions(&get(&mut second, &task).await), asked);
    let accept = json!({ "action": "accept", "content": { "decision": "accept" } });
    let params = json!({ "taskId": task, "inputResponses": { &asked[0].0: accept } });
    second.call("tasks/update", params).await;
    let state = until(&mut second, &task, "completed").await;
    assert_completed(&state["result"], "Done.");
    second
        .call("tasks/cancel", json!({ "taskId": endless }))
        .await;
    until(&mut second, &endless, "cancelled").await;
    assert!(first.finish().await.success());
    finish(stage, second).await;
}

/// The time limit of a call interrupts the turn of its task. The time of a person does not count.
#[tokio::test]
async fn task_has_the_time_limit_of_the_call() {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new()
        .on("ask", [touch, Reply::say("Done.")])
        .otherwise([Reply::shell("sleep 1000"), Reply::say("never")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let limit = ["--timeout", "5"];
    let mut client = client_of(&stage, &limit, json!({ EXTENSION: {} }));
    let asking = json!({ "prompt": "ask", "sandbox": "read-only",
        "approval-policy": "on-request" });
    let task = begin(&mut client, "codex", asking).await;
    let asked = questions(&until(&mut client, &task, "input_required").await);
    let late = result_of_task(&mut client, "codex", json!({ "prompt": "wait" })).await;
    assert_error(&late, "TIMEOUT");
    // By now, the question has been open for the time limit of the first call.
    assert_eq!(questions(&get(&mut client, &task).await), asked);
    let decline = json!({ "action": "decline" });
    let params = json!({ "taskId": task, "inputResponses": { &asked[0].0: decline } });
    client.call("tasks/update", params).await;
    let state = until(&mut client, &task, "completed").await;
    assert_completed(&state["result"], "Done.");
    assert!(!stage.file("made.txt").exists());
    finish(stage, client).await;
}

/// No file and no name tells the ID of a task, and nobody else may read what is stored.
#[tokio::test]
async fn ids_of_tasks_are_stored_nowhere() {
    let (stage, mut client, task, gate) = waiting_task(testkit::codex::newest()).await;
    let directory = stage.home.state_home().join("codex-mcp/tasks");
    let entries = || std::fs::read_dir(&directory).unwrap().map(Result::unwrap);
    for ended in [false, true] {
        if ended {
            gate.release();
            until(&mut client, &task, "completed").await;
        }
        assert_eq!(entries().count(), 1);
        for entry in entries() {
            assert!(!entry.file_name().to_str().unwrap().contains(&task));
            assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600);
            let text = std::fs::read_to_string(entry.path()).unwrap();
            assert!(!text.contains(&task), "{text}");
        }
    }
    let mode = std::fs::metadata(&directory).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
    for id in ["turn_", "../hosts/x", &format!("{task}0"), ""] {
        let asked = client.request("tasks/get", json!({ "taskId": id }));
        assert_eq!(client.error(&asked).await["code"], -32602, "{id}");
    }
    finish(stage, client).await;
}
