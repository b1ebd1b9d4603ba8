//! Writes down what passes through.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_team::audit::{Event, Outcome};
use agent_team::logic::registry::Settings;
use agent_team::{Records, TeamServices, shutdown_summary};
use codex_protocol::rpc::RequestId;
use uuid::Uuid;

use crate::logic::{How, Note};

/// How a thread is begun, as far as the call says.
#[derive(Debug, Clone, Default)]
pub(super) struct Beginning {
    /// The directory.
    pub(super) cwd: Option<PathBuf>,
    /// How it is set.
    pub(super) settings: Settings,
    /// What the caller calls it.
    pub(super) tag: Option<String>,
}

/// How much of a prompt is kept for the registry, in characters.
const BEGINNING: usize = 2000;

/// A call that is under way.
#[derive(Debug)]
struct Call {
    /// What its lines in the audit have in common.
    id: Uuid,
    event: Event,
    beginning: Beginning,
    prompt: String,
}

/// Writes down what passes through, for a member that keeps a record.
pub(super) struct Recorder {
    pub(super) services: TeamServices,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: HashMap<RequestId, Call>,
    /// What the message says that is being taken, if it is to begin a thread.
    next: Option<Beginning>,
}

impl Recorder {
    pub(super) fn new(services: TeamServices) -> Self {
        Self {
            services,
            state: Mutex::default(),
        }
    }

    /// The message that the router is given next says this.
    pub(super) fn expect(&self, beginning: Option<Beginning>) {
        self.lock().next = beginning;
    }

    /// Writes down what has passed.
    pub(super) fn record(&self, note: Note) {
        let Some(records) = &self.services.records else {
            return;
        };
        match note {
            Note::Forwarded {
                call,
                tool,
                thread,
                prompt,
            } => self.forwarded(records, call, &tool, thread.as_deref(), &prompt),
            Note::Began { call, thread } => self.began(records, &call, &thread),
            Note::Asked { thread } => {
                records.prompted(
                    Uuid::new_v4(),
                    Event::Summary,
                    Some(&thread),
                    shutdown_summary::REQUEST,
                );
            }
            Note::Over { call, thread, how } => self.over(records, &call, thread.as_deref(), how),
            Note::Summary { thread, text } => {
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
        let mut state = self.lock();
        let beginning = state.next.take().unwrap_or_default();
        let known = Call {
            id,
            event,
            beginning,
            prompt: prompt.chars().take(BEGINNING).collect(),
        };
        state.calls.insert(call, known);
    }

    fn began(&self, records: &Records, call: &RequestId, thread: &str) {
        let mut state = self.lock();
        let Some(known) = state.calls.get_mut(call) else {
            return;
        };
        let Beginning { cwd, settings, tag } = std::mem::take(&mut known.beginning);
        drop(state);
        records.begun(thread, cwd.as_deref(), settings, tag);
    }

    fn over(&self, records: &Records, call: &RequestId, thread: Option<&str>, how: How) {
        let Some(known) = self.lock().calls.remove(call) else {
            return;
        };
        let came = match how {
            How::Answered => Outcome::Done,
            How::Failed => Outcome::Failed,
            How::TimedOut => Outcome::TimedOut,
            How::Left => Outcome::Cancelled,
        };
        // What Codex refused has not been worked on.
        if let (Some(thread), true) = (thread, how != How::Failed) {
            records.touched(thread, None, 1, Some(&known.prompt));
            records.turn_ended(thread, came);
        }
        records.done(known.id, known.event, thread, came);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding it, and it is valid at every point.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
