//! A gate at which replies wait until a test lets them through.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

/// Holds replies back until it is released. Clones are the same gate.
///
/// ```
/// # async fn example() -> Result<(), scripted_model::StartError> {
/// use scripted_model::{Gate, Reply, Script, ScriptedModel};
///
/// let gate = Gate::new();
/// let model = ScriptedModel::start(
///     Script::new().on("think", [Reply::say("done").behind(&gate)]),
/// ).await?;
/// // … start a turn, then:
/// gate.reached(1).await;
/// gate.release();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    passes: Semaphore,
    arrivals: watch::Sender<usize>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            passes: Semaphore::new(0),
            arrivals: watch::Sender::new(0),
        }))
    }

    /// Opens the gate for good: for replies that wait and for those to come.
    pub fn release(&self) {
        self.0.passes.close();
    }

    /// Lets one reply through: the one that has waited longest, or the next to
    /// arrive.
    pub fn release_one(&self) {
        self.0.passes.add_permits(1);
    }

    /// How many replies have arrived at the gate so far, those let through and
    /// those given up by the client included.
    pub fn arrivals(&self) -> usize {
        *self.0.arrivals.borrow()
    }

    /// Waits until `count` replies in all have arrived.
    pub async fn reached(&self, count: usize) {
        let mut arrivals = self.0.arrivals.subscribe();
        // The sender lives as long as `self`, so this can't fail.
        let _ = arrivals.wait_for(|arrived| *arrived >= count).await;
    }

    pub(crate) async fn pass(&self) {
        self.0.arrivals.send_modify(|arrived| *arrived += 1);
        // A closed semaphore is an open gate.
        if let Ok(pass) = self.0.passes.acquire().await {
            pass.forget();
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("arrivals", &self.arrivals())
            .field("open", &self.0.passes.is_closed())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn single_release_lets_one_reply_through() {
        let gate = Gate::new();
        let (first, second) = (gate.clone(), gate.clone());
        let first = tokio::spawn(async move { first.pass().await });
        gate.reached(1).await;
        let second = tokio::spawn(async move { second.pass().await });
        gate.reached(2).await;
        gate.release_one();
        first.await.unwrap();
        assert!(!second.is_finished());
        gate.release();
        second.await.unwrap();
        assert_eq!(gate.arrivals(), 2);
    }

    #[tokio::test]
    async fn released_gate_stays_open() {
        let gate = Gate::new();
        gate.release();
        gate.pass().await;
        gate.pass().await;
    }
}
