//! What is to be done once an answer has reached the client.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{CallToolResult, NumberOrString};

/// What is to be done once an answer has been written and flushed.
pub type Then = Box<dyn FnOnce() + Send>;

/// What is to be done once an answer has been written and flushed, by the id of its
/// request. What belongs to an answer that is never written is never done.
#[derive(Clone, Default)]
pub struct Deliveries(Arc<Mutex<HashMap<NumberOrString, Then>>>);

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deliveries")
    }
}

impl Deliveries {
    /// Has something done once the answer to this request has been delivered.
    pub(super) fn expect(&self, id: NumberOrString, then: Then) {
        self.with(|all| all.insert(id, then));
    }

    /// What is to be done with the delivery of the answer to this request.
    pub(super) fn of(&self, id: &NumberOrString) -> Option<Then> {
        self.with(|all| all.remove(id))
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<NumberOrString, Then>) -> T) -> T {
        // Nothing panics while holding it, and a map is valid at every point.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An answer, and what its delivery entails.
pub struct Told {
    /// The answer.
    pub result: CallToolResult,
    /// What is to be done once it has reached the client.
    pub then: Option<Then>,
}

impl From<CallToolResult> for Told {
    fn from(result: CallToolResult) -> Self {
        Self { result, then: None }
    }
}
