//! `codex-mcp jobs`: durable work that does not need a waiting client.

pub(super) mod answer;
mod cancel;
pub(super) mod failure;
mod find;
mod list;
mod login;
mod logs;
mod next_step;
mod prune;
mod resume;
mod schema;
mod show;
mod show_run;
mod steer;
mod submit;
mod wait;
mod watcher;

use std::process::ExitCode;

use agent_team::{ClaimError, Member};
use anstyle::{AnsiColor, Style};
use clap::Subcommand;
use job_queue::logic::JobState;
use job_queue::service::Jobs;
use serde_json::Value;
use settings::store_location::Location;
use settings::{Config, Flags, Source};

use super::job_service::job_service;
use super::runtime;
use super::stored::{complain, load_partial};
pub(in crate::cli) use failure::Failure;
use failure::exit;

pub(super) use cancel::cancel;
pub(super) use login::missing_login;
pub(super) use logs::{LogForm, logs};
pub(super) use resume::retry;
pub(super) use steer::steer;
pub(super) use submit::submit_run;

/// Examples and exit codes.
const EXAMPLES: &str = "\
Examples:
  codex-mcp jobs submit \"Fix the failing test\"     print the ID of the new job
  git diff | codex-mcp jobs submit --wait -        take the prompt from stdin
  codex-mcp jobs list                              list the latest jobs
  codex-mcp jobs wait 2f6c1d3e                     wait for the answer
  codex-mcp jobs show 2f6c1d3e                     show all, with its questions
  codex-mcp jobs approve 2f6c1d3e req_5d1e9c2a     allow what it asks for
  codex-mcp jobs steer 2f6c1d3e \"Skip the docs\"    add this to its turn
  codex-mcp jobs resume 2f6c1d3e \"Add a test\"      continue its thread

Name a job by its ID, or by a prefix of it: 8 characters, or more if several IDs share these. \
`codex-mcp worker`, which the first job starts, runs the jobs, even if this shell is closed. MCP \
clients submit jobs with the tools `call_codex` and `codex_run`, and `codex-mcp run --detach` \
submits runs. They share this store.

Exit codes: 0 success, 1 the job has failed or cannot be cancelled, 2 the job was cancelled, 3 \
the verb itself failed (also for a wrong command line), 124 the timeout of `wait` has passed, 130 \
after Ctrl-C. docs/command-line.md lists those of all verbs in one table.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(super) struct Args {
    /// Where jobs are kept: a file, or postgres://USER@HOST/DATABASE for several
    /// machines. Default: the variable CODEX_MCP_STORE, `store` in the configuration,
    /// else ~/.local/state/codex-mcp/jobs.db.
    #[arg(long, value_name = "LOCATION", global = true)]
    store: Option<Location>,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Submit a task; prints the ID of the job and returns at once.
    Submit(Box<submit::Args>),
    /// List the jobs, the newest first.
    List(list::Args),
    /// Show a job: its prompt, its state and its result.
    Show(show::Args),
    /// Show the events of a job, one per line.
    Logs(logs::Args),
    /// Wait until jobs have ended, then print Codex's final message.
    Wait(wait::Args),
    /// Cancel jobs: end Codex's turn and all processes that its commands have started.
    Cancel(cancel::Args),
    /// Approve Codex's request in a job.
    Approve(answer::ApproveArgs),
    /// Decline Codex's request in a job.
    Decline(answer::DeclineArgs),
    /// Send Codex a message while it works on a job.
    Steer(steer::Args),
    /// Continue the thread of a job with a new job.
    Resume(resume::Args),
    /// Submit the same task again, as a new job.
    Retry(resume::RetryArgs),
    /// Remove jobs that ended long ago, with their logs.
    Prune(prune::Args),
    /// Print the SQL that creates the tables of a PostgreSQL store, for its
    /// administrator.
    Schema(schema::Args),
}

