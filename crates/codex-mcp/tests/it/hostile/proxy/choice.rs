//! The choice between Codex's servers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;
use testkit::fake::{Event, HELLO, Plan, VERSION, fake_codex_path};
use testkit::write_program;

use super::super::serve::{HANDSHAKE, Serve, code, completed, message};
use super::{LAST, content, status};

/// Whether the last started Codex had this argument.
fn started_as(serve: &Serve, word: &str) -> bool {
    let args = serve.fake.log().into_iter().rev();
    let mut args = args.filter_map(|entry| match entry.event {
        Event::Started { args, .. } => Some(args),
        _ => None,
    });
    args.next().unwrap().iter().any(|arg| arg == word)
}

/// A server with a Codex that npm has installed.
fn start(version: &str, args: &[&str]) -> Serve {
    let packages = tempfile::tempdir().unwrap();
    let package = packages.path().join("@openai/codex-linux-x64");
    let program = package.join("vendor/x86_64-unknown-linux-musl/bin/codex");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    symlink(fake_codex_path(), &program).unwrap();
    let notes = json!({"name": "@openai/codex", "version": format!("{version}-linux-x64")});
    fs::write(package.join("package.json"), notes.to_string()).unwrap();
    let mut serve = Serve::start_with(&Plan::new(), |launch| {
        launch
            .args(args)
            .env(VERSION, version)
            .env("CODEX_MCP_CODEX_BIN", program)
    });
    // It is read while the server starts, and by every start of Codex.
    serve.keep(packages);
    serve.client.ignore("codex/event");
    serve
}

/// A Codex from elsewhere than npm, which prints its version only when the test allows it.
struct Slow {
    directory: TempDir,
}

impl Slow {
    fn new() -> Self {
        let slow = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] || exec '{}' \"$@\"\n: > '{}'\n\
             until [ -e '{}' ]; do sleep 0.01; done\nexec '{0}' --version\n",
            fake_codex_path().display(),
            slow.file("asked").display(),
            slow.file("answer").display(),
        );
        write_program(&slow.file("codex"), &script);
        slow
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Whether the version was queried.
    fn was_asked(&self) -> bool {
        self.file("asked").exists()
    }

    /// Lets it print the version.
    fn answer(&self) {
        fs::write(self.file("answer"), "").unwrap();
    }

    async fn serve(&self, version: &str, args: &[&str]) -> Serve {
        let mut serve = Serve::start_with(&Plan::new(), |launch| {
            launch
                .args(args)
                .env(VERSION, version)
                .env("CODEX_MCP_CODEX_BIN", self.file("codex"))
        });
        serve.client.ignore("codex/event");
        serve.client.ignore("notifications/tools/list_changed");
        serve.client.initialize(HANDSHAKE, json!({})).await;
        serve
    }
}

#[tokio::test]
async fn initialize_of_the_app_server_does_not_ask_for_the_version() {
    let slow = Slow::new();
    let mut serve = slow.serve("0.169.0", &[]).await;
    assert_eq!(completed(&serve.codex().await), HELLO);
    assert!(!slow.was_asked());
    serve.finish().await;
}

#[tokio::test]
async fn initialize_of_the_proxy_does_not_wait_for_the_version() {
    let slow = Slow::new();
    let mut serve = slow.serve(LAST, &["--backend", "mcp-server"]).await;
    assert_eq!(status(&mut serve).await["codex"]["state"], "starting");
    slow.answer();
    assert_eq!(content(&serve.codex().await), HELLO);
    // Only the releases before 0.169 get it.
    assert!(started_as(&serve, "--config=features.shell_snapshot=false"));
    serve.finish().await;
}

#[tokio::test]
async fn hanging_version_query_does_not_delay_shutdown() {
    let slow = Slow::new();
    let serve = slow.serve(LAST, &["--backend", "mcp-server"]).await;
    serve.finish().await;
}

#[tokio::test]
async fn old_codex_from_elsewhere_is_refused_by_the_first_call() {
    let slow = Slow::new();
    let mut serve = slow.serve("0.71.0", &[]).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), "APP_SERVER_START_FAILED");
    for word in ["0.71.0", "0.72.0", "--backend mcp-server"] {
        assert!(message(&result).contains(word), "{word}: {result:#}");
    }
    serve.finish().await;
}

#[tokio::test]
async fn new_codex_from_elsewhere_is_refused_by_the_first_proxy_call() {
    let slow = Slow::new();
    slow.answer();
    let mut serve = slow.serve("0.154.0", &["--backend", "mcp-server"]).await;
    let result = serve.codex().await;
    assert_eq!(code(&result), "CODEX_DIED");
    for word in ["0.154.0", "has no mcp-server", "--backend mcp-server"] {
        assert!(message(&result).contains(word), "{word}: {result:#}");
    }
    assert!(serve.fake.started().is_empty());
    serve.finish().await;
}

/// Checks that the server refuses to start, says why once, and never starts Codex.
async fn refused(version: &str, args: &[&str], words: &[&str]) {
    let mut serve = start(version, args);
    let status = serve.client.exited().await;
    assert_eq!(status.code(), Some(1), "{args:?} {version}");
    let said = serve.client.stderr();
    assert_eq!(said.matches("ERROR").count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?}: {said}");
    }
    assert!(serve.fake.started().is_empty());
    serve.gone(status).await;
}

#[tokio::test]
async fn old_codex_uses_its_mcp_server() {
    let mut serve = start("0.71.0", &[]);
    serve.client.initialize(HANDSHAKE, json!({})).await;
    assert_eq!(content(&serve.codex().await), HELLO);
    assert!(started_as(&serve, "mcp-server"));
    serve.finish().await;
}

#[tokio::test]
async fn codex_with_both_servers_uses_its_app_server() {
    for version in ["0.72.0", "0.153.4"] {
        let mut serve = start(version, &["--backend", "auto"]);
        serve.client.initialize(HANDSHAKE, json!({})).await;
        assert_eq!(completed(&serve.codex().await), HELLO);
        assert!(started_as(&serve, "app-server"));
        serve.finish().await;
    }
}

#[tokio::test]
async fn codex_without_an_mcp_server_is_refused_at_once() {
    let wanted = ["--backend", "mcp-server"];
    refused("0.154.0", &wanted, &["0.154.0", "--backend mcp-server"]).await;
}

#[tokio::test]
async fn sessions_need_an_app_server() {
    let auto = ["--api", "sessions"];
    refused("0.71.0", &auto, &["--api sessions", "0.71.0"]).await;
    let proxied = ["--api", "sessions", "--backend", "mcp-server"];
    refused("0.153.4", &proxied, &["--api sessions", "app-server"]).await;

    let mut serve = start("0.153.4", &auto);
    serve.client.initialize(HANDSHAKE, json!({})).await;
    let list = serve.client.call("tools/list", json!({})).await;
    assert!(list.to_string().contains("codex_check"), "{list}");
    serve.finish().await;
}

#[tokio::test]
async fn missing_codex_is_reported_at_once() {
    let nowhere = ["--backend", "mcp-server", "--codex-bin", "/no/such/codex"];
    refused("0.153.4", &nowhere, &["/no/such/codex", "npm install"]).await;
}
