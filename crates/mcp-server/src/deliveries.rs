//! Actions that run once an answer has reached the client.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use common::sync::lock;
use rmcp::model::{CallToolResult, NumberOrString};

/// An action that runs once an answer has been written and flushed.
pub type AfterDelivery = Box<dyn FnOnce() + Send>;

/// Actions that run once an answer has been written and flushed, by the ID of its request. The
/// action of an answer that is never written never runs.
#[derive(Clone, Default)]
pub struct Deliveries(Arc<Mutex<HashMap<NumberOrString, AfterDelivery>>>);

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deliveries")
    }
}

impl Deliveries {
    /// Registers an action for the delivery of the answer to this request.
    pub(super) fn register(&self, id: NumberOrString, then: AfterDelivery) {
        lock(&self.0).insert(id, then);
    }

    /// Removes the action for the delivery of the answer to this request.
    pub(super) fn take(&self, id: &NumberOrString) -> Option<AfterDelivery> {
        lock(&self.0).remove(id)
    }
}

/// The answer of a tool, and the action for its delivery.
pub struct ToolOutcome {
    /// The answer.
    pub result: CallToolResult,
    /// Runs once the answer has reached the client.
    pub then: Option<AfterDelivery>,
}

impl From<CallToolResult> for ToolOutcome {
    fn from(result: CallToolResult) -> Self {
        Self { result, then: None }
    }
}
