//! The registry of an identity's threads, in its stored form.
//!
//! A [`Document`] holds all threads, a [`Change`] modifies it, and a [`JournalLine`] is a change in
//! the journal of a document. Each change has the version of the document that it produces. So a
//! change that is both in the document and in the journal, because a process died in between, is
//! applied only once.
//!
//! Unknown keys, statuses and entries are kept: a newer program may have written them.

mod entry;

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize, de};
use serde_json::value::RawValue;

use self::entry::moment;
use super::ThreadName;

pub use self::entry::{Entry, Settings, Status, ThreadUpdate, TurnState};

/// The most threads in a registry. When it is full, the inactive thread that was used longest ago
/// is removed.
pub const MAX_THREADS: usize = 10_000;

/// Why a thread that was active when its server ended has no summary.
const NOT_ASKED: &str = "its session or its server ended before it was asked for one";

/// A change of the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A thread begins or is resumed. A resumed thread keeps its beginning, its turns, and each
    /// value that the new entry lacks.
    Begin {
        /// The entry of the thread.
        entry: Box<Entry>,
    },
    /// A thread is in use, and so active.
    Touch {
        /// The thread.
        thread_id: ThreadName,
        /// The time of the use.
        #[serde(with = "moment")]
        at: SystemTime,
        /// The changed values.
        #[serde(default, rename = "news")]
        update: Box<ThreadUpdate>,
    },
    /// The last turn of a thread has ended, or is continued by the next host.
    TurnEnded {
        /// The thread.
        thread_id: ThreadName,
        /// The state of the turn.
        state: TurnState,
    },
    /// The status of a thread changes.
    SetStatus {
        /// The thread.
        thread_id: ThreadName,
        /// The new status.
        status: Status,
        /// Why the thread has no summary, if it was to have one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        no_summary: Option<String>,
    },
    /// A thread is removed.
    Remove {
        /// The thread.
        thread_id: ThreadName,
        /// Removes the thread only if it was not used after this time.
        #[serde(default, with = "moment::optional")]
        idle_since: Option<SystemTime>,
    },
    /// The session of a thread has ended: the thread is interrupted, if it was active.
    Interrupt {
        /// The thread.
        thread_id: ThreadName,
    },
    /// All active threads are interrupted, as their server is gone.
    InterruptActive,
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The registry was changed.
    Changed,
    /// There was nothing to change: no such thread, or none that is active.
    Unchanged,
}

/// A change in a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalLine {
    /// The version of the document that the change produces.
    pub version: u64,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

/// All threads of an identity.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// The number of changes so far.
    pub version: u64,
    threads: Vec<Item>,
    /// Unknown keys, as they were written.
    rest: BTreeMap<String, Box<RawValue>>,
}

#[derive(Debug, Clone)]
enum Item {
    Entry(Box<Entry>),
    /// An entry that can't be read, kept as it is.
    Unreadable(Box<RawValue>),
}

