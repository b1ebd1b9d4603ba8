//! `codex-mcp summary`: what a thread was about.

use std::io::Write;
use std::process::ExitCode;

use codex_mcp_core::team::ThreadName;

use super::stored::{self, Failure, Kept};
use crate::output;
use crate::team::{registry, summary};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The thread, as `codex-mcp threads` names it.
    thread_id: ThreadName,
}

pub(super) fn run(args: &Args) -> ExitCode {
    stored::exit(print(&args.thread_id))
}

fn print(thread: &ThreadName) -> Result<ExitCode, Failure> {
    let kept = stored::kept()?;
    let Some(text) = summary::find(&kept.atm_home, thread)? else {
        return Err(Failure::Missing(missing(&kept, thread)?));
    };
    writeln!(output::stdout(), "{}", text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// What there is instead.
fn missing(kept: &Kept, thread: &ThreadName) -> Result<String, Failure> {
    let mut all = registry::all(&kept.atm_home)?;
    let is_known = all.any(|(_, threads)| threads.is_ok_and(|all| all.find(thread).is_some()));
    Ok(match is_known {
        true => format!(
            "thread {thread} has no summary: it is still active, or its server had no time to ask \
             for one, or was not to ask. The tool codex-reply goes on in the thread itself, with \
             this id as threadId"
        ),
        false => {
            format!("no thread {thread} is known here; `codex-mcp threads` lists those that are")
        }
    })
}
