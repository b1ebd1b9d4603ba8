//! `codex-mcp jobs steer`.

use std::io::Write;
use std::process::ExitCode;

use common::output;
use job_queue::logic::JobPrefix;
use job_queue::service::Jobs;
use job_queue::store::LONGEST_TEXT;

use super::failure::Failure;
use super::find::{self, short};
use super::next_step;
use crate::cli::prompt;
use crate::cli::wrong_state::Verb;

const CODES: &str = "\
Exit codes: 0 Codex has accepted the message; 3 there is no such job, it does not run, or its \
worker has not passed the message on.";

#[derive(Debug, clap::Args)]
#[command(after_help = CODES)]
pub(super) struct Args {
    /// The job: its ID, or a prefix of it.
    #[arg(value_name = "ID")]
    job: JobPrefix,

    /// The message for Codex. With `-`, or without a message if stdin is not a terminal, it is
    /// read from stdin.
    #[arg(value_name = "WORDS")]
    words: Option<String>,
}

impl Args {
    pub(super) async fn act(&self, jobs: &Jobs) -> Result<ExitCode, Failure> {
        steer(jobs, &self.job, self.words.as_deref()).await
    }
}

/// Sends a message, or else the text on stdin, to Codex while it works on a job.
pub(in crate::cli) async fn steer(
    jobs: &Jobs,
    job: &JobPrefix,
    words: Option<&str>,
) -> Result<ExitCode, Failure> {
    let id = find::find(jobs, job).await?;
    let words = prompt::read_message(words, LONGEST_TEXT)?;
    let verb = Verb::Steer;
    if let Err(error) = jobs.steer(&id, words).await {
        return Err(next_step::explained(jobs, &id, verb, error).await);
    }
    writeln!(output::stdout(), "{}: {}", short(&id), verb.done())?;
    Ok(ExitCode::SUCCESS)
}
