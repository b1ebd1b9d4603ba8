//! Asking threads for a summary before the program ends.
//!
//! ```text
//!             its turn is over       answered, or it came to nothing
//!   Wanted ───────────────────► Asked ───────────────────────────► told
//! ```

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use codex_protocol::rpc::RequestId;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::deadlines::Due;
use super::{Child, Effect, Note, Router, Service};

/// How many threads are remembered that can be asked.
const THREADS: usize = 10_000;

/// The threads that can be asked, and those that are.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    /// Those in which something was done.
    threads: BTreeSet<String>,
    /// Those that are to be asked once their turns are over.
    wanted: BTreeSet<String>,
    /// Those that were asked, by the ids of our calls.
    asked: HashMap<RequestId, String>,
    prompt: String,
}

impl Summaries {
    /// Something was done in a thread.
    pub(super) fn remember(&mut self, thread: &str) {
        if self.threads.len() < THREADS && !self.threads.contains(thread) {
            self.threads.insert(thread.to_owned());
        }
    }

    /// A thread can't be asked any more.
    pub(super) fn forget(&mut self, thread: &str) {
        self.threads.remove(thread);
        self.wanted.remove(thread);
    }

    /// Whether a call is ours.
    pub(super) fn is_asked(&self, call: &RequestId) -> bool {
        self.asked.contains_key(call)
    }

    /// The child is gone: nobody is asked any more. Those who were.
    pub(super) fn take_all(&mut self) -> Vec<String> {
        self.wanted.clear();
        self.asked.drain().map(|(_, thread)| thread).collect()
    }
}

impl Router {
    /// Has each thread in which something was done asked for a summary, with these
    /// words. To be called once the program ends; what comes of it is told as
    /// [`Note::Summary`].
    pub fn ask_for_summaries(&mut self, prompt: &str, now: Instant) -> Vec<Effect> {
        if matches!(self.child, Child::Gone(_)) {
            return Vec::new();
        }
        let summaries = &mut self.summaries;
        summaries.wanted = std::mem::take(&mut summaries.threads);
        prompt.clone_into(&mut summaries.prompt);
        self.ask_those_at_rest(now)
    }

    /// How many threads have not given their summary yet.
    #[must_use]
    pub fn summaries_missing(&self) -> usize {
        self.summaries.wanted.len() + self.summaries.asked.len()
    }

    /// Asks the threads whose turns are over: a prompt would become a part of a turn
    /// that is being ended.
    pub(super) fn ask_those_at_rest(&mut self, now: Instant) -> Vec<Effect> {
        if self.service == Service::Open || self.summaries.wanted.is_empty() {
            return Vec::new();
        }
        let calls = &self.calls;
        let (busy, at_rest): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut self.summaries.wanted)
                .into_iter()
                .partition(|thread| calls.has_turn(thread));
        self.summaries.wanted = busy;
        let asked = at_rest
            .into_iter()
            .map(|thread| self.ask_thread(thread, now));
        asked.collect()
    }

    fn ask_thread(&mut self, thread: String, now: Instant) -> Effect {
        let id = self.own_id("summary");
        let arguments = json!({ "threadId": thread, "prompt": self.summaries.prompt });
        let request = json!({
            "jsonrpc": "2.0",
            "id": id,
            "method": "tools/call",
            "params": { "name": "codex-reply", "arguments": arguments },
        });
        let deadline = now + self.setup.limits.call;
        self.deadlines.set(deadline, Due::Call(id.clone()));
        self.calls.begin(id.clone(), Some(thread.clone()), deadline);
        self.notes.push(Note::Asked {
            thread: thread.clone(),
        });
        self.summaries.asked.insert(id, thread);
        Effect::ToChild(request.to_string().into_bytes())
    }

    /// Notes what came of a call, if it is one of ours; `false` if it isn't.
    pub(super) fn note_summary(&mut self, call: &RequestId, text: Option<String>) -> bool {
        let Some(thread) = self.summaries.asked.remove(call) else {
            return false;
        };
        self.notes.push(Note::Summary { thread, text });
        true
    }
}

/// The answer to a call, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    structured_content: Said,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
struct Said {
    content: String,
}

/// The final message in the answer to a call.
pub(super) fn final_message(result: &RawValue) -> Option<String> {
    let result: CallResult = serde_json::from_str(result.get()).ok()?;
    let text = result.structured_content.content.trim();
    (!result.is_error && !text.is_empty()).then(|| text.to_owned())
}
