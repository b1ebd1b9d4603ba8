//! The threads of one identity, as they are written down.
//!
//! A [`Document`] is the whole, a [`Change`] what becomes of it, and a [`Line`] a
//! change in a journal beside the document. Each change has the version of the
//! document that it makes: where one is found both in the document and in the
//! journal, because a process has died in between, it counts once.
//!
//! What nobody here knows (a key, a status, an entry of another form) is kept: a
//! newer program may have written it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{AgentName, RoleName, TeamName, ThreadName};

/// How many threads are remembered. Then the one that was worked on longest ago
/// gives way, of those that are not active.
pub const MOST_THREADS: usize = 10_000;

/// The longest path in an entry, in bytes: Linux takes no longer ones.
const LONGEST_PATH: usize = 4096;

/// Why a thread has no summary that was active when its server ended.
const NOT_ASKED: &str = "its session or its server ended before it was asked for one";

/// The longest beginning of a prompt in an entry, in bytes.
const LONGEST_PROMPT: usize = 200;

/// The longest other text in an entry, in bytes.
const LONGEST_TEXT: usize = 512;

/// What is known of a thread (FR-5.2), and how it was begun, so that it can be
/// taken up as it was. Settings are in Codex's words, of which each release knows
/// others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Codex's name of the thread.
    pub thread_id: ThreadName,
    /// Who began it.
    pub identity: AgentName,
    /// In which team.
    #[serde(default)]
    pub team: Option<TeamName>,
    /// The top directory of the repository that it works in, as of its last turn.
    #[serde(default)]
    pub repo_root: Option<String>,
    /// The repository's name.
    #[serde(default)]
    pub repo_name: Option<String>,
    /// The branch, as of its last turn.
    #[serde(default)]
    pub branch: Option<String>,
    /// The directory that it works in.
    #[serde(default)]
    pub cwd: Option<String>,
    /// When it was begun. RFC 3339.
    #[serde(with = "moment")]
    pub started_at: SystemTime,
    /// When it was last worked on. RFC 3339.
    #[serde(with = "moment")]
    pub last_active: SystemTime,
    /// Whether somebody works on it.
    pub status: Status,
    /// What the caller calls it.
    #[serde(default)]
    pub tag: Option<String>,
    /// The preset that it was begun with.
    #[serde(default)]
    pub role: Option<RoleName>,
    /// Which of Codex's interfaces it was begun through.
    #[serde(default)]
    pub backend: Option<String>,
    /// How many turns it has had.
    #[serde(default)]
    pub turns: u64,
    /// The first words of its first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The state of its last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_turn: Option<TurnState>,
    /// Why an interrupted thread has no summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_summary: Option<String>,
    /// How it is to be resumed.
    #[serde(flatten)]
    pub settings: Settings,
    /// What nobody here knows.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What a thread was begun with; `None` was left to Codex's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The model.
    pub model: Option<String>,
    /// What commands may touch.
    pub sandbox: Option<String>,
    /// When Codex asks.
    pub approval_policy: Option<String>,
    /// How hard the model thinks.
    pub reasoning_effort: Option<String>,
    /// Codex's profile.
    pub profile: Option<String>,
}

/// Whether somebody works on a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A server has it.
    Active,
    /// It was put away, with a summary.
    Ended,
    /// It was not put away, or without a summary: its server has died, or there was
    /// no time.
    Interrupted,
    /// Something that a newer program knows.
    #[serde(untagged)]
    Other(String),
}

impl Status {
    /// It in a word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Active => "active",
            Self::Ended => "ended",
            Self::Interrupted => "interrupted",
            Self::Other(word) => word,
        }
    }
}

/// The state of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnState {
    /// Codex works on it.
    Running,
    /// Codex has ended it.
    Completed,
    /// It was ended before Codex had.
    Interrupted,
    /// It ended with an error, or Codex has died.
    Failed,
    /// Something that a newer program knows.
    #[serde(untagged)]
    Other(String),
}

impl TurnState {
    /// It in a word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Other(word) => word,
        }
    }
}

