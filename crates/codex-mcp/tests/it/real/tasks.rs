//! MCP Tasks: calls whose results are fetched later, also from another server.

mod outages;
mod subscriptions;
mod turns;

use std::time::Duration;

use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::wait::within;
use testkit::{McpClient, Signal};
use tokio::time::sleep;

use super::{CodexFixture, on_oldest_and_newest, structured};

on_oldest_and_newest!(
    task_of_a_job_outlives_client_and_server,
    question_of_a_task_is_answered_over_a_new_server,
    question_of_a_task_stays_open_for_an_hour,
    yes_out_of_bounds_declines_the_question_of_a_task,
    cancelled_task_ends_its_commands,
    task_of_a_run_has_the_result_of_the_run,
    status_message_of_a_run_names_step_and_turn,
    failed_job_completes_its_task_with_an_error,
);

pub(super) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The limit of each wait.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The capabilities of a client that declares these extensions.
fn capabilities(extensions: Value) -> Value {
    json!({ "elicitation": { "form": {} }, "extensions": extensions })
}

/// A client of MCP 2026-07-28 whose requests declare these extensions.
pub(super) fn client_of(stage: &CodexFixture, args: &[&str], extensions: Value) -> McpClient {
    let launch = stage.launch(args);
    let mut client = McpClient::start(&launch);
    client.set_time_limit(TIME_LIMIT);
    client.describe_each_request("2026-07-28", capabilities(extensions));
    client
}

fn with_tasks(stage: &CodexFixture) -> McpClient {
    client_of(stage, &[], json!({ EXTENSION: {} }))
}

/// A stage whose idle worker leaves soon.
pub(super) async fn stage(release: &str, script: Script) -> CodexFixture {
    let stage = CodexFixture::new(release, script).await;
    stage.configure("worker_idle_secs = 1");
    stage
}

/// Begins a task by a call; returns its ID.
pub(super) async fn begin(client: &mut McpClient, tool: &str, arguments: Value) -> String {
    let created = client.call_tool(tool, arguments).await;
    assert_eq!(created["resultType"], "task", "{created:#}");
    assert_eq!(created["status"], "working", "{created:#}");
    assert_eq!(created["ttlMs"], Value::Null, "{created:#}");
    let id = created["taskId"].as_str().unwrap();
    assert!((1..=128).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_graphic()));
    id.to_owned()
}

async fn get(client: &mut McpClient, task: &str) -> Value {
    let state = client.call("tasks/get", json!({ "taskId": task })).await;
    assert_eq!(state["resultType"], "complete", "{state:#}");
    assert_eq!(state["taskId"], task, "{state:#}");
    state
}

/// Polls a task until it has this status.
pub(super) async fn until(client: &mut McpClient, task: &str, status: &str) -> Value {
    let polling = async {
        loop {
            let state = get(client, task).await;
            if state["status"] == status {
                return state;
            }
            let ended = ["completed", "cancelled", "failed"];
            let state_now = state["status"].as_str().unwrap();
            assert!(!ended.contains(&state_now), "{state:#}");
            sleep(Duration::from_millis(50)).await;
        }
    };
    within("the status of the task", polling).await
}

/// Ends a client and its server at once. The worker stays.
async fn kill(mut client: McpClient) {
    client.signal(Signal::SIGKILL);
    client.exited().await;
}

pub(super) fn job_in(stage: &CodexFixture, prompt: &str, more: Value) -> Value {
    let mut arguments = json!({ "prompt": prompt, "cwd": stage.home.work() });
    let more = more.as_object().unwrap().clone();
    arguments.as_object_mut().unwrap().extend(more);
    arguments
}

async fn task_of_a_job_outlives_client_and_server(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("hello").behind(&gate)]);
    let stage = stage(release, script).await;
    let mut first = with_tasks(&stage);
    let discovered = first.call("server/discover", json!({})).await;
    let announced = &discovered["capabilities"]["extensions"][EXTENSION];
    assert_eq!(*announced, json!({}), "{discovered:#}");
    let task = begin(&mut first, "call_codex", job_in(&stage, "work", json!({}))).await;
    gate.reached(1).await;
    assert_eq!(get(&mut first, &task).await["status"], "working");
    kill(first).await;

    let mut second = with_tasks(&stage);
    let state = get(&mut second, &task).await;
    assert_eq!(state["status"], "working", "{state:#}");
    assert!(!state["statusMessage"].as_str().unwrap().is_empty());
    gate.release();
    let state = until(&mut second, &task, "completed").await;
    let result = &state["result"];
    assert_eq!(result["isError"], false, "{state:#}");
    assert_eq!(result["resultType"], "complete", "{state:#}");
    assert_eq!(structured(result)["response"], "hello", "{state:#}");
    assert!(structured(result)["job_id"].is_string(), "{state:#}");
    assert_eq!(get(&mut second, &task).await["result"], *result);
    assert_eq!(stage.model.request_count(), 1);
    stage.finish_with_worker(second).await;
}

