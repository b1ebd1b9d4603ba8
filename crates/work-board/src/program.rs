//! The interface to the program: its records of threads, its login, and submitting a job
//! again.

use std::time::SystemTime;

use common::timestamp;
use futures::future::BoxFuture;
use host_process::logic::handshake::Door;
use job_queue::logic::{JobId, JobPrefix};
use serde::Serialize;

/// A thread that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadRecord {
    /// Its ID.
    pub thread: String,
    /// The state of its session, as sessions have it. Without one, `active` while a server or a job has
    /// it, else `ended`.
    pub status: String,
    /// The state of its last turn.
    pub last_turn: Option<String>,
    /// The ID of the session that has it.
    pub session: Option<String>,
    /// When it was used last.
    #[serde(serialize_with = "timestamp::serialize")]
    pub last_active: SystemTime,
    /// Where it works.
    pub directory: Option<String>,
    /// The beginning of its first prompt.
    pub prompt: Option<String>,
}

/// The parts of the program that need its configuration.
pub trait Program: Send + Sync {
    /// All recorded threads, those that were used last first. Blocks for some milliseconds.
    ///
    /// # Errors
    ///
    /// Why they cannot be read, for a person.
    fn threads(&self) -> Result<Vec<ThreadRecord>, String>;

    /// Submits a job or run that has ended once more, for a person at this door.
    fn retry(
        &self,
        job: JobPrefix,
        door: Door,
    ) -> BoxFuture<'static, Result<Resubmitted, RetryError>>;

    /// The command that logs Codex in, if it has no login, without which new jobs fail.
    fn missing_login(&self) -> BoxFuture<'static, Option<String>>;
}

/// A job or run that was submitted once more.
#[derive(Debug)]
pub struct Resubmitted {
    /// The ID of the new job.
    pub job: JobId,
    /// The settings of the earlier job that the new one lacks, for a person.
    pub warning: Option<String>,
}

/// A job was not submitted again.
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// There is no such job.
    #[error("there is no such job")]
    Unknown,
    /// It cannot be submitted again.
    #[error("{0}")]
    Refused(String),
    /// The store cannot be used.
    #[error("{0}")]
    Failed(String),
}
