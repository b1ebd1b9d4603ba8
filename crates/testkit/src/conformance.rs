//! Programs of the MCP project that check a server: its conformance suite, and its inspector.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::{node, target_dir};

/// The versions that `cargo xtask provision` installs.
const CONFORMANCE: &str = include_str!("../conformance-version.txt");
const INSPECTOR: &str = include_str!("../inspector-version.txt");

/// The launcher of the inspector.
const LAUNCHER: &str = "inspector/clients/launcher/build/index.js";

/// Adds a token to the requests of a program that cannot be given one.
const WITH_BEARER: &str = "with-bearer.mjs";

/// The ports among which the inspector's page gets one: below those that systems give to programs
/// that name none.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// The limit for the start of the inspector's page.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two tries to connect.
const PAUSE: Duration = Duration::from_millis(50);

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

fn launcher() -> PathBuf {
    module("inspector", INSPECTOR, LAUNCHER)
}

/// Has a program of Node add a token to its requests to a server.
fn with_bearer(command: &mut Command, server: SocketAddr, token: &str) {
    let preload = Path::new(env!("CARGO_MANIFEST_DIR")).join(WITH_BEARER);
    command
        .arg("--import")
        .arg(preload)
        .env("MCP_ORIGIN", format!("http://{server}"))
        .env("MCP_TOKEN", token);
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
    let suite = module("conformance", CONFORMANCE, "conformance/dist/index.js");
    let mut command = command(home);
    with_bearer(&mut command, server, token);
    command
        .arg(suite)
        .args([
            "server",
            "--url",
            &format!("http://{server}/mcp"),
            "--scenario",
            name,
        ])
        .output()
        .await
        .unwrap()
}

/// Runs the inspector against a server with a token.
///
/// # Panics
/// When the inspector is not installed, or does not start.
pub async fn inspect(server: SocketAddr, token: &str, args: &[&str], home: &Path) -> Output {
    command(home)
        .arg(launcher())
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

/// The inspector's page, which shows MCP Apps. Its server ends with this value.
pub struct InspectorPage {
    _server: Child,
    /// Its address.
    pub address: SocketAddr,
}

impl InspectorPage {
    /// What a link must name to have the page connect to a server by itself.
    pub const SECRET: &'static str = "secret-of-a-test";

    /// Starts the page, which connects to a server with this token.
    ///
    /// # Panics
    /// When the inspector is not installed, or does not start.
    pub async fn start(server: SocketAddr, token: &str, home: &Path) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().await));
        let mut command = command(home);
        with_bearer(&mut command, server, token);
        let process = command
            .arg(launcher())
            .arg("--web")
            .env("HOST", address.ip().to_string())
            .env("CLIENT_PORT", address.port().to_string())
            .env("MCP_SANDBOX_PORT", "0")
            .env("MCP_APP_ORIGIN_PORT", "0")
            .env("MCP_AUTO_OPEN_ENABLED", "false")
            .env("MCP_INSPECTOR_API_TOKEN", Self::SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let answers = async {
            while TcpStream::connect(address).await.is_err() {
                sleep(PAUSE).await;
            }
        };
        let started = timeout(START_LIMIT, answers).await;
        started.unwrap_or_else(|_| panic!("the inspector's page does not start"));
        Self {
            _server: process,
            address,
        }
    }
}

/// A port that is free now: the inspector's page has to be told one.
async fn free_port() -> u16 {
    let first = PORTS.start + u16::try_from(std::process::id() % 10_000).unwrap();
    for port in (first..PORTS.end).chain(PORTS.start..first) {
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}