/// Starts a task whose command needs an approval.
async fn task_that_asks(release: &str) -> (CodexFixture, McpClient, String) {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("Done.")]);
    let stage = stage(release, script).await;
    let mut client = with_tasks(&stage);
    let asking = json!({ "approval": "ask", "sandbox": "read-only" });
    let task = begin(&mut client, "call_codex", job_in(&stage, "ask", asking)).await;
    (stage, client, task)
}

/// The question has the same key over the new server, and an answer counts once.
async fn question_of_a_task_is_answered_over_a_new_server(release: &str) {
    let (stage, mut first, task) = task_that_asks(release).await;
    let state = until(&mut first, &task, "input_required").await;
    let [(key, request)] = questions(&state).try_into().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    let params = &request["params"];
    assert_eq!(params["mode"], "form");
    let message = params["message"].as_str().unwrap();
    assert!(message.contains("touch made.txt"), "{message}");
    let field = &params["requestedSchema"]["properties"]["decision"];
    assert_eq!(field["default"], "accept", "{state:#}");
    let choices = field["oneOf"].as_array().unwrap().iter();
    assert!(choices.clone().any(|choice| choice["const"] == "decline"));
    kill(first).await;

    let mut second = with_tasks(&stage);
    let state = until(&mut second, &task, "input_required").await;
    assert_eq!(questions(&state), [(key.clone(), request)]);
    let answer = async |client: &mut McpClient, answer: Value| {
        let params = json!({ "taskId": task, "inputResponses": { &key: answer } });
        client.call("tasks/update", params).await
    };
    answer(&mut second, json!({ "action": "cancel" })).await;
    assert_eq!(get(&mut second, &task).await["status"], "input_required");
    let accept = json!({ "action": "accept", "content": { "decision": "accept" } });
    answer(&mut second, accept.clone()).await;
    let state = until(&mut second, &task, "completed").await;
    assert_eq!(structured(&state["result"])["response"], "Done.");
    assert!(stage.file("made.txt").exists());
    // A late answer changes nothing.
    answer(&mut second, accept).await;
    stage.finish_with_worker(second).await;
}

/// The client does not notice the end of the question while it shows the dialog.
async fn question_of_a_task_stays_open_for_an_hour(release: &str) {
    let (stage, mut client, task) = task_that_asks(release).await;
    until(&mut client, &task, "input_required").await;
    let listed = client.call_tool("call_jobs", json!({})).await;
    let job = structured(&listed)["jobs"][0]["job_id"].clone();
    let asking = client.call_tool("call_status", json!({ "job_id": job }));
    let asking = structured(&asking.await)["questions"][0].clone();
    let at = |name: &str| humantime::parse_rfc3339(asking[name].as_str().unwrap()).unwrap();
    let open = at("expires_at").duration_since(at("asked_at")).unwrap();
    // The two are not read from the clock at the same moment.
    assert!(open > Duration::from_secs(59 * 60), "{asking:#}");
    client.call("tasks/cancel", json!({ "taskId": task })).await;
    until(&mut client, &task, "cancelled").await;
    stage.finish_with_worker(client).await;
}

/// A client with bounds answers the question of a job that another one has begun without them.
async fn yes_out_of_bounds_declines_the_question_of_a_task(release: &str) {
    let (stage, mut first, task) = task_that_asks(release).await;
    let state = until(&mut first, &task, "input_required").await;
    let [(key, _)] = questions(&state).try_into().unwrap();
    kill(first).await;

    let bound = ["--max-sandbox", "workspace-write"];
    let mut second = client_of(&stage, &bound, json!({ EXTENSION: {} }));
    let accept = json!({ "action": "accept", "content": { "decision": "accept" } });
    let params = json!({ "taskId": task, "inputResponses": { key: accept } });
    second.call("tasks/update", params).await;
    let state = until(&mut second, &task, "completed").await;
    assert_eq!(structured(&state["result"])["response"], "Done.");
    assert!(!stage.file("made.txt").exists());
    stage.finish_with_worker(second).await;
}

/// The open questions of a task, with their keys.
fn questions(state: &Value) -> Vec<(String, Value)> {
    let requests = state["inputRequests"].as_object().unwrap().clone();
    requests.into_iter().collect()
}

