//! Notifications of the changes of tasks, threads and jobs, to a client that subscribes to them.

use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::McpClient;

use super::{
    CodexFixture, EXTENSION, begin, capabilities, client_of, get, job_in, questions, stage,
};
use crate::on_oldest_and_newest;
use crate::real::{assert_completed, structured};

on_oldest_and_newest!(
    each_change_of_a_codex_task_is_reported,
    end_of_a_job_is_reported,
);

const LISTEN: &str = "subscriptions/listen";

/// Subscribes to tasks; returns the request's ID, and the filter that the server has accepted.
async fn listen(client: &mut McpClient, tasks: Value) -> (Value, Value) {
    let filter = json!({ "toolsListChanged": true, "taskIds": tasks });
    let id = client.request(LISTEN, json!({ "notifications": filter }));
    let acknowledged = client.notification("notifications/subscriptions/acknowledged");
    let mut params = acknowledged.await["params"].take();
    assert_eq!(subscription(&params), id);
    (id, params["notifications"].take())
}

/// The ID of the subscription that a notification belongs to.
fn subscription(params: &Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
}

/// Waits until a task is reported to have this status.
async fn reported(client: &mut McpClient, id: &Value, task: &str, status: &str) -> Value {
    loop {
        let notification = client.notification("notifications/tasks").await;
        let params = &notification["params"];
        assert_eq!(subscription(params), *id, "{params:#}");
        assert_eq!(params["taskId"], task, "{params:#}");
        // With the time of a step, each second would be a change.
        let words = params["statusMessage"].as_str().unwrap();
        assert!(!words.ends_with(" s"), "{params:#}");
        if params["status"] == status {
            return params.clone();
        }
    }
}

async fn each_change_of_a_codex_task_is_reported(release: &str) {
    let gate = Gate::new();
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch.behind(&gate), Reply::say("Done.")]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = client_of(&stage, &["--host"], json!({ EXTENSION: {} }));
    let arguments = json!({ "prompt": "ask", "sandbox": "read-only",
        "approval-policy": "on-request" });
    let task = begin(&mut client, "codex", arguments).await;
    gate.reached(1).await;
    // Unknown ones change nothing.
    let (id, accepted) = listen(&mut client, json!([task, "turn_unknown"])).await;
    assert_eq!(
        accepted["taskIds"],
        json!([task, "turn_unknown"]),
        "{accepted:#}"
    );
    reported(&mut client, &id, &task, "working").await;
    gate.release();
    let state = reported(&mut client, &id, &task, "input_required").await;
    let [(key, _)] = &questions(&state)[..] else {
        panic!("{state:#}")
    };
    let accept = json!({ "action": "accept", "content": { "decision": "accept" } });
    let params = json!({ "taskId": task, "inputResponses": { key: accept } });
    client.call("tasks/update", params).await;
    let state = reported(&mut client, &id, &task, "completed").await;
    assert_completed(&state["result"], "Done.");
    assert_eq!(get(&mut client, &task).await["result"], state["result"]);
    client.cancel(&id, "enough");
    client.ignore("notifications/tasks");
    assert!(client.finish().await.success());
    stage.stop_hosts().await;
}

async fn end_of_a_job_is_reported(release: &str) {
    let gate = Gate::new();
    let script = Script::new().otherwise([Reply::say("hello").behind(&gate)]);
    let stage = stage(release, script).await;
    let mut client = client_of(&stage, &[], json!({ EXTENSION: {} }));
    let task = begin(&mut client, "call_codex", job_in(&stage, "work", json!({}))).await;
    gate.reached(1).await;
    let (id, _) = listen(&mut client, json!([task])).await;
    reported(&mut client, &id, &task, "working").await;
    gate.release();
    let state = reported(&mut client, &id, &task, "completed").await;
    assert_eq!(structured(&state["result"])["response"], "hello");
    client.cancel(&id, "enough");
    stage.finish_with_worker(client).await;
}

