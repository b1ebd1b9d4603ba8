//! Identities that several clients of a host share: each request of a client of MCP 2026-07-28 over HTTP
//! is a client of its own, and all of them are one member of the team.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::services::Identity;

/// How long a client keeps a shared identity after its end: otherwise, each of several requests in a row
/// would join the team and leave it.
const LINGER: Duration = Duration::from_secs(5);

/// The identity of one key, if a client has it. Locked while the identity is claimed or closed.
type Slot = Mutex<Weak<Identity>>;

/// The identities that the clients of a host share, by their keys.
#[derive(Default)]
pub(in crate::cli) struct SharedIdentities {
    slots: RefCell<HashMap<String, Rc<Slot>>>,
}

/// The identity of a client, until it is released.
pub(super) struct IdentityLease {
    identity: Rc<Identity>,
    /// `None` if no other client can have the identity.
    slot: Option<Rc<Slot>>,
    /// Whether this client has claimed the identity.
    pub(super) is_new: bool,
}

impl SharedIdentities {
    /// The identity of the clients with this key, which `claim` takes for the first of them.
    pub(super) async fn lease(
        &self,
        key: String,
        claim: impl FnOnce() -> Identity,
    ) -> IdentityLease {
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

    fn slot(&self, key: String) -> Rc<Slot> {
        let mut slots = self.slots.borrow_mut();
        // Each lease holds its slot.
        slots.retain(|_, slot| Rc::strong_count(slot) > 1);
        Rc::clone(slots.entry(key).or_default())
    }
}

impl IdentityLease {
    /// The identity of a client that shares it with no other.
    pub(super) fn exclusive(identity: Identity) -> Self {
        Self {
            identity: Rc::new(identity),
            slot: None,
            is_new: true,
        }
    }

    /// Closes the identity, unless another client has it too; at once if `hurry` is cancelled. `ended`
    /// is cancelled when this process is to end.
    pub(super) async fn release(self, ended: &CancellationToken, hurry: &CancellationToken) {
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
            identity.close(hurry).await;
        }
    }
}

impl Deref for IdentityLease {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}
