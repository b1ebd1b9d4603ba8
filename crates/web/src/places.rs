//! Limited places, such as those of pages that watch a session. A single caller gets only a share
//! of them, so that some are left for others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::logic::access::CredentialId;

/// Places for the holders of credentials.
#[derive(Debug)]
pub(crate) struct Places {
    most: u32,
    most_of_one: u32,
    free: Arc<Semaphore>,
    taken: Mutex<HashMap<CredentialId, u32>>,
}

/// A place, or several that were taken together, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    owner: CredentialId,
    many: u32,
    places: Arc<Places>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// The given number of places. The same credential gets at most half of them.
    pub(crate) fn new(most: u32) -> Arc<Self> {
        Self::with_share(most, most / 2)
    }

    /// The given number of places. The same credential gets at most `most_of_one`.
    pub(crate) fn with_share(most: u32, most_of_one: u32) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_of_one,
            free: Arc::new(Semaphore::new(most as usize)),
            taken: Mutex::default(),
        })
    }

    /// Takes a place for the holder of a credential; `None` if there is none for it.
    pub(crate) fn take(self: &Arc<Self>, owner: &CredentialId) -> Option<Place> {
        self.take_many(owner, 1)
    }

    /// Takes `many` places for the holder of a credential; `None` if there are not as many for it.
    pub(crate) fn take_many(self: &Arc<Self>, owner: &CredentialId, many: u32) -> Option<Place> {
        let mut taken = lock(&self.taken);
        let theirs = taken.get(owner).copied().unwrap_or_default();
        let theirs = theirs.saturating_add(many);
        if theirs > self.most_of_one {
            return None;
        }
        let permit = Arc::clone(&self.free).try_acquire_many_owned(many).ok()?;
        taken.insert(owner.clone(), theirs);
        Some(Place {
            owner: owner.clone(),
            many,
            places: Arc::clone(self),
            _permit: permit,
        })
    }

    /// Completes when all places are free.
    pub(crate) async fn all_free(&self) {
        // The semaphore is never closed.
        let _ = self.free.acquire_many(self.most).await;
    }
}

impl Place {
    /// The credential of its holder.
    pub(crate) fn owner(&self) -> &CredentialId {
        &self.owner
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.taken);
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
        let places = Places::new(4);
        let [one, other, third] = ["one", "other", "third"].map(CredentialId::of_test);
        let first = [places.take(&one).unwrap(), places.take(&one).unwrap()];
        assert!(places.take(&one).is_none(), "it has its share");
        let second = [places.take(&other).unwrap(), places.take(&other).unwrap()];
        assert!(places.take(&third).is_none(), "all are taken");
        drop(first);
        let third = places.take(&third).unwrap();
        assert!(places.take(&one).is_some());
        assert!(places.all_free().now_or_never().is_none());
        drop((second, third));
        assert!(places.all_free().now_or_never().is_some());
        assert!(lock(&places.taken).is_empty());
    }
}
