//! Settings of the caller, of the configuration, and of repositories.

use std::path::Path;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::{McpClient, write_program};

use crate::trust;

use super::{
    CodexFixture, VERSION, assert_completed, assert_error, on_oldest_and_newest, structured, text,
};

on_oldest_and_newest!(
    instructions_and_model_reach_the_model,
    codex_config_applies_unless_the_caller_overrides_it,
    profile_is_applied,
    role_is_applied,
    invalid_arguments_are_refused,
    dropped_policy_is_warned_of_once,
);

async fn instructions_and_model_reach_the_model(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("ok")])).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({
        "prompt": "hello",
        "model": "another-model",
        "base-instructions": "BASE-WORDS",
        "developer-instructions": "DEVELOPER-WORDS",
        "config": {"model_reasoning_effort": "high"},
    });
    assert_completed(&client.call_tool("codex", arguments).await, "ok");
    let requests = stage.model.requests();
    let request = requests.last().unwrap();
    assert_eq!(request.model(), "another-model");
    assert_eq!(request.prompt(), "hello");
    let body = request.body().to_string();
    assert!(body.contains("BASE-WORDS"), "{body}");
    let developer = request.developer_messages().join("\n");
    assert!(developer.contains("DEVELOPER-WORDS"), "{developer}");
    stage.finish(client).await;
}

async fn codex_config_applies_unless_the_caller_overrides_it(release: &str) {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("done")]);
    let config = "sandbox_mode = \"read-only\"\napproval_policy = \"never\"\n";
    let stage = CodexFixture::with_config(release, script, config).await;
    let mut client = stage.client(&[]).await;
    for (arguments, made) in [
        (json!({"prompt": "x"}), false),
        (json!({"prompt": "x", "sandbox": "workspace-write"}), true),
    ] {
        assert_completed(&client.call_tool("codex", arguments).await, "done");
        assert_eq!(stage.file("made.txt").exists(), made);
    }
    stage.finish(client).await;
}

/// The role applies on both backends, in the releases that have both.
async fn role_is_applied(release: &str) {
    let script = Script::new().otherwise([Reply::shell("touch made.txt"), Reply::say("done")]);
    let stage = CodexFixture::with_config(release, script, "approval_policy = \"never\"\n").await;
    let roles = "[plugins.codex-mcp]\nmodel = \"usual-model\"\nsandbox = \"read-only\"\n\
        [plugins.codex-mcp.roles.writer]\nsandbox = \"workspace-write\"\nreasoning_effort = \"high\"\n\
        extra_instructions_file = \"writer.md\"\n";
    std::fs::write(stage.file(".atm.toml"), roles).unwrap();
    std::fs::write(stage.file("writer.md"), "WRITER-WORDS").unwrap();
    trust(&stage.home, &stage.home.work());
    for backend in ["app-server", "mcp-server"] {
        if backend == "mcp-server" && release == testkit::codex::newest() {
            continue;
        }
        for (role, made) in [(&[][..], false), (&["--role", "writer"], true)] {
            let launch = stage
                .launch(&["--backend", backend])
                .args(role.iter().copied());
            let mut client = McpClient::start(&launch);
            client.ignore("codex/event");
            client.initialize(VERSION, json!({})).await;
            let arguments = json!({"prompt": "x", "developer-instructions": "MY-WORDS"});
            let result = client.call_tool("codex", arguments).await;
            assert_eq!(text(&result, 0), "done");
            assert_eq!(stage.file("made.txt").exists(), made, "{backend} {role:?}");
            let _ = std::fs::remove_file(stage.file("made.txt"));
            let requests = stage.model.requests();
            let request = requests.last().unwrap();
            assert_eq!(request.model(), "usual-model");
            let developer = request.developer_messages().join("\n");
            assert!(developer.contains("MY-WORDS"), "{developer}");
            assert_eq!(
                developer.contains("WRITER-WORDS\n\nMY-WORDS"),
                made,
                "{developer}"
            );
            stage.finish(client).await;
        }
    }
}