/// What becomes of the threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A thread begins, or is taken up again: then it keeps its beginning, the
    /// number of its turns, and what the new entry doesn't say.
    Begin {
        /// What is known of it.
        entry: Box<Entry>,
    },
    /// A thread is being worked on, and so active.
    Touch {
        /// Which.
        thread_id: ThreadName,
        /// When.
        #[serde(with = "moment")]
        at: SystemTime,
        /// What is new.
        #[serde(default)]
        news: Box<News>,
    },
    /// A turn of a thread has ended.
    TurnEnded {
        /// Which thread's.
        thread_id: ThreadName,
        /// How.
        state: TurnState,
    },
    /// A thread is put away, or taken up.
    SetStatus {
        /// Which.
        thread_id: ThreadName,
        /// What it is from now on.
        status: Status,
        /// Why there is no summary, if it was to have one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        no_summary: Option<String>,
    },
    /// A thread is forgotten.
    Remove {
        /// Which.
        thread_id: ThreadName,
        /// Only if it has not been worked on since then.
        #[serde(default, with = "moment::optional")]
        idle_since: Option<SystemTime>,
    },
    /// Whoever had the active threads is gone.
    InterruptActive,
}

/// What is new about a thread; `None` is as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct News {
    /// How many turns were begun.
    pub turns: u64,
    /// The top directory of the repository.
    pub repo_root: Option<String>,
    /// The repository's name.
    pub repo_name: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// The directory.
    pub cwd: Option<String>,
    /// What the caller calls it.
    pub tag: Option<String>,
    /// The prompt of a turn that has begun; the first one is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// How it is to be resumed.
    #[serde(flatten)]
    pub settings: Settings,
}

/// What has come of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was made.
    Changed,
    /// There was nothing to change: no such thread, or none that is active.
    Nothing,
}

/// A change in a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The version of the document that it makes.
    pub version: u64,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

/// All threads of an identity.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// How many changes there have been.
    pub version: u64,
    threads: Vec<Item>,
    /// What nobody here knows, as it was written.
    rest: BTreeMap<String, Box<RawValue>>,
}

#[derive(Debug, Clone)]
enum Item {
    Entry(Box<Entry>),
    /// One that can't be read.
    Kept(Box<RawValue>),
}

