//! Whether the mail has changed, for those who want to be told.

use std::time::Duration;

use supervise::io_thread::Ended;
use tokio::time::sleep;

use super::desk::Desk;
use super::mail::Fingerprint;

/// How often the inbox is looked at: a look costs some microseconds, on a thread of
/// its own.
const EVERY: Duration = Duration::from_secs(1);

/// The mail as it was when it was looked at last.
pub struct MailNews {
    desk: Desk,
    seen: Fingerprint,
}

impl MailNews {
    /// Looks at the mail for the first time.
    ///
    /// # Errors
    ///
    /// When nobody can look.
    pub async fn new(desk: Desk) -> Result<Self, Ended> {
        let seen = desk.fingerprint().await?;
        Ok(Self { desk, seen })
    }

    /// Waits until an inbox is not as it was.
    ///
    /// # Errors
    ///
    /// When nobody can look any more.
    pub async fn next(&mut self) -> Result<(), Ended> {
        loop {
            sleep(EVERY).await;
            let now = self.desk.fingerprint().await?;
            if now != self.seen {
                self.seen = now;
                return Ok(());
            }
        }
    }
}