pub(super) fn run(args: &Args) -> ExitCode {
    exit(act(args))
}

fn act(args: &Args) -> Result<ExitCode, Failure> {
    let config = load(args)?;
    let store = &config.jobs.store;
    let may_be_missing = matches!(args.verb, Verb::Submit(_) | Verb::Schema(_));
    if matches!(store.source, Source::Flag(_)) && !may_be_missing {
        must_exist(&store.value)?;
    }
    runtime::block_on(args.verb.act(config)).map_err(Failure::Runtime)?
}

impl Verb {
    /// Whether the verb submits a job: it then needs all settings to be right.
    fn submits(&self) -> bool {
        matches!(self, Self::Submit(_) | Self::Resume(_) | Self::Retry(_))
    }

    async fn act(&self, config: Config) -> Result<ExitCode, Failure> {
        match self {
            Self::Submit(args) => args.act(&config).await,
            Self::List(args) => args.act(&service(&config)).await,
            Self::Show(args) => args.act(&service(&config)).await,
            Self::Logs(args) => args.act(&service(&config)).await,
            Self::Wait(args) => args.act(&service(&config)).await,
            Self::Cancel(args) => args.act(&service(&config)).await,
            Self::Approve(args) => args.act(&service(&config)).await,
            Self::Decline(args) => args.act(&service(&config)).await,
            Self::Steer(args) => args.act(&service(&config)).await,
            Self::Resume(args) => args.act(config).await,
            Self::Retry(args) => args.act(config).await,
            Self::Prune(args) => args.act(&service(&config)).await,
            Self::Schema(args) => args.act(),
        }
    }
}

fn load(args: &Args) -> Result<Config, Failure> {
    let flags = Flags {
        store: args.store.clone(),
        ..Flags::default()
    };
    let config = match args.verb.submits() {
        true => settings::load(flags)?,
        false => load_partial(&flags)?,
    };
    for warning in &config.warnings {
        complain("warning", &warning.to_string());
    }
    check_homes(&config)?;
    Ok(config)
}

/// Checks that the home directory of teams and our own state directory are known.
fn check_homes(config: &Config) -> Result<(), Failure> {
    match config.atm_home.is_absolute() && config.jobs.state.is_absolute() {
        true => Ok(()),
        false => Err(ClaimError::NoHome.into()),
    }
}

/// Adds `thread_id` to a record of a job: the command line calls Codex's conversations threads,
/// the compatible tools call them sessions.
fn with_thread_id(mut job: Value) -> Value {
    if let Some(members) = job.as_object_mut() {
        let thread = members.get("session_id").cloned().unwrap_or_default();
        members.insert("thread_id".to_owned(), thread);
    }
    job
}

/// A store that the command line names must exist: only `submit` creates one.
fn must_exist(store: &Location) -> Result<(), Failure> {
    match store.path() {
        Some(path) if !path.exists() => Err(Failure::Cannot(format!(
            "there is no job store {store}; correct --store, or leave it out. `codex-mcp jobs \
             submit` makes one"
        ))),
        _ => Ok(()),
    }
}

/// The job service of the configured store, for a person at a shell.
pub(super) fn service(config: &Config) -> Jobs {
    let member = Member {
        identity: config.identity.value.clone(),
        team: config.team.as_ref().map(|team| team.value.clone()),
    };
    job_service(config, &member, "codex-mcp jobs", |error| {
        complain(
            "warning",
            &format!("what is asked for is not written into the audit: {error}"),
        );
    })
}

/// The colour of a state.
fn state_style(state: JobState) -> Style {
    match state {
        JobState::Queued => Style::new(),
        JobState::Running => AnsiColor::Cyan.on_default(),
        JobState::Completed => AnsiColor::Green.on_default(),
        JobState::Failed => AnsiColor::Red.on_default(),
        JobState::Cancelled => AnsiColor::Yellow.on_default(),
    }
}
