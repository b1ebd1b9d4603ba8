//! What a server does as a member of a team, the same behind both backends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::mail_client::MailClient;
use super::records::Records;
use super::shutdown_summary::ShutdownSummary;
use crate::logic::registry::Status;

/// How long each lock is waited for in the end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// How long everything together may take where somebody wants us to hurry.
const HURRY: Duration = Duration::from_millis(250);

/// How many locks may be waited for then, one after the other: an inbox's, the
/// team's, the registry's.
const LOCKS: u32 = 3;

/// How long somebody who wants to know everything else waits for the number of
/// messages, or of threads: there may be very many.
const COUNT_PATIENCE: Duration = Duration::from_millis(250);

/// What a server does as a member of a team. There is none of it where nothing can be
/// kept, or where there is no team.
#[derive(Clone, Default)]
pub struct TeamServices {
    /// Writes down threads and prompts.
    pub records: Option<Arc<Records>>,
    /// The mail.
    pub mail_client: Option<MailClient>,
}

impl TeamServices {
    /// How many unread messages there are, where there is a team and it can be told
    /// at once.
    pub async fn pending_mail(&self) -> Option<usize> {
        let counting = self.mail_client.as_ref()?.count();
        let counted = timeout(COUNT_PATIENCE, counting).await.ok()?;
        counted
            .inspect_err(|error| tracing::warn!("mail can't be counted: {error}"))
            .ok()
    }

    /// How many of the identity's threads are active, where that is kept and can be told
    /// at once.
    pub async fn active_threads(&self) -> Option<usize> {
        let listing = self.records.as_ref()?.threads();
        let listed = timeout(COUNT_PATIENCE, listing).await.ok()?;
        let threads = listed
            .inspect_err(|error| tracing::warn!("threads cannot be counted: {error}"))
            .ok()?;
        let active = threads
            .iter()
            .filter(|entry| entry.status == Status::Active);
        Some(active.count())
    }

    /// Leaves the team, and puts the records away: what is still active is
    /// interrupted. Should `hurry` be cancelled, what waits for a lock is left to the
    /// next server.
    pub async fn close(&self, shutdown_summary: ShutdownSummary, hurry: &CancellationToken) {
        let closing = async {
            if let Some(mail_client) = &self.mail_client {
                mail_client.leave(CLOSE_PATIENCE).await;
            }
            if let Some(records) = &self.records {
                records.close(shutdown_summary).await;
            }
        };
        let hurried = async {
            hurry.cancelled().await;
            sleep(HURRY).await;
        };
        tokio::select! {
            () = hurried => {}
            closed = timeout(LOCKS * CLOSE_PATIENCE, closing) => if closed.is_err() {
                tracing::warn!("somebody holds a lock; the next server tidies up");
            }
        }
    }
}
