//! The work of a turn, and its failure.
//!
//! - [`event`]: the events of a job; [`recorder`] creates them from Codex's
//!   notifications.
//! - [`activity`]: the current step of a job.
//! - [`digest`]: the summary of a turn's events.
//! - [`failed_step`]: steps that failed or were refused.
//! - [`retention`]: the limits of the data that are kept of a turn.
//! - [`failure`]: whether a turn failed, the class of the failure, and what to do.
//! - [`refusal`]: steps that were not allowed.
//! - [`changes`]: the files that a turn changed.

pub mod activity;
pub mod changes;
pub mod digest;
pub mod event;
pub mod failed_step;
pub mod failure;
pub mod recorder;
pub mod refusal;
pub mod retention;

pub use changes::{ChangeSource, ChangedFile, Changes};
pub use digest::{Command, Digest, Evidence};
pub use failed_step::{FailedStep, StepFailure, StepKind};
pub use failure::{Failure, FailureClass, WorkEnding, class_of_turn, in_words, judge};
pub use recorder::Recorder;
pub use refusal::{Refusal, is_by_the_sandbox};
