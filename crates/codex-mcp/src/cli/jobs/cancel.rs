//! `codex-mcp jobs cancel`.

use std::io::Write;
use std::process::ExitCode;

use common::output;
use futures::future::join_all;
use job_queue::logic::{CancelAnswer, JobId, JobPrefix, JobState};
use job_queue::service::{Cancelled, Jobs};

use super::failure::Failure;
use super::find;
use crate::cli::exit::{COULD_NOT, FAILED, worst};
use crate::cli::stored::complain;

const CODES: &str = "\
Exit codes: 0 it is cancelled, or will be as soon as Codex has ended; 1 it had ended in another
way; 3 there is no such job, or the store is away. What Codex has changed until then stays.";

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct Args {
    /// The jobs: their ids, or how these begin.
    #[arg(required = true, value_name = "ID")]
    jobs: Vec<JobPrefix>,
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        let ids = find::find_all(jobs, &self.jobs).await?;
        // Each may take some seconds.
        let cancelled = join_all(ids.iter().map(|id| jobs.cancel(id))).await;
        let mut codes = Vec::new();
        for (id, cancelled) in ids.iter().zip(cancelled) {
            codes.push(match cancelled {
                Ok(cancelled) => tell(id, cancelled)?,
                Err(error) => {
                    complain("error", &Failure::from(error).to_string());
                    COULD_NOT
                }
            });
        }
        Ok(ExitCode::from(worst(codes)))
    }
}

fn tell(id: &JobId, cancelled: Cancelled) -> Result<u8, Failure> {
    let id = find::short(id);
    let message = cancelled.message();
    match is_refused(cancelled) {
        true => {
            complain("error", &format!("{id}: {message}"));
            Ok(FAILED)
        }
        false => {
            writeln!(output::stdout(), "{id}: {message}")?;
            Ok(0)
        }
    }
}

/// Whether it has ended in another way.
fn is_refused(cancelled: Cancelled) -> bool {
    match cancelled.answer {
        CancelAnswer::Refused(_) => true,
        CancelAnswer::Asked => {
            cancelled.state.has_ended() && cancelled.state != JobState::Cancelled
        }
        CancelAnswer::Cancelled | CancelAnswer::AlreadyCancelled => false,
    }
}
