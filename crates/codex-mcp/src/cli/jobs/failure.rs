//! Why a verb of `jobs` failed.

use std::io;
use std::process::ExitCode;

use agent_team::ClaimError;
use codex_config::profile::NoProfile;
use job_queue::logic::JobPrefix;
use job_queue::service::JobsError;
use job_queue::spec::{BadJobSpec, LONGEST_NAME, MOST_IMAGES};
use job_queue::store::StoreError;
use job_queue::thread_ids::ThreadPrefixError;
use settings::ConfigError;
use settings::bounds::OutOfBounds;

use crate::cli::exit::COULD_NOT;
use crate::cli::prompt::PromptError;
use crate::cli::stored::exit_code;
use crate::cli::wrong_state::WrongState;

/// Why a verb of `jobs` failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Failure {
    #[error(transparent)]
    Home(#[from] ClaimError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot start the runtime or listen for signals: {0}")]
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
    Thread(#[from] ThreadPrefixError),
    #[error(transparent)]
    Prompt(#[from] PromptError),
    #[error(transparent)]
    WrongState(#[from] WrongState),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
    /// Any other reason, with the remedy.
    #[error("{0}")]
    Cannot(String),
}

/// The exit code of a verb's result; prints the error if there is one.
pub(super) fn exit(result: Result<ExitCode, Failure>) -> ExitCode {
    exit_code(
        result,
        COULD_NOT,
        |error| matches!(error, Failure::Write(error) if error.kind() == io::ErrorKind::BrokenPipe),
    )
}

/// A refusal in the terms of the command line; the error of a spec names the parameters of
/// tools.
fn in_words(error: &JobsError) -> String {
    let JobsError::Spec(error) = error else {
        return error.to_string();
    };
    match error {
        BadJobSpec::NoPrompt => "the prompt is empty: say what Codex is to do".to_owned(),
        BadJobSpec::DirectoryMissing(directory) => {
            format!(
                "there is no directory {}; --cwd names another",
                directory.display()
            )
        }
        BadJobSpec::Name => format!(
            "--name must have 1 to {LONGEST_NAME} characters, none of them a control character"
        ),
        BadJobSpec::NothingToContinue(directory) => format!(
            "there is no job of {} yet that could be continued; leave --continue out",
            directory.display()
        ),
        BadJobSpec::NoSession(job) => format!(
            "the latest job of the directory, {job}, has no thread that could be continued; leave \
             --continue out, or name a thread with --thread"
        ),
        BadJobSpec::UnprovenSession(job) => format!(
            "the thread of the latest job of the directory, {job}, is not signed with this machine's \
             key: another machine or an older codex-mcp has run the job, or somebody else has \
             changed its row; leave --continue out, or name a thread with --thread"
        ),
        BadJobSpec::StillUnderWay(job) => format!(
            "the latest job of the directory, {job}, is still under way; wait for it with \
             `codex-mcp jobs wait {job}`, then submit this again"
        ),
        BadJobSpec::Run(error) => error.at_a_shell(),
        BadJobSpec::OutOfBounds(OutOfBounds::ApproveAll(by)) => {
            format!("--approve always lets commands leave the sandbox, which {by} forbids")
        }
        BadJobSpec::TooManyImages => format!("--image: there may be {MOST_IMAGES} at most"),
        BadJobSpec::Image(error) => format!("--image: {error}"),
        BadJobSpec::Notifier(error) => {
            format!("--notify {} cannot work: {}", error.notifier, error.why)
        }
        BadJobSpec::AddDirMissing(directory) => {
            format!("--add-dir: there is no directory {}", directory.display())
        }
        other => other.to_string(),
    }
}
