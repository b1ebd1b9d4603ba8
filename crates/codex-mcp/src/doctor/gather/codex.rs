//! Probes of Codex.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use codex_engine::binary::{self, CodexBinary, NoCodex};
use codex_engine::logic::session::Timeouts;
use codex_engine::{Engine, Launch, LimitsUnknown, Options, help};
use codex_protocol::codex::RateLimits;
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use settings::Config;
use supervise::exit::Exit;
use supervise::spawn::Program;

use super::super::facts::{Codex, CommandOutcome, Commands, InitializeOutcome, Probes};
use super::super::judge::codex_version;
use super::ask;

/// The exit code of Codex for a wrong command line.
const USAGE: Exit = Exit::Code(2);

/// Asks a program for its version, and probes it further only if the version is Codex's: an
/// unknown program could do anything with other arguments.
pub(super) async fn inspect(config: Config, limit: Duration) -> Result<Codex, NoCodex> {
    let binary = binary::find(config.chosen_codex())?;
    let version = ask(&command(&binary, &["--version"]), limit).await;
    let probes = match codex_version(&version) {
        Some(_) => Some(probe(&binary, config, limit).await),
        None => None,
    };
    Ok(Codex {
        binary,
        version,
        probes,
    })
}

/// A Codex, its version and its login, if it is one.
#[derive(Debug)]
pub(in super::super) struct BriefCodex {
    pub(in super::super) binary: CodexBinary,
    pub(in super::super) version: CommandOutcome,
    pub(in super::super) login: Option<CommandOutcome>,
}

/// The same as [`inspect`] without the probes that take long.
pub(super) async fn inspect_briefly(
    config: &Config,
    limit: Duration,
) -> Result<BriefCodex, NoCodex> {
    let binary = binary::find(config.chosen_codex())?;
    let version = ask(&command(&binary, &["--version"]), limit).await;
    let login = match codex_version(&version) {
        Some(_) => Some(ask(&command(&binary, &LOGIN_STATUS), limit).await),
        None => None,
    };
    Ok(BriefCodex {
        binary,
        version,
        login,
    })
}

/// The arguments by which Codex tells whether it is logged in.
const LOGIN_STATUS: [&str; 2] = ["login", "status"];

async fn probe(binary: &CodexBinary, config: Config, limit: Duration) -> Probes {
    let login = command(binary, &LOGIN_STATUS);
    let ((app_server, limits), commands, login, sandbox) = tokio::join!(
        introduce(config, limit),
        commands(binary, limit),
        ask(&login, limit),
        try_sandbox(binary, limit),
    );
    Probes {
        commands,
        app_server,
        login,
        limits,
        asked_at: SystemTime::now(),
        sandbox,
    }
}

async fn commands(binary: &CodexBinary, limit: Duration) -> Commands {
    let outcome = |name| {
        let program = help(binary, name);
        async move { ask(&program, limit).await }
    };
    let (app_server, exec, mcp_server) = tokio::join!(
        outcome("app-server"),
        outcome("exec"),
        outcome("mcp-server")
    );
    Commands {
        app_server,
        exec,
        mcp_server,
    }
}

/// Starts an app-server as `serve` does, queries the usage limits, and ends it.
async fn introduce(
    config: Config,
    limit: Duration,
) -> (InitializeOutcome, Result<RateLimits, LimitsUnknown>) {
    let engine = Engine::new(Options {
        launch: Launch {
            codex: config.chosen_codex(),
            line_limit: DEFAULT_LINE_LIMIT,
        },
        codex_home: config.codex_home,
        timeouts: Timeouts {
            approval: limit,
            stall: limit,
        },
    });
    let start = Instant::now();
    let introduced = match tokio::time::timeout(limit, engine.introduce()).await {
        Ok(Ok(_)) => InitializeOutcome::Answered(start.elapsed()),
        Ok(Err(error)) => InitializeOutcome::Failed(error.to_string()),
        Err(_) => InitializeOutcome::TimedOut(limit),
    };
    let limits = match introduced {
        InitializeOutcome::Answered(_) => engine.query_limits().await,
        _ => Err(LimitsUnknown::NoCodex),
    };
    engine.shut_down().await;
    (introduced, limits)
}

/// Runs `true` in Codex's sandbox, in a temporary directory, because some releases
/// leave traces of the sandbox behind (0.153.4).
async fn try_sandbox(binary: &CodexBinary, limit: Duration) -> CommandOutcome {
    let directory = match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => return CommandOutcome::Failed(format!("no temporary directory: {error}")),
    };
    let outcome = ask(&sandboxed(binary, directory.path(), &["--"]), limit).await;
    match &outcome {
        // Older releases (0.104.0) need the name of the platform.
        CommandOutcome::Ended(finished) if finished.exit == USAGE => {
            let system = if cfg!(target_os = "macos") {
                "macos"
            } else {
                "linux"
            };
            ask(&sandboxed(binary, directory.path(), &[system, "--"]), limit).await
        }
        _ => outcome,
    }
}

fn sandboxed(binary: &CodexBinary, directory: &Path, how: &[&str]) -> Program {
    let args: Vec<&str> = [&["sandbox"], how, &["true"]].concat();
    let mut program = command(binary, &args);
    program.cwd = Some(directory.to_owned());
    program.env.push(("TMPDIR".into(), directory.into()));
    program
}

fn command(binary: &CodexBinary, args: &[&str]) -> Program {
    let mut program = Program::new(&binary.native, args);
    program.env = binary.env();
    program
}
