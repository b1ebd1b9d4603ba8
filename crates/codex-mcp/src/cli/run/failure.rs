//! Why a run could not be begun, or not be told.

use std::io;
use std::path::PathBuf;

use codex_config::profile::NoProfile;
use goal_run::RunError;
use goal_run::logic::criteria::TooManyCriteria;
use goal_run::logic::machine::BadLimits;
use goal_run::order::BadOrder;
use goal_run::worktree::WorktreeError;
use job_queue::thread_ids::NoThread;
use safe_files::off_runtime::OffRuntimeError;
use settings::ConfigError;

use crate::cli::prompt::NoPrompt;

/// Why a run could not be begun, or not be told.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Prompt(#[from] NoPrompt),
    #[error(transparent)]
    Criteria(#[from] TooManyCriteria),
    #[error("--{}: {why}", why.limit().replace('_', "-"))]
    Limits {
        #[from]
        why: BadLimits,
    },
    #[error(transparent)]
    Order(#[from] BadOrder),
    #[error(transparent)]
    Profile(#[from] NoProfile),
    #[error(transparent)]
    Thread(#[from] NoThread),
    #[error(transparent)]
    Worktree(#[from] WorktreeError),
    #[error("the evidence can't be kept in {}: {error}", path.display())]
    Evidence { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cannot read the files of the run: {0}")]
    Files(#[source] OffRuntimeError),
    #[error("the runtime can't be started: {0}")]
    Runtime(io::Error),
    #[error("it can't be written: {0}")]
    Write(#[from] io::Error),
}
