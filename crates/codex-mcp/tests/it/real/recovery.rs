//! Threads outlive our server and Codex's process.

use scripted_model::{Gate, Reply, Script};
use serde_json::json;
use testkit::Signal;
use testkit::process::{descendants, signal};

use super::{CodexFixture, assert_completed, assert_error, on_each_release, structured, thread_of};

on_each_release!(
    thread_continues_after_a_restart_of_the_server,
    thread_continues_after_a_crash_of_codex,
);

fn remembering_model(gate: &Gate) -> Script {
    Script::new()
        .on("first", [Reply::say("one")])
        .on("hang", [Reply::say("never").behind(gate)])
        .otherwise([Reply::with(|request| {
            Reply::say(format!("after {}", request.assistant_messages().join(",")))
        })])
}

async fn thread_continues_after_a_restart_of_the_server(release: &str) {
    let stage = CodexFixture::new(release, remembering_model(&Gate::new())).await;
    let mut client = stage.client(&[]).await;
    let begun = client.call_tool("codex", json!({"prompt": "first"})).await;
    stage.finish(client).await;

    let mut client = stage.client(&[]).await;
    let arguments = json!({"prompt": "second", "threadId": thread_of(&begun)});
    assert_completed(
        &client.call_tool("codex-reply", arguments).await,
        "after one",
    );
    stage.finish(client).await;
}

async fn thread_continues_after_a_crash_of_codex(release: &str) {
    let gate = Gate::new();
    let stage = CodexFixture::new(release, remembering_model(&gate)).await;
    let mut client = stage.client(&[]).await;
    // A sandbox that differs from the default must survive the crash.
    let arguments = json!({"prompt": "first", "sandbox": "danger-full-access"});
    let thread = thread_of(&client.call_tool("codex", arguments).await);
    let hanging = client.request_tool("codex-reply", json!({"prompt": "hang", "threadId": thread}));
    let other = client.request_tool("codex", json!({"prompt": "hang"}));
    gate.reached(2).await;
    // The first descendant is the guard, the second Codex, then Codex's own processes.
    signal(descendants(client.pid())[1], Signal::SIGKILL);
    for id in [&hanging, &other] {
        let result = client.result(id).await;
        assert_error(&result, "CODEX_DIED");
        let message = structured(&result)["error"]["message"].as_str().unwrap();
        assert!(message.contains("signal 9"), "{message}");
        assert!(!thread_of(&result).is_empty());
    }
    let arguments = json!({"prompt": "second", "threadId": thread});
    assert_completed(
        &client.call_tool("codex-reply", arguments).await,
        "after one",
    );
    let requests = stage.model.requests();
    let context = requests.last().unwrap().texts().join("\n");
    assert!(context.contains("danger-full-access"), "{context}");
    stage.finish(client).await;
}
