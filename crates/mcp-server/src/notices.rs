//! Telling a client of changes of its mail, if it has subscribed to the resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_team::MailClient;
use agent_team::mail_news::MailNews;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use supervise::io_thread::Ended;
use tokio_util::sync::CancellationToken;

/// The resource that tells how much unread mail there is.
pub(super) const MAIL: &str = "codex-mcp:///mail";

/// The subscription of a client that has begun with a handshake: those have one at the
/// most, without a name.
#[derive(Default)]
pub(super) struct Notices {
    subscribed: Arc<AtomicBool>,
    watching: AtomicBool,
}

impl Notices {
    /// The client wants to hear of changes from now on.
    ///
    /// # Errors
    ///
    /// When the mail can't be read.
    pub(super) async fn subscribe(
        &self,
        mail_client: &MailClient,
        peer: &Peer<RoleServer>,
        end: &CancellationToken,
    ) -> Result<(), Ended> {
        let mail = MailNews::new(mail_client.clone()).await?;
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

    /// The client doesn't want to hear of them any more.
    pub(super) fn unsubscribe(&self) {
        self.subscribed.store(false, Ordering::Relaxed);
    }
}

async fn watch(
    mut mail: MailNews,
    peer: &Peer<RoleServer>,
    subscribed: &AtomicBool,
) -> Result<(), Ended> {
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

/// The same for a client without a handshake (MCP 2026-07-28), until it cancels the
/// subscription or `end` comes.
pub(super) async fn listen(
    mail_client: MailClient,
    context: &SubscriptionContext,
    end: &CancellationToken,
) {
    tokio::select! {
        () = context.cancelled() => {}
        () = end.cancelled() => {}
        watched = watch_for(mail_client, context) => log(watched),
    }
}

async fn watch_for(mail_client: MailClient, context: &SubscriptionContext) -> Result<(), Ended> {
    let mut mail = MailNews::new(mail_client).await?;
    loop {
        mail.next().await?;
        if context.sink().notify_resource_updated(MAIL).await.is_err() {
            return Ok(());
        }
    }
}

fn log(watched: Result<(), Ended>) {
    if let Err(error) = watched {
        tracing::warn!("changes of the mail are not told of any more: {error}");
    }
}
