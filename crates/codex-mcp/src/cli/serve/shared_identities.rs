//! Identities that several clients of a host share: each request of a client of MCP 2026-07-28 over HTTP
//! is a client of its own, and all of them are one member of the team.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::time::Duration;

use mcp_server::Warnings;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::services::Identity;

/// How long a client keeps a shared identity after its end: otherwise, each of several requests in a row
/// would join the team and leave it.
const LINGER: Duration = Duration::from_secs(5);

/// The most keys of which the warnings are known. With more, all are forgotten.
const MOST_WARNED: usize = 256;

/// The identity of one key, if a client has it. Locked while the identity is claimed or closed.
type Slot<T> = Mutex<Weak<T>>;

/// The identities that the clients of a host share, by their keys.
pub(in crate::cli) struct SharedIdentities<T = Identity> {
    slots: RefCell<HashMap<String, Rc<Slot<T>>>>,
    /// The warnings for the clients with a key, and those with which the first of them began.
    warnings: RefCell<HashMap<String, (Vec<String>, Warnings)>>,
}

/// The identity of a client, until it is released.
pub(super) struct IdentityLease<T = Identity> {
    identity: Rc<T>,
    /// `None` if no other client can have the identity.
    slot: Option<Rc<Slot<T>>>,
    /// Whether this client has claimed the identity.
    pub(super) is_new: bool,
}

impl<T> Default for SharedIdentities<T> {
    fn default() -> Self {
        Self {
            slots: RefCell::default(),
            warnings: RefCell::default(),
        }
    }
}

impl<T> SharedIdentities<T> {
    /// The identity of the clients with this key, which `claim` takes for the first of them.
    pub(super) async fn lease(&self, key: String, claim: impl FnOnce() -> T) -> IdentityLease<T> {
        let slot = self.slot(key);
        let mut shared = slot.lock().await;
        let (identity, is_new) = match shared.upgrade() {
            Some(identity) => (identity, false),
            None => (Rc::new(claim()), true),
        };
        *shared = Rc::downgrade(&identity);
        drop(shared);
        IdentityLease {
            identity,
            slot: Some(slot),
            is_new,
        }
    }

    /// The warnings for the clients with this key, of which a result carries each only once. A client
    /// that begins with other ones, as after a change of the settings, gets new ones.
    pub(super) fn warnings(&self, key: &str, first: &[String]) -> Warnings {
        let mut all = self.warnings.borrow_mut();
        if let Some((known, warnings)) = all.get(key)
            && known == first
        {
            return warnings.clone();
        }
        if all.len() == MOST_WARNED {
            all.clear();
        }
        let warnings = Warnings::default();
        all.insert(key.to_owned(), (first.to_vec(), warnings.clone()));
        warnings
    }

    fn slot(&self, key: String) -> Rc<Slot<T>> {
        let mut slots = self.slots.borrow_mut();
        // Each lease holds its slot.
        slots.retain(|_, slot| Rc::strong_count(slot) > 1);
        Rc::clone(slots.entry(key).or_default())
    }
}

impl<T> IdentityLease<T> {
    /// The identity of a client that shares it with no other.
    pub(super) fn exclusive(identity: T) -> Self {
        Self {
            identity: Rc::new(identity),
            slot: None,
            is_new: true,
        }
    }

    /// Closes the identity, unless another client has it too. `ended` is cancelled when this process is
    /// to end.
    pub(super) async fn release(self, ended: &CancellationToken, close: impl AsyncFnOnce(T)) {
        let Self { identity, slot, .. } = self;
        if slot.is_some() {
            ended.run_until_cancelled(sleep(LINGER)).await;
        }
        // A client that comes meanwhile claims the identity when it is free again.
        let _closing = match &slot {
            Some(slot) => Some(slot.lock().await),
            None => None,
        };
        if let Some(identity) = Rc::into_inner(identity) {
            close(identity).await;
        }
    }
}

impl<T> Deref for IdentityLease<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.identity
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use futures::FutureExt;
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;

    /// Clients with the same key, whose identities are numbers in the order of their claims.
    #[derive(Default)]
    struct Clients {
        identities: SharedIdentities<u32>,
        claimed: Cell<u32>,
        closed: RefCell<Vec<u32>>,
        ended: CancellationToken,
    }

    impl Clients {
        async fn lease(&self) -> IdentityLease<u32> {
            let claim = || {
                self.claimed.set(self.claimed.get() + 1);
                self.claimed.get()
            };
            self.identities.lease("a key".to_owned(), claim).await
        }

        async fn release(&self, lease: IdentityLease<u32>) {
            let close = async |identity: u32| self.closed.borrow_mut().push(identity);
            lease.release(&self.ended, close).await;
        }

        fn closed(&self) -> Vec<u32> {
            self.closed.borrow().clone()
        }
    }

    #[test]
    fn warnings_of_a_key_are_shared_until_a_client_begins_with_others() {
        let clients = Clients::default();
        let warnings = |key, first: &str| clients.identities.warnings(key, &[first.to_owned()]);
        warnings("a", "x").push("later");
        assert_eq!(warnings("a", "x").all(), ["later"]);
        assert!(warnings("b", "x").all().is_empty());
        assert!(warnings("a", "y").all().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn last_release_closes_the_identity_once() {
        let clients = Clients::default();
        let (first, second) = (clients.lease().await, clients.lease().await);
        assert!(first.is_new);
        assert!(!second.is_new);
        clients.release(first).await;
        assert!(clients.closed().is_empty());
        clients.release(second).await;
        assert_eq!(clients.closed(), [1]);
        let (first, second) = (clients.lease().await, clients.lease().await);
        tokio::join!(clients.release(first), clients.release(second));
        assert_eq!(clients.closed(), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_comes_within_the_pause_has_the_same_identity() {
        let clients = Clients::default();
        let first = clients.lease().await;
        let next = async {
            sleep(Duration::from_secs(4)).await;
            clients.lease().await
        };
        let ((), next) = tokio::join!(clients.release(first), next);
        assert!(!next.is_new);
        assert!(clients.closed().is_empty());
        clients.release(next).await;
        assert_eq!(clients.closed(), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_comes_during_the_close_claims_the_identity_after_it() {
        let clients = Clients::default();
        let first = clients.lease().await;
        let (is_closing, may_close) = (Notify::new(), Notify::new());
        let close = async |_: u32| {
            is_closing.notify_one();
            may_close.notified().await;
        };
        let next = async {
            is_closing.notified().await;
            let mut next = pin!(clients.lease());
            assert!(next.as_mut().now_or_never().is_none());
            may_close.notify_one();
            next.await
        };
        let ((), next) = tokio::join!(first.release(&clients.ended, close), next);
        assert!(next.is_new);
        assert_eq!(*next, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_the_process_cuts_the_pause_short() {
        let clients = Clients::default();
        let lease = clients.lease().await;
        let begin = Instant::now();
        let end = async {
            sleep(Duration::from_secs(1)).await;
            clients.ended.cancel();
        };
        tokio::join!(clients.release(lease), end);
        assert!(begin.elapsed() < LINGER);
        assert_eq!(clients.closed(), [1]);
    }
}
