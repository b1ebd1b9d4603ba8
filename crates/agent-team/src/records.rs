//! What is written down of threads, prompts and turns: the registry tells which
//! threads there are, the audit what was asked of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use codex_engine::command::{Settings, Start, TurnRef};
use codex_engine::logic::action::DecidedBy;
use codex_engine::logic::session::{ClosedQuestion, Closing, Ending, Outcome as TurnOutcome};
use codex_engine::{Act, EngineObserver, Given, Kind};
use codex_protocol::codex::{Keeping, ModelOptions, ThreadId, ThreadSettings};
use common::secrets;
use git_probe::repository::{Head, Repository};
use safe_files::state_file::FileError;
use serde::de::value::{BorrowedStrDeserializer, Error as ValueError};
use serde::{Deserialize, Serialize};
use supervise::io_thread::{Ended, IoThread};
use uuid::Uuid;

use super::audit::{Audit, Event, Outcome, Record};
use super::claim::Claim;
use super::context::{Context, Member};
use super::registry::{self as registry_files, Mode, Registry, RegistryError};
use super::shutdown_summary::ShutdownSummary;
use super::stale_members;
use super::summary::Summaries;
use crate::logic::registry::{self, Change, Entry, News, Status, TurnState};
use crate::logic::{AgentName, RoleName, ThreadName};

/// Why a thread has no summary where nobody wanted one.
const NOT_WANTED: &str = "runs, and servers with `--no-summaries`, don't ask for one";

/// Why something could not be written down or looked up.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The registry can't be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Another file can't.
    #[error(transparent)]
    File(#[from] FileError),
    /// Nobody works with the files any more.
    #[error(transparent)]
    IoThread(#[from] Ended),
    /// There is no such thread, of any identity.
    #[error("there is no thread {0} to resume; `codex-mcp threads` lists those that there are")]
    NoThread(ThreadName),
}

/// A thread from before that the first new one goes on from (FR-6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recollection {
    /// The thread.
    pub thread: ThreadName,
    /// Its summary; `None` if its server had no time for one.
    pub summary: Option<String>,
}

/// Writes down what the threads of a member are given. Nothing here is waited for,
/// but for a line of the audit.
pub struct Records {
    member: Member,
    role: Option<RoleName>,
    backend: &'static str,
    atm_home: PathBuf,
    audit: Mutex<Audit>,
    registry: Arc<Mutex<Registry>>,
    summaries: Summaries,
    io_thread: IoThread,
    /// What the lines about a turn that is under way have in common.
    turns: Mutex<HashMap<TurnRef, (Uuid, Event)>>,
}

impl Records {
    /// The records of the identity that this process has. What a process of the same
    /// identity has left when it died is marked as interrupted.
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
        let registry = Registry::open(atm_home, &claim.identity, mode)?;
        let io_thread = IoThread::start().map_err(|error| FileError::Io {
            path: atm_home.to_owned(),
            error,
        })?;
        let records = Self {
            member: member.clone(),
            role: None,
            backend: "app-server",
            atm_home: atm_home.to_owned(),
            audit: Mutex::new(Audit::open(atm_home, member)?),
            registry: Arc::new(Mutex::new(registry)),
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
            .give(move || match lock(&registry).take_over() {
                Ok(threads) => {
                    for thread in threads {
                        tracing::info!("thread {thread} was left by a server that has died");
                    }
                }
                Err(error) => tracing::error!("the registry of threads can't be used: {error}"),
            });
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

    /// Whose records they are.
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
        Ok(self.io_thread.ask(move || lock(&registry).load()).await??)
    }

