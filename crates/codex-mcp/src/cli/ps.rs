//! `codex-mcp ps`: the work of all clients that has not ended.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use common::duration::ago;
use common::output;
use host_process::connect::ConnectError;
use job_queue::service::Jobs;
use job_queue::store::{JobFilter, JobStore, StoreError};
use serde::Serialize;
use serde_json::json;
use settings::Config;
use tokio::time::sleep;

use super::exit::INTERRUPTED;
use super::jobs;
use super::runtime::{self, unless_interrupted};
use super::stored::{self, Failure, complain, partial_configuration};
use super::table::{self, Cell, Cut, shown_directory};
use super::work_list::{self, ASKING, UnfinishedJobs, Work, unfinished_jobs};

/// The longest step and the longest directory that are shown, in characters.
const STEP: usize = 60;
const DIRECTORY: usize = 40;

/// The pause before the work is looked at again.
const PAUSE: Duration = Duration::from_secs(1);

const HEADINGS: [&str; 7] = ["ID", "KIND", "STATE", "AGE", "TOKENS", "DOING", "DIRECTORY"];

/// The advice for work in which Codex asks something.
const HOW_TO_ANSWER: &str = "\
asking: `codex-mcp logs ID` (a session) or `codex-mcp jobs show ID` (a job)
        shows the question, and the commands that allow or decline it";

/// The line in place of an empty table.
const NOTHING: &str = "No work is under way (a `codex-mcp run` without --detach is not listed). \
     `codex-mcp jobs list` lists jobs that have ended.";

const MEANING: &str = "\
Sessions are those of clients that a host process serves. A client that is served alone shows its \
sessions with the tool codex_session. Jobs and runs are the queued and running ones of the store; \
a `codex-mcp run` without --detach is not among them. `codex-mcp jobs list` also lists ended \
ones, and `codex-mcp threads` all threads. `codex-mcp logs`, `approve`, `decline`, `steer` and \
`cancel` take the ID of any work. IDs are shortened at a terminal. `asking` means that Codex waits \
for an answer. For idle work, DOING is the name of the job, or the first prompt of the session.";

#[derive(Debug, clap::Args)]
#[command(after_help = MEANING)]
pub(super) struct Args {
    /// Print one JSON object instead of a table: {"work": [{"id", "kind": session, job or run,
    /// "state", "created_at", "task", "doing", "tokens", "cost": {"amount", "currency"}, "directory",
    /// "thread_id"}]}, with "failures": the errors of hosts and of the job store whose work is missing
    /// from it, if there are any; and "more": the number of older jobs and runs that are not listed, if
    /// there are any.
    #[arg(long)]
    json: bool,

    /// List the work again as it changes, until Ctrl-C: at a terminal in place; with --json, one
    /// object per line.
    #[arg(long, short)]
    watch: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    stored::exit(list(args))
}

fn list(args: &Args) -> Result<ExitCode, Failure> {
    let config = partial_configuration::<Failure>()?;
    let jobs = OnceCell::new();
    runtime::block_on(async {
        if !args.watch {
            let listing = gather(&config, &jobs).await?;
            print(&listing, args)?;
            return Ok(listing.exit_code());
        }
        match unless_interrupted(watch(&config, &jobs, args)).await {
            Ok(Some(done)) => done,
            Ok(None) => Ok(ExitCode::from(INTERRUPTED)),
            Err(error) => Err(Failure::Runtime(error)),
        }
    })
    .map_err(Failure::Runtime)?
}

/// Prints the work whenever it has changed. At a terminal, it is printed each second, as its age
/// changes.
async fn watch(config: &Config, jobs: &OnceCell<Jobs>, args: &Args) -> Result<ExitCode, Failure> {
    let is_drawn = !args.json && output::stdout_columns().is_some();
    let mut last: Option<Listing> = None;
    loop {
        let now = gather(config, jobs).await?;
        if is_drawn {
            output::stdout().clear_screen()?;
        }
        if is_drawn || last.as_ref() != Some(&now) {
            print(&now, args)?;
            last = Some(now);
        }
        sleep(PAUSE).await;
    }
}