/// Polls a task until its status message contains a text; returns the message.
async fn status_message_with(client: &mut McpClient, task: &str, text: &str) -> String {
    let polling = async {
        loop {
            let state = get(client, task).await;
            let words = state["statusMessage"].as_str().unwrap();
            if words.contains(text) {
                return words.to_owned();
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    within("the text in the status message", polling).await
}

async fn cancelled_task_ends_its_commands(release: &str) {
    let script =
        Script::new().otherwise([Reply::shell("touch begun; sleep 1000"), Reply::say("never")]);
    let stage = stage(release, script).await;
    let mut client = with_tasks(&stage);
    cancel_during_a_command(&mut client, &stage, "call_codex").await;
    stage.finish_with_worker(client).await;
}

/// Begins a task by a call of this tool, and cancels it while its command runs.
async fn cancel_during_a_command(client: &mut McpClient, stage: &CodexFixture, tool: &str) {
    let free = json!({ "sandbox": "danger-full-access" });
    let task = begin(client, tool, job_in(stage, "work", free)).await;
    crate::jobs::wait_for("the command", async || {
        stage.file("begun").exists().then_some(())
    })
    .await;
    status_message_with(client, &task, "sleep 1000").await;
    let ended = client.call("tasks/cancel", json!({ "taskId": task })).await;
    assert_eq!(ended["resultType"], "complete", "{ended:#}");
    until(client, &task, "cancelled").await;
}

async fn task_of_a_run_has_the_result_of_the_run(release: &str) {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("Made.")]);
    let stage = stage(release, script).await;
    let mut client = with_tasks(&stage);
    let arguments = json!({ "task": "make it", "repo": stage.home.work(), "wait_ms": 1,
        "sandbox": "danger-full-access", "exit_criteria": { "files": ["made.txt"] } });
    let task = begin(&mut client, "codex_run", arguments).await;
    let state = until(&mut client, &task, "completed").await;
    let result = &state["result"];
    assert_eq!(structured(result)["ok"], true, "{state:#}");
    assert_eq!(structured(result)["turns"], 1, "{state:#}");
    stage.finish_with_worker(client).await;
}

async fn status_message_of_a_run_names_step_and_turn(release: &str) {
    let script = Script::new()
        .on(
            "words only",
            [Reply::shell("sleep 1000"), Reply::say("never")],
        )
        .otherwise([Reply::say("I will make it.")]);
    let stage = stage(release, script).await;
    let mut client = with_tasks(&stage);
    let arguments = json!({ "task": "make it", "repo": stage.home.work(),
        "sandbox": "danger-full-access", "exit_criteria": { "files": ["made.txt"] } });
    let task = begin(&mut client, "codex_run", arguments).await;
    let words = status_message_with(&mut client, &task, "sleep 1000").await;
    assert!(words.ends_with(", turn 2 of 10"), "{words}");
    client.call("tasks/cancel", json!({ "taskId": task })).await;
    until(&mut client, &task, "cancelled").await;
    stage.finish_with_worker(client).await;
}

async fn failed_job_completes_its_task_with_an_error(release: &str) {
    let script = Script::new().otherwise([Reply::error("invalid_prompt", "bad prompt")]);
    let stage = stage(release, script).await;
    let mut client = with_tasks(&stage);
    let task = begin(&mut client, "call_codex", job_in(&stage, "work", json!({}))).await;
    let state = until(&mut client, &task, "completed").await;
    assert_eq!(state["result"]["isError"], true, "{state:#}");
    let error = structured(&state["result"])["error"].as_str().unwrap();
    assert!(error.contains("bad prompt"), "{state:#}");
    stage.finish_with_worker(client).await;
}

#[tokio::test]
async fn task_of_a_job_is_created_when_its_job_is() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = stage(testkit::codex::newest(), script).await;
    let mut client = with_tasks(&stage);
    let arguments = job_in(&stage, "work", json!({}));
    let created = client.call_tool("call_codex", arguments).await;
    let task = created["taskId"].as_str().unwrap();
    let state = until(&mut client, task, "completed").await;
    assert_eq!(state["createdAt"], created["createdAt"], "{created:#}");
    stage.finish_with_worker(client).await;
}

/// Who does not declare tasks gets what there was before them.
#[tokio::test]
async fn caller_without_tasks_gets_a_plain_answer() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = stage(testkit::codex::newest(), script).await;
    let mut plain = client_of(&stage, &[], json!({}));
    let queued = plain.call_tool("call_codex", job_in(&stage, "work", json!({})));
    let queued = queued.await;
    assert_eq!(structured(&queued)["status"], "queued", "{queued:#}");
    let job = structured(&queued)["job_id"].clone();
    let asked = plain.request("tasks/get", json!({ "taskId": "x" }));
    assert_eq!(plain.error(&asked).await["code"], -32021);
    assert!(plain.finish().await.success());

    // The ID of a job is no task, nor is one with another signature.
    let mut with = with_tasks(&stage);
    let job = job.as_str().unwrap();
    for id in [
        job.to_owned(),
        format!("{job}.{}", "A".repeat(43)),
        String::new(),
    ] {
        for method in ["tasks/get", "tasks/cancel"] {
            let asked = with.request(method, json!({ "taskId": id }));
            assert_eq!(with.error(&asked).await["code"], -32602, "{method} {id}");
        }
        let update = json!({ "taskId": id, "inputResponses": {} });
        let asked = with.request("tasks/update", update);
        assert_eq!(with.error(&asked).await["code"], -32602, "{id}");
    }
    stage.finish_with_worker(with).await;
}