    /// What is known of a thread of anybody's, or of the one that this identity has
    /// worked on last; `None` if there was none yet.
    ///
    /// # Errors
    ///
    /// [`RecordError`], also when there is no such thread.
    pub fn recollect(
        &self,
        thread: Option<&ThreadName>,
    ) -> Result<Option<Recollection>, RecordError> {
        let entry = match thread {
            Some(thread) => match self.find(thread)? {
                Some(entry) => entry,
                None => return Err(RecordError::NoThread(thread.clone())),
            },
            None => match registry_files::read(&self.atm_home, self.identity())?.latest() {
                Some(entry) => entry.clone(),
                None => return Ok(None),
            },
        };
        // One from before it was worked on again says nothing of that.
        let summary = match entry.status {
            Status::Ended => {
                Summaries::of(&self.atm_home, &entry.identity).read(&entry.thread_id)?
            }
            _ => None,
        };
        let thread = entry.thread_id;
        Ok(Some(Recollection { thread, summary }))
    }

    /// A thread has begun, or was taken up.
    pub fn begun(
        &self,
        thread: &str,
        cwd: Option<&Path>,
        settings: registry::Settings,
        tag: Option<String>,
    ) {
        let Some(thread_id) = named(thread) else {
            return;
        };
        let member = self.member.clone();
        let (role, backend) = (self.role.clone(), self.backend);
        let cwd = cwd.map(Path::to_owned);
        self.change(move || {
            let here = Whereabouts::of(&member, cwd.as_deref());
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

    /// A thread gets another prompt, or has had `turns` more of them.
    pub fn touched(&self, thread: &str, cwd: Option<&Path>, turns: u64, prompt: Option<&str>) {
        let Some(thread_id) = named(thread) else {
            return;
        };
        let member = self.member.clone();
        let cwd = cwd.map(Path::to_owned);
        let prompt = prompt.map(first_words);
        self.change(move || {
            let here = cwd.map(|cwd| Whereabouts::of(&member, Some(&cwd)));
            let here = here.unwrap_or_default();
            let news = News {
                turns,
                repo_root: here.repo_root,
                repo_name: here.repo_name,
                branch: here.branch,
                cwd: here.cwd,
                prompt,
                ..News::default()
            };
            let at = SystemTime::now();
            Change::Touch {
                thread_id,
                at,
                news: Box::new(news),
            }
        });
    }

    /// A turn of a thread has ended.
    pub fn turn_ended(&self, thread: &str, came: Outcome) {
        let Some(thread_id) = named(thread) else {
            return;
        };
        let state = match came {
            Outcome::Done => TurnState::Completed,
            Outcome::Cancelled | Outcome::TimedOut => TurnState::Interrupted,
            _ => TurnState::Failed,
        };
        self.change(move || Change::TurnEnded { thread_id, state });
    }

    /// Writes down the summary of a thread that was put away, or why there is none.
    pub fn summarised(&self, thread: &str, summary: Result<String, String>) {
        let Some(thread_id) = named(thread) else {
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

    /// Writes down that Codex is about to be given something.
    pub fn prompted(&self, id: Uuid, event: Event, thread: Option<&str>, prompt: &str) {
        self.write(&Record {
            thread_id: thread,
            summary: Some(prompt),
            ..Record::new(id, event, Outcome::Begun)
        });
    }

    /// Writes down what came of it.
    pub fn done(&self, id: Uuid, event: Event, thread: Option<&str>, came: Outcome) {
        self.write(&Record {
            thread_id: thread,
            ..Record::new(id, event, came)
        });
    }

    /// Forgets who of the team has died, this identity's own server before included,
    /// for a server that is in no team.
    pub fn put_away_the_dead(&self) {
        let (home, own) = (self.atm_home.clone(), self.identity().clone());
        self.io_thread.give(move || {
            stale_members::put_away_own(&home, &own);
            stale_members::put_away(&home, &own);
        });
    }

    /// Puts everything away: what is still active was not summarised. Waits until all
    /// is written.
    pub async fn close(&self, shutdown_summary: ShutdownSummary) {
        if shutdown_summary == ShutdownSummary::Skip {
            self.put_away_unasked().await;
        }
        self.change(|| Change::InterruptActive);
        self.io_thread.settle().await;
    }

    /// Writes down that nobody wanted a summary of the threads that are still active.
    async fn put_away_unasked(&self) {
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

    /// A thread, from the identity that has worked on it last. Nothing is locked for
    /// that.
    fn find(&self, thread: &ThreadName) -> Result<Option<Entry>, RecordError> {
        let mut found: Option<Entry> = None;
        for (identity, document) in registry_files::all(&self.atm_home)? {
            // One that can't be read is no reason not to look into the others.
            let document = document.inspect_err(|error| {
                tracing::warn!("{thread} was not looked for among {identity}'s: {error}");
            });
            let Some(entry) = document.ok().and_then(|all| all.find(thread).cloned()) else {
                continue;
            };
            let later = |found: &Entry| found.last_active < entry.last_active;
            if found.as_ref().is_none_or(later) {
                found = Some(Entry { identity, ..entry });
            }
        }
        Ok(found)
    }

    fn write(&self, record: &Record<'_>) {
        if let Err(error) = lock(&self.audit).write(record) {
            tracing::error!("the audit log can't be written: {error}");
        }
    }

    /// Has the registry changed, by and by.
    fn change(&self, change: impl FnOnce() -> Change + Send + 'static) {
        let registry = Arc::clone(&self.registry);
        self.io_thread.give(move || {
            if let Err(error) = lock(&registry).apply(&change()) {
                tracing::error!("the registry of threads can't be written: {error}");
            }
        });
    }
}

impl EngineObserver for Records {
    fn opened(&self, thread: &ThreadId, start: &Start) {
        if start.settings.keeping == Keeping::Ephemeral {
            return;
        }
        let Settings {
            thread: thread_settings,
            profile,
            manner,
            ..
        } = &start.settings;
        let cwd = thread_settings.cwd.as_deref();
        let settings = registry::Settings {
            profile: profile.as_ref().map(ToString::to_string),
            ..settings_of(thread_settings, manner)
        };
        self.begun(thread.as_str(), cwd, settings, start.tag.clone());
    }

    fn giving(&self, given: Given<'_>) {
        let (event, turns) = match given.kind {
            Kind::First => (Event::Codex, Some(1)),
            Kind::Reply => (Event::CodexReply, Some(1)),
            Kind::Steer => (Event::CodexSession, Some(0)),
            // Nobody works on the thread any more.
            Kind::Farewell => (Event::Summary, None),
        };
        let (id, _) = *lock(&self.turns)
            .entry(given.turn.clone())
            .or_insert_with(|| (Uuid::new_v4(), event));
        let thread = given.thread.as_str();
        self.prompted(id, event, Some(thread), given.text);
        if let (Keeping::Kept, Some(turns)) = (given.keeping, turns) {
            let prompt = (turns > 0).then_some(given.text);
            self.touched(thread, given.cwd, turns, prompt);
        }
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
            ..Record::new(Uuid::new_v4(), event, Outcome::Done)
        });
    }

    fn closed(&self, thread: &ThreadId, questions: &[ClosedQuestion]) {
        for ClosedQuestion { question, closing } in questions {
            let nobody = DecidedBy::Nobody;
            let (outcome, by, decision) = match closing {
                Closing::Decided(DecidedBy::Nobody, decision) => {
                    (Outcome::TimedOut, nobody, decision.as_str())
                }
                Closing::Decided(by, decision) => (Outcome::Done, *by, decision.as_str()),
                Closing::TimedOut => (Outcome::TimedOut, nobody, "decline"),
                Closing::TurnEnds => (Outcome::Cancelled, nobody, "decline"),
                Closing::Withdrawn => (Outcome::Cancelled, nobody, "none"),
            };
            self.write(&Record {
                thread_id: Some(thread.as_str()),
                summary: Some(question),
                decision: Some(decision),
                decided_by: Some(by.name()),
                ..Record::new(Uuid::new_v4(), Event::Approval, outcome)
            });
        }
    }

    fn ended(&self, turn: &TurnRef, thread: &ThreadId, outcome: &TurnOutcome) {
        let Some((id, event)) = lock(&self.turns).remove(turn) else {
            return;
        };
        let came = match &outcome.ending {
            Ending::Completed => Outcome::Done,
            Ending::Interrupted => Outcome::Cancelled,
            Ending::Failed(_) | Ending::Lost(_) => Outcome::Failed,
        };
        self.done(id, Event::Turn, Some(thread.as_str()), came);
        if event != Event::Summary {
            self.turn_ended(thread.as_str(), came);
        }
    }

    fn discarded(&self, thread: &ThreadId) {
        if let Some(thread_id) = named(thread.as_str()) {
            self.change(move || Change::Remove {
                thread_id,
                idle_since: None,
            });
        }
    }

    fn recall(&self, thread: &ThreadId) -> Option<Settings> {
        let thread = named(thread.as_str())?;
        match self.find(&thread) {
            Ok(entry) => entry.as_ref().map(recalled),
            Err(error) => {
                tracing::warn!("how {thread} was set is not known: {error}");
                None
            }
        }
    }
}

/// Codex's names are names; what isn't one is not written down.
fn named(thread: &str) -> Option<ThreadName> {
    let name = thread.parse();
    name.inspect_err(|error| tracing::warn!("thread {thread:?} is not written down: {error}"))
        .ok()
}

/// How much of a prompt is looked at for its first words, in characters.
const LOOKED_AT: usize = 2000;

/// The first words of a prompt on one line, with credentials masked.
fn first_words(prompt: &str) -> String {
    let beginning: String = prompt.trim_start().chars().take(LOOKED_AT).collect();
    let masked = secrets::mask(&beginning);
    let words: Vec<&str> = masked.split_whitespace().collect();
    words.join(" ")
}

/// The settings of a thread in the registry's form.
fn settings_of(thread: &ThreadSettings, manner: &ModelOptions) -> registry::Settings {
    registry::Settings {
        model: thread.model.clone(),
        sandbox: word(&thread.sandbox),
        approval_policy: word(&thread.approval_policy),
        reasoning_effort: word(&manner.effort),
        profile: None,
    }
}

/// How a thread in the registry was set. What this program doesn't know is left out.
fn recalled(entry: &Entry) -> Settings {
    let written = &entry.settings;
    let mut settings = Settings::default();
    let thread = &mut settings.thread;
    thread.cwd = entry.cwd.as_ref().map(PathBuf::from);
    // A directory that is gone must not keep the thread from being taken up.
    thread.cwd = thread.cwd.take().filter(|cwd| cwd.is_dir());
    thread.model.clone_from(&written.model);
    thread.sandbox = read(written.sandbox.as_deref());
    thread.approval_policy = read(written.approval_policy.as_deref());
    settings.manner.effort = read(written.reasoning_effort.as_deref());
    settings.profile = read(written.profile.as_deref());
    settings
}

/// What is written as one word.
fn word<T: Serialize>(value: &Option<T>) -> Option<String> {
    match serde_json::to_value(value.as_ref()?) {
        Ok(serde_json::Value::String(word)) => Some(word),
        _ => None,
    }
}

fn read<'de, T: Deserialize<'de>>(word: Option<&'de str>) -> Option<T> {
    T::deserialize(BorrowedStrDeserializer::<ValueError>::new(word?)).ok()
}

/// Where a thread works.
#[derive(Default)]
struct Whereabouts {
    repo_root: Option<String>,
    repo_name: Option<String>,
    branch: Option<String>,
    cwd: Option<String>,
}

impl Whereabouts {
    fn of(member: &Member, cwd: Option<&Path>) -> Self {
        let context = Context::gather(member, cwd);
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in them is valid at every point.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
