//! Notices changes of the mail.

use std::time::Duration;

use supervise::io_thread::ThreadEnded;
use tokio::time::sleep;

use super::mail::Fingerprint;
use super::mail_client::MailClient;

/// The interval between two looks at the inbox. A look costs some microseconds, on a thread of its
/// own.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Watches the mail of a member for changes.
pub struct MailWatch {
    mail_client: MailClient,
    last: Fingerprint,
}

impl MailWatch {
    /// Starts with the mail as it is now.
    ///
    /// # Errors
    ///
    /// When the I/O thread has ended.
    pub async fn new(mail_client: MailClient) -> Result<Self, ThreadEnded> {
        let last = mail_client.fingerprint().await?;
        Ok(Self { mail_client, last })
    }

    /// Waits until an inbox has changed.
    ///
    /// # Errors
    ///
    /// When the I/O thread has ended.
    pub async fn next(&mut self) -> Result<(), ThreadEnded> {
        loop {
            sleep(POLL_INTERVAL).await;
            let now = self.mail_client.fingerprint().await?;
            if now != self.last {
                self.last = now;
                return Ok(());
            }
        }
    }
}
