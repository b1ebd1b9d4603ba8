//! The session context in Codex's instructions, on both backends.

use std::fs;
use std::path::Path;
use std::process::Command;

use scripted_model::{Reply, Script};
use serde_json::{Value, json};
use testkit::McpClient;

use super::{CodexFixture, quiet_client, text};

/// The newest Codex on the default backend, and the last one with an MCP server on
/// the proxy.
fn backends() -> [(&'static str, &'static str); 2] {
    [
        (testkit::codex::newest(), "app-server"),
        ("0.153.4", "mcp-server"),
    ]
}

async fn on_both_backends(check: impl AsyncFn(&CodexFixture, &[&str])) {
    for (release, backend) in backends() {
        let script = Script::new().otherwise([Reply::say("ok")]);
        let stage = CodexFixture::new(release, script).await;
        check(&stage, &["--backend", backend]).await;
    }
}

async fn client(stage: &CodexFixture, args: &[&str], directory: &Path) -> McpClient {
    let launch = stage.launch(args).current_dir(directory);
    quiet_client(&launch).await
}

/// Begins a thread; returns its developer instructions.
async fn developer_instructions(
    stage: &CodexFixture,
    client: &mut McpClient,
    arguments: Value,
) -> String {
    let result = client.call_tool("codex", arguments).await;
    assert_eq!(text(&result, 0), "ok");
    let requests = stage.model.requests();
    requests.last().unwrap().developer_messages().join("\n")
}

#[track_caller]
fn assert_lines(told: &str, lines: &[(&str, &str)]) {
    for (name, value) in lines {
        let line = format!("\n- {name}: {value}");
        assert!(told.contains(&line), "{name}: {value}\n{told}");
    }
}

fn git(directory: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t"])
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
}

#[tokio::test]
async fn thread_gets_the_context_of_its_start() {
    on_both_backends(async |stage, args| {
        let work = stage.home.work();
        let args = [args, &["--identity", "arch", "--team", "builders"]].concat();
        fs::create_dir(work.join("sub")).unwrap();
        let mut client = client(stage, &args, &work.join("sub")).await;
        let root = work.display().to_string();
        let instructions = developer_instructions(stage, &mut client, json!({"prompt": "x"})).await;
        assert_lines(
            &instructions,
            &[
                ("identity", "arch"),
                ("team", "builders"),
                ("repo_root", &root),
                ("repo_name", "work"),
                ("branch", "main"),
                ("cwd", &root),
            ],
        );
        // Codex works there too.
        assert!(instructions.contains(&root), "{instructions}");

        git(&work, &["switch", "-q", "-c", "feature/x"]);
        let arguments = json!({"prompt": "x", "cwd": work.join("sub"),
            "developer-instructions": "MY-WORDS", "base-instructions": "BASE-WORDS"});
        let instructions = developer_instructions(stage, &mut client, arguments).await;
        assert!(
            instructions.contains("MY-WORDS\n\nSession context"),
            "{instructions}"
        );
        let sub = work.join("sub").display().to_string();
        assert_lines(&instructions, &[("branch", "feature/x"), ("cwd", &sub)]);
        // Nothing is added to the caller's base instructions.
        let request = stage.model.requests().last().unwrap().body().to_string();
        assert!(!request.contains("BASE-WORDS\\n\\nSession"), "{request}");
        assert!(request.contains("BASE-WORDS"), "{request}");
        stage.finish(client).await;
    })
    .await;
}

/// The session context does not replace configured instructions; those of a call do.
#[tokio::test]
async fn instructions_of_codex_configuration_are_kept() {
    for (release, backend) in backends() {
        let script = Script::new().otherwise([Reply::say("ok")]);
        let configured = "developer_instructions = \"CONFIGURED-WORDS\"";
        let stage = CodexFixture::with_config(release, script, configured).await;
        let mut client = client(&stage, &["--backend", backend], &stage.home.work()).await;
        let instructions =
            developer_instructions(&stage, &mut client, json!({"prompt": "x"})).await;
        assert!(
            instructions.contains("CONFIGURED-WORDS\n\nSession context"),
            "{instructions}"
        );

        let config = json!({"developer_instructions": "OVERRIDING-WORDS"});
        let arguments = json!({"prompt": "x", "config": config});
        let instructions = developer_instructions(&stage, &mut client, arguments).await;
        assert!(
            instructions.contains("OVERRIDING-WORDS\n\nSession context"),
            "{instructions}"
        );
        assert!(!instructions.contains("CONFIGURED-WORDS"), "{instructions}");

        let arguments = json!({"prompt": "x", "developer-instructions": "MY-WORDS"});
        let instructions = developer_instructions(&stage, &mut client, arguments).await;
        assert!(
            instructions.contains("MY-WORDS\n\nSession context"),
            "{instructions}"
        );
        assert!(!instructions.contains("CONFIGURED-WORDS"), "{instructions}");
        stage.finish(client).await;
    }
}

#[tokio::test]
async fn working_trees_of_every_kind_are_recognized() {
    let script = Script::new().otherwise([Reply::say("ok")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let work = stage.home.work();
    let root = stage.home.root();
    git(
        &work,
        &["worktree", "add", "-q", "-b", "side", "../side-tree"],
    );
    git(&work, &["submodule", "add", "-q", "./", "module"]);
    git(&work, &["commit", "-q", "-m", "a module"]);
    git(&work, &["switch", "-q", "--detach"]);
    let outside = root.join("outside");
    fs::create_dir(&outside).unwrap();
    let mut client = client(&stage, &[], &work).await;

    let said = developer_instructions(&stage, &mut client, json!({"prompt": "x"})).await;
    assert!(said.contains("\n- branch: none (detached at "), "{said}");

    let side = root.join("side-tree");
    let said =
        developer_instructions(&stage, &mut client, json!({"prompt": "x", "cwd": side})).await;
    let shown = side.display().to_string();
    assert_lines(
        &said,
        &[
            ("repo_root", &shown),
            ("repo_name", "work"),
            ("branch", "side"),
        ],
    );

    let module = work.join("module");
    let said =
        developer_instructions(&stage, &mut client, json!({"prompt": "x", "cwd": module})).await;
    let shown = module.display().to_string();
    assert_lines(&said, &[("repo_root", &shown), ("repo_name", "module")]);

    let said =
        developer_instructions(&stage, &mut client, json!({"prompt": "x", "cwd": outside})).await;
    let shown = outside.display().to_string();
    assert_lines(&said, &[("identity", "codex"), ("cwd", &shown)]);
    assert!(!said.contains("\n- repo_root"), "{said}");
    stage.finish(client).await;
}
