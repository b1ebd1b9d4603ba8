//! Records threads, prompts and turns: the registry lists the threads, and the audit log lists the
//! requests to them.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use codex_engine::command::{McpServers, Settings, StartThread, TurnRef};
use codex_engine::logic::action::DecidedBy;
use codex_engine::logic::session::{CloseReason, ClosedQuestion, TurnEnding, TurnOutcome};
use codex_engine::{Act, EngineObserver, InputKind, PromptRecord};
use codex_protocol::codex::{Persistence, ThreadId};
use common::json::as_word;
use common::secrets;
use common::sync::lock;
use futures::FutureExt;
use futures::future::BoxFuture;
use git_probe::repository::{Head, Repository};
use safe_files::state_file::FileError;
use supervise::io_thread::{IoThread, ThreadEnded};
use uuid::Uuid;

use super::audit::{Audit, AuditOutcome, Event, Record};
use super::claim::Claim;
use super::context::{Context, Member};
use super::registry::{self as registry_files, Mode, Registry, RegistryError};
use super::shutdown_summary::ShutdownSummary;
use super::stale_members;
use super::stored_settings::{settings_of, settings_of_entry};
use super::summary::Summaries;
use crate::logic::registry::{self, Change, Entry, Status, ThreadUpdate, TurnState};
use crate::logic::{AgentName, RoleName, ThreadName};

/// Why a thread that was not asked for a summary has none.
const NOT_WANTED: &str = "runs, and servers with `--no-summaries`, don't ask for one";

/// Why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The registry can't be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Another file can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The I/O thread has ended.
    #[error(transparent)]
    IoThread(#[from] ThreadEnded),
    /// There is no such thread, of any identity.
    #[error("there is no thread {0} to resume; `codex-mcp threads` lists those that there are")]
    NoThread(ThreadName),
}

/// An earlier thread that the first new thread continues (FR-6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviousThread {
    /// The thread.
    pub thread: ThreadName,
    /// Its summary; `None` if its server had no time for one.
    pub summary: Option<String>,
}

/// Records the prompts and threads of a member. Callers wait only for a line of the audit log.
pub struct Records {
    member: Member,
    role: Option<RoleName>,
    backend: &'static str,
    atm_home: PathBuf,
    audit: Mutex<Audit>,
    registry: Arc<Mutex<Registry>>,
    summaries: Summaries,
    io_thread: IoThread,
    /// The ID and the event that the audit lines of a running turn share.
    turns: Mutex<HashMap<TurnRef, (Uuid, Event)>>,
}

impl Records {
    /// Opens the records of the identity that this process holds. Threads that a dead process of
    /// the same identity left active are marked as interrupted.
    ///
    /// # Errors
    ///
    /// When the identity's directory can't be used.
    pub fn open(
        atm_home: &Path,
        claim: &Claim,
        member: &Member,
        mode: Mode,
    ) -> Result<Self, RecordError> {
        let registry = Arc::new(Mutex::new(Registry::open(atm_home, &claim.identity, mode)?));
        let unused = Arc::clone(&registry);
        // A registry has up to 10,000 threads, and a host has one for each client.
        let io_thread = IoThread::start_with(move || lock(&unused).drop_cache());
        let io_thread = io_thread.map_err(|error| FileError::Io {
            path: atm_home.to_owned(),
            error,
        })?;
        let records = Self {
            member: member.clone(),
            role: None,
            backend: "app-server",
            atm_home: atm_home.to_owned(),
            audit: Mutex::new(Audit::open(atm_home, member)?),
            registry,
            summaries: Summaries::of(atm_home, &claim.identity),
            io_thread,
            turns: Mutex::default(),
        };
        records.take_over();
        Ok(records)
    }

    fn take_over(&self) {
        let registry = Arc::clone(&self.registry);
        self.io_thread
            .submit(move || match lock(&registry).take_over() {
                Ok(threads) => {
                    for thread in threads {
                        tracing::info!("thread {thread} was left active by a server that has died");
                    }
                }
                Err(error) => tracing::error!("the registry of threads cannot be used: {error}"),
            });
    }