/// Why a text is not a registry.
#[derive(Debug, thiserror::Error)]
#[error("it is not the JSON of a registry: {0}")]
pub struct Malformed(#[from] serde_json::Error);

/// A document as it is written, for reading and for writing.
#[derive(Serialize, Deserialize)]
struct Written<T> {
    version: u64,
    threads: Vec<T>,
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; an entry that can't be read is none, but kept.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let Written { version, threads } = serde_json::from_str(text)?;
        let mut rest: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)?;
        rest.retain(|key, _| key != "version" && key != "threads");
        let item = |raw: Box<RawValue>| match serde_json::from_str(raw.get()) {
            Ok(entry) => Item::Entry(Box::new(entry)),
            Err(_) => Item::Kept(raw),
        };
        Ok(Self {
            version,
            threads: threads.into_iter().map(item).collect(),
            rest,
        })
    }

    /// It as JSON, an entry a line.
    ///
    /// # Errors
    ///
    /// None that are known of: all keys are texts.
    pub fn to_json(&self) -> Result<String, Malformed> {
        let mut text = format!("{{\"version\":{},\"threads\":[", self.version);
        for (index, item) in self.threads.iter().enumerate() {
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            match item {
                Item::Entry(entry) => text.push_str(&serde_json::to_string(entry)?),
                Item::Kept(raw) => text.push_str(raw.get()),
            }
        }
        text.push(']');
        for (key, value) in &self.rest {
            text.push_str(",\n");
            text.push_str(&serde_json::to_string(key)?);
            text.push(':');
            text.push_str(value.get());
        }
        text.push_str("}\n");
        Ok(text)
    }

    /// The threads, in the order in which they were begun.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.threads.iter().filter_map(|item| match item {
            Item::Entry(entry) => Some(&**entry),
            Item::Kept(_) => None,
        })
    }

    /// A thread.
    #[must_use]
    pub fn find(&self, thread: &ThreadName) -> Option<&Entry> {
        self.entries().find(|entry| entry.thread_id == *thread)
    }

    /// The thread that was worked on last.
    #[must_use]
    pub fn latest(&self) -> Option<&Entry> {
        self.entries().max_by_key(|entry| entry.last_active)
    }

    /// Makes a change. The version rises by one, unless nothing was changed.
    pub fn apply(&mut self, change: &Change) -> Outcome {
        let outcome = match change {
            Change::Begin { entry } => self.begin(entry),
            Change::Touch {
                thread_id,
                at,
                news,
            } => self.with(thread_id, |entry| entry.touch(*at, news)),
            Change::TurnEnded { thread_id, state } => self.with(thread_id, |entry| {
                entry.last_turn = Some(state.clone());
            }),
            Change::SetStatus {
                thread_id,
                status,
                no_summary,
            } => self.with(thread_id, |entry| {
                entry.status = status.clone();
                entry.no_summary.clone_from(no_summary);
            }),
            Change::Remove {
                thread_id,
                idle_since,
            } => self.remove(thread_id, *idle_since),
            Change::InterruptActive => self.interrupt_active(),
        };
        if outcome == Outcome::Changed {
            self.version = self.version.saturating_add(1);
        }
        outcome
    }

    /// Makes a change of the journal, unless it is in the document already.
    pub fn fold(&mut self, line: &Line) {
        if line.version > self.version {
            self.apply(&line.change);
            self.version = line.version;
        }
    }

    fn begin(&mut self, entry: &Entry) -> Outcome {
        let mut entry = entry.clone();
        entry.bound();
        let known = self.with(&entry.thread_id, |known| known.take_up(&entry));
        if known == Outcome::Nothing {
            self.threads.push(Item::Entry(Box::new(entry)));
            self.make_room();
        }
        Outcome::Changed
    }

    fn with(&mut self, thread: &ThreadName, change: impl FnOnce(&mut Entry)) -> Outcome {
        let found = self.threads.iter_mut().find_map(|item| match item {
            Item::Entry(entry) if entry.thread_id == *thread => Some(entry),
            _ => None,
        });
        let Some(entry) = found else {
            return Outcome::Nothing;
        };
        change(entry);
        entry.bound();
        Outcome::Changed
    }

    fn remove(&mut self, thread: &ThreadName, idle_since: Option<SystemTime>) -> Outcome {
        let before = self.threads.len();
        let is_idle = |entry: &Entry| idle_since.is_none_or(|since| entry.last_active <= since);
        self.threads.retain(|item| match item {
            Item::Entry(entry) => entry.thread_id != *thread || !is_idle(entry),
            Item::Kept(_) => true,
        });
        match self.threads.len() == before {
            true => Outcome::Nothing,
            false => Outcome::Changed,
        }
    }

    fn interrupt_active(&mut self) -> Outcome {
        let mut outcome = Outcome::Nothing;
        for item in &mut self.threads {
            if let Item::Entry(entry) = item
                && entry.status == Status::Active
            {
                entry.status = Status::Interrupted;
                entry.no_summary = Some(NOT_ASKED.to_owned());
                if entry.last_turn == Some(TurnState::Running) {
                    entry.last_turn = Some(TurnState::Interrupted);
                }
                outcome = Outcome::Changed;
            }
        }
        outcome
    }

    /// Of active threads alone, the oldest gives way: there are no more of them
    /// than one process may have.
    fn make_room(&mut self) {
        if self.threads.len() <= MOST_THREADS {
            return;
        }
        let age = |item: &Item| match item {
            Item::Entry(entry) => Some((entry.status == Status::Active, entry.last_active)),
            Item::Kept(_) => None,
        };
        let aged = |(index, item)| Some((age(item)?, index));
        let oldest = self.threads.iter().enumerate().filter_map(aged).min();
        if let Some((_, index)) = oldest {
            self.threads.remove(index);
        }
    }
}

