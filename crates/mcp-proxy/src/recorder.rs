//! Records the threads and prompts that pass through the proxy.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;

use agent_team::audit::{AuditOutcome, Event};
use agent_team::logic::registry::Settings;
use agent_team::{Records, TeamServices, shutdown_summary};
use codex_protocol::rpc::RequestId;
use common::sync::lock;
use uuid::Uuid;

use crate::logic::{CallOutcome, Note};

/// The directory, settings and tag of a new thread, as far as the call gives them.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadStart {
    /// The directory.
    pub(super) cwd: Option<PathBuf>,
    /// Its settings.
    pub(super) settings: Settings,
    /// The caller's name for it.
    pub(super) tag: Option<String>,
}

/// The longest part of a prompt that is kept for the registry, in characters.
const PROMPT_CHARS: usize = 2000;

/// A call in flight.
#[derive(Debug)]
struct RecordedCall {
    /// The ID that its lines in the audit log share.
    id: Uuid,
    event: Event,
    thread_start: ThreadStart,
    prompt: String,
}

/// Records threads and prompts if the server, as a member of a team, keeps records.
pub(super) struct Recorder {
    pub(super) services: TeamServices,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<RequestId, RecordedCall>,
    /// The settings of the thread that the router's next message begins, if it begins one.
    next: Option<ThreadStart>,
}

impl Recorder {
    pub(super) fn new(services: TeamServices) -> Self {
        Self {
            services,
            state: Mutex::default(),
        }
    }

    /// Sets the settings of the thread that the router's next message begins, if it begins one.
    pub(super) fn expect_start(&self, thread_start: Option<ThreadStart>) {
        lock(&self.state).next = thread_start;
    }

    /// Records a note of the router.
    pub(super) fn record(&self, note: Note) {
        let Some(records) = &self.services.records else {
            return;
        };
        match note {
            Note::CallForwarded {
                call,
                tool,
                thread,
                prompt,
            } => self.forwarded(records, call, &tool, thread.as_deref(), &prompt),
            Note::ThreadStarted { call, thread } => self.thread_started(records, &call, &thread),
            Note::SummaryRequested { thread } => {
                records.prompted(
                    Uuid::new_v4(),
                    Event::Summary,
                    Some(&thread),
                    shutdown_summary::REQUEST,
                );
            }
            Note::CallEnded {
                call,
                thread,
                outcome,
            } => self.call_ended(records, &call, thread.as_deref(), outcome),
            Note::OwnCallCancelled => {}
            Note::SummaryReceived { thread, text } => {
                let why = || "Codex gave none in time".to_owned();
                records.summarised(&thread, text.ok_or_else(why));
            }
        }
    }

    fn forwarded(
        &self,
        records: &Records,
        call: RequestId,
        tool: &str,
        thread: Option<&str>,
        prompt: &str,
    ) {
        let event = match tool {
            "codex" => Event::Codex,
            "codex-reply" => Event::CodexReply,
            // The child refuses it.
            _ => return,
        };
        let id = Uuid::new_v4();
        records.prompted(id, event, thread, prompt);
        let mut state = lock(&self.state);
        let thread_start = state.next.take().unwrap_or_default();
        let known = RecordedCall {
            id,
            event,
            thread_start,
            prompt: prompt.chars().take(PROMPT_CHARS).collect(),
        };
        state.calls.insert(call, known);
    }

    fn thread_started(&self, records: &Records, call: &RequestId, thread: &str) {
        let mut state = lock(&self.state);
        let Some(known) = state.calls.get_mut(call) else {
            return;
        };
        let ThreadStart { cwd, settings, tag } = std::mem::take(&mut known.thread_start);
        drop(state);
        records.thread_started(thread, cwd.as_deref(), settings, tag);
    }

    fn call_ended(
        &self,
        records: &Records,
        call: &RequestId,
        thread: Option<&str>,
        outcome: CallOutcome,
    ) {
        let Some(known) = lock(&self.state).calls.remove(call) else {
            return;
        };
        let audited = match outcome {
            CallOutcome::Answered => AuditOutcome::Succeeded,
            CallOutcome::Failed => AuditOutcome::Failed,
            CallOutcome::TimedOut => AuditOutcome::TimedOut,
            CallOutcome::Abandoned => AuditOutcome::Cancelled,
        };
        // A call that Codex refused does not count as a use of the thread.
        if let (Some(thread), true) = (thread, outcome != CallOutcome::Failed) {
            records.touched(thread, None, 1, Some(&known.prompt));
            records.turn_ended(thread, audited);
        }
        records.finished(known.id, known.event, thread, audited);
    }
}
