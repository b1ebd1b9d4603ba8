//! Whether the mail has changed, for those who want to be told.

use std::time::Duration;

use supervise::io_thread::Ended;
use tokio::time::sleep;

use super::mail::Fingerprint;
use super::mail_client::MailClient;

/// How often the inbox is looked at: a look costs some microseconds, on a thread of
/// its own.
const EVERY: Duration = Duration::from_secs(1);

/// The mail as it was when it was looked at last.
pub struct MailNews {
    mail_client: MailClient,
    seen: Fingerprint,
}

impl MailNews {
    /// Looks at the mail for the first time.
    ///
    /// # Errors
    ///
    /// When nobody can look.
    pub async fn new(mail_client: MailClient) -> Result<Self, Ended> {
        let seen = mail_client.fingerprint().await?;
        Ok(Self { mail_client, seen })
    }

    /// Waits until an inbox is not as it was.
    ///
    /// # Errors
    ///
    /// When nobody can look any more.
    pub async fn next(&mut self) -> Result<(), Ended> {
        loop {
            sleep(EVERY).await;
            let now = self.mail_client.fingerprint().await?;
            if now != self.seen {
                self.seen = now;
                return Ok(());
            }
        }
    }
}
