//! Notifies a client of changes of its mail, if it has subscribed to the resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_team::MailClient;
use agent_team::mail_watch::MailWatch;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use supervise::io_thread::ThreadEnded;
use tokio_util::sync::CancellationToken;

/// The resource with the number of unread messages.
pub(super) const MAIL: &str = "codex-mcp:///mail";

/// The subscription of a client that has begun with a handshake: such a client has at most one,
/// without an ID.
#[derive(Default)]
pub(super) struct Notices {
    subscribed: Arc<AtomicBool>,
    watching: AtomicBool,
}

impl Notices {
    /// Notifies the client of changes from now on.
    ///
    /// # Errors
    ///
    /// When the mail can't be read.
    pub(super) async fn subscribe(
        &self,
        mail_client: &MailClient,
        peer: &Peer<RoleServer>,
        end: &CancellationToken,
    ) -> Result<(), ThreadEnded> {
        let mail = MailWatch::new(mail_client.clone()).await?;
        self.subscribed.store(true, Ordering::Relaxed);
        if self.watching.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let (peer, end) = (peer.clone(), end.clone());
        let subscribed = Arc::clone(&self.subscribed);
        tokio::spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                watched = watch(mail, &peer, &subscribed) => log(watched),
            }
        });
        Ok(())
    }

    /// Ends the notifications.
    pub(super) fn unsubscribe(&self) {
        self.subscribed.store(false, Ordering::Relaxed);
    }
}

async fn watch(
    mut mail: MailWatch,
    peer: &Peer<RoleServer>,
    subscribed: &AtomicBool,
) -> Result<(), ThreadEnded> {
    loop {
        mail.next().await?;
        let about = ResourceUpdatedNotificationParam::new(MAIL);
        if subscribed.load(Ordering::Relaxed) && peer.notify_resource_updated(about).await.is_err()
        {
            // The client has gone.
            return Ok(());
        }
    }
}

/// The same for a client without a handshake (MCP 2026-07-28), for as long as the mail can be read.
pub(super) async fn notify(mail_client: MailClient, context: &SubscriptionContext) {
    log(watch_for(mail_client, context).await);
}

async fn watch_for(
    mail_client: MailClient,
    context: &SubscriptionContext,
) -> Result<(), ThreadEnded> {
    let mut mail = MailWatch::new(mail_client).await?;
    loop {
        mail.next().await?;
        if context.sink().notify_resource_updated(MAIL).await.is_err() {
            return Ok(());
        }
    }
}

fn log(watched: Result<(), ThreadEnded>) {
    if let Err(error) = watched {
        tracing::warn!("the client is no longer notified of changes of its mail: {error}");
    }
}
