//! `codex-mcp threads`: lists the recorded threads, and removes old ones.

pub(super) mod job_threads;
mod table;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use agent_team::Claim;
use agent_team::logic::registry::{Change, ChangeOutcome, Entry, Status, TurnState};
use agent_team::logic::{AgentName, ThreadName};
use agent_team::registry::{self, Registry, RegistryError};
use agent_team::summary::Summaries;
use clap::ValueEnum;
use common::{duration, output};
use serde_json::{Value, json};

use super::stored::{self, Failure, StorageSettings, complain};

/// The default of `--older-than`: how long a thread must be idle to be removed.
const OLD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The statuses, explained.
const STATUSES: &str = "\
STATE is active while a server or a job holds the thread, and ended afterwards. LAST TURN is the \
state of its last turn: running, completed, interrupted or failed. SUMMARY says whether Codex \
summarised the thread when it ended: `codex-mcp summary THREAD` prints the summary. At a \
terminal, an ID is shortened to its first characters; each verb also accepts these.

`codex-mcp run --thread THREAD` and the tool codex-reply continue a thread; `codex-mcp serve \
--resume THREAD` gives its summary to the first new thread. Removing a thread here doesn't touch \
Codex's own record of it.";

#[derive(Debug, clap::Args)]
#[command(after_help = STATUSES)]
pub(super) struct Args {
    /// Only threads that worked in the repository of this name.
    #[arg(long, value_name = "NAME")]
    repo: Option<String>,

    /// Only threads of this identity.
    #[arg(long, value_name = "NAME")]
    identity: Option<AgentName>,

    /// Only threads in this state.
    #[arg(long, value_enum)]
    status: Option<StatusFilter>,

    /// Remove inactive threads that have not been used for long, and their summaries.
    /// Prints what it removes.
    #[arg(long)]
    prune: bool,

    /// With --prune: the age of old threads, such as 12h, 7d or "2 months". Default: 30d.
    #[arg(long, value_name = "TIME", requires = "prune", value_parser = duration::parse)]
    older_than: Option<Duration>,

    /// With --prune: print what would be removed, and remove nothing.
    #[arg(long, requires = "prune")]
    dry_run: bool,

    /// Print one JSON object instead of a table: {"threads": [as in the registry, and
    /// "summary": whether there is one; "job_id" of a job's thread]}; with --prune those
    /// that are removed. "status" is "interrupted" for those that ended without a summary.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusFilter {
    /// A server has it
    Active,
    /// No server has it any more
    Ended,
    /// Ended without a summary, as "status" of --json has it
    Interrupted,
}

/// The threads, and the exit code: failure if a registry could not be read.
struct FoundThreads {
    entries: Vec<Entry>,
    code: ExitCode,
}

pub(super) fn run(args: &Args) -> ExitCode {
    stored::exit(list(args))
}

fn list(args: &Args) -> Result<ExitCode, Failure> {
    let storage = stored::storage()?;
    // Only registries are pruned here.
    let mut found = find(&storage, !args.prune)?;
    found.entries.retain(|entry| args.selects(entry));
    let now = SystemTime::now();
    if args.prune {
        let before = now.checked_sub(args.older_than.unwrap_or(OLD));
        found.entries.retain(|entry| is_old(entry, before));
    }
    // The list is printed before the removal. If a registry cannot be read, the list may not be
    // called empty.
    if !found.entries.is_empty() || args.json || found.code == ExitCode::SUCCESS {
        print(args, &found.entries, now)?;
    }
    if args.prune && !args.dry_run {
        for entry in &found.entries {
            remove(&storage, entry)?;
        }
    }
    Ok(found.code)
}

/// All recorded threads, newest first.
pub(super) fn recorded(storage: &StorageSettings) -> Result<Vec<Entry>, Failure> {
    Ok(find(storage, true)?.entries)
}

