//! `codex-mcp review`: a review of changes by Codex.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use codex_config::profile as profiles;
use codex_config::profile::{NoProfile, ProfileName};
use codex_engine::binary::NoCodex;
use codex_engine::command::Settings;
use codex_engine::logic::progress::CurrentStep;
use codex_engine::logic::review::Review;
use codex_engine::logic::session::Timeouts;
use codex_engine::{Engine, EngineError, Launch, LaunchError, Options};
use codex_protocol::codex::Effort;
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use common::{duration, output};
use goal_run::reviewer::{ReviewError, ReviewRequest, ReviewResult, ReviewScope, run_review};
use mcp_server::Defaults;
use safe_files::directory::resolved;
use serde_json::json;
use settings::{Config, ConfigError, Flags};

use super::exit::{self, COULD_NOT, FAILED};
use super::progress::ProgressLine;
use super::shutdown::{self, Shutdown};
use super::stored::complain;
use super::values::{one_of, profile};
use super::{log, runtime};

const HELP: &str = "\
Examples:
  codex-mcp review                    uncommitted changes
  codex-mcp review --base main        what this branch adds to main
  codex-mcp review --commit HEAD      the last commit
  codex-mcp review \"Only the error handling in src/parse.rs\"

Exit codes: 0 the reviewer has no comments (its summary may still have doubts), 1 it has \
comments, 3 there is no review (also for a wrong command line), 130 after Ctrl-C.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// What to review, in words.
    #[arg(conflicts_with_all = ["base", "commit"])]
    subject: Option<String>,

    /// Review the changes since the merge base with this branch.
    #[arg(long, value_name = "BRANCH", conflicts_with = "commit")]
    base: Option<String>,

    /// Review the changes of this commit: its ID, or any name that git knows.
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,

    /// The repository. Default: that of the current directory.
    #[arg(
        long,
        alias = "repo",
        value_name = "DIR",
        default_value = ".",
        hide_default_value = true
    )]
    cwd: PathBuf,

    /// How long the review may take.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration::parse)]
    timeout: Duration,

    /// The model, as Codex names it. Default: `review_model` of Codex's configuration.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    model: Option<String>,

    /// How hard the model thinks. Not every model accepts every value.
    #[arg(long, value_parser = one_of::<Effort>())]
    effort: Option<Effort>,

    /// A profile of Codex's configuration.
    #[arg(long, value_name = "NAME", value_parser = profile)]
    profile: Option<ProfileName>,

    /// Print one JSON object, in which `ok` means that there are no comments: {"ok", "summary",
    /// "comments": [{"title", "place"?, "body"}], "thread_id"}, or {"ok": false, "error"}.
    #[arg(long)]
    json: bool,

    /// The Codex to run: a path, or a name on PATH. Default: the variable
    /// CODEX_MCP_CODEX_BIN, `codex_bin` in the configuration, else `codex` on PATH.
    #[arg(long, value_name = "PATH")]
    codex_bin: Option<PathBuf>,
}