/// The filter of such a client has no tasks, nor has one with something else in their place.
#[tokio::test]
async fn caller_without_tasks_is_told_of_none() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut client = client_of(&stage, &["--host"], json!({ EXTENSION: {} }));
    let task = begin(&mut client, "codex", json!({ "prompt": "x" })).await;
    for tasks in [json!("text"), json!([1, 2]), json!({}), json!([])] {
        let (id, accepted) = listen(&mut client, tasks).await;
        assert_eq!(accepted.get("taskIds"), None, "{accepted:#}");
        client.cancel(&id, "enough");
    }
    let many: Vec<String> = (0..1000).map(|number| format!("turn_{number}")).collect();
    let (id, accepted) = listen(&mut client, json!(many)).await;
    assert_eq!(accepted["taskIds"].as_array().unwrap().len(), 100);
    client.cancel(&id, "enough");
    client.describe_each_request("2026-07-28", capabilities(json!({})));
    let (id, accepted) = listen(&mut client, json!([task])).await;
    assert_eq!(accepted.get("taskIds"), None, "{accepted:#}");
    client.cancel(&id, "enough");
    assert!(client.finish().await.success());
    stage.stop_hosts().await;
}

/// Nothing would ever be reported of them.
#[tokio::test]
async fn changes_of_lists_and_an_unknown_resource_are_not_accepted() {
    let stage = stage(testkit::codex::newest(), Script::new()).await;
    let mut client = client_of(&stage, &[], json!({ EXTENSION: {} }));
    let filter = json!({ "toolsListChanged": true, "promptsListChanged": true,
        "resourceSubscriptions": ["codex-mcp:///jobs", "codex-mcp:///unknown"] });
    let id = client.request(LISTEN, json!({ "notifications": filter }));
    let acknowledged = client.notification("notifications/subscriptions/acknowledged");
    let accepted = acknowledged.await["params"]["notifications"].take();
    let wanted = json!({ "resourceSubscriptions": ["codex-mcp:///jobs"] });
    assert_eq!(accepted, wanted);
    client.cancel(&id, "enough");
    stage.finish(client).await;
}

const UPDATED: &str = "notifications/resources/updated";

/// Waits for the report of a change of a resource.
async fn updated(client: &mut McpClient, uri: &str) -> Value {
    client
        .wait_for(uri, |message| {
            message["method"] == UPDATED && message["params"]["uri"] == uri
        })
        .await
}

#[tokio::test]
async fn changes_of_threads_and_jobs_are_reported() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = stage(testkit::codex::newest(), script).await;
    let [threads, jobs] = ["codex-mcp:///threads", "codex-mcp:///jobs"];

    let mut client = stage.client(&[]).await;
    for uri in [threads, jobs] {
        // The second subscription changes nothing: it is not ended on its own either.
        for _ in 0..2 {
            client
                .call("resources/subscribe", json!({ "uri": uri }))
                .await;
        }
    }
    client.call_tool("codex", json!({ "prompt": "x" })).await;
    updated(&mut client, threads).await;
    let job = job_in(&stage, "work", json!({}));
    client.call_tool("call_codex", job.clone()).await;
    updated(&mut client, jobs).await;
    client
        .call("resources/unsubscribe", json!({ "uri": jobs }))
        .await;
    client.notifications_so_far(UPDATED);
    client.call_tool("call_codex", job.clone()).await;
    // Each resource is looked at once a second: between two reports of threads, one of jobs would
    // come.
    for _ in 0..2 {
        client.call_tool("codex", json!({ "prompt": "x" })).await;
        updated(&mut client, threads).await;
    }
    let rest = client.notifications_so_far(UPDATED);
    let of_jobs = rest.iter().filter(|news| news["params"]["uri"] == jobs);
    assert_eq!(of_jobs.count(), 0, "{rest:#?}");
    client.ignore(UPDATED);
    stage.finish_with_worker(client).await;

    let mut client = client_of(&stage, &[], json!({}));
    let filter = json!({ "resourceSubscriptions": [jobs, "codex-mcp:///gotchas"] });
    let id = client.request(LISTEN, json!({ "notifications": filter }));
    let acknowledged = client
        .notification("notifications/subscriptions/acknowledged")
        .await;
    assert_eq!(acknowledged["params"]["notifications"], filter);
    // Once at the beginning, for what has happened since the client has read it.
    updated(&mut client, jobs).await;
    client.call_tool("call_codex", job).await;
    let news = updated(&mut client, jobs).await;
    assert_eq!(subscription(&news["params"]), id);
    client.ignore(UPDATED);
    client.cancel(&id, "enough");
    stage.finish_with_worker(client).await;
}
