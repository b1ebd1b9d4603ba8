//! The records and the mail of a server as a member of a team, the same behind both backends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::mail_client::MailClient;
use super::records::Records;
use super::shutdown_summary::ShutdownSummary;
use crate::logic::registry::Status;

/// The longest wait for each lock when the server ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time for closing once the server is told to hurry.
const HURRY_TIMEOUT: Duration = Duration::from_millis(250);

/// The most locks that closing waits for, one after the other: an inbox's, the team's, the
/// registry's.
const LOCKS: u32 = 3;

/// The longest wait of a status call for the number of messages, or of threads, as there may be
/// very many.
const COUNT_TIMEOUT: Duration = Duration::from_millis(250);

/// The records and the mail of a server. Without a place to store them, both are absent; without a
/// team, the mail is.
#[derive(Clone, Default)]
pub struct TeamServices {
    /// Records threads and prompts.
    pub records: Option<Arc<Records>>,
    /// The mail.
    pub mail_client: Option<MailClient>,
}

impl TeamServices {
    /// The number of unread messages, if there is a team and they can be counted at once.
    pub async fn pending_mail(&self) -> Option<usize> {
        let counting = self.mail_client.as_ref()?.count();
        let counted = timeout(COUNT_TIMEOUT, counting).await.ok()?;
        counted
            .inspect_err(|error| tracing::warn!("mail cannot be counted: {error}"))
            .ok()
    }

    /// The number of the identity's active threads, if threads are recorded and can be counted at
    /// once.
    pub async fn active_threads(&self) -> Option<usize> {
        let listing = self.records.as_ref()?.threads();
        let listed = timeout(COUNT_TIMEOUT, listing).await.ok()?;
        let threads = listed
            .inspect_err(|error| tracing::warn!("threads cannot be counted: {error}"))
            .ok()?;
        let active = threads
            .iter()
            .filter(|entry| entry.status == Status::Active);
        Some(active.count())
    }

    /// Leaves the team and closes the records: threads that are still active are interrupted. Once
    /// `hurry` is cancelled, work that waits for a lock is left to the next server.
    pub async fn close(&self, shutdown_summary: ShutdownSummary, hurry: &CancellationToken) {
        let closing = async {
            if let Some(mail_client) = &self.mail_client {
                mail_client.leave(CLOSE_TIMEOUT).await;
            }
            if let Some(records) = &self.records {
                records.close(shutdown_summary).await;
            }
        };
        let hurried = async {
            hurry.cancelled().await;
            sleep(HURRY_TIMEOUT).await;
        };
        tokio::select! {
            () = hurried => {}
            closed = timeout(LOCKS * CLOSE_TIMEOUT, closing) => if closed.is_err() {
                tracing::warn!("another process holds a lock; the next server cleans up");
            }
        }
    }
}
