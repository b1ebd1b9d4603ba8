//! The demo: codex-mcp at work in a few seconds, without an account.
//!
//! Everything is real except the model: Codex, `codex-mcp serve`, an MCP client
//! and a git repository. The model follows a script, so the demo costs nothing and
//! is the same each time.
//!
//! ```text
//! conversation ── wire ── codex-mcp serve ─┬─ codex app-server ── scripted model
//! work ────────────────── codex-mcp run ───┘      └── in the workspace: one directory
//!  └── printer: each message as it passes, each line as it arrives
//! ```
//!
//! No process is left running, and no file is left unless the user keeps the
//! directory, also if the demo fails or is interrupted.
#![expect(
    clippy::disallowed_methods,
    reason = "files in a directory that is the demo's alone"
)]

mod conversation;
mod demo_codex;
mod error;
mod install;
mod message;
mod next;
mod printer;
mod script;
mod server;
mod tail;
mod wire;
mod work;
mod workspace;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use codex_engine::binary::Source;
use common::output::Output;
use scripted_model::ScriptedModel;
use tokio_util::sync::CancellationToken;

use conversation::Conversation;
use demo_codex::DemoCodex;
use printer::Printer;
use server::Server;
use workspace::Workspace;

use crate::writable_state;

pub use conversation::ConversationError;
pub use demo_codex::CodexError;
pub use error::{Cause, DemoError};
pub use install::InstallError;
pub use work::WorkError;
pub use workspace::WorkspaceError;

/// How long the server may take to end after a conversation that went well.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// The fate of the demo's directory at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleanup {
    /// It is removed.
    Remove,
    /// It stays for the user to look at.
    Keep,
}

/// The options of the demo.
#[derive(Debug)]
pub struct Options {
    /// The Codex that the user chose, and the source of the choice; `None` finds or installs one.
    pub codex_bin: Option<(PathBuf, Source)>,
    /// What happens to the directory at the end.
    pub cleanup: Cleanup,
}

/// A completed demo.
struct FinishedDemo {
    demo_codex: DemoCodex,
    /// The duration without an installation.
    took: Duration,
}

/// Plays the demo and prints it to `out`. Cancelling `stop` ends it early, and cleanly.
///
/// # Errors
///
/// [`DemoError`]. No process is left running after an error either.
pub async fn run<W: Write>(
    options: Options,
    out: Output<W>,
    stop: &CancellationToken,
) -> Result<(), DemoError> {
    let Options { codex_bin, cleanup } = options;
    // The demo's run has a state directory below ours.
    writable_state::state_directory().map_err(WorkspaceError::from)?;
    let mut printer = Printer::new(out);
    printer.title(
        "codex-mcp demo",
        "Hands work to Codex, the coding agent: over MCP, and at a shell until the result is there. \
         Everything is real but the model, which is played from a script: no account is needed \
         and nothing is charged. It happens in one temporary directory; your ~/.codex is not touched.",
    )?;
    let model = ScriptedModel::start(script::script()).await?;
    let workspace = Workspace::set(&model.codex_config())?;
    let root = workspace.root().display().to_string();
    let played = play(&workspace, &model, codex_bin, &mut printer, stop).await;
    let rest = match cleanup {
        Cleanup::Remove => {
            let cleared = workspace.clear().await;
            // An error of the demo itself is more important.
            if played.is_ok() {
                cleared?;
            }
            match &played {
                Ok(FinishedDemo { demo_codex, .. }) if demo_codex.is_ours() => {
                    "Nothing is left running, and nothing but that Codex is left behind."
                }
                _ => "Nothing is left running, and nothing is left behind.",
            }
            .to_owned()
        }
        Cleanup::Keep => {
            workspace.keep();
            if played.is_err() {
                let _ = printer.fact("Kept", &root);
            }
            format!("Nothing is left running. Kept: {root}")
        }
    };
    let FinishedDemo { demo_codex, took } = played?;
    printer.done(took, &rest)?;
    next::tell(&mut printer, &demo_codex)?;
    Ok(())
}

async fn play<W: Write>(
    workspace: &Workspace,
    model: &ScriptedModel,
    codex_bin: Option<(PathBuf, Source)>,
    printer: &mut Printer<W>,
    stop: &CancellationToken,
) -> Result<FinishedDemo, DemoError> {
    printer.step("Set the stage")?;
    // The repository comes first: without git, installing Codex would be in vain.
    workspace.start_repository().await?;
    let mut demo_codex = DemoCodex::find(codex_bin, printer, stop).await?;
    let began = Instant::now();
    printer.fact("Codex", &demo_codex.introduce(workspace).await?)?;
    printer.fact("Model", &format!("a script at {}", model.base_url()))?;
    printer.fact("Directory", &workspace.root().display().to_string())?;
    let (server, line, passed) =
        Server::start(workspace, &demo_codex).map_err(DemoError::Server)?;
    printer.fact("Server", "codex-mcp serve, on stdin and stdout")?;

    let outcome = Conversation::new(printer, passed, stop)
        .hold(line, &workspace.project())
        .await;
    let time_limit = match outcome {
        Ok(()) => SHUTDOWN_TIMEOUT,
        Err(_) => Duration::ZERO,
    };
    let words = server.end(time_limit).await;
    let release = demo_codex.release();
    outcome.map_err(|error| DemoError::Conversation {
        error,
        release,
        words,
    })?;

    let shown = show_run(workspace, &demo_codex, printer, stop).await;
    shown.map_err(|error| DemoError::Work { error, release })?;
    show_commit(workspace, printer).await?;
    let took = began.elapsed();
    Ok(FinishedDemo { demo_codex, took })
}

/// Shows `codex-mcp run` at a shell.
async fn show_run<W: Write>(
    workspace: &Workspace,
    demo_codex: &DemoCodex,
    printer: &mut Printer<W>,
    stop: &CancellationToken,
) -> Result<(), WorkError> {
    printer.step("Hold Codex to the result")?;
    printer.note(
        "Agents like to promise work and stop. A run looks at the repository after each turn, \
         and sends Codex back to work until what was asked for is there.",
    )?;
    work::work(workspace, demo_codex, printer, stop).await?;
    printer.run_line("")?;
    printer.note(
        "With the command above, you continue a run of your own. That of the demo cannot be \
         continued: its model ends with it, and its directory, which has the evidence too, is \
         removed unless you add --keep.",
    )?;
    Ok(())
}

/// Shows Codex's commit in git.
async fn show_commit<W: Write>(
    workspace: &Workspace,
    printer: &mut Printer<W>,
) -> Result<(), DemoError> {
    printer.step("See what is there")?;
    let files = [
        (script::FILE, script::CONTENT),
        (script::SECOND_FILE, script::SECOND_CONTENT),
    ];
    for (name, content) in files {
        let file = workspace.project().join(name);
        if std::fs::read_to_string(&file).ok().as_deref() != Some(content) {
            return Err(DemoError::NoFile(file));
        }
    }
    let log = workspace.git(&["log", "--oneline"]).await?;
    printer.command("git log --oneline", &log)?;
    let commit = workspace
        .git(&["show", "--stat", "--patch", "--format="])
        .await?;
    printer.command("git show --stat --patch --format=", &commit)?;
    Ok(())
}
