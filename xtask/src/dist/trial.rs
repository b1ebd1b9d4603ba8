//! The trial of a static program: it runs where there is nothing else.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::archive::Archive;
use super::release::{NAME, Release};
use super::target::Target;
use crate::installs;
use crate::tool::Tool;

/// How long the program may take altogether, in seconds.
const TIME_LIMIT: &str = "60";

/// Unpacks the static program for this machine into an empty directory, which becomes its root
/// directory, and has it serve a client.
///
/// # Errors
/// When there is no archive for this machine, or the program does not work there.
pub(super) fn run(release: &Release) -> anyhow::Result<()> {
    let here = Target::this_machine()?;
    let archives = Archive::all(release)?;
    let mut archives = archives.iter();
    let archive = archives
        .find(|archive| archive.target.is_static() && archive.target.runs_on(here))
        .context("there is no archive of a static program for this machine")?;
    let root = release.out.join("trial");
    installs::remove(&root)?;
    fs::create_dir(&root).with_context(|| format!("cannot create {}", root.display()))?;
    let tried = try_in(&root, archive);
    installs::remove(&root)?;
    tried
}

fn try_in(root: &Path, archive: &Archive) -> anyhow::Result<()> {
    let program = root.join(NAME);
    fs::write(&program, archive.file(NAME)?)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    let version = in_root(root, &["--version"]).capture(Path::new("/"))?;
    let tools = served(&in_root(root, &["serve"]))?;
    println!(
        "{}: in an empty root directory, {} serves {tools} tools",
        archive.name(),
        version.trim()
    );
    Ok(())
}

/// The program in its root directory, for which a user needs a namespace.
fn in_root(root: &Path, args: &[&str]) -> Tool {
    let root = root.to_string_lossy().into_owned();
    Tool::new(
        "timeout",
        [TIME_LIMIT, "unshare", "--user", "--map-root-user"],
    )
    .args(["chroot".to_owned(), root, format!("/{NAME}")])
    .args(args.iter().copied())
    .env("CODEX_MCP_HOST", "false")
}

/// The number of tools that a server lists.
fn served(server: &Tool) -> anyhow::Result<usize> {
    let mut child = server
        .command(Path::new("/"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    let mut messages = introduction().into_iter();
    let sent = messages.try_for_each(|message| writeln!(stdin, "{message}"));
    let answers: Vec<String> = lines.by_ref().take(2).collect::<Result<_, _>>()?;
    // The end of the client ends the server.
    drop(stdin);
    let status = child.wait()?;
    let last = answers.last().map_or("no answer", String::as_str);
    let parsed: Value = serde_json::from_str(last).unwrap_or_default();
    let tools = parsed.pointer("/result/tools").and_then(Value::as_array);
    match tools {
        Some(tools) if sent.is_ok() && status.success() => Ok(tools.len()),
        _ => bail!("{server}: {status}, {last}"),
    }
}

/// What a client sends to list the tools. Source: MCP 2025-06-18, "Lifecycle".
fn introduction() -> [Value; 3] {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "xtask", "version": "0" },
    });
    [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    ]
}
