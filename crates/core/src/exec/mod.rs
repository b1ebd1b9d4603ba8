//! What comes of one run of `codex exec`.
//!
//! - [`activity`]: the step that a run is at.
//! - [`digest`]: the events of a run, folded into what matters of them.
//! - [`failed_step`]: steps that failed or were refused.
//! - [`failure`]: whether a run failed, what kind of failure it was, and what to do.
//! - [`refusal`]: steps that were not allowed.
//! - [`changes`]: which files a run changed.

pub mod activity;
pub mod changes;
pub mod digest;
pub mod failed_step;
pub mod failure;
pub mod refusal;

pub use changes::{ChangeKind, ChangedFile, Changes, GitState, Look, SeenBy};
pub use digest::{Command, Digest, Evidence, Turn};
pub use failed_step::{FailedStep, StepFailure, StepKind};
pub use failure::{Ending, Failure, FailureClass, asks_to_log_in, judge};
pub use refusal::{Refusal, is_by_the_sandbox};
