//! Prompting and steering turns.

use std::sync::Arc;
use std::time::Duration;

use codex_protocol::codex::{
    Method, Release, ReviewStartParams, SandboxMode, SandboxPolicy, ThreadId, TurnOverrides,
    TurnResponse, TurnStartParams, TurnSteerParams, UserInput, WorkspaceWrite,
};
use safe_files::off_runtime;
use serde_json::Value;

use super::adoption::restore;
use super::command::{
    LONGEST_PROMPT, Overrides, Prompt, Purpose, SessionId, Settings, TurnOrigin, TurnRef,
    overlay_model_options,
};
use super::effects::perform;
use super::engine::Engine;
use super::entry::Entry;
use super::error::EngineError;
use super::hub;
use super::observer::{EngineObserver, InputKind, PromptRecord};
use super::requests::call;
use super::unloading::unload_when_ended;
use super::workspace;
use crate::logic::session::{Effect, Form, PromptRefused, State};
use crate::picture::{Picture, PictureCopies};

/// The first release known to limit the length of prompts; 0.107.0 does not.
const FIRST_WITH_LIMIT: Release = Release::new(0, 110, 0);

/// How long a message for a turn waits until the turn has started, which takes about 0.1 s.
const START_TIMEOUT: Duration = Duration::from_secs(2);

impl Engine {
    /// Sends a thread its next prompt.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; no turn has been started then.
    pub async fn prompt(
        &self,
        session: &SessionId,
        mut prompt: Prompt,
    ) -> Result<TurnRef, EngineError> {
        let entry = self.entry(session)?;
        check_length(&prompt.text, &entry)?;
        restore(&self.codex.hub, &entry).await;
        if let Some(cwd) = prompt.overrides.cwd.take() {
            let below = entry.settings().thread.cwd.unwrap_or_default();
            let cwd = self.working_directory(Some(below.join(cwd)))?;
            self.codex.note_mount_targets(&cwd);
            prompt.overrides.cwd = Some(cwd);
        }
        prompt.overrides = entry.with_pending(prompt.overrides);
        let has_turns = entry.was_there_before() || entry.access(|machine, _| machine.turns() > 0);
        match self.begin(&entry, &prompt).await {
            // Codex may have unloaded the thread after a long time without use.
            Err(EngineError::NoThread(_)) => {
                entry.mark_unloaded();
                match self.begin(&entry, &prompt).await {
                    // Codex writes a new thread to a rollout only with the first turn.
                    Err(EngineError::NoThread(thread)) if !has_turns => {
                        Err(EngineError::NewThreadLost(thread))
                    }
                    begun => begun,
                }
            }
            begun => begun,
        }
    }

    async fn begin(&self, entry: &Arc<Entry>, prompt: &Prompt) -> Result<TurnRef, EngineError> {
        let number = accept_prompt(entry, prompt)?;
        let origin = prompt
            .origin
            .as_ref()
            .map(|origin| self.named_origin(origin));
        entry.begun_by(number, origin);
        if let Some(approval) = prompt.approval_timeout {
            entry.change(|machine, _| machine.keep_questions_open(approval));
        }
        if prompt.purpose == Purpose::ShutdownSummary {
            entry.change(|machine, _| machine.omit_end_alert());
        }
        tokio::spawn(hub::run_timer(
            Arc::clone(entry),
            number,
            Some(Arc::clone(&self.owner.observer)),
        ));
        match self.send(entry, prompt, number).await {
            Ok(response) => {
                entry.prompted(prompt);
                let id = response.turn.id;
                perform(
                    entry,
                    entry.change(|machine, now| machine.accepted(number, id, now)),
                );
                Ok(TurnRef {
                    session: entry.id.clone(),
                    number,
                })
            }
            // Codex may have accepted the prompt anyway.
            Err(
                error @ (EngineError::Silent {
                    method: Method::TurnStart | Method::ReviewStart,
                    ..
                }
                | EngineError::Unreadable {
                    method: Method::TurnStart | Method::ReviewStart,
                    ..
                }),
            ) => {
                hub::interrupt(entry, number);
                Err(error)
            }
            Err(EngineError::Withdrawn(_)) if entry.state() == State::Cancelled => {
                // The thread was loaded for a session that has been cancelled in the meantime.
                if self.codex.hub.sessions.is_current(entry) {
                    perform(entry, vec![Effect::Unsubscribe]);
                    let hub = Arc::clone(&self.codex.hub);
                    tokio::spawn(unload_when_ended(hub, Arc::clone(entry)));
                }
                Err(entry.cancelled())
            }
            Err(error) => {
                // Otherwise the next host would take the result of the previous turn for that of
                // this call.
                entry.forget_origin(number);
                let effects = entry.change(|machine, now| machine.refused(number, now));
                perform(entry, effects);
                Err(error.about(&entry.thread))
            }
        }
    }

