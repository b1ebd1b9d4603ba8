//! Limited slots, such as those of pages that watch a session. A single caller gets only a share
//! of them, so that some are left for others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::logic::access::CredentialId;

/// Slots for the holders of credentials.
#[derive(Debug)]
pub(crate) struct SlotPool {
    most: u32,
    most_of_one: u32,
    free: Arc<Semaphore>,
    taken: Mutex<HashMap<CredentialId, u32>>,
}

/// A slot, or several that were taken together, until it is dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    owner: CredentialId,
    many: u32,
    slots: Arc<SlotPool>,
    _permit: OwnedSemaphorePermit,
}

impl SlotPool {
    /// The given number of slots. The same credential gets at most half of them.
    pub(crate) fn new(most: u32) -> Arc<Self> {
        Self::with_share(most, most / 2)
    }

    /// The given number of slots. The same credential gets at most `most_of_one`.
    pub(crate) fn with_share(most: u32, most_of_one: u32) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_one,
            free: Arc::new(Semaphore::new(most as usize)),
            taken: Mutex::default(),
        })
    }

    /// Takes a slot for the holder of a credential; `None` if there is none for it.
    pub(crate) fn take(self: &Arc<Self>, owner: &CredentialId) -> Option<SlotGuard> {
        self.take_many(owner, 1)
    }

    /// Takes `many` slots for the holder of a credential; `None` if there are not as many for it.
    pub(crate) fn take_many(
        self: &Arc<Self>,
        owner: &CredentialId,
        many: u32,
    ) -> Option<SlotGuard> {
        let mut taken = lock(&self.taken);
        let theirs = taken.get(owner).copied().unwrap_or_default();
        let theirs = theirs.saturating_add(many);
        if theirs > self.most_of_one {
            return None;
        }
        let permit = Arc::clone(&self.free).try_acquire_many_owned(many).ok()?;
        taken.insert(owner.clone(), theirs);
        Some(SlotGuard {
            owner: owner.clone(),
            many,
            slots: Arc::clone(self),
            _permit: permit,
        })
    }

    /// Completes when all slots are free.
    pub(crate) async fn all_free(&self) {
        // The semaphore is never closed.
        let _ = self.free.acquire_many(self.most).await;
    }
}

impl SlotGuard {
    /// The credential of its holder.
    pub(crate) fn owner(&self) -> &CredentialId {
        &self.owner
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        let mut taken = lock(&self.slots.taken);
        if let Some(theirs) = taken.get_mut(&self.owner) {
            *theirs -= self.many;
            if *theirs == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn credential_cannot_take_all_slots() {
        let slots = SlotPool::new(4);
        let [one, other, third] = ["one", "other", "third"].map(CredentialId::of_test);
        let first = [slots.take(&one).unwrap(), slots.take(&one).unwrap()];
        assert!(slots.take(&one).is_none(), "it has its share");
        let second = [slots.take(&other).unwrap(), slots.take(&other).unwrap()];
        assert!(slots.take(&third).is_none(), "all are taken");
        drop(first);
        let third = slots.take(&third).unwrap();
        assert!(slots.take(&one).is_some());
        assert!(slots.all_free().now_or_never().is_none());
        drop((second, third));
        assert!(slots.all_free().now_or_never().is_some());
        assert!(lock(&slots.taken).is_empty());
    }
}
