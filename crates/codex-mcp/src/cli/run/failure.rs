//! Why a run could not start, or its result not be printed.

use std::io;
use std::path::PathBuf;

use codex_config::profile::NoProfile;
use goal_run::RunError;
use goal_run::logic::criteria::TooManyCriteria;
use goal_run::logic::machine::BadLimits;
use goal_run::spec::BadRunSpec;
use goal_run::worktree::WorktreeError;
use job_queue::service::JobsError;
use job_queue::thread_ids::ThreadPrefixError;
use safe_files::off_runtime::OffRuntimeError;
use settings::ConfigError;

use crate::cli::jobs;
use crate::cli::prompt::PromptError;

/// Why a run could not start, or its result not be printed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Prompt(#[from] PromptError),
    #[error(transparent)]
    Criteria(#[from] TooManyCriteria),
    #[error("--{}: {why}", why.limit().replace('_', "-"))]
    Limits {
        #[from]
        why: BadLimits,
    },
    #[error("{}", .0.at_a_shell())]
    RunSpec(#[from] BadRunSpec),
    #[error(transparent)]
    Profile(#[from] NoProfile),
    #[error(transparent)]
    Thread(#[from] ThreadPrefixError),
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    #[error("cannot write the evidence to {}: {error}", path.display())]
    Evidence { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(
        "--approve ask needs a terminal, which a run with --detach does not have: leave it out, so \
         that Codex's questions are declined, or use --approve always"
    )]
    NobodyToAsk,
    /// A run with `--detach` could not be submitted, or its ID not be printed.
    #[error(transparent)]
    Detach(Box<jobs::Failure>),
    #[error("cannot read the files of the run: {0}")]
    Files(#[source] OffRuntimeError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
}

impl Failure {
    /// The reason in the JSON result. A run that may have been submitted may also be running.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Detach(error) if is_unclear(error) => "submission_unclear",
            _ => "could_not_run",
        }
    }
}

fn is_unclear(error: &jobs::Failure) -> bool {
    matches!(
        error,
        jobs::Failure::Jobs(JobsError::SubmissionUnclear { .. })
    )
}

#[cfg(test)]
mod tests {
    use job_queue::logic::JobId;
    use job_queue::store::StoreError;

    use super::*;

    #[test]
    fn run_that_may_have_been_submitted_has_its_own_reason() {
        let reason = |error: JobsError| Failure::Detach(Box::new(error.into())).reason();
        let lost = || StoreError::AnswerLost {
            store: "a".to_owned(),
            error: "b".to_owned(),
        };
        let unclear = JobsError::SubmissionUnclear {
            job: JobId::from_random(0),
            error: lost(),
        };
        assert_eq!(reason(unclear), "submission_unclear");
        assert_eq!(reason(lost().into()), "could_not_run");
    }
}
