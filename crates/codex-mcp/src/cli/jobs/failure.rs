//! Why nothing comes of a verb.

use std::io;
use std::process::ExitCode;

use codex_mcp_core::job::{JobPrefix, JobState};

use crate::cli::prompt::NoPrompt;
use crate::cli::stored::complain;
use crate::config::ConfigError;
use crate::jobs::order::{BadOrder, LONGEST_NAME};
use crate::jobs::service::JobsError;
use crate::jobs::store::StoreError;
use crate::team::ClaimError;

/// The exit code when nothing could be done or told. Not 1 or 2, which tell how a job
/// has ended.
pub(in crate::cli) const COULD_NOT: u8 = 3;

/// After Ctrl-C, as shells have it: 128 and the number of SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

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
    #[error("several jobs begin with {prefix}; give more of the id:\n{known}")]
    Ambiguous { prefix: JobPrefix, known: String },
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

/// The exit code of a job that has ended so; of one that has not, that of who waited
/// too long.
pub(super) fn code_of(state: JobState) -> u8 {
    match state {
        JobState::Completed => 0,
        JobState::Failed => 1,
        JobState::Cancelled => 2,
        JobState::Queued | JobState::Running => 124,
    }
}

/// The code that tells most of several.
pub(super) fn worst(codes: impl IntoIterator<Item = u8>) -> u8 {
    const FROM_WORST: [u8; 5] = [INTERRUPTED, COULD_NOT, 124, 1, 2];
    let codes: Vec<u8> = codes.into_iter().collect();
    let found = FROM_WORST.into_iter().find(|code| codes.contains(code));
    found.unwrap_or(0)
}

/// A refusal in the words of the command line: those of an order are the tools'.
fn in_words(error: &JobsError) -> String {
    let JobsError::Order(error) = error else {
        return error.to_string();
    };
    match error {
        BadOrder::NoPrompt => "the prompt is empty: say what Codex is to do".to_owned(),
        BadOrder::FolderMissing(folder) => {
            format!(
                "there is no folder {}; --cwd names another",
                folder.display()
            )
        }
        BadOrder::Name => format!(
            "--name must have 1 to {LONGEST_NAME} characters, none of them a control character"
        ),
        BadOrder::NothingToContinue(folder) => format!(
            "there is no job of {} yet that could be continued; leave --continue out",
            folder.display()
        ),
        BadOrder::NoSession(job) => format!(
            "the latest job of the folder, {job}, had no session that could be continued; leave \
             --continue out, or name a session with --resume"
        ),
        BadOrder::StillUnderWay(job) => format!(
            "the latest job of the folder, {job}, is still under way; wait for it with \
             `codex-mcp jobs wait {job}`, then submit this again"
        ),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_codes_the_one_that_tells_most_counts() {
        assert_eq!(worst([]), 0);
        assert_eq!(worst([0, 2, 1, 0]), 1);
        assert_eq!(worst([1, 124, 2]), 124);
        assert_eq!(worst([124, 3, 0]), 3);
        let codes = JobState::ALL.map(code_of);
        assert_eq!(codes, [124, 124, 0, 1, 2]);
    }
}
