//! `codex-mcp jobs cancel`.

use std::io::Write;
use std::process::ExitCode;

use common::output;
use futures::future::join_all;
use job_queue::logic::{CancelResponse, JobId, JobPrefix, JobState};
use job_queue::service::{CancelOutcome, Jobs};

use super::failure::Failure;
use super::{find, next_step};
use crate::cli::exit::{COULD_NOT, FAILED, worst};
use crate::cli::stored::complain;
use crate::cli::wrong_state::Verb;

const CODES: &str = "\
Exit codes: 0 the job is cancelled, or will be once Codex has ended; 1 the job had ended in another \
way; 3 there is no such job, or the store cannot be reached. Changes that Codex has made stay.";

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct Args {
    /// The jobs: their IDs, or prefixes of them.
    #[arg(required = true, value_name = "ID")]
    jobs: Vec<JobPrefix>,
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        Ok(ExitCode::from(cancel(jobs, &self.jobs).await?))
    }
}

/// Cancels jobs; returns the exit code.
pub(in crate::cli) async fn cancel(jobs: &Jobs, those: &[JobPrefix]) -> Result<u8, Failure> {
    let ids = find::find_all(jobs, those).await?;
    // Each cancellation may take some seconds.
    let cancelled = join_all(ids.iter().map(|id| jobs.cancel(id))).await;
    let mut codes = Vec::new();
    for (id, cancelled) in ids.iter().zip(cancelled) {
        codes.push(match cancelled {
            Ok(cancelled) => tell(jobs, id, cancelled).await?,
            Err(error) => {
                complain("error", &Failure::from(error).to_string());
                COULD_NOT
            }
        });
    }
    Ok(worst(codes))
}

async fn tell(jobs: &Jobs, id: &JobId, cancelled: CancelOutcome) -> Result<u8, Failure> {
    let message = format!("{}: {}", find::short(id), cancelled.message());
    if !is_refused(cancelled) {
        writeln!(output::stdout(), "{message}")?;
        return Ok(0);
    }
    let error = next_step::wrong_state(jobs, id, Verb::Cancel).await;
    complain("error", &error.map_or(message, |error| error.to_string()));
    Ok(FAILED)
}

/// Whether the cancellation was refused, or the job ended in another way before it.
fn is_refused(cancelled: CancelOutcome) -> bool {
    match cancelled.response {
        CancelResponse::Refused(_) => true,
        CancelResponse::Requested => {
            cancelled.state.has_ended() && cancelled.state != JobState::Cancelled
        }
        CancelResponse::Cancelled | CancelResponse::AlreadyCancelled => false,
    }
}