impl Entry {
    fn touch(&mut self, at: SystemTime, news: &News) {
        // Clocks are set back now and then.
        self.last_active = self.last_active.max(at);
        self.status = Status::Active;
        self.no_summary = None;
        self.turns = self.turns.saturating_add(news.turns);
        take(&mut self.repo_root, &news.repo_root);
        take(&mut self.repo_name, &news.repo_name);
        take(&mut self.branch, &news.branch);
        take(&mut self.cwd, &news.cwd);
        take(&mut self.tag, &news.tag);
        if self.prompt.is_none() {
            self.prompt.clone_from(&news.prompt);
        }
        if news.turns > 0 {
            self.last_turn = Some(TurnState::Running);
        }
        self.settings.take(&news.settings);
    }

    fn take_up(&mut self, again: &Self) {
        let news = News {
            turns: again.turns,
            repo_root: again.repo_root.clone(),
            repo_name: again.repo_name.clone(),
            branch: again.branch.clone(),
            cwd: again.cwd.clone(),
            tag: again.tag.clone(),
            prompt: again.prompt.clone(),
            settings: again.settings.clone(),
        };
        self.touch(again.last_active, &news);
        self.status = again.status.clone();
        self.identity = again.identity.clone();
        take(&mut self.team, &again.team);
        take(&mut self.role, &again.role);
        take(&mut self.backend, &again.backend);
        self.rest.extend(again.rest.clone());
    }

    /// Cuts what is longer than it may be.
    fn bound(&mut self) {
        for path in [&mut self.repo_root, &mut self.cwd] {
            cut(path, LONGEST_PATH);
        }
        cut(&mut self.prompt, LONGEST_PROMPT);
        let Settings {
            model,
            sandbox,
            approval_policy,
            reasoning_effort,
            profile,
        } = &mut self.settings;
        for text in [model, sandbox, approval_policy, reasoning_effort, profile] {
            cut(text, LONGEST_TEXT);
        }
        let Self {
            repo_name,
            branch,
            tag,
            backend,
            no_summary,
            ..
        } = self;
        for text in [repo_name, branch, tag, backend, no_summary] {
            cut(text, LONGEST_TEXT);
        }
    }
}

impl Settings {
    fn take(&mut self, new: &Self) {
        take(&mut self.model, &new.model);
        take(&mut self.sandbox, &new.sandbox);
        take(&mut self.approval_policy, &new.approval_policy);
        take(&mut self.reasoning_effort, &new.reasoning_effort);
        take(&mut self.profile, &new.profile);
    }
}

fn take<T: Clone>(old: &mut Option<T>, new: &Option<T>) {
    if new.is_some() {
        old.clone_from(new);
    }
}

fn cut(text: &mut Option<String>, limit: usize) {
    if let Some(text) = text {
        text.truncate(text.floor_char_boundary(limit));
    }
}

/// Moments in RFC 3339, UTC, milliseconds.
mod moment {
    use std::time::SystemTime;

    use serde::{Deserialize, Deserializer, Serializer, de};

    use common::timestamp::timestamp;

    pub(super) fn serialize<S: Serializer>(at: &SystemTime, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&timestamp(*at))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_rfc3339(&text).map_err(de::Error::custom)
    }

    /// The same for one that there may be.
    pub(super) mod optional {
        use std::time::SystemTime;

        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[derive(Serialize, Deserialize)]
        #[serde(transparent)]
        struct Moment(#[serde(with = "super")] SystemTime);

        pub(in super::super) fn serialize<S: Serializer>(
            at: &Option<SystemTime>,
            out: S,
        ) -> Result<S::Ok, S::Error> {
            at.map(Moment).serialize(out)
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<SystemTime>, D::Error> {
            let at = Option::<Moment>::deserialize(from)?;
            Ok(at.map(|Moment(at)| at))
        }
    }
}

#[cfg(test)]
mod tests;
