//! `codex-mcp ps`: the work under way, of all clients.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use agent_team::ClaimError;
use anstyle::{AnsiColor, Style};
use common::duration::ago;
use common::output;
use common::timestamp::timestamp;
use host_process::connect;
use host_process::logic::handshake::SessionSummary;
use job_queue::logic::{JobId, JobState};
use job_queue::run::spec::TOOL as RUN_TOOL;
use job_queue::service::Jobs;
use job_queue::store::{JobFilter, JobSummary, StoreError};
use job_queue::{activity, job_json};
use serde::{Serialize, Serializer};
use serde_json::json;
use settings::{Config, Flags};
use tokio::time::sleep;

use super::exit::INTERRUPTED;
use super::jobs;
use super::runtime::{self, unless_interrupted};
use super::serve::{self, HostEndpointError};
use super::stored::complain;
use super::table::{self, Cell, Cut, shown_directory};

/// The most jobs that are listed in each state.
const MOST_JOBS: u32 = 200;

/// The most that is shown of a step and a directory, in characters.
const STEP: usize = 60;
const DIRECTORY: usize = 40;

/// How much of an ID is shown at a terminal, in characters: enough to identify the work.
pub(super) const SESSION_ID: usize = 13;
const JOB_ID: usize = 8;

/// The pause before the work is looked at again.
const PAUSE: Duration = Duration::from_secs(1);

const HEADINGS: [&str; 7] = ["ID", "KIND", "STATE", "AGE", "TOKENS", "DOING", "DIRECTORY"];

const MEANING: &str = "\
Sessions are those of clients that a host process serves. A client that is served alone shows \
its sessions with the tool codex_session. Jobs and runs are those of the store that wait or run; \
`codex-mcp jobs list` lists those that have ended, and `codex-mcp threads` all threads. \
`codex-mcp logs`, `approve`, `decline`, `steer` and `cancel` take the id of any work. An id is \
shortened at a terminal. `asking` means that Codex waits for an answer; DOING is the name of a job \
that has not begun.";

#[derive(Debug, clap::Args)]
#[command(after_help = MEANING)]
pub(super) struct Args {
    /// Print one JSON object instead of a table: {"work": [{"id", "kind": session, job or run,
    /// "state", "created_at", "task", "doing", "tokens", "directory", "thread_id"}]}.
    #[arg(long)]
    json: bool,

    /// List the work again as it changes, until Ctrl-C: at a terminal in place; with --json, one
    /// object per line.
    #[arg(long, short)]
    watch: bool,
}

/// Why the work cannot be listed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] settings::ConfigError),
    #[error(transparent)]
    Home(#[from] ClaimError),
    #[error(transparent)]
    Host(#[from] HostEndpointError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] std::io::Error),
}

/// The kind of some work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::AsRefStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum Kind {
    Session,
    Job,
    Run,
}

/// Some work under way.
#[derive(Debug, PartialEq, Serialize)]
struct Work {
    id: String,
    kind: Kind,
    state: String,
    #[serde(serialize_with = "as_timestamp")]
    created_at: SystemTime,
    /// The name that its caller gave.
    task: Option<String>,
    /// What it does, or waits for.
    doing: Option<String>,
    tokens: Option<u64>,
    directory: Option<String>,
    thread_id: Option<String>,
}

fn as_timestamp<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp(*time))
}

/// The state of work in which Codex asks something.
const ASKING: &str = "asking";

