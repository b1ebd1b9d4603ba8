//! What a turn did, and whether it failed.
//!
//! - [`event`]: the events of a job, [`recorder`]: how they are made of what Codex says.
//! - [`activity`]: the step that a job is at.
//! - [`digest`]: the events of a turn, folded into what matters of them.
//! - [`failed_step`]: steps that failed or were refused.
//! - [`limits`]: how much of a turn is kept.
//! - [`failure`]: whether a turn failed, what kind of failure it was, and what to do.
//! - [`refusal`]: steps that were not allowed.
//! - [`changes`]: which files a turn changed.

pub mod activity;
pub mod changes;
pub mod digest;
pub mod event;
pub mod failed_step;
pub mod failure;
pub mod limits;
pub mod recorder;
pub mod refusal;

pub use changes::{ChangedFile, Changes, SeenBy};
pub use digest::{Command, Digest, Evidence};
pub use failed_step::{FailedStep, StepFailure, StepKind};
pub use failure::{Ending, Failure, FailureClass, class_of_turn, in_words, judge};
pub use recorder::Recorder;
pub use refusal::{Refusal, is_by_the_sandbox};
