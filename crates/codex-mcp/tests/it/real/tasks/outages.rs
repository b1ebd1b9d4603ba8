//! Tasks whose host ends, is killed or cannot write files.

use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::McpClient;
use testkit::process::{Process, signal, wait_until_gone};
use testkit::wait::within;

use super::turns::{finish, of_another_host, result_of_task, waiting_task, with_tasks};
use super::{CodexFixture, TIME_LIMIT, begin, get, kill, questions, until};
use crate::jobs::wait_for;
use crate::on_oldest_and_newest;
use crate::real::{assert_completed, assert_error, structured, thread_of};

on_oldest_and_newest!(task_of_a_stopped_host_has_ended,);

/// The next host tells the end of a task that the last one had.
async fn task_of_a_stopped_host_has_ended(release: &str) {
    let (stage, client, task, _gate) = waiting_task(release).await;
    kill(client).await;
    stage.stop_hosts().await;
    let mut client = with_tasks(&stage);
    let state = until(&mut client, &task, "completed").await;
    let code = structured(&state["result"])["error"]["code"].as_str();
    assert!(
        ["INTERRUPTED", "CODEX_DIED", "HOST_LOST"].contains(&code.unwrap()),
        "{state:#}"
    );
    assert!(!thread_of(&state["result"]).is_empty());
    finish(stage, client).await;
}

/// Ends the host at once.
async fn kill_host(stage: &CodexFixture) {
    let is_host = |process: &Process| process.command.contains("host run");
    let mut hosts = stage.home.processes();
    hosts.retain(is_host);
    let [Process { pid, .. }] = hosts[..] else {
        panic!("{hosts:?}")
    };
    signal(pid, Signal::SIGKILL);
    assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
}

/// Polls a task until it has this status, also while there is no host.
async fn got(client: &mut McpClient, task: &str, status: &str) -> Value {
    let asking = async {
        loop {
            let asked = client.request("tasks/get", json!({ "taskId": task }));
            let response = client.response(&asked).await;
            if response["result"]["status"] == status {
                return response["result"].clone();
            }
        }
    };
    within("the status of the task", asking).await
}