pub(super) fn run(args: &Args) -> ExitCode {
    match list(args) {
        Ok(code) => code,
        // The reader has closed the pipe.
        Err(Failure::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain("error", &error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn list(args: &Args) -> Result<ExitCode, Failure> {
    let config = settings::load(Flags::default())?;
    for warning in &config.warnings {
        complain("warning", &warning.to_string());
    }
    if !config.jobs.state.is_absolute() {
        return Err(ClaimError::NoHome.into());
    }
    let jobs = OnceCell::new();
    runtime::block_on(async {
        if !args.watch {
            print(&work(&config, &jobs).await?, args)?;
            return Ok(ExitCode::SUCCESS);
        }
        match unless_interrupted(watch(&config, &jobs, args)).await {
            Ok(Some(done)) => done,
            Ok(None) => Ok(ExitCode::from(INTERRUPTED)),
            Err(error) => Err(Failure::Runtime(error)),
        }
    })
    .map_err(Failure::Runtime)?
}

/// Prints the work whenever it has changed; at a terminal each second, as its age does.
async fn watch(config: &Config, jobs: &OnceCell<Jobs>, args: &Args) -> Result<ExitCode, Failure> {
    let is_drawn = !args.json && output::stdout_columns().is_some();
    let mut last = None;
    loop {
        let now = Some(work(config, jobs).await?);
        if is_drawn {
            output::stdout().clear_screen()?;
        }
        if is_drawn || now != last {
            print(now.as_deref().unwrap_or_default(), args)?;
            last = now;
        }
        sleep(PAUSE).await;
    }
}

/// All work under way, the newest first. `jobs` is opened once.
async fn work(config: &Config, jobs: &OnceCell<Jobs>) -> Result<Vec<Work>, Failure> {
    let mut work = sessions().await?;
    // A store that does not exist yet is not created to find no jobs in it.
    if config.jobs.store.value.path().is_none_or(Path::exists) {
        let jobs = jobs.get_or_init(|| jobs::service(config));
        work.extend(unfinished_jobs(jobs).await?);
    }
    work.sort_by_key(|one| Reverse(one.created_at));
    Ok(work)
}

fn print(work: &[Work], args: &Args) -> Result<(), Failure> {
    match (args.json, args.watch) {
        (true, true) => output::json_line(&json!({ "work": work }).to_string())?,
        (true, false) => output::json(&json!({ "work": work }))?,
        (false, _) => print_table(work)?,
    }
    Ok(())
}

/// The sessions of all hosts. A host that does not answer is named in a warning.
async fn sessions() -> Result<Vec<Work>, Failure> {
    let mut work = Vec::new();
    for endpoint in serve::all_endpoints()? {
        match connect::sessions(&endpoint).await {
            Ok(sessions) => work.extend(sessions.into_iter().map(of_session)),
            Err(error) => complain("warning", &error.to_string()),
        }
    }
    Ok(work)
}

fn of_session(session: SessionSummary) -> Work {
    let directory = session.directory.as_deref().map(Path::to_string_lossy);
    Work {
        id: session.session,
        kind: Kind::Session,
        state: match session.state.as_str() {
            "waiting_approval" => ASKING.to_owned(),
            _ => session.state,
        },
        created_at: session.created,
        task: None,
        doing: session.step,
        tokens: session.tokens,
        directory: directory.map(Into::into),
        thread_id: Some(session.thread),
    }
}

async fn unfinished_jobs(jobs: &Jobs) -> Result<Vec<Work>, Failure> {
    let mut work = Vec::new();
    for state in [JobState::Running, JobState::Queued] {
        let filter = JobFilter {
            status: Some(state),
            ..JobFilter::default()
        };
        for job in jobs.list(&filter, MOST_JOBS).await?.jobs {
            work.push(of_job(jobs, job).await?);
        }
    }
    Ok(work)
}

async fn of_job(jobs: &Jobs, job: JobSummary) -> Result<Work, Failure> {
    let is_asking = job.state == JobState::Running && !jobs.questions(&job.id).await?.is_empty();
    Ok(Work {
        doing: match job.state {
            JobState::Running => step(jobs, &job.id).await?,
            _ => job_json::waiting(&job).map(|wait| wait.to_string()),
        },
        id: job.id.as_str().to_owned(),
        kind: match job.tool_name == RUN_TOOL {
            true => Kind::Run,
            false => Kind::Job,
        },
        state: match is_asking {
            true => ASKING.to_owned(),
            false => job.state.as_str().to_owned(),
        },
        created_at: job.created_at,
        task: Some(job.task_name),
        tokens: None,
        directory: Some(job.cwd),
        thread_id: job.session_id,
    })
}

async fn step(jobs: &Jobs, job: &JobId) -> Result<Option<String>, StoreError> {
    let events = jobs.tail(job, activity::TAIL).await?;
    let step = activity::current_step(&events, SystemTime::now());
    Ok(step.map(|step| step.to_string()))
}

fn print_table(work: &[Work]) -> Result<(), Failure> {
    let mut out = output::stdout();
    if work.is_empty() {
        writeln!(
            out,
            "No work is under way. `codex-mcp jobs list` lists jobs that have ended."
        )?;
    } else {
        let now = SystemTime::now();
        table::write(HEADINGS, work.iter().map(|one| cells(one, now)), &mut out)?;
    }
    out.flush()?;
    Ok(())
}

fn cells(work: &Work, now: SystemTime) -> [Cell; 7] {
    let age = now.duration_since(work.created_at).unwrap_or_default();
    let tokens = work.tokens.map(|tokens| tokens.to_string());
    let directory = work.directory.as_deref().unwrap_or_default();
    let doing = work.doing.as_deref().or(work.task.as_deref());
    [
        Cell::plain(shown_id(work)),
        Cell::plain(work.kind.as_ref()),
        Cell::coloured(&work.state, style(&work.state)),
        Cell::plain(ago(age)),
        Cell::plain(tokens.unwrap_or_default()),
        Cell::foreign(doing.unwrap_or_default(), STEP),
        Cell::foreign(&shown_directory(directory), DIRECTORY).losing(Cut::Begin),
    ]
}

fn shown_id(work: &Work) -> &str {
    let most = match (output::stdout_columns(), work.kind) {
        (None, _) => usize::MAX,
        (Some(_), Kind::Session) => SESSION_ID,
        (Some(_), Kind::Job | Kind::Run) => JOB_ID,
    };
    work.id.get(..most).unwrap_or(&work.id)
}

fn style(state: &str) -> Style {
    match state {
        ASKING => AnsiColor::Yellow.on_default(),
        "running" => AnsiColor::Cyan.on_default(),
        "error" => AnsiColor::Red.on_default(),
        _ => Style::new(),
    }
}
