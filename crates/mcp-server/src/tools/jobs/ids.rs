//! IDs of jobs and threads as arguments: whole, or their beginning.

use job_queue::logic::{BadPrefix, JobPrefix};
use job_queue::thread_ids::{NotAThread, ThreadPrefix};
use serde::Deserialize;

/// The id of a job, or how it begins.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Id(pub(super) JobPrefix);

impl TryFrom<String> for Id {
    type Error = BadPrefix;

    fn try_from(text: String) -> Result<Self, BadPrefix> {
        text.parse().map(Self)
    }
}

/// The id of a thread, or how it begins.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Thread(pub(super) ThreadPrefix);

impl TryFrom<String> for Thread {
    type Error = NotAThread;

    fn try_from(text: String) -> Result<Self, NotAThread> {
        text.parse().map(Self)
    }
}