async fn host_is_killed_during_a_task(release: &str) {
    let gate = Gate::new();
    let touch = Reply::shell(Shell::escalated("echo x >> made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say("Done.").behind(&gate)]);
    let stage = CodexFixture::new(release, script).await;
    let mut client = with_tasks(&stage);
    let arguments = json!({ "prompt": "ask", "sandbox": "read-only",
        "approval-policy": "on-request" });
    let task = begin(&mut client, "codex", arguments).await;
    let asked = questions(&until(&mut client, &task, "input_required").await);

    kill_host(&stage).await;
    let state = got(&mut client, &task, "input_required").await;
    assert_eq!(questions(&state), asked, "{state:#}");
    let [(key, _)] = &asked[..] else {
        panic!("{asked:?}")
    };
    let accept = json!({ "action": "accept", "content": { "decision": "accept" } });
    let params = json!({ "taskId": task, "inputResponses": { key: accept } });
    client.call("tasks/update", params).await;
    gate.reached(1).await;

    kill_host(&stage).await;
    got(&mut client, &task, "working").await;
    gate.release();
    let state = until(&mut client, &task, "completed").await;
    assert_completed(&state["result"], "Done.");
    assert_eq!(
        std::fs::read_to_string(stage.file("made.txt")).unwrap(),
        "x\n"
    );
    assert_eq!(stage.model.request_count(), 2);

    // The result stays when the host is killed.
    kill_host(&stage).await;
    let again = got(&mut client, &task, "completed").await;
    assert_eq!(again["result"], state["result"]);
    finish(stage, client).await;
}

#[tokio::test]
#[cfg_attr(portable, ignore = "without adoption, the turns of a killed host end")]
async fn host_of_0_153_4_is_killed_during_a_task() {
    host_is_killed_during_a_task("0.153.4").await;
}

#[tokio::test]
#[cfg_attr(portable, ignore = "without adoption, the turns of a killed host end")]
async fn host_of_the_newest_is_killed_during_a_task() {
    host_is_killed_during_a_task(testkit::codex::newest()).await;
}

/// This Codex ends with its host.
#[tokio::test]
async fn task_of_an_old_codex_is_lost_with_its_host() {
    let (stage, mut client, task, gate) = waiting_task("0.104.0").await;
    kill_host(&stage).await;
    let state = got(&mut client, &task, "completed").await;
    assert_error(&state["result"], "HOST_LOST");
    let thread = thread_of(&state["result"]);
    gate.release();
    let reply = json!({ "prompt": "y", "threadId": thread });
    assert_completed(
        &result_of_task(&mut client, "codex-reply", reply).await,
        "hello",
    );
    finish(stage, client).await;
}

/// It is not lost as long as the next host of its client can continue it.
#[tokio::test]
#[cfg_attr(portable, ignore = "without adoption, the turns of a killed host end")]
async fn task_of_a_killed_host_waits_for_the_next_one() {
    let (stage, first, task, gate) = waiting_task(testkit::codex::newest()).await;
    assert!(first.finish().await.success());
    kill_host(&stage).await;

    let mut other = of_another_host(&stage);
    let state = get(&mut other, &task).await;
    assert_eq!(state["status"], "working", "{state:#}");
    assert_eq!(state["statusMessage"], "waits for its host process");
    let cancelled = other.request("tasks/cancel", json!({ "taskId": task }));
    let error = other.error(&cancelled).await;
    assert!(
        error["message"].as_str().unwrap().contains("try again"),
        "{error:#}"
    );

    let mut next = with_tasks(&stage);
    until(&mut next, &task, "working").await;
    gate.release();
    for client in [&mut next, &mut other] {
        let state = until(client, &task, "completed").await;
        assert_completed(&state["result"], "hello");
    }
    assert_eq!(stage.model.request_count(), 1);
    assert!(other.finish().await.success());
    finish(stage, next).await;
}

/// A task that cannot be stored is not begun.
#[tokio::test]
async fn task_that_cannot_be_stored_is_refused() {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let directory = stage.home.state_home().join("codex-mcp");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("tasks"), "in the way").unwrap();
    let mut client = with_tasks(&stage);
    let refused = client.call_tool("codex", json!({ "prompt": "x" })).await;
    assert_error(&refused, "TASK_FILES");
    assert_eq!(stage.model.request_count(), 0);
    finish(stage, client).await;
}

/// The host answers from memory, and stores the result when it can.
#[tokio::test]
async fn result_that_cannot_be_stored_is_stored_later() {
    let (stage, mut client, task, gate) = waiting_task(testkit::codex::newest()).await;
    let state = stage.home.state_home().join("codex-mcp");
    let (directory, aside) = (state.join("tasks"), state.join("aside"));
    let stored = async |what: &str, words: &str| {
        wait_for(what, async || {
            let files = std::fs::read_dir(&directory).unwrap();
            let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()));
            let mut texts = texts.filter_map(Result::ok);
            texts.any(|text| text.contains(words)).then_some(())
        })
        .await;
    };
    stored("the stored thread", "\"thread\":\"").await;
    std::fs::rename(&directory, &aside).unwrap();
    std::fs::write(&directory, "in the way").unwrap();
    gate.release();
    let ended = until(&mut client, &task, "completed").await;
    assert_completed(&ended["result"], "hello");

    std::fs::remove_file(&directory).unwrap();
    std::fs::rename(&aside, &directory).unwrap();
    stored("the stored result", "hello").await;
    kill_host(&stage).await;
    let again = got(&mut client, &task, "completed").await;
    assert_eq!(again["result"], ended["result"]);
    finish(stage, client).await;
}
