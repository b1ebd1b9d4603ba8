//! Cases that older releases lack or handle worse.

use std::process::Stdio;
use std::time::Duration;

use image_request::logic::contract::TOOL;
use scripted_model::{Gate, Reply, Request, Script};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::super::{CodexFixture, assert_completed, thread_of};
use super::{calling_model, client, last_output, look, picture, spawn_agent};
use crate::on_both_releases;

on_both_releases!(
    forked_subagent_is_answered,
    plain_codex_continues_without_the_tools,
);

/// Codex reports the sub-agent's thread only by the step that began it.
async fn forked_subagent_is_answered(release: &str) {
    let gate = Gate::new();
    let script = Script::new()
        .on(
            "delegate",
            [
                Reply::with(spawn_agent),
                Reply::say("done").behind(&gate),
                // The newest release tells the parent that the sub-agent has ended.
                Reply::say("done"),
            ],
        )
        .otherwise([
            Reply::call(TOOL, json!({ "path": "a.png" })),
            Reply::with(|request| Reply::say(last_output(request))),
        ]);
    let stage = CodexFixture::new(release, script).await;
    let shown = picture(&stage, "a.png");
    let mut client = client(&stage, &[]).await;
    let call = client.request_tool("codex", json!({ "prompt": "delegate" }));
    gate.reached(1).await;
    let outputs = |request: &Request| {
        let outputs = request.tool_outputs().into_iter();
        let texts: Vec<String> = outputs.map(|output| output.text).collect();
        (request.prompt().to_owned(), texts)
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let requests = stage.model.requests();
        let images = |request: &Request| request.images().contains(&shown.as_str());
        if requests.iter().any(images) {
            break;
        }
        let all: Vec<_> = requests.iter().map(outputs).collect();
        assert!(Instant::now() < deadline, "{all:#?}");
        sleep(Duration::from_millis(20)).await;
    }
    gate.release();
    assert_completed(&client.result(&call).await, "done");
    stage.finish(client).await;
}

async fn plain_codex_continues_without_the_tools(release: &str) {
    let stage = CodexFixture::new(release, calling_model()).await;
    picture(&stage, "a.png");
    let mut client = client(&stage, &[]).await;
    let begun = client.call_tool("codex", json!({ "prompt": "x" })).await;
    let thread = thread_of(&begun);
    stage.finish(client).await;
    let output = tokio::process::Command::new(testkit::codex::native_binary(release))
        .args([
            "exec",
            "--skip-git-repo-check",
            "resume",
            &thread,
            &look("a.png"),
        ])
        .envs(stage.home.env())
        .current_dir(stage.home.work())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("dynamic tool request failed"), "{said}");
}