/// Before 0.130 a profile is a table of `config.toml`, since then a file.
async fn profile_is_applied(release: &str) {
    let table = "[profiles.fast]\nmodel = \"fast-model\"\n";
    let as_table = release == "0.104.0";
    let script = Script::new().otherwise([Reply::say("ok")]);
    let stage = CodexFixture::with_config(release, script, if as_table { table } else { "" }).await;
    if !as_table {
        let file = stage.home.codex_home().join("fast.config.toml");
        std::fs::write(file, "model = \"fast-model\"\n").unwrap();
    }
    let mut client = stage.client(&[]).await;
    let arguments = json!({"prompt": "x", "profile": "fast"});
    assert_completed(&client.call_tool("codex", arguments).await, "ok");
    assert_eq!(stage.model.requests().last().unwrap().model(), "fast-model");

    let unknown = client
        .call_tool("codex", json!({"prompt": "x", "profile": "slow"}))
        .await;
    assert_error(&unknown, "INVALID_ARGUMENT");
    let message = structured(&unknown)["error"]["message"].as_str().unwrap();
    assert!(message.contains("there is no profile slow"), "{message}");
    for (tool, mut arguments) in [
        (
            "call_codex",
            json!({"prompt": "x", "cwd": stage.home.work()}),
        ),
        ("codex_run", json!({"task": "x"})),
    ] {
        arguments["profile"] = json!("fsat");
        let unknown = client.call_tool(tool, arguments).await;
        assert_error(&unknown, "INVALID_ARGUMENT");
        let said = text(&unknown, 0);
        assert!(said.contains("did you mean `fast`? Correct"), "{said}");
    }
    stage.finish(client).await;
}

async fn invalid_arguments_are_refused(release: &str) {
    let stage = CodexFixture::new(release, Script::new()).await;
    let mut client = stage.client(&[]).await;
    let unknown = "0199a213-81c0-7800-8aa1-bbab2a035a53";
    for (tool, arguments, code) in [
        (
            "codex",
            json!({"prompt": "x", "cwd": "not/there"}),
            "INVALID_ARGUMENT",
        ),
        (
            "codex",
            json!({"prompt": "x", "cwd": "README.md"}),
            "INVALID_ARGUMENT",
        ),
        (
            "codex",
            json!({"prompt": "x", "sandbox": 7}),
            "INVALID_ARGUMENT",
        ),
        (
            "codex",
            json!({"prompt": "x", "config": {"model_provider": "none"}}),
            "CODEX_REFUSED",
        ),
        (
            "codex-reply",
            json!({"prompt": "x", "threadId": "nonsense"}),
            "INVALID_ARGUMENT",
        ),
        (
            "codex-reply",
            json!({"prompt": "x", "threadId": unknown}),
            "THREAD_NOT_FOUND",
        ),
    ] {
        let result = client.call_tool(tool, arguments).await;
        assert_error(&result, code);
    }
    assert_eq!(stage.model.request_count(), 0);
    stage.finish(client).await;
}

async fn dropped_policy_is_warned_of_once(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("ok")])).await;
    let mut client = stage.client(&[]).await;
    let arguments = json!({"prompt": "x", "approval-policy": "on-failure"});
    let first = client.call_tool("codex", arguments.clone()).await;
    assert_completed(&first, "ok");
    assert!(
        structured(&first)["warnings"][0]
            .as_str()
            .unwrap()
            .contains("on-failure")
    );
    let second = client.call_tool("codex", arguments).await;
    assert_eq!(structured(&second).get("warnings"), None::<&Value>);
    stage.finish(client).await;
}

/// A repository must not choose the program to run; the user's own file may.
#[tokio::test]
async fn repository_cannot_choose_codex_bin_and_the_user_can() {
    let stage = CodexFixture::new(
        testkit::codex::newest(),
        Script::new().otherwise([Reply::say("ok")]),
    )
    .await;
    let evil = stage.file("evil");
    write_program(&evil, "#!/bin/sh\ntouch ran\n");
    let section = |program: &Path| format!("[plugins.codex-mcp]\ncodex_bin = {program:?}\n");
    std::fs::write(stage.file(".atm.toml"), section(&evil)).unwrap();
    trust(&stage.home, &stage.home.work());
    let launch = stage
        .home
        .launch(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["serve"]);
    for mine in [None, Some(stage.release.as_str())] {
        if let Some(release) = mine {
            let directory = stage.home.atm_home().join(".config/atm");
            std::fs::create_dir_all(&directory).unwrap();
            let program = testkit::codex::native_binary(release);
            std::fs::write(directory.join("config.toml"), section(&program)).unwrap();
        }
        let mut client = McpClient::connect(&launch, VERSION, json!({})).await;
        let result = client.call_tool("codex", json!({"prompt": "x"})).await;
        match mine {
            None => assert_error(&result, "CODEX_NOT_FOUND"),
            Some(_) => assert_completed(&result, "ok"),
        }
        assert!(
            client.stderr().contains("is left aside"),
            "{}",
            client.stderr()
        );
        assert!(!stage.file("ran").exists());
        stage.finish(client).await;
    }
}
