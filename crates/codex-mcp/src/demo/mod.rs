//! The demo: codex-mcp at work in a few seconds, without an account.
//!
//! Everything is real but the model: a Codex, a `codex-mcp serve`, an MCP
//! client, a git repository. The model's part is read from a script, so that
//! the demo costs nothing and always goes the same way.
//!
//! ```text
//! talk ── wire ── codex-mcp serve ─┬─ codex app-server ── scripted model
//! work ────────── codex-mcp run ───┘      └── on the stage: one directory
//!  └── show: each message as it passes, each line as it comes
//! ```
//!
//! Nothing is left running and, unless the user wants to keep it, nothing is
//! left behind, however the demo ends.
#![expect(
    clippy::disallowed_methods,
    reason = "files in a directory that is the demo's alone"
)]

mod cast;
mod directory;
mod error;
mod install;
mod message;
mod next;
mod script;
mod server;
mod show;
mod stage;
mod tail;
mod talk;
mod wire;
mod work;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use codex_engine::binary::Source;
use common::output::Output;
use scripted_model::ScriptedModel;
use tokio_util::sync::CancellationToken;

use cast::Cast;
use server::Server;
use show::Show;
use stage::Stage;
use talk::Talk;

pub use cast::CastError;
pub use error::{Cause, DemoError};
pub use install::InstallError;
pub use stage::StageError;
pub use talk::TalkError;
pub use work::WorkError;

/// How long the server may take to end after a conversation that went well.
const END_PATIENCE: Duration = Duration::from_secs(4);

/// What becomes of the demo's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// It is removed.
    Remove,
    /// It stays for the user to look at.
    Keep,
}

/// What the user can choose.
#[derive(Debug)]
pub struct Options {
    /// The Codex that was chosen, and where; else one is found or installed.
    pub codex_bin: Option<(PathBuf, Source)>,
    /// What becomes of the directory.
    pub afterwards: Afterwards,
}

/// A demo that came to its end.
struct Played {
    cast: Cast,
    /// Without the time that an installation took.
    took: Duration,
}

/// Plays the demo and tells it to `out`. Cancelling `stop` ends it early, and
/// cleanly.
///
/// # Errors
///
/// [`DemoError`]. Nothing is left running then either.
pub async fn run<W: Write>(
    options: Options,
    out: Output<W>,
    stop: &CancellationToken,
) -> Result<(), DemoError> {
    let Options {
        codex_bin,
        afterwards,
    } = options;
    let mut show = Show::new(out);
    show.title(
        "codex-mcp demo",
        "Hands work to Codex, the coding agent: over MCP, and at a shell until the result is there. \
         Everything is real but the model, which is played from a script: no account is needed \
         and nothing is charged. It happens in one temporary directory; your ~/.codex is not touched.",
    )?;
    let model = ScriptedModel::start(script::script()).await?;
    let stage = Stage::set(&model.codex_config())?;
    let root = stage.root().display().to_string();
    let played = play(&stage, &model, codex_bin, &mut show, stop).await;
    let rest = match afterwards {
        Afterwards::Remove => {
            let cleared = stage.clear().await;
            // Why it was not played to its end is more important.
            if played.is_ok() {
                cleared?;
            }
            match &played {
                Ok(Played { cast, .. }) if cast.is_ours() => {
                    "Nothing is left running, and nothing but that Codex is left behind."
                }
                _ => "Nothing is left running, and nothing is left behind.",
            }
            .to_owned()
        }
        Afterwards::Keep => {
            stage.keep();
            if played.is_err() {
                let _ = show.fact("Kept", &root);
            }
            format!("Nothing is left running. Kept: {root}")
        }
    };
    let Played { cast, took } = played?;
    show.done(took, &rest)?;
    next::tell(&mut show, &cast)?;
    Ok(())
}

async fn play<W: Write>(
    stage: &Stage,
    model: &ScriptedModel,
    codex_bin: Option<(PathBuf, Source)>,
    show: &mut Show<W>,
    stop: &CancellationToken,
) -> Result<Played, DemoError> {
    show.step("Set the stage")?;
    // First: without git there is no need to install anything.
    stage.start_repository().await?;
    let cast = Cast::find(codex_bin, show, stop).await?;
    let began = Instant::now();
    show.fact("Codex", &cast.introduce(stage).await?)?;
    show.fact("Model", &format!("a script at {}", model.base_url()))?;
    show.fact("Directory", &stage.root().display().to_string())?;
    let (server, line, passed) = Server::start(stage, &cast).map_err(DemoError::Server)?;
    show.fact("Server", "codex-mcp serve, on stdin and stdout")?;

    let talked = Talk::new(show, passed, stop)
        .hold(line, &stage.project())
        .await;
    let patience = match talked {
        Ok(()) => END_PATIENCE,
        Err(_) => Duration::ZERO,
    };
    let words = server.end(patience).await;
    talked.map_err(|error| DemoError::Talk { error, words })?;

    hold_to_the_result(stage, &cast, show, stop).await?;
    look(stage, show).await?;
    let took = began.elapsed();
    Ok(Played { cast, took })
}

/// The part at a shell.
async fn hold_to_the_result<W: Write>(
    stage: &Stage,
    cast: &Cast,
    show: &mut Show<W>,
    stop: &CancellationToken,
) -> Result<(), WorkError> {
    show.step("Hold Codex to the result")?;
    show.note(
        "Agents like to promise work and stop. A run looks at the repository after each turn, \
         and sends Codex back to work until what was asked for is there.",
    )?;
    work::work(stage, cast, show, stop).await
}

/// What git sees of Codex's work.
async fn look<W: Write>(stage: &Stage, show: &mut Show<W>) -> Result<(), DemoError> {
    show.step("See what is there")?;
    let files = [
        (script::FILE, script::CONTENT),
        (script::SECOND_FILE, script::SECOND_CONTENT),
    ];
    for (name, content) in files {
        let file = stage.project().join(name);
        if std::fs::read_to_string(&file).ok().as_deref() != Some(content) {
            return Err(DemoError::NoFile(file));
        }
    }
    let log = stage.git(&["log", "--oneline"]).await?;
    show.command("git log --oneline", &log)?;
    let commit = stage
        .git(&["show", "--stat", "--patch", "--format="])
        .await?;
    show.command("git show --stat --patch --format=", &commit)?;
    Ok(())
}