/// Why a text is not a registry.
#[derive(Debug, thiserror::Error)]
#[error("it is not the JSON of a registry: {0}")]
pub struct Malformed(#[from] serde_json::Error);

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// [`Malformed`]. An entry that can't be read is no error: it is kept.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        // Without copies: a document has up to 10,000 threads, and is read often.
        let mut values: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
        let mut value = |key| {
            let found = values.remove(key);
            found.ok_or_else(|| <serde_json::Error as de::Error>::missing_field(key))
        };
        let version = serde_json::from_str(value("version")?.get())?;
        let threads: Vec<&RawValue> = serde_json::from_str(value("threads")?.get())?;
        let item = |raw: &RawValue| match serde_json::from_str(raw.get()) {
            Ok(entry) => Item::Entry(Box::new(entry)),
            Err(_) => Item::Unreadable(raw.to_owned()),
        };
        let rest = values.into_iter();
        Ok(Self {
            version,
            threads: threads.into_iter().map(item).collect(),
            rest: rest.map(|(key, value)| (key, value.to_owned())).collect(),
        })
    }

    /// The document as JSON, with a line per entry.
    ///
    /// # Errors
    ///
    /// No error is known, as all keys are strings.
    pub fn to_json(&self) -> Result<String, Malformed> {
        let mut text = format!("{{\"version\":{},\"threads\":[", self.version);
        for (index, item) in self.threads.iter().enumerate() {
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            match item {
                Item::Entry(entry) => text.push_str(&serde_json::to_string(entry)?),
                Item::Unreadable(raw) => text.push_str(raw.get()),
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
            Item::Unreadable(_) => None,
        })
    }

    /// Finds a thread.
    #[must_use]
    pub fn find(&self, thread: &ThreadName) -> Option<&Entry> {
        self.entries().find(|entry| entry.thread_id == *thread)
    }

    /// The thread that was used last. A thread whose last use is far ahead of `now`, by a wrong
    /// clock, counts only if there is no other.
    #[must_use]
    pub fn latest(&self, now: SystemTime) -> Option<&Entry> {
        self.entries().max_by_key(|entry| entry.used_at(now))
    }

    /// Applies a change. The version rises by one, unless nothing was changed.
    pub fn apply(&mut self, change: &Change) -> ChangeOutcome {
        let outcome = match change {
            Change::Begin { entry } => self.begin(entry),
            Change::Touch {
                thread_id,
                at,
                update,
            } => self.update_entry(thread_id, |entry| entry.touch(*at, update)),
            Change::TurnEnded { thread_id, state } => self.update_entry(thread_id, |entry| {
                entry.last_turn = Some(state.clone());
            }),
            Change::SetStatus {
                thread_id,
                status,
                no_summary,
            } => self.update_entry(thread_id, |entry| {
                entry.status = status.clone();
                entry.no_summary.clone_from(no_summary);
            }),
            Change::Remove {
                thread_id,
                idle_since,
            } => self.remove(thread_id, *idle_since),
            Change::Interrupt { thread_id } => self.interrupt_active(Some(thread_id)),
            Change::InterruptActive => self.interrupt_active(None),
        };
        if outcome == ChangeOutcome::Changed {
            self.version = self.version.saturating_add(1);
        }
        outcome
    }

    /// Applies a change of the journal, unless the document already has it.
    pub fn fold(&mut self, line: &JournalLine) {
        if line.version > self.version {
            self.apply(&line.change);
            self.version = line.version;
        }
    }

    fn begin(&mut self, entry: &Entry) -> ChangeOutcome {
        let mut entry = entry.clone();
        entry.truncate_texts();
        let known = self.update_entry(&entry.thread_id, |known| known.resume(&entry));
        if known == ChangeOutcome::Unchanged {
            self.threads.push(Item::Entry(Box::new(entry)));
            self.make_room();
        }
        ChangeOutcome::Changed
    }

    fn update_entry(
        &mut self,
        thread: &ThreadName,
        change: impl FnOnce(&mut Entry),
    ) -> ChangeOutcome {
        let found = self.threads.iter_mut().find_map(|item| match item {
            Item::Entry(entry) if entry.thread_id == *thread => Some(entry),
            _ => None,
        });
        let Some(entry) = found else {
            return ChangeOutcome::Unchanged;
        };
        change(entry);
        entry.truncate_texts();
        ChangeOutcome::Changed
    }

    fn remove(&mut self, thread: &ThreadName, idle_since: Option<SystemTime>) -> ChangeOutcome {
        let before = self.threads.len();
        let is_idle = |entry: &Entry| idle_since.is_none_or(|since| entry.last_active <= since);
        self.threads.retain(|item| match item {
            Item::Entry(entry) => entry.thread_id != *thread || !is_idle(entry),
            Item::Unreadable(_) => true,
        });
        match self.threads.len() == before {
            true => ChangeOutcome::Unchanged,
            false => ChangeOutcome::Changed,
        }
    }

    fn interrupt_active(&mut self, only: Option<&ThreadName>) -> ChangeOutcome {
        let mut outcome = ChangeOutcome::Unchanged;
        for item in &mut self.threads {
            if let Item::Entry(entry) = item
                && entry.status == Status::Active
                && only.is_none_or(|thread| entry.thread_id == *thread)
            {
                entry.status = Status::Interrupted;
                entry.no_summary = Some(NOT_ASKED.to_owned());
                if entry.last_turn == Some(TurnState::Running) {
                    entry.last_turn = Some(TurnState::Interrupted);
                }
                outcome = ChangeOutcome::Changed;
            }
        }
        outcome
    }

    /// Removes the oldest inactive thread, or the oldest thread if all are active.
    fn make_room(&mut self) {
        if self.threads.len() <= MAX_THREADS {
            return;
        }
        let age = |item: &Item| match item {
            Item::Entry(entry) => Some((entry.status == Status::Active, entry.last_active)),
            Item::Unreadable(_) => None,
        };
        let aged = |(index, item)| Some((age(item)?, index));
        let oldest = self.threads.iter().enumerate().filter_map(aged).min();
        if let Some((_, index)) = oldest {
            self.threads.remove(index);
        }
    }
}

#[cfg(test)]
mod tests;
