//! The router between an MCP client and a `codex mcp-server`, which decides what is done with each
//! message.
//!
//! ```text
//!   client ── frame ──► from_client ──► ToChild: unchanged
//!                          │   └──────► CallOwnTool: a call of one of our tools
//!                          └──────────► Answer: what the child can't or must not answer
//!   child ─── frame ──► from_child ───► ToClient: unchanged, or with
//!                                         · our tools added to a list
//!                                         · the ID of the call that it belongs to
//! ```
//!
//! `calls` finds the call that an answer or an event of the child belongs to.

mod calls;
mod deadlines;
mod effect;
mod ended_turns;
mod ending;
mod from_child;
mod from_client;
mod note;
mod partial_text;
mod splice;
mod summaries;
mod tracked_call;

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use codex_protocol::codex::LegacyRefusal;
use codex_protocol::rpc::RequestId;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use calls::Calls;
use deadlines::{Deadlines, Expiry};
use summaries::Summaries;

pub use calls::CallInfo;
pub use effect::{
    Answer, Child, ChildQueue, Counts, Effect, Failure, RouterConfig, RouterTimeouts,
};
pub use note::{CallOutcome, Note};
pub use splice::replace as replace_part;

/// The prefix of the IDs of our own requests to the child. No ID of the client may begin with it.
const OWN_ID: &str = "codex-mcp:";

/// The most threads that are remembered as out of step.
const OUT_OF_STEP_LIMIT: usize = 10_000;

/// The most requests that may be open at once.
const OPEN_LIMIT: usize = 100_000;

/// The most questions of the child that may be open at once.
const QUESTION_LIMIT: usize = 1000;

/// Whether `initialize` was sent to the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    Pending,
    Sent,
}

/// The list of tools that the client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolList {
    /// The client has no list, or the child's own list.
    Actual,
    /// The client has the assumed list, which it got before the child had answered.
    Assumed,
}

/// Whether the client waits for the answer to a call of one of our tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnCall {
    Wanted,
    Cancelled,
}

/// Whether the program is shutting down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Open,
    Closing,
}

/// The parameters of a cancellation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelledParams {
    request_id: RequestId,
}

/// A request of the client that is not a call.
#[derive(Debug)]
struct PendingRequest {
    method: String,
    deadline: Instant,
    /// The ID of the ping that follows the request.
    ping: Option<RequestId>,
}

/// A question of the child that was passed to the client.
#[derive(Debug)]
struct PendingQuestion {
    /// The ID of the call that waits for the question's answer.
    call: Option<RequestId>,
    deadline: Instant,
    params: Value,
}

/// The router, a state machine without I/O: it takes messages and the time, and returns effects.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    child: Child,
    handshake: Handshake,
    /// Whether the client can show a form to its user.
    supports_forms: bool,
    tool_list: ToolList,
    service: Service,
    calls: Calls,
    /// Open requests to the child that are not calls.
    requests: HashMap<RequestId, PendingRequest>,
    /// The running calls of our own tools. A cancelled call keeps its ID until its tool has ended:
    /// a new call with that ID would get the old call's answer.
    own: HashMap<RequestId, OwnCall>,
    /// Our pings, each with the client's request that it follows. The child answers in order, so a
    /// request that has no answer when its ping is answered gets none.
    pings: HashMap<RequestId, RequestId>,
    questions: HashMap<RequestId, PendingQuestion>,
    deadlines: Deadlines,
    summaries: Summaries,
    /// The threads in which the child would answer each prompt with the result of the previous
    /// prompt.
    out_of_step: BTreeSet<String>,
    /// The notes that have not been taken yet.
    notes: Vec<Note>,
    next_own: u64,
    from_client: u64,
    from_child: u64,
}

impl Router {
    /// A router whose child has just been started.
    #[must_use]
    pub fn new(config: RouterConfig) -> Self {
        Self {
            config,
            child: Child::Starting,
            handshake: Handshake::Pending,
            supports_forms: false,
            tool_list: ToolList::Actual,
            service: Service::Open,
            calls: Calls::default(),
            requests: HashMap::new(),
            own: HashMap::new(),
            pings: HashMap::new(),
            questions: HashMap::new(),
            deadlines: Deadlines::default(),
            summaries: Summaries::default(),
            out_of_step: BTreeSet::new(),
            notes: Vec::new(),
            next_own: 0,
            from_client: 0,
            from_child: 0,
        }
    }