    /// The same, with an audit log that is rotated at this size, in bytes.
    #[must_use]
    pub fn with_audit_limit(self, limit: u64) -> Self {
        lock(&self.audit).rotate_at(limit);
        self
    }

    /// The same, for threads that are begun by this preset through this backend.
    #[must_use]
    pub fn for_threads_of(self, role: Option<RoleName>, backend: &'static str) -> Self {
        Self {
            role,
            backend,
            ..self
        }
    }

    /// The identity whose records these are.
    #[must_use]
    pub fn identity(&self) -> &AgentName {
        &self.member.identity
    }

    /// All threads of the identity, as they are now.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub async fn threads(&self) -> Result<Vec<Entry>, RecordError> {
        let registry = Arc::clone(&self.registry);
        Ok(self.io_thread.run(move || lock(&registry).load()).await??)
    }

    /// The named thread, of any identity, or else the thread that this identity has used last;
    /// `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// [`RecordError`], also when there is no such thread.
    pub fn previous_thread(
        &self,
        thread: Option<&ThreadName>,
    ) -> Result<Option<PreviousThread>, RecordError> {
        let entry = match thread {
            Some(thread) => match self.find(thread)? {
                Some(entry) => entry,
                None => return Err(RecordError::NoThread(thread.clone())),
            },
            None => {
                let threads = registry_files::read(&self.atm_home, self.identity())?;
                match threads.latest(SystemTime::now()) {
                    Some(entry) => entry.clone(),
                    None => return Ok(None),
                }
            }
        };
        // A summary covers a thread only until its next use, so an older one is not used for an
        // active thread.
        let summary = match entry.status {
            Status::Ended => {
                Summaries::of(&self.atm_home, &entry.identity).read(&entry.thread_id)?
            }
            _ => None,
        };
        let thread = entry.thread_id;
        Ok(Some(PreviousThread { thread, summary }))
    }

    /// Records that a thread has begun or was resumed.
    pub fn thread_started(
        &self,
        thread: &str,
        cwd: Option<&Path>,
        settings: registry::Settings,
        tag: Option<String>,
    ) {
        let Some(thread_id) = thread_name(thread) else {
            return;
        };
        let member = self.member.clone();
        let (role, backend) = (self.role.clone(), self.backend);
        let cwd = cwd.map(Path::to_owned);
        self.change(move || {
            let here = ThreadLocation::of(&member, cwd.as_deref());
            let now = SystemTime::now();
            let entry = Entry {
                thread_id,
                identity: member.identity,
                team: member.team,
                repo_root: here.repo_root,
                repo_name: here.repo_name,
                branch: here.branch,
                cwd: here.cwd,
                started_at: now,
                last_active: now,
                status: Status::Active,
                tag,
                role,
                backend: Some(backend.to_owned()),
                turns: 0,
                no_summary: None,
                prompt: None,
                last_turn: None,
                settings,
                rest: serde_json::Map::new(),
            };
            let entry = Box::new(entry);
            Change::Begin { entry }
        });
    }

    /// Records a use of a thread, with `turns` more turns.
    pub fn touched(&self, thread: &str, cwd: Option<&Path>, turns: u64, prompt: Option<&str>) {
        let Some(thread_id) = thread_name(thread) else {
            return;
        };
        let member = self.member.clone();
        let cwd = cwd.map(Path::to_owned);
        let prompt = prompt.map(first_words);
        self.change(move || {
            let here = cwd.map(|cwd| ThreadLocation::of(&member, Some(&cwd)));
            let here = here.unwrap_or_default();
            let update = ThreadUpdate {
                turns,
                repo_root: here.repo_root,
                repo_name: here.repo_name,
                branch: here.branch,
                cwd: here.cwd,
                prompt,
                ..ThreadUpdate::default()
            };
            let at = SystemTime::now();
            Change::Touch {
                thread_id,
                at,
                update: Box::new(update),
            }
        });
    }

    /// Records the end of a turn.
    pub fn turn_ended(&self, thread: &str, outcome: AuditOutcome) {
        let state = match outcome {
            AuditOutcome::Succeeded => TurnState::Completed,
            AuditOutcome::Cancelled | AuditOutcome::TimedOut => TurnState::Interrupted,
            _ => TurnState::Failed,
        };
        self.set_turn_state(thread, state);
    }

    /// Records the end of a turn, if its prompt was recorded.
    fn end_turn(&self, turn: &TurnRef, thread: &ThreadId, outcome: AuditOutcome) {
        let Some((id, event)) = lock(&self.turns).remove(turn) else {
            return;
        };
        self.finished(id, Event::Turn, Some(thread.as_str()), outcome);
        if event != Event::Summary {
            self.turn_ended(thread.as_str(), outcome);
        }
    }

    fn set_turn_state(&self, thread: &str, state: TurnState) {
        if let Some(thread_id) = thread_name(thread) {
            self.change(move || Change::TurnEnded { thread_id, state });
        }
    }

    /// Writes the summary of a thread that has ended, or records why there is none.
    pub fn summarised(&self, thread: &str, summary: Result<String, String>) {
        let Some(thread_id) = thread_name(thread) else {
            return;
        };
        let summaries = self.summaries.clone();
        self.change(move || {
            let written = summary.and_then(|text| {
                let written = summaries.write(&thread_id, &text);
                written.map_err(|error| format!("it cannot be written: {error}"))
            });
            let (status, no_summary) = match written {
                Ok(()) => (Status::Ended, None),
                Err(why) => {
                    tracing::warn!("thread {thread_id} has no summary: {why}");
                    (Status::Interrupted, Some(why))
                }
            };
            Change::SetStatus {
                thread_id,
                status,
                no_summary,
            }
        });
    }

    /// Writes to the audit log that Codex is about to get a prompt.
    pub fn prompted(&self, id: Uuid, event: Event, thread: Option<&str>, prompt: &str) {
        self.write(&Record {
            thread_id: thread,
            summary: Some(prompt),
            ..Record::new(id, event, AuditOutcome::Started)
        });
    }

    /// Writes the outcome of a prompt to the audit log.
    pub fn finished(&self, id: Uuid, event: Event, thread: Option<&str>, outcome: AuditOutcome) {
        self.write(&Record {
            thread_id: thread,
            ..Record::new(id, event, outcome)
        });
    }

    /// Removes stale members, including an earlier server of this identity. For servers that are in
    /// no team.
    pub fn remove_stale_members(&self) {
        let (home, own) = (self.atm_home.clone(), self.identity().clone());
        self.io_thread.submit(move || {
            stale_members::remove_one(&home, &own);
            stale_members::remove_all_but(&home, &own);
        });
    }

    /// Marks threads that are still active as interrupted, and waits until all is written.
    pub async fn close(&self, shutdown_summary: ShutdownSummary) {
        if shutdown_summary == ShutdownSummary::Skip {
            self.mark_unsummarised().await;
        }
        self.change(|| Change::InterruptActive);
        let registry = Arc::clone(&self.registry);
        self.io_thread.submit(move || lock(&registry).release());
        lock(&self.audit).release();
        self.io_thread.flush().await;
    }

    /// Records that the threads that are still active were not asked for a summary.
    async fn mark_unsummarised(&self) {
        let threads = self.threads().await.unwrap_or_else(|error| {
            tracing::debug!("the threads cannot be listed: {error}");
            Vec::new()
        });
        let active = threads
            .into_iter()
            .filter(|entry| entry.status == Status::Active);
        for Entry { thread_id, .. } in active {
            self.change(move || Change::SetStatus {
                thread_id,
                status: Status::Interrupted,
                no_summary: Some(NOT_WANTED.to_owned()),
            });
        }
    }

    /// Finds a thread without a lock. If several identities have used it, the latest use counts.
    fn find(&self, thread: &ThreadName) -> Result<Option<Entry>, RecordError> {
        let now = SystemTime::now();
        let mut found: Option<Entry> = None;
        for (identity, document) in registry_files::all(&self.atm_home)? {
            // A registry that can't be read must not hide the others.
            let document = document.inspect_err(|error| {
                tracing::warn!("cannot look for {thread} among the threads of {identity}: {error}");
            });
            let Some(entry) = document.ok().and_then(|all| all.find(thread).cloned()) else {
                continue;
            };
            let later = |found: &Entry| found.used_at(now) < entry.used_at(now);
            if found.as_ref().is_none_or(later) {
                found = Some(Entry { identity, ..entry });
            }
        }
        Ok(found)
    }

    fn write(&self, record: &Record<'_>) {
        if let Err(error) = lock(&self.audit).write(record) {
            tracing::error!("cannot write to the audit log: {error}");
        }
    }

    /// Changes the registry, on the I/O thread.
    fn change(&self, change: impl FnOnce() -> Change + Send + 'static) {
        let registry = Arc::clone(&self.registry);
        self.io_thread.submit(move || {
            if let Err(error) = lock(&registry).apply(&change()) {
                tracing::error!("the registry of threads cannot be written: {error}");
            }
        });
    }
}

