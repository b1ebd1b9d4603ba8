//! `codex-mcp summary`: prints the summary of a thread.

use std::io::Write;
use std::process::ExitCode;

use agent_team::logic::ThreadName;
use agent_team::logic::registry::{Entry, Status};
use agent_team::{registry, summary};
use common::output;
use job_queue::thread_ids::in_registry;
use serde_json::Value;

use super::stored::{self, Failure, StorageSettings};
use super::threads::job_threads::job_threads;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The thread, as `codex-mcp threads` names it, or a prefix of its ID.
    thread_id: ThreadName,
}

pub(super) fn run(args: &Args) -> ExitCode {
    stored::exit(print(&args.thread_id))
}

fn print(thread: &ThreadName) -> Result<ExitCode, Failure> {
    let storage = stored::storage()?;
    let thread = &in_registry(&storage.atm_home, thread)?;
    let Some(text) = summary::find(&storage.atm_home, thread)? else {
        return Err(Failure::Missing(missing(&storage, thread)?));
    };
    writeln!(output::stdout(), "{}", text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The explanation for a missing summary.
fn missing(storage: &StorageSettings, thread: &ThreadName) -> Result<String, Failure> {
    let mut all = registry::all(&storage.atm_home)?;
    let found = all.find_map(|(_, threads)| threads.ok()?.find(thread).cloned());
    Ok(match found {
        Some(entry) => {
            let why = match (entry.status, entry.no_summary) {
                (Status::Active, _) => "it is still active".to_owned(),
                (_, Some(why)) => why,
                (_, None) => "its server was not to ask for one".to_owned(),
            };
            format!(
                "thread {thread} has no summary: {why}. The tool codex-reply continues the thread \
                 itself, with this id as threadId"
            )
        }
        None => job_explanation(storage, thread).unwrap_or_else(|| {
            format!("no thread {thread} is known here; `codex-mcp threads` lists those that are")
        }),
    })
}

/// The explanation for the thread of a job.
fn job_explanation(storage: &StorageSettings, thread: &ThreadName) -> Option<String> {
    let entries = job_threads(storage).into_iter();
    let fitting = |entry: &Entry| entry.thread_id.as_str().starts_with(thread.as_str());
    let found: Vec<Entry> = entries.filter(fitting).collect();
    let exact = found.iter().find(|entry| entry.thread_id == *thread);
    let Entry {
        thread_id, rest, ..
    } = match (exact, found.as_slice()) {
        (Some(entry), _) | (None, [entry]) => entry,
        (None, []) => return None,
        (None, _) => {
            return Some(format!(
                "several threads of jobs begin with {thread}; give more characters of the ID"
            ));
        }
    };
    let job = rest.get("job_id").and_then(Value::as_str)?;
    Some(format!(
        "thread {thread_id} has no summary: jobs don't ask for one. `codex-mcp jobs show {job}` \
         shows the job, and `codex-mcp jobs resume {job} PROMPT` continues the thread"
    ))
}
