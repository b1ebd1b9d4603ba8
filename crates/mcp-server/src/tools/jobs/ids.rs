//! IDs of jobs and threads as arguments: whole IDs or prefixes.

use job_queue::logic::{BadPrefix, JobPrefix};
use job_queue::thread_ids::{BadThreadPrefix, ThreadPrefix};
use serde::Deserialize;

use crate::tools::schema::sent_as;

sent_as!(String: JobIdArgument, ThreadIdArgument);

/// The ID of a job, or a prefix of it.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct JobIdArgument(pub(super) JobPrefix);

impl TryFrom<String> for JobIdArgument {
    type Error = BadPrefix;

    fn try_from(text: String) -> Result<Self, BadPrefix> {
        text.parse().map(Self)
    }
}

/// The ID of a thread, or a prefix of it.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ThreadIdArgument(pub(super) ThreadPrefix);

impl TryFrom<String> for ThreadIdArgument {
    type Error = BadThreadPrefix;

    fn try_from(text: String) -> Result<Self, BadThreadPrefix> {
        text.parse().map(Self)
    }
}