/// The work under way.
#[derive(Debug, PartialEq, Serialize)]
struct Listing {
    /// The newest first.
    work: Vec<Work>,
    /// The errors of the hosts, and of the job store, whose work is missing from `work`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<String>,
    /// The number of jobs and runs that `work` leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    more: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Listing {
    fn exit_code(&self) -> ExitCode {
        match self.failures.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

/// Gathers all work that has not ended. The job store is opened at the first call, and kept in
/// `jobs`.
async fn gather(config: &Config, jobs: &OnceCell<Jobs>) -> Result<Listing, Failure> {
    let mut failures = Vec::new();
    let silent = |error: ConnectError| failures.push(error.to_string());
    let mut work = work_list::sessions(&config.prices.prices(), silent).await?;
    let stored = stored_work(config, jobs).await.unwrap_or_else(|error| {
        failures.push(error.to_string());
        UnfinishedJobs::default()
    });
    work.extend(stored.work);
    work.sort_by_key(|one| Reverse(one.created_at));
    Ok(Listing {
        work,
        failures,
        more: stored.more,
    })
}

/// The jobs and runs that wait or run.
async fn stored_work(config: &Config, jobs: &OnceCell<Jobs>) -> Result<UnfinishedJobs, StoreError> {
    if !JobStore::exists(&config.jobs.store)? {
        return Ok(UnfinishedJobs::default());
    }
    let jobs = jobs.get_or_init(|| jobs::service(config));
    let list = async |filter: &JobFilter, most| jobs.list(filter, most).await;
    unfinished_jobs(jobs.store().await?, list).await
}

fn print(listing: &Listing, args: &Args) -> Result<(), Failure> {
    let Listing {
        work,
        failures,
        more,
    } = listing;
    for failure in failures {
        complain("error", failure);
    }
    match (args.json, args.watch) {
        (true, true) => output::json_line(&json!(listing).to_string())?,
        (true, false) => output::json(&json!(listing))?,
        // There may be work where it cannot be listed.
        (false, _) if work.is_empty() && !failures.is_empty() => {}
        (false, _) => print_table(work, *more)?,
    }
    Ok(())
}

fn print_table(work: &[Work], more: u64) -> Result<(), Failure> {
    if work.is_empty() {
        return Ok(output::stdout_message(NOTHING)?);
    }
    let mut out = output::stdout();
    let now = SystemTime::now();
    table::write(HEADINGS, work.iter().map(|one| cells(one, now)), &mut out)?;
    if more > 0 {
        writeln!(
            out,
            "… and {more} more: `codex-mcp jobs list --status queued --limit 1000`"
        )?;
    }
    if work.iter().any(Work::is_asking) {
        writeln!(out, "\n{HOW_TO_ANSWER}")?;
    }
    out.flush()?;
    Ok(())
}

fn cells(work: &Work, now: SystemTime) -> [Cell; 7] {
    let age = now.duration_since(work.created_at).unwrap_or_default();
    let tokens = work.tokens.map(|tokens| tokens.to_string());
    let directory = work.directory.as_deref().unwrap_or_default();
    let doing = work.doing.as_ref().map(ToString::to_string);
    let doing = doing.or_else(|| work.task.clone()).unwrap_or_default();
    [
        Cell::plain(shown_id(work)),
        Cell::plain(work.kind.as_ref()),
        Cell::coloured(&work.state, style(&work.state)),
        Cell::plain(ago(age)),
        Cell::plain(tokens.unwrap_or_default()),
        Cell::foreign(&doing, STEP),
        Cell::foreign(&shown_directory(directory), DIRECTORY).losing(Cut::Begin),
    ]
}

fn shown_id(work: &Work) -> &str {
    match output::stdout_columns() {
        Some(_) => work.short_id(),
        None => &work.id,
    }
}

fn style(state: &str) -> Style {
    match state {
        ASKING => AnsiColor::Yellow.on_default(),
        "running" => AnsiColor::Cyan.on_default(),
        "error" => AnsiColor::Red.on_default(),
        _ => Style::new(),
    }
}