    async fn send(
        &self,
        entry: &Arc<Entry>,
        prompt: &Prompt,
        number: u64,
    ) -> Result<TurnResponse, EngineError> {
        self.load(entry).await?;
        let settings = entry.settings();
        let copies = copies(&prompt.pictures).await?;
        let params = TurnStartParams {
            thread_id: &entry.thread,
            input: input(&prompt.text, &copies.pictures),
            model_options: overlay_model_options(prompt.model_options, settings.model_options),
            overrides: self.overrides(&settings, &prompt.overrides).await?,
            output_schema: prompt.output_schema.as_ref(),
        };
        let mut thread = settings.thread;
        thread.cwd = prompt.overrides.cwd.clone().or(thread.cwd);
        // Checked as late as possible, since Codex resolves the paths again afterwards.
        workspace::check(&thread)?;
        let (server, _) = entry.server();
        // The turn may have been interrupted while the thread was loaded.
        if !entry.change(|machine, _| machine.sending(number)) {
            return Err(EngineError::Withdrawn(entry.id.clone()));
        }
        if let Some(model) = prompt.overrides.model.as_deref() {
            entry.access(|machine, _| machine.uses_model(Some(model)));
        }
        let kind = match prompt.purpose {
            Purpose::Work => entry.kind_of_prompt(number),
            Purpose::ShutdownSummary => InputKind::ShutdownSummary,
        };
        entry.flush_kept().await;
        let (text, task) = (prompt.text.as_str(), prompt.task.as_deref());
        tell(&*self.owner.observer, entry, number, kind, text, task);
        let response = match &prompt.review {
            Some(target) => {
                let thread_id = &entry.thread;
                let params = ReviewStartParams { thread_id, target };
                call(&server, Method::ReviewStart, &params).await
            }
            None => call(&server, Method::TurnStart, &params).await,
        };
        // Codex opens the pictures some time after its response.
        entry.keep_until_next_prompt(copies);
        response
    }

    /// The stored form of an origin: a call, qualified by the engine's client, or a task.
    fn named_origin(&self, origin: &TurnOrigin) -> String {
        match origin {
            TurnOrigin::Call(call) => self.named_call(call),
            TurnOrigin::Task(task) => named_task(task),
        }
    }

    /// The stored form of a call of this engine's client, which is unique among all clients.
    #[must_use]
    pub fn named_call(&self, call: &str) -> String {
        let client = self.owner.client.as_deref().unwrap_or_default();
        format!("{client} {call}")
    }

    /// The latest turn of a session that this call of the engine's client has begun, see
    /// [`TurnOrigin::Call`].
    #[must_use]
    pub fn turn_of_call(&self, call: &str) -> Option<(TurnRef, ThreadId)> {
        let call = self.named_call(call);
        let all = self.codex.hub.sessions.all();
        all.into_iter().find_map(|entry| {
            let number = entry.turn_begun_by(&call)?;
            let session = entry.id.clone();
            Some((TurnRef { session, number }, entry.thread.clone()))
        })
    }

    /// Adds text to the prompt of the running turn.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; the turn continues unchanged then.
    pub async fn steer(&self, session: &SessionId, text: &str) -> Result<(), EngineError> {
        let entry = self.restored(session).await?;
        steer(&entry, &*self.owner.observer, text).await
    }

    async fn overrides(
        &self,
        settings: &Settings,
        overrides: &Overrides,
    ) -> Result<TurnOverrides, EngineError> {
        let sandbox_policy = match overrides.sandbox {
            Some(SandboxMode::WorkspaceWrite) => {
                let cwd = overrides.cwd.as_deref();
                let cwd = cwd.or(settings.thread.cwd.as_deref());
                let table = self.workspace_table(settings, cwd).await?;
                let workspace = workspace::read(table)?;
                Some(SandboxPolicy::new(SandboxMode::WorkspaceWrite, workspace))
            }
            Some(mode) => Some(SandboxPolicy::new(mode, WorkspaceWrite::default())),
            None => None,
        };
        Ok(TurnOverrides {
            cwd: overrides.cwd.clone(),
            model: overrides.model.clone(),
            approval_policy: overrides.approval_policy,
            sandbox_policy,
        })
    }
}

