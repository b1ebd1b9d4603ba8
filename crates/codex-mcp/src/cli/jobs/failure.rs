//! Why nothing comes of a verb.

use std::io;
use std::process::ExitCode;

use agent_team::ClaimError;
use codex_config::profile::NoProfile;
use job_queue::logic::JobPrefix;
use job_queue::order::{BadOrder, LONGEST_NAME};
use job_queue::service::JobsError;
use job_queue::store::StoreError;
use job_queue::thread_ids::NoThread;
use settings::ConfigError;

use crate::cli::exit::COULD_NOT;
use crate::cli::prompt::NoPrompt;
use crate::cli::stored::complain;

/// Why nothing comes of a verb.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Home(#[from] ClaimError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("nothing can be waited for: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}", in_words(.0))]
    Jobs(#[from] JobsError),
    #[error("there is no job {0}; `codex-mcp jobs list` lists those that there are")]
    NotFound(JobPrefix),
    #[error(transparent)]
    Profile(#[from] NoProfile),
    #[error(transparent)]
    Thread(#[from] NoThread),
    #[error(transparent)]
    Prompt(#[from] NoPrompt),
    #[error("it can't be written: {0}")]
    Write(#[from] io::Error),
    /// Something else, and what to do.
    #[error("{0}")]
    Cannot(String),
}

/// The exit code of what has come of a verb; tells what went wrong.
pub(super) fn exit(result: Result<ExitCode, Failure>) -> ExitCode {
    match result {
        Ok(code) => code,
        // Whoever read it has read enough.
        Err(Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain("error", &error.to_string());
            ExitCode::from(COULD_NOT)
        }
    }
}

/// A refusal in the words of the command line: those of an order are the tools'.
fn in_words(error: &JobsError) -> String {
    let JobsError::Order(error) = error else {
        return error.to_string();
    };
    match error {
        BadOrder::NoPrompt => "the prompt is empty: say what Codex is to do".to_owned(),
        BadOrder::DirectoryMissing(directory) => {
            format!(
                "there is no directory {}; --cwd names another",
                directory.display()
            )
        }
        BadOrder::Name => format!(
            "--name must have 1 to {LONGEST_NAME} characters, none of them a control character"
        ),
        BadOrder::NothingToContinue(directory) => format!(
            "there is no job of {} yet that could be continued; leave --continue out",
            directory.display()
        ),
        BadOrder::NoSession(job) => format!(
            "the latest job of the directory, {job}, had no session that could be continued; leave \
             --continue out, or name a thread with --thread"
        ),
        BadOrder::StillUnderWay(job) => format!(
            "the latest job of the directory, {job}, is still under way; wait for it with \
             `codex-mcp jobs wait {job}`, then submit this again"
        ),
        other => other.to_string(),
    }
}