/// Why there is no review.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the text is empty: say what to review, or omit it for what is not committed")]
    NoSubject,
    #[error("--timeout: a review takes more than 0 s")]
    NoTime,
    #[error("there is no directory {}; --cwd names the repository", .0.display())]
    NoDirectory(PathBuf),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Profile(#[from] NoProfile),
    #[error("{}", in_words(.0))]
    Review(#[from] ReviewError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(io::Error),
    #[error("{}", .0.with_remedy())]
    NoCodex(NoCodex),
}

impl Failure {
    /// A tool's result has the remedy for a missing Codex in its hint; here the error has it.
    fn of_review(error: ReviewError) -> Self {
        if let ReviewError::Engine(EngineError::Launch(launch)) = &error
            && let LaunchError::NoCodex(none) = launch.as_ref()
        {
            return Self::NoCodex(none.clone());
        }
        Self::Review(error)
    }
}

/// An error in the terms of the command line.
fn in_words(error: &ReviewError) -> String {
    match error {
        ReviewError::Git(git) if git.is_no_repository() => {
            format!("{error}; --cwd names another directory")
        }
        other => other.to_string(),
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    log::start_quietly();
    let shutdown = OnceLock::new();
    match act(args, &shutdown) {
        Ok(code) => code,
        Err(error) => {
            if args.json {
                // If it cannot be written, the exit code reports the error.
                let _ = output::json(&json!({ "ok": false, "error": error.to_string() }));
            }
            complain("error", &error.to_string());
            let signal = shutdown.get().and_then(Shutdown::signal);
            ExitCode::from(signal.map_or(COULD_NOT, exit::signal_code))
        }
    }
}

fn act(args: &Args, shutdown: &OnceLock<Shutdown>) -> Result<ExitCode, Failure> {
    args.check()?;
    let config = settings::load(Flags {
        codex_bin: args.codex_bin.clone(),
        ..Flags::default()
    })?;
    for warning in &config.warnings {
        complain("warning", &warning.to_string());
    }
    if let Some(profile) = &args.profile {
        profiles::check_exists(&config.codex_home, profile)?;
    }
    let reviewed = runtime::block_on(async {
        let shutdown = shutdown.get_or_init(|| Shutdown::on_signals(shutdown::TOOL_LIMIT));
        review(args, &config, shutdown).await
    });
    let reviewed = reviewed.map_err(Failure::Runtime)??;
    show(args, &reviewed).map_err(Failure::Write)
}

async fn review(
    args: &Args,
    config: &Config,
    shutdown: &Shutdown,
) -> Result<ReviewResult, Failure> {
    let cwd = resolved(&args.cwd);
    let target = args.subject().target(&cwd).await?;
    let mut settings = Settings::default();
    settings.thread.cwd = Some(cwd);
    settings.thread.model.clone_from(&args.model);
    settings.model_options.effort = args.effort;
    settings.profile.clone_from(&args.profile);
    let settings = Defaults::read(&config.threads)?.apply(settings).await;
    let engine = engine(config, args.timeout);
    let progress = RefCell::new(ProgressLine::on_stderr());
    let asked = ReviewRequest {
        target,
        limit: args.timeout,
        stop: &shutdown.closing,
        on_step: &|step: &CurrentStep| progress.borrow_mut().draw(&format!("  {}", step.words)),
    };
    let reviewed = run_review(&engine, settings, asked).await;
    engine.shut_down().await;
    reviewed.map_err(Failure::of_review)
}

fn engine(config: &Config, timeout: Duration) -> Engine {
    let engine = Engine::new(Options {
        launch: Launch {
            codex: config.chosen_codex(),
            line_limit: DEFAULT_LINE_LIMIT,
        },
        codex_home: config.codex_home.clone(),
        timeouts: Timeouts {
            // Reviews ask no questions.
            approval: timeout,
            stall: config.alerts.stall_timeout.value,
        },
    });
    engine.with_warnings(|warning| complain("warning", &warning))
}

/// Prints the review; for people, as the reviewer wrote it.
fn show(args: &Args, reviewed: &ReviewResult) -> io::Result<ExitCode> {
    let review = Review::read(&reviewed.text);
    let ok = review.comments.is_empty();
    let shown = match args.json {
        true => output::json(&json!({
            "ok": ok,
            "summary": review.summary,
            "comments": review.comments,
            "thread_id": reviewed.thread,
        })),
        false => output::answer(reviewed.text.trim()),
    };
    match shown {
        // The reader has closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    Ok(match ok {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILED),
    })
}

impl Args {
    fn check(&self) -> Result<(), Failure> {
        let subject = self.subject.as_deref();
        if subject.is_some_and(|words| words.trim().is_empty()) {
            return Err(Failure::NoSubject);
        }
        if self.timeout.is_zero() {
            return Err(Failure::NoTime);
        }
        let cwd = resolved(&self.cwd);
        match cwd.is_dir() {
            true => Ok(()),
            false => Err(Failure::NoDirectory(cwd)),
        }
    }

    fn subject(&self) -> ReviewScope {
        match (&self.base, &self.commit, &self.subject) {
            (Some(branch), ..) => ReviewScope::Since(branch.clone()),
            (None, Some(commit), _) => ReviewScope::Commit(commit.clone()),
            (None, None, Some(words)) => ReviewScope::Described(words.clone()),
            (None, None, None) => ReviewScope::Uncommitted,
        }
    }
}