/// The stored form of a task that has begun a turn. No client has this name.
pub(super) fn named_task(task: &str) -> String {
    format!("task {task}")
}

/// Adds text to the prompt of the running turn of a session.
///
/// # Errors
///
/// [`EngineError`]; the turn continues unchanged then.
pub(super) async fn steer(
    entry: &Arc<Entry>,
    observer: &dyn EngineObserver,
    text: &str,
) -> Result<(), EngineError> {
    until_started(entry).await;
    let (state, turn) = entry.access(|machine, now| {
        machine.used(now);
        (machine.state(), machine.turn_id().cloned())
    });
    let not_running = || EngineError::NotRunning(entry.id.clone());
    let turn = match (state, turn) {
        (State::Running | State::WaitingApproval, Some(turn)) => turn,
        (State::Cancelled, _) => return Err(entry.cancelled()),
        _ => return Err(not_running()),
    };
    workspace::check(&entry.settings().thread)?;
    let params = TurnSteerParams {
        thread_id: &entry.thread,
        expected_turn_id: &turn,
        input: vec![UserInput::Text { text }],
    };
    let (server, _) = entry.server();
    let number = entry.access(|machine, _| machine.turns());
    tell(observer, entry, number, InputKind::Steer, text, None);
    let steered: Result<Value, EngineError> = call(&server, Method::TurnSteer, &params).await;
    match steered {
        Ok(_) => {
            entry.write(|machine, now| machine.log_steering(text, now));
            Ok(())
        }
        // The turn ended before Codex received the request.
        Err(EngineError::Refused { .. }) if !entry.state().is_at_work() => Err(not_running()),
        Err(error) => Err(error),
    }
}

/// Waits until Codex has reported the start of the running turn, at most [`START_TIMEOUT`]. Before
/// the start, the turn's ID may be unknown, and Codex refuses to steer the turn.
async fn until_started(entry: &Entry) {
    let is_starting = || entry.access(|machine, _| machine.is_starting());
    entry.wait_while(START_TIMEOUT, is_starting).await;
}

fn tell(
    observer: &dyn EngineObserver,
    entry: &Entry,
    number: u64,
    kind: InputKind,
    text: &str,
    task: Option<&str>,
) {
    let turn = TurnRef {
        session: entry.id.clone(),
        number,
    };
    let settings = entry.settings();
    observer.prompting(PromptRecord {
        turn: &turn,
        thread: &entry.thread,
        kind,
        cwd: settings.thread.cwd.as_deref(),
        persistence: settings.persistence,
        text,
        task,
    });
}

/// Refuses a prompt over Codex's limit: Codex's own error does not name the limit.
fn check_length(text: &str, entry: &Entry) -> Result<(), EngineError> {
    let (server, _) = entry.server();
    let release = server.about.codex_version().and_then(Release::parse);
    let is_limited = release.is_none_or(|release| release >= FIRST_WITH_LIMIT);
    // A character has at least one byte.
    if !is_limited || text.len() <= LONGEST_PROMPT {
        return Ok(());
    }
    match text.chars().count() {
        length if length > LONGEST_PROMPT => Err(EngineError::TooLong { length }),
        _ => Ok(()),
    }
}

fn accept_prompt(entry: &Entry, prompt: &Prompt) -> Result<u64, EngineError> {
    let form = match (&prompt.review, &prompt.output_schema) {
        (Some(_), _) => Form::Review,
        (None, Some(_)) => Form::Structured,
        (None, None) => Form::Text,
    };
    let accepted = entry.change(|machine, now| {
        machine.prompt(form, now)?;
        Ok::<u64, PromptRefused>(machine.turns())
    });
    accepted.map_err(|refused| match refused {
        PromptRefused::Cancelled => entry.cancelled(),
        refused => EngineError::Busy(refused),
    })
}

async fn copies(pictures: &[Picture]) -> Result<PictureCopies, EngineError> {
    if pictures.is_empty() {
        return Ok(PictureCopies::default());
    }
    let pictures = pictures.to_vec();
    Ok(off_runtime::run(move || PictureCopies::make(&pictures)).await??)
}

fn input<'a>(text: &'a str, pictures: &'a [Picture]) -> Vec<UserInput<'a>> {
    let words = UserInput::Text { text };
    let pictures = pictures.iter().map(|picture| match picture {
        Picture::File(path) => UserInput::LocalImage { path },
        Picture::Inline(url) => UserInput::Image { url },
    });
    pictures.chain([words]).collect()
}
