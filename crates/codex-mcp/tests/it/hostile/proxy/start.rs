//! The start of the child, and requests before it.

use serde_json::json;
use testkit::fake::{Action, HELLO, Plan};
use testkit::write_program;

use super::super::serve::{HANDSHAKE, Serve};
use super::{code, content, left_of, message, plain, status};

/// A child that answers nothing: one that never reads, and one that reads.
fn silent_plans() -> [Plan; 2] {
    [
        Plan::new().at_start([Action::gate("never")]),
        Plan::new()
            .on("initialize", [Action::Hang])
            .on("tools/call", [Action::Hang])
            .on("ping", [Action::Hang]),
    ]
}

#[tokio::test]
async fn child_that_never_answers_blocks_nobody() {
    for plan in silent_plans() {
        let mut serve = plain(&plan, &["--timeout", "1"]).await;
        let list = serve.client.call("tools/list", json!({})).await;
        let tools = list["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(
            names,
            [
                "codex",
                "codex-reply",
                "codex_status",
                "call_codex",
                "call_status",
                "call_jobs",
                "call_cancel",
                "call_respond",
                "codex_run",
                "codex_threads"
            ]
        );
        assert_eq!(status(&mut serve).await["codex"]["state"], "starting");
        assert_eq!(code(&serve.codex().await), "CODEX_SILENT");
        let ping = serve.client.request("ping", json!({}));
        assert_eq!(status(&mut serve).await["calls"]["inFlight"], 0);
        serve.client.close_stdin();
        let error = serve.client.error(&ping).await;
        assert_eq!(error["data"]["error"]["code"], "SHUTTING_DOWN", "{error}");
        serve.finish().await;
    }
}

#[tokio::test]
async fn known_tool_list_is_replaced_once_the_child_is_up() {
    let plan = Plan::new().on("initialize", [Action::gate("up"), Action::Answer]);
    let mut serve = Serve::start_with(&plan, |launch| super::through(launch, &[]));
    serve.client.initialize(HANDSHAKE, json!({})).await;
    let known = serve.client.call("tools/list", json!({})).await;
    serve.fake.open_gate("up");
    let changed = "notifications/tools/list_changed";
    serve.client.notification(changed).await;
    let list = serve.client.call("tools/list", json!({})).await;
    let described = |list: &serde_json::Value| list["tools"][0]["description"].clone();
    assert_ne!(described(&known), described(&list));
    assert_eq!(list["tools"][2]["name"], "codex_status");
    assert_eq!(status(&mut serve).await["codex"]["version"], "0.153.4");
    serve.finish().await;
}

#[tokio::test]
async fn child_that_exits_at_its_start_is_reported_by_each_call() {
    let stderr = Action::WriteStderr {
        text: "Error: config.toml is not TOML".to_owned(),
    };
    let plan = Plan::new().at_start([stderr, Action::Exit { code: 3 }]);
    let mut serve = plain(&plan, &[]).await;
    for _ in 0..2 {
        let result = serve.codex().await;
        assert_eq!(code(&result), "CODEX_DIED");
        for words in ["exited with code 3", "config.toml is not TOML"] {
            assert!(message(&result).contains(words), "{words}: {result:#}");
        }
        assert_eq!(result["structuredContent"]["content"], "");
        assert_eq!(result["structuredContent"]["threadId"], "");
    }
    assert_eq!(status(&mut serve).await["codex"]["state"], "gone");
    assert_eq!(serve.fake.started().len(), 1);
    serve.finish().await;
}

#[tokio::test]
async fn requests_during_child_start_are_answered_afterwards() {
    let plan = Plan::new().on("initialize", [Action::gate("up"), Action::Answer]);
    let mut serve = plain(&plan, &[]).await;
    let calls: Vec<_> = (0..3).map(|_| serve.prompt()).collect();
    status(&mut serve).await;
    serve.fake.open_gate("up");
    for call in &calls {
        assert_eq!(content(&serve.client.result(call).await), HELLO);
    }
    let begun = serve.methods();
    assert_eq!(begun[..2], ["initialize", "notifications/initialized"]);
    serve.finish().await;
}

#[tokio::test]
async fn child_learns_its_client() {
    let mut serve = plain(&Plan::new(), &[]).await;
    serve.codex().await;
    let introduced = serve.fake.wait_for_method("initialize").await;
    assert_eq!(introduced["params"]["protocolVersion"], HANDSHAKE);
    assert_eq!(introduced["params"]["clientInfo"]["name"], "testkit");
    serve.finish().await;
}

#[tokio::test]
async fn child_that_refuses_initialize_may_still_serve() {
    let error = Action::Error {
        code: -32600,
        message: "not today".to_owned(),
    };
    let plan = Plan::new().on("initialize", [error]);
    let mut serve = plain(&plan, &[]).await;
    assert_eq!(content(&serve.codex().await), HELLO);
    serve.finish().await;
}

/// Serves with this script as Codex.
async fn script(contents: &str) -> Serve {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("codex");
    write_program(&program, contents);
    let mut serve = Serve::start_with(&Plan::new(), |launch| {
        launch
            .args(["--backend", "mcp-server", "--codex-bin"])
            .args([program])
    });
    serve.client.initialize(HANDSHAKE, json!({})).await;
    // The child must be running for the next steps, whatever it does then.
    assert_eq!(code(&serve.codex().await), "CODEX_DIED");
    serve
}

#[tokio::test]
async fn program_that_is_not_codex_fails_the_call_with_its_output() {
    for (contents, words) in [
        ("#!/no/such/interpreter\n", "code 127"),
        ("#!/bin/sh\necho babble\necho wrong >&2\nexit 3\n", "wrong"),
        ("#!/bin/sh\nkill -PIPE $$\n", "signal 13 (SIGPIPE)"),
    ] {
        let mut serve = script(contents).await;
        let result = serve.codex().await;
        assert!(message(&result).contains(words), "{words}: {result:#}");
        serve.finish().await;
    }
}

#[tokio::test]
async fn child_that_closes_its_stdout_is_given_up() {
    let program = "#!/bin/sh\n[ \"$1\" = mcp-server ] || exit 1\nexec sleep 600 >&-\n";
    let serve = script(program).await;
    let pids: Vec<u32> = serve.home.processes().iter().map(|one| one.pid).collect();
    let others: Vec<u32> = pids
        .into_iter()
        .filter(|pid| *pid != serve.client.pid())
        .collect();
    assert_eq!(left_of(&others).await, []);
    serve.finish().await;
}
