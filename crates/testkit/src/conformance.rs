//! Programs of the MCP project that check a server: its conformance suite, and its inspector.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use tokio::process::Command;

use crate::{node, target_dir};

/// The versions that `cargo xtask provision` installs.
const CONFORMANCE: &str = include_str!("../conformance-version.txt");
const INSPECTOR: &str = include_str!("../inspector-version.txt");

/// Adds a token to the requests of the conformance suite, which has no option for one.
const WITH_BEARER: &str = "with-bearer.mjs";

/// A program of Node, installed from npm.
fn module(directory: &str, version: &str, file: &str) -> PathBuf {
    let install = target_dir().join(directory).join(version.trim());
    let file = install
        .join("node_modules/@modelcontextprotocol")
        .join(file);
    assert!(
        file.is_file(),
        "{} is missing; run `cargo xtask provision`",
        file.display()
    );
    file
}

fn command(home: &Path) -> Command {
    let mut command = Command::new(node::newer().join("node"));
    command
        .env_clear()
        .env("HOME", home)
        .env("NO_COLOR", "1")
        .kill_on_drop(true);
    command
}

/// Runs a scenario of the conformance suite against a server with a token.
///
/// # Panics
/// When the suite is not installed, or does not start.
pub async fn scenario(name: &str, server: SocketAddr, token: &str, home: &Path) -> Output {
    let preload = Path::new(env!("CARGO_MANIFEST_DIR")).join(WITH_BEARER);
    let suite = module("conformance", CONFORMANCE, "conformance/dist/index.js");
    command(home)
        .arg("--import")
        .arg(preload)
        .arg(suite)
        .args([
            "server",
            "--url",
            &format!("http://{server}/mcp"),
            "--scenario",
            name,
        ])
        .env("MCP_ORIGIN", format!("http://{server}"))
        .env("MCP_TOKEN", token)
        .output()
        .await
        .unwrap()
}

/// Runs the inspector against a server with a token.
///
/// # Panics
/// When the inspector is not installed, or does not start.
pub async fn inspect(server: SocketAddr, token: &str, args: &[&str], home: &Path) -> Output {
    let inspector = module(
        "inspector",
        INSPECTOR,
        "inspector/clients/launcher/build/index.js",
    );
    command(home)
        .arg(inspector)
        .args([
            "--cli",
            &format!("http://{server}/mcp"),
            "--transport",
            "http",
        ])
        .args([
            "--header",
            &format!("Authorization: Bearer {token}"),
            "--stored-auth-only",
        ])
        .args(["--format", "json"])
        .args(args)
        .output()
        .await
        .unwrap()
}
