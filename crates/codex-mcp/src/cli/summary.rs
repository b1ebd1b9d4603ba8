//! `codex-mcp summary`: what a thread was about.

use std::io::Write;
use std::process::ExitCode;

use codex_mcp_core::team::ThreadName;
use codex_mcp_core::team::registry::Status;

use super::stored::{self, Failure, Kept};
use crate::output;
use crate::team::{registry, summary};
use crate::thread_ids::in_registry;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The thread, as `codex-mcp threads` names it, or how its id begins.
    thread_id: ThreadName,
}

pub(super) fn run(args: &Args) -> ExitCode {
    stored::exit(print(&args.thread_id))
}

fn print(thread: &ThreadName) -> Result<ExitCode, Failure> {
    let kept = stored::kept()?;
    let thread = &in_registry(&kept.atm_home, thread)?;
    let Some(text) = summary::find(&kept.atm_home, thread)? else {
        return Err(Failure::Missing(missing(&kept, thread)?));
    };
    writeln!(output::stdout(), "{}", text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// What there is instead.
fn missing(kept: &Kept, thread: &ThreadName) -> Result<String, Failure> {
    let mut all = registry::all(&kept.atm_home)?;
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
        None => {
            format!("no thread {thread} is known here; `codex-mcp threads` lists those that are")
        }
    })
}
