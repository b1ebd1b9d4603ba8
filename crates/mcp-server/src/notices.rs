//! The subscriptions of a client that has begun with a handshake: one for each resource, without an
//! ID.

use std::collections::HashMap;
use std::sync::Mutex;

use common::sync::lock;
use tokio_util::sync::CancellationToken;

/// The token that ends each subscription, by the address of its resource.
#[derive(Default)]
pub(super) struct Notices(Mutex<HashMap<&'static str, CancellationToken>>);

impl Notices {
    /// Runs `notifying` until the subscription ends or `end` completes. If a subscription to this
    /// resource is already running, it stays, and `notifying` is not run.
    pub(super) fn subscribe(
        &self,
        resource: &'static str,
        end: &CancellationToken,
        notifying: impl Future<Output = ()> + Send + 'static,
    ) {
        let ended = {
            let mut all = lock(&self.0);
            if all.get(resource).is_some_and(|ended| !ended.is_cancelled()) {
                return;
            }
            let ended = end.child_token();
            all.insert(resource, ended.clone());
            ended
        };
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = notifying => ended.cancel(),
            }
        });
    }

    /// Ends the subscription to a resource.
    pub(super) fn unsubscribe(&self, resource: &str) {
        if let Some(ended) = lock(&self.0).remove(resource) {
            ended.cancel();
        }
    }
}