impl EngineObserver for Records {
    fn opened(&self, thread: &ThreadId, start: &StartThread) {
        if start.settings.persistence == Persistence::Ephemeral {
            return;
        }
        let Settings {
            thread: thread_settings,
            profile,
            model_options,
            mcp_servers,
            ..
        } = &start.settings;
        let cwd = thread_settings.cwd.as_deref();
        let settings = registry::Settings {
            profile: profile.as_ref().map(ToString::to_string),
            mcp_servers: as_word(mcp_servers).filter(|_| *mcp_servers == McpServers::Off),
            ..settings_of(thread_settings, model_options)
        };
        self.thread_started(thread.as_str(), cwd, settings, start.tag.clone());
    }

    fn prompting(&self, given: PromptRecord<'_>) {
        let (event, turns) = match given.kind {
            InputKind::First => (Event::Codex, Some(1)),
            InputKind::Reply => (Event::CodexReply, Some(1)),
            InputKind::Steer => (Event::CodexSession, Some(0)),
            // A summary does not count as a use of the thread.
            InputKind::ShutdownSummary => (Event::Summary, None),
        };
        let (id, _) = *lock(&self.turns)
            .entry(given.turn.clone())
            .or_insert_with(|| (Uuid::new_v4(), event));
        let thread = given.thread.as_str();
        self.prompted(id, event, Some(thread), given.text);
        if let (Persistence::Persistent, Some(turns)) = (given.persistence, turns) {
            let prompt = (turns > 0).then_some(given.task.unwrap_or(given.text));
            self.touched(thread, given.cwd, turns, prompt);
        }
    }

