//! The content of the resources that change, and the changes.

use std::time::Duration;

use agent_team::mail_watch::MailWatch;
use job_queue::store::JobFilter;
use rmcp::ErrorData;
use serde_json::Value;
use tokio::time::sleep;

use crate::changing::Changing;
use crate::tools::jobs::call_jobs;
use crate::tools::team::{atm_pending_count, codex_threads};

/// How often threads and jobs are compared with what they were.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The content of a resource: the answer of `atm_pending_count`, `codex_threads` or `call_jobs`.
pub(super) async fn read(resource: &Changing) -> Result<Value, ErrorData> {
    match resource {
        Changing::Mail(mail_client) => {
            let pending = mail_client.pending().await.map_err(internal)?;
            Ok(atm_pending_count::shown(&pending))
        }
        Changing::Threads(records) => {
            let shown = codex_threads::shown(records, codex_threads::LIMIT).await;
            shown.map_err(|error| internal(error.text()))
        }
        Changing::Jobs(jobs) => {
            // Unlike the tool, it is read again and again: it starts no worker.
            let store = jobs.store().await.map_err(internal)?;
            let listed = store.list(&JobFilter::default(), call_jobs::LIMIT).await;
            Ok(call_jobs::shown(&listed.map_err(internal)?))
        }
    }
}

/// Watches a resource for changes.
pub(crate) enum ResourceWatch {
    /// The mail is watched without being read.
    Mail(MailWatch),
    Content {
        resource: Changing,
        last: Value,
    },
}

impl ResourceWatch {
    /// Starts with the resource as it is now.
    pub(crate) async fn new(resource: Changing) -> Result<Self, ErrorData> {
        match resource {
            Changing::Mail(mail_client) => {
                let watch = MailWatch::new(mail_client).await.map_err(internal)?;
                Ok(Self::Mail(watch))
            }
            resource => {
                let last = read(&resource).await?;
                Ok(Self::Content { resource, last })
            }
        }
    }

    /// The same, as soon as the resource can be read.
    pub(crate) async fn when_readable(resource: &Changing) -> Self {
        loop {
            match Self::new(resource.clone()).await {
                Ok(watch) => return watch,
                Err(error) => tracing::debug!("{} is not read: {error}", resource.uri()),
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the resource has changed.
    pub(crate) async fn next(&mut self) -> Result<(), ErrorData> {
        match self {
            Self::Mail(mail) => mail.next().await.map_err(internal),
            Self::Content { resource, last } => loop {
                sleep(POLL_INTERVAL).await;
                let now = match read(resource).await {
                    Ok(now) => now,
                    Err(error) => {
                        // A store may be out of reach for a while.
                        tracing::debug!("{} is not read: {error}", resource.uri());
                        continue;
                    }
                };
                if now != *last {
                    *last = now;
                    return Ok(());
                }
            },
        }
    }
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