fn find(storage: &StorageSettings, with_jobs: bool) -> Result<FoundThreads, Failure> {
    let mut found = FoundThreads {
        entries: Vec::new(),
        code: ExitCode::SUCCESS,
    };
    let all = registry::all(&storage.atm_home)?;
    for (identity, threads) in all {
        match threads {
            Ok(threads) => {
                let is_held = is_held(storage, &identity)?;
                let entries = threads.entries().cloned();
                let entries = entries.map(|entry| with_live_status(entry, &identity, is_held));
                found.entries.extend(entries);
            }
            // The threads of other registries are listed all the same.
            Err(error @ RegistryError::Malformed { .. }) => {
                complain("error", &error.to_string());
                found.code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if with_jobs {
        let known = found.entries.iter().map(|entry| entry.thread_id.clone());
        let known: BTreeSet<ThreadName> = known.collect();
        let job_threads = job_threads::job_threads(storage).into_iter();
        let job_threads = job_threads.filter(|entry| !known.contains(&entry.thread_id));
        found.entries.extend(job_threads);
    }
    let now = SystemTime::now();
    found
        .entries
        .sort_by_key(|entry| Reverse(entry.used_at(now)));
    Ok(found)
}

fn is_held(storage: &StorageSettings, identity: &AgentName) -> Result<bool, Failure> {
    Claim::is_held(&storage.atm_home, identity).map_err(|error| Failure::Lock {
        path: storage.atm_home.clone(),
        error,
    })
}

/// A killed server leaves its threads active in the registry; no server holds them.
fn with_live_status(mut entry: Entry, identity: &AgentName, is_held: bool) -> Entry {
    if entry.status == Status::Active && !is_held {
        entry.status = Status::Interrupted;
        if entry.last_turn == Some(TurnState::Running) {
            entry.last_turn = Some(TurnState::Interrupted);
        }
    }
    // It is removed from the registry where it was found.
    entry.identity.clone_from(identity);
    entry
}

impl Args {
    fn selects(&self, entry: &Entry) -> bool {
        let repo = match &self.repo {
            Some(wanted) => entry.repo_name.as_ref() == Some(wanted),
            None => true,
        };
        let status = match self.status {
            Some(StatusFilter::Active) => entry.status == Status::Active,
            Some(StatusFilter::Ended) => {
                matches!(entry.status, Status::Ended | Status::Interrupted)
            }
            Some(StatusFilter::Interrupted) => entry.status == Status::Interrupted,
            None => true,
        };
        let identity = self.identity.as_ref();
        repo && status && identity.is_none_or(|wanted| *wanted == entry.identity)
    }
}

/// Whether the thread may be removed. An unknown status of a newer program may mean anything, so
/// it counts as in use.
fn is_old(entry: &Entry, before: Option<SystemTime>) -> bool {
    let is_over = matches!(entry.status, Status::Ended | Status::Interrupted);
    is_over && before.is_some_and(|before| entry.last_active < before)
}

fn print(args: &Args, entries: &[Entry], now: SystemTime) -> Result<(), Failure> {
    if args.json {
        let threads: Vec<Value> = entries.iter().map(shown).collect();
        return Ok(output::json(&json!({ "threads": threads }))?);
    }
    let mut out = output::stdout();
    match (entries.len(), args.prune, args.dry_run) {
        (0, true, _) => writeln!(out, "There is nothing to remove.")?,
        (0, false, _) => output::stdout_message(nothing(args))?,
        (number, true, dry) => {
            let verb = if dry { "Would remove" } else { "Removing" };
            let threads = if number == 1 { "thread" } else { "threads" };
            writeln!(out, "{verb} {number} {threads}:\n")?;
            table::write(entries, now, &mut out)?;
        }
        (_, false, _) => table::write(entries, now, &mut out)?,
    }
    out.flush()?;
    Ok(())
}

/// A thread as JSON.
fn shown(entry: &Entry) -> Value {
    let mut shown = json!(entry);
    if let Some(members) = shown.as_object_mut() {
        let has_summary = entry.status == Status::Ended;
        members.insert("summary".to_owned(), has_summary.into());
    }
    shown
}

fn nothing(args: &Args) -> &'static str {
    match (&args.repo, &args.identity, args.status) {
        (None, None, None) => {
            "There are no threads yet. An MCP client begins one with the tool `codex`; \
             `codex-mcp setup` adds codex-mcp to your clients."
        }
        _ => "There are no such threads. `codex-mcp threads` lists all that there are.",
    }
}

/// Removes a thread, unless it was resumed meanwhile.
fn remove(storage: &StorageSettings, entry: &Entry) -> Result<(), Failure> {
    let mode = storage.registry_mode;
    let mut registry = Registry::open(&storage.atm_home, &entry.identity, mode)?;
    let change = Change::Remove {
        thread_id: entry.thread_id.clone(),
        idle_since: Some(entry.last_active),
    };
    if registry.apply(&change)? == ChangeOutcome::Changed {
        let summaries = Summaries::of(&storage.atm_home, &entry.identity);
        summaries.remove(&entry.thread_id)?;
    }
    Ok(())
}