    /// The state of the child.
    #[must_use]
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// The numbers of messages and calls so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            from_client: self.from_client,
            from_child: self.from_child,
            calls: self.calls.total(),
            in_flight: self.calls.in_flight(),
            active_threads: self.calls.active_threads(),
            questions: self.questions.len(),
        }
    }

    /// Takes the notes since the previous call. The note of a forwarded call has to be recorded
    /// before the effects of the call are performed.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Ends a call of one of our tools, whose answer is about to be sent. Returns `false` if the
    /// client has cancelled the call.
    pub fn finish_own_call(&mut self, id: &RequestId) -> bool {
        self.own.remove(id) == Some(OwnCall::Wanted)
    }

    /// Whether the client waits for the answer of a call of one of our tools.
    #[must_use]
    pub fn is_wanted(&self, id: &RequestId) -> bool {
        self.own.get(id) == Some(&OwnCall::Wanted)
    }

    /// The number of running calls of our own tools.
    #[must_use]
    pub fn open_own_calls(&self) -> usize {
        self.own.len()
    }

    /// The next time at which [`tick`](Self::tick) is needed.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Handles the deadlines that have passed at `now`.
    pub fn tick(&mut self, now: Instant) -> Vec<Effect> {
        let why = match self.child {
            Child::Starting => Failure::NotStarted,
            Child::Ready { .. } | Child::Gone(_) => Failure::TimedOut,
        };
        let mut effects = Vec::new();
        while let Some(due) = self.deadlines.take_late(now) {
            effects.extend(match due {
                Expiry::Call(id) => {
                    let effects = self.give_up(&id, why.clone());
                    self.await_turn(&id, now);
                    effects
                }
                Expiry::Turn(id) => {
                    self.calls.stop_awaiting_turn(&id);
                    Vec::new()
                }
                Expiry::Request(id) => self.request_failed(&id, why.clone()),
                Expiry::Question(id) => self.decline(&id, "nobody answered in time"),
            });
        }
        effects
    }

    /// Fails all open calls and requests, as the child is gone.
    pub fn child_gone(&mut self, how: &str) -> Vec<Effect> {
        self.child = Child::Gone(how.to_owned());
        self.pings.clear();
        self.deadlines = Deadlines::default();
        let why = match self.service {
            Service::Open => Failure::Gone(how.to_owned()),
            Service::Closing => Failure::ShuttingDown,
        };
        let mut effects = Vec::new();
        for (id, _) in std::mem::take(&mut self.questions) {
            effects.push(Effect::ToClient(cancellation(&id, "Codex is gone")));
        }
        for thread in self.summaries.take_all() {
            self.notes
                .push(Note::SummaryReceived { thread, text: None });
        }
        for (id, call) in self.calls.take_all() {
            self.note_over(&id, call.thread.clone(), CallOutcome::Failed);
            let why = why.clone();
            let answer = Answer::Failed { call, why };
            effects.push(Effect::Answer { id, answer });
        }
        effects.retain(|effect| !answers_own_request(effect));
        for (id, PendingRequest { method, .. }) in std::mem::take(&mut self.requests) {
            let why = why.clone();
            let answer = match method.as_str() {
                "tools/list" => self.assumed_tools(),
                _ => Answer::Error { method, why },
            };
            effects.push(Effect::Answer { id, answer });
        }
        effects
    }

    /// Ends all turns and calls, as the program is shutting down.
    pub fn shut_down(&mut self) -> Vec<Effect> {
        self.service = Service::Closing;
        let mut effects = Vec::new();
        for id in self.calls.all_unfinished() {
            effects.extend(self.give_up(&id, Failure::ShuttingDown));
        }
        effects
    }

    fn note_over(&mut self, call: &RequestId, thread: Option<String>, outcome: CallOutcome) {
        let call = call.clone();
        self.notes.push(Note::CallEnded {
            call,
            thread,
            outcome,
        });
    }

    /// The form in which the installed child reads a refusal.
    fn refusal(&self) -> LegacyRefusal {
        match &self.child {
            Child::Ready { version } => LegacyRefusal::of(version.as_deref()),
            Child::Starting | Child::Gone(_) => LegacyRefusal::of(self.config.version.as_deref()),
        }
    }

    /// The list of tools that is assumed before the child has answered.
    fn assumed_tools(&mut self) -> Answer {
        self.tool_list = ToolList::Assumed;
        let own = self.config.own_tools.iter().map(|(_, tool)| tool);
        let tools: Vec<&RawValue> = self
            .config
            .known_tools
            .iter()
            .chain(own)
            .map(AsRef::as_ref)
            .collect();
        Answer::Result(json!({ "tools": tools }))
    }

    fn own_id(&mut self, what: &str) -> RequestId {
        self.next_own += 1;
        RequestId::Text(format!("{OWN_ID}{what}:{}", self.next_own))
    }
}

/// The method of a question to the client's user.
const ELICITATION: &str = "elicitation/create";

/// Whether the effect would answer a request of ours.
fn answers_own_request(effect: &Effect) -> bool {
    let Effect::Answer { id, .. } = effect else {
        return false;
    };
    matches!(id, RequestId::Text(text) if text.starts_with(OWN_ID))
}

/// The ID of our `initialize`.
fn initialize_id() -> RequestId {
    RequestId::Text(format!("{OWN_ID}initialize"))
}

/// Tells the other side that a request needs no answer any more.
fn cancellation(id: &RequestId, reason: &str) -> Vec<u8> {
    notification(
        "notifications/cancelled",
        &json!({ "requestId": id, "reason": reason }),
    )
}

fn notification(method: &str, params: &Value) -> Vec<u8> {
    let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    message.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
