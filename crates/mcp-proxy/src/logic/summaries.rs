//! Asks threads for a summary before the program ends.
//!
//! ```text
//!             its turn is over          answered, or failed
//!   queued ───────────────────► pending ───────────────────► noted
//! ```

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use codex_protocol::rpc::RequestId;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::deadlines::Expiry;
use super::{Child, Effect, Note, Router, Service};

/// The most threads that are remembered to be asked.
const MAX_THREADS: usize = 10_000;

/// The threads that can be asked for a summary, and those that have been asked.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    /// Threads in which a turn was completed.
    threads: BTreeSet<String>,
    /// Threads to be asked once their turns are over.
    queued: BTreeSet<String>,
    /// Threads that were asked, by the IDs of our calls.
    pending: HashMap<RequestId, String>,
    prompt: String,
}

impl Summaries {
    /// Remembers a thread in which a turn was completed.
    pub(super) fn remember(&mut self, thread: &str) {
        if self.threads.len() < MAX_THREADS && !self.threads.contains(thread) {
            self.threads.insert(thread.to_owned());
        }
    }

    /// Forgets a thread that can't be asked any more.
    pub(super) fn forget(&mut self, thread: &str) {
        self.threads.remove(thread);
        self.queued.remove(thread);
    }

    /// Whether a call is one of ours, for a summary.
    pub(super) fn is_summary_call(&self, call: &RequestId) -> bool {
        self.pending.contains_key(call)
    }

    /// Ends all requests, as the child is gone. Returns the threads that were asked.
    pub(super) fn take_all(&mut self) -> Vec<String> {
        self.queued.clear();
        self.pending.drain().map(|(_, thread)| thread).collect()
    }
}

impl Router {
    /// Asks each thread in which a turn was completed for a summary, with this prompt. Call it once
    /// the program is ending; each summary is reported as [`Note::SummaryReceived`].
    pub fn request_summaries(&mut self, prompt: &str, now: Instant) -> Vec<Effect> {
        if matches!(self.child, Child::Gone(_)) {
            return Vec::new();
        }
        let summaries = &mut self.summaries;
        summaries.queued = std::mem::take(&mut summaries.threads);
        prompt.clone_into(&mut summaries.prompt);
        self.request_idle_summaries(now)
    }

    /// The number of threads whose summary is awaited.
    #[must_use]
    pub fn pending_summaries(&self) -> usize {
        self.summaries.queued.len() + self.summaries.pending.len()
    }

    /// Asks the threads whose turns are over. In another thread, the prompt would join the turn
    /// that is being ended.
    pub(super) fn request_idle_summaries(&mut self, now: Instant) -> Vec<Effect> {
        if self.service == Service::Open || self.summaries.queued.is_empty() {
            return Vec::new();
        }
        let calls = &self.calls;
        let (busy, at_rest): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut self.summaries.queued)
                .into_iter()
                .partition(|thread| calls.has_turn(thread));
        self.summaries.queued = busy;
        let pending = at_rest
            .into_iter()
            .map(|thread| self.request_summary(thread, now));
        pending.collect()
    }

    fn request_summary(&mut self, thread: String, now: Instant) -> Effect {
        let id = self.own_id("summary");
        let arguments = json!({ "threadId": thread, "prompt": self.summaries.prompt });
        let request = json!({
            "jsonrpc": "2.0",
            "id": id,
            "method": "tools/call",
            "params": { "name": "codex-reply", "arguments": arguments },
        });
        let deadline = now + self.config.timeouts.call;
        self.deadlines.set(deadline, Expiry::Call(id.clone()));
        self.calls.begin(id.clone(), Some(thread.clone()), deadline);
        self.notes.push(Note::SummaryRequested {
            thread: thread.clone(),
        });
        self.summaries.pending.insert(id, thread);
        Effect::ToChild(request.to_string().into_bytes())
    }

    /// Notes the end of a call for a summary; `false` if the call is not one.
    pub(super) fn note_summary(&mut self, call: &RequestId, text: Option<String>) -> bool {
        let Some(thread) = self.summaries.pending.remove(call) else {
            return false;
        };
        self.notes.push(Note::SummaryReceived { thread, text });
        true
    }
}

/// The parts of the answer to a call from which the final message is taken.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    structured_content: StructuredContent,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
struct StructuredContent {
    content: String,
}

/// The final message in the answer to a call.
pub(super) fn final_message(result: &RawValue) -> Option<String> {
    let result: CallResult = serde_json::from_str(result.get()).ok()?;
    let text = result.structured_content.content.trim();
    (!result.is_error && !text.is_empty()).then(|| text.to_owned())
}
