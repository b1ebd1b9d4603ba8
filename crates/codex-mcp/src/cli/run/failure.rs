//! Why a run could not start, or its result not be printed.

use std::io;
use std::path::PathBuf;

use codex_config::profile::NoProfile;
use goal_run::RunError;
use goal_run::logic::criteria::TooManyCriteria;
use goal_run::logic::machine::BadLimits;
use goal_run::spec::BadRunSpec;
use goal_run::worktree::WorktreeError;
use job_queue::thread_ids::ThreadPrefixError;
use safe_files::off_runtime::OffRuntimeError;
use settings::ConfigError;

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
    #[error("cannot read the files of the run: {0}")]
    Files(#[source] OffRuntimeError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
}
