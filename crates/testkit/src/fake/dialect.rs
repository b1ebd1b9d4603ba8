//! The differences between the two protocols of Codex.

use serde_json::Value;

use super::plan::{Action, TurnEnd};

/// A request or notification, and the thread and turn that it is about. A
/// notification has the id null, or that of the request that it is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Value,
    pub(super) thread: String,
    pub(super) turn: String,
    pub(super) kind: Kind,
}

/// The kinds of requests that the fake distinguishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// It makes a thread known.
    Thread,
    /// It starts a turn.
    Turn,
    /// It adds to a turn that already runs.
    Steer,
    /// It interrupts a turn.
    Interrupt,
    /// Its thread, turn or method does not exist.
    Wrong,
    /// Anything else.
    #[default]
    Other,
}

/// The fake's knowledge of its threads.
pub(super) trait Threads {
    fn knows(&self, thread: &str) -> bool;
    fn running_turn(&self, thread: &str) -> Option<String>;
    /// The thread and the turn of the request of this id, if that turn still runs.
    fn turn_of_request(&self, id: &Value) -> Option<(String, String)>;
    fn new_id(&mut self) -> String;
    fn ids(&self) -> Vec<String>;
}

/// A notification: method and parameters.
pub(super) type Notification = (&'static str, Value);

/// A refusal: JSON-RPC error code and message.
pub(super) type Refusal = (i64, String);

pub(super) trait Dialect {
    /// Classifies a request or a notification.
    fn understand(&self, call: Call, threads: &mut dyn Threads) -> Call;

    /// The proper answer to a request, `said` being the last message of its turn.
    fn answer(&self, call: &Call, threads: &dyn Threads, said: &str) -> Result<Value, Refusal>;

    /// The actions of a well-behaved Codex on a request.
    fn proceed(&self, call: &Call) -> Vec<Action>;

    fn turn_started(&self, call: &Call) -> Vec<Notification>;

    fn said(&self, call: &Call, text: &str) -> Vec<Notification>;

    fn delta(&self, call: &Call, text: &str) -> Notification;

    fn turn_ended(&self, call: &Call, end: &TurnEnd, said: &str) -> Vec<Notification>;

    /// Adds the IDs of thread, turn and item to the parameters of a server request or
    /// notification.
    fn place(&self, call: &Call, params: &mut Value);

    /// Adds the members that every message has.
    fn envelop(&self, message: &mut Value);
}

/// Sets the fields that are missing.
pub(super) fn fill<const N: usize>(params: &mut Value, fields: [(&str, &str); N]) {
    for (name, value) in fields {
        if params.get(name).is_none() {
            params[name] = value.into();
        }
    }
}