    /// The thread was marked as interrupted when the records were opened. Its last use stays the last.
    fn taken_back(&self, thread: &ThreadId) {
        let Some(thread_id) = thread_name(thread.as_str()) else {
            return;
        };
        let registry = Arc::clone(&self.registry);
        self.io_thread.submit(move || {
            let mut registry = lock(&registry);
            let written = registry.find(&thread_id).and_then(|entry| {
                let Some(entry) = entry else {
                    return Ok(());
                };
                let again = Change::Touch {
                    thread_id,
                    at: entry.last_active,
                    update: Box::default(),
                };
                registry.apply(&again).map(drop)
            });
            if let Err(error) = written {
                tracing::error!("the registry of threads cannot be written: {error}");
            }
        });
    }

    fn continued(&self, turn: &TurnRef, thread: &ThreadId) {
        let (id, event) = (Uuid::new_v4(), Event::Turn);
        lock(&self.turns).insert(turn.clone(), (id, event));
        let thread = thread.as_str();
        self.write(&Record {
            thread_id: Some(thread),
            summary: Some("continues in the next host process"),
            ..Record::new(id, event, AuditOutcome::Started)
        });
        self.touched(thread, None, 0, None);
        self.set_turn_state(thread, TurnState::Running);
    }

    fn acted(&self, thread: &ThreadId, act: Act<'_>) {
        let (event, summary) = match act {
            Act::Forked(new) => (Event::Fork, Some(format!("the new thread is {new}"))),
            Act::Interrupted => (Event::Interrupt, None),
            Act::Cancelled(why) => (Event::Cancel, Some(why.to_owned())),
        };
        self.write(&Record {
            thread_id: Some(thread.as_str()),
            summary: summary.as_deref(),
            ..Record::new(Uuid::new_v4(), event, AuditOutcome::Succeeded)
        });
        if let (Act::Cancelled(_), Some(thread_id)) = (act, thread_name(thread.as_str())) {
            self.change(move || Change::Interrupt { thread_id });
        }
    }

