//! The router between an MCP client and a `codex mcp-server`: what passes
//! unchanged, and the few things that don't.
//!
//! ```text
//!   client ── frame ──► from_client ──► ToChild: as it came
//!                          │   └──────► Own: a call of one of our tools
//!                          └──────────► Answer: what the child can't or must not answer
//!   child ─── frame ──► from_child ───► ToClient: as it came, or with
//!                                         · our tools added to a list
//!                                         · the id of the call that it really belongs to
//! ```
//!
//! `calls` tells whose call it is that the child answers or tells of.

mod calls;
mod deadlines;
mod effect;
mod ending;
mod from_child;
mod from_client;
mod note;
mod said;
mod splice;
mod summaries;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use codex_protocol::codex::LegacyRefusal;
use codex_protocol::rpc::RequestId;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use calls::Calls;
use deadlines::{Deadlines, Due};
use summaries::Summaries;

pub use calls::Call;
pub use effect::{Answer, Child, Counts, Effect, Failure, Limits, Room, Setup};
pub use note::{How, Note};
pub use splice::replace as replace_part;

/// How our own requests to the child are named; a client's may not be.
const OWN_ID: &str = "codex-mcp:";

/// How many threads are known to be out of step.
const OUT_OF_STEP_LIMIT: usize = 10_000;

/// How many requests may be without an answer at once.
const OPEN_LIMIT: usize = 100_000;

/// How many questions of the child's may be without an answer at once.
const QUESTION_LIMIT: usize = 1000;

/// Whether the client can put a question to its user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Elicits {
    Yes,
    #[default]
    No,
}

/// Whether the child has been told who its client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Introduced {
    Yes,
    No,
}

/// Which list of tools the client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// None, or the child's own.
    Right,
    /// The one that is known without the child.
    Known,
}

/// Whether the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Open,
    Closing,
}

/// A request that needs no answer any more.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled {
    request_id: RequestId,
}

/// A request of the client's that is not a call.
#[derive(Debug)]
struct Asked {
    method: String,
    deadline: Instant,
    /// The ping behind it.
    ping: Option<RequestId>,
}

/// A question of the child's that the client was asked.
#[derive(Debug)]
struct Question {
    /// The call that waits for it.
    call: Option<RequestId>,
    deadline: Instant,
    params: Value,
}

/// The router.
#[derive(Debug)]
pub struct Router {
    setup: Setup,
    child: Child,
    introduced: Introduced,
    elicits: Elicits,
    listed: Listed,
    service: Service,
    calls: Calls,
    /// Requests that went to the child and are not calls.
    asked: HashMap<RequestId, Asked>,
    /// Requests for our own tools.
    own: HashSet<RequestId>,
    /// Pings of ours, and the request of the client's that each comes after: the
    /// child answers in order, so a request that has no answer by then gets none.
    pings: HashMap<RequestId, RequestId>,
    questions: HashMap<RequestId, Question>,
    deadlines: Deadlines,
    summaries: Summaries,
    /// Threads in which the child would answer each prompt with what came of the one
    /// before.
    out_of_step: BTreeSet<String>,
    /// What has passed since it was asked for last.
    notes: Vec<Note>,
    next_own: u64,
    from_client: u64,
    from_child: u64,
}

impl Router {
    /// A router whose child has just been started.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            child: Child::Starting,
            introduced: Introduced::No,
            elicits: Elicits::No,
            listed: Listed::Right,
            service: Service::Open,
            calls: Calls::default(),
            asked: HashMap::new(),
            own: HashSet::new(),
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

    /// How the child stands.
    #[must_use]
    pub fn child(&self) -> &Child {
        &self.child
    }

    /// What has passed.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            from_client: self.from_client,
            from_child: self.from_child,
            calls: self.calls.begun(),
            in_flight: self.calls.in_flight(),
            active_threads: self.calls.active_threads(),
            questions: self.questions.len(),
        }
    }

    /// What has passed since this was asked for last. What is told of a call that is
    /// forwarded is told before its effects are performed.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// A tool of our own is done; its answer is on its way to the client.
    /// `false` if the client does not want it any more.
    pub fn own_answered(&mut self, id: &RequestId) -> bool {
        self.own.remove(id)
    }

    /// How many calls of our own tools have no answer yet.
    #[must_use]
    pub fn own_open(&self) -> usize {
        self.own.len()
    }

    /// When the router wants to be told the time next, if at all.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Sees to what has taken too long.
    pub fn tick(&mut self, now: Instant) -> Vec<Effect> {
        let why = match self.child {
            Child::Starting => Failure::NotStarted,
            Child::Ready { .. } | Child::Gone(_) => Failure::TimedOut,
        };
        let mut effects = Vec::new();
        while let Some(due) = self.deadlines.take_late(now) {
            effects.extend(match due {
                Due::Call(id) => {
                    let effects = self.give_up(&id, why.clone());
                    self.await_turn(&id, now);
                    effects
                }
                Due::Turn(id) => {
                    self.calls.never_began(&id);
                    Vec::new()
                }
                Due::Request(id) => self.request_failed(&id, why.clone()),
                Due::Question(id) => self.decline(&id, "nobody answered in time"),
            });
        }
        effects
    }

    /// The child is gone, and with it all that it had to do.
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
            self.notes.push(Note::Summary { thread, text: None });
        }
        for (id, call) in self.calls.take_all() {
            self.note_over(&id, call.thread.clone(), How::Failed);
            let why = why.clone();
            let answer = Answer::Failed { call, why };
            effects.push(Effect::Answer { id, answer });
        }
        effects.retain(|effect| !is_about_ours(effect));
        for (id, Asked { method, .. }) in std::mem::take(&mut self.asked) {
            let why = why.clone();
            let answer = match method.as_str() {
                "tools/list" => self.known_list(),
                _ => Answer::Error { method, why },
            };
            effects.push(Effect::Answer { id, answer });
        }
        effects
    }

    /// The program ends: what is under way in the child is ended, and nobody waits
    /// for it any longer.
    pub fn shut_down(&mut self) -> Vec<Effect> {
        self.service = Service::Closing;
        let mut effects = Vec::new();
        for id in self.calls.all_unfinished() {
            effects.extend(self.give_up(&id, Failure::ShuttingDown));
        }
        effects
    }

    fn note_over(&mut self, call: &RequestId, thread: Option<String>, how: How) {
        let call = call.clone();
        self.notes.push(Note::Over { call, thread, how });
    }

    /// How the child wants to read a no.
    fn refusal(&self) -> LegacyRefusal {
        match &self.child {
            Child::Ready { version } => LegacyRefusal::of(version.as_deref()),
            Child::Starting | Child::Gone(_) => LegacyRefusal::of(self.setup.version.as_deref()),
        }
    }

    /// The tools, as far as they are known without the child.
    fn known_list(&mut self) -> Answer {
        self.listed = Listed::Known;
        let own = self.setup.own_tools.iter().map(|(_, tool)| tool);
        let tools: Vec<&RawValue> = self
            .setup
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

/// The question that is put to the client's user.
const ELICITATION: &str = "elicitation/create";

/// Whether it would answer a request that the client has not made.
fn is_about_ours(effect: &Effect) -> bool {
    let Effect::Answer { id, .. } = effect else {
        return false;
    };
    matches!(id, RequestId::Text(text) if text.starts_with(OWN_ID))
}

/// The id of our `initialize`.
fn introduction() -> RequestId {
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