    fn closed(&self, thread: &ThreadId, questions: &[ClosedQuestion]) {
        for closed in questions {
            let nobody = DecidedBy::Nobody;
            let (outcome, by, decision) = match &closed.reason {
                CloseReason::Decided(DecidedBy::Nobody, decision) => {
                    (AuditOutcome::TimedOut, nobody, decision.as_str())
                }
                CloseReason::Decided(by, decision) => {
                    (AuditOutcome::Succeeded, *by, decision.as_str())
                }
                CloseReason::TimedOut => (AuditOutcome::TimedOut, nobody, "decline"),
                CloseReason::TurnEnded | CloseReason::Ambiguous => {
                    (AuditOutcome::Cancelled, nobody, "decline")
                }
                CloseReason::Withdrawn => (AuditOutcome::Cancelled, nobody, "none"),
            };
            self.write(&Record {
                thread_id: Some(thread.as_str()),
                summary: Some(&closed.question),
                decision: Some(decision),
                decided_by: Some(by.name()),
                decided_agent: closed.agent.as_deref(),
                ..Record::new(Uuid::new_v4(), Event::Approval, outcome)
            });
        }
    }

    fn ended(&self, turn: &TurnRef, thread: &ThreadId, outcome: &TurnOutcome) {
        let outcome = match &outcome.ending {
            TurnEnding::Completed => AuditOutcome::Succeeded,
            TurnEnding::Interrupted => AuditOutcome::Cancelled,
            TurnEnding::Failed(_) | TurnEnding::Lost(_) => AuditOutcome::Failed,
        };
        self.end_turn(turn, thread, outcome);
    }

    fn refused(&self, turn: &TurnRef, thread: &ThreadId) {
        self.end_turn(turn, thread, AuditOutcome::Failed);
    }

    fn discarded(&self, thread: &ThreadId) {
        if let Some(thread_id) = thread_name(thread.as_str()) {
            self.change(move || Change::Remove {
                thread_id,
                idle_since: None,
            });
        }
    }

    fn recall(&self, thread: &ThreadId) -> Option<Settings> {
        let thread = thread_name(thread.as_str())?;
        match self.find(&thread) {
            Ok(entry) => entry.as_ref().map(settings_of_entry),
            Err(error) => {
                tracing::warn!("cannot read the settings of {thread}: {error}");
                None
            }
        }
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        self.io_thread.flush().boxed()
    }
}

/// Parses the ID of a thread. A thread whose ID is not a valid name is not recorded.
fn thread_name(thread: &str) -> Option<ThreadName> {
    let name = thread.parse();
    name.inspect_err(|error| tracing::warn!("thread {thread:?} is not recorded: {error}"))
        .ok()
}

/// The length of a prompt that is examined for its first words, in characters.
const EXAMINED_CHARS: usize = 2000;

/// The first words of a prompt on one line, with credentials masked.
fn first_words(prompt: &str) -> String {
    let beginning: String = prompt.trim_start().chars().take(EXAMINED_CHARS).collect();
    let masked = secrets::mask(&beginning);
    let words: Vec<&str> = masked.split_whitespace().collect();
    words.join(" ")
}

/// The directory and the repository of a thread.
#[derive(Default)]
struct ThreadLocation {
    repo_root: Option<String>,
    repo_name: Option<String>,
    branch: Option<String>,
    cwd: Option<String>,
}

impl ThreadLocation {
    fn of(member: &Member, cwd: Option<&Path>) -> Self {
        let here = env::current_dir().unwrap_or_default();
        let context = Context::gather(member, &here, cwd);
        let cwd = Some(context.cwd.display().to_string());
        let Some(Repository {
            root, name, head, ..
        }) = context.repository()
        else {
            return Self {
                cwd,
                ..Self::default()
            };
        };
        Self {
            repo_root: Some(root.display().to_string()),
            repo_name: Some(name.clone()),
            branch: match head {
                Some(Head::Branch(branch)) => Some(branch.clone()),
                Some(Head::Detached(commit)) => Some(format!("(detached at {commit})")),
                None => None,
            },
            cwd,
        }
    }
}
