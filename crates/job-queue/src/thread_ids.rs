//! Resolves threads by ID prefix.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use agent_team::logic::ThreadName;
use agent_team::logic::registry::Entry;
use agent_team::registry;
use codex_engine::rollouts::{self, Matches};
use codex_protocol::codex::ThreadId;
use common::duration::ago;
use common::text::one_line;
use safe_files::state_file::FileError;

/// The shortest prefix of an ID, in characters.
const SHORTEST: usize = 8;

/// The most threads that are listed for an ambiguous prefix.
const NAMED: usize = 10;

/// The limit of a prompt in that list, in bytes.
const PROMPT: usize = 60;

/// A prefix of the ID of a Codex thread, or the whole ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPrefix(String);

/// The error of a malformed prefix of a thread's ID.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a thread ID: give a full ID, such as 0199a213-81c0-7800-8aa1-bbab2a035a53, or a \
     prefix of {SHORTEST} or more characters"
)]
pub struct BadThreadPrefix(String);

impl FromStr for ThreadPrefix {
    type Err = BadThreadPrefix;

    fn from_str(text: &str) -> Result<Self, BadThreadPrefix> {
        // Complete the prefix to a whole ID, so that the form of an ID is checked.
        let rest = "00000000-0000-0000-0000-000000000000".get(text.len()..);
        let is_prefix = text.len() >= SHORTEST
            && rest.is_some_and(|rest| ThreadId::parse(&format!("{text}{rest}")).is_ok());
        match is_prefix {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(BadThreadPrefix(one_line(text, 100))),
        }
    }
}

impl fmt::Display for ThreadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error of resolving a thread by ID prefix.
#[derive(Debug, thiserror::Error)]
pub enum ThreadPrefixError {
    /// No thread begins with it.
    #[error(
        "there is no thread {prefix} in {}; `codex-mcp threads` lists those that there are",
        sessions.display()
    )]
    Unknown {
        /// The prefix.
        prefix: String,
        /// The directory that was searched.
        sessions: PathBuf,
    },
    /// Several threads begin with it.
    #[error("several threads begin with {prefix}; give more characters of the ID:\n{known}")]
    Ambiguous {
        /// The prefix.
        prefix: String,
        /// The threads, a line each.
        known: String,
    },
    /// A directory cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ThreadPrefix {
    /// The whole ID, if the prefix is one.
    pub fn whole(&self) -> Option<ThreadId> {
        ThreadId::parse(&self.0).ok()
    }

    /// Whether the ID of a thread has this prefix.
    pub fn fits(&self, thread: &ThreadId) -> bool {
        thread.as_str().starts_with(&self.0)
    }

    /// Resolves the prefix among the threads that have a rollout in `codex_home`.
    ///
    /// # Errors
    ///
    /// [`ThreadPrefixError`], if there is none, or more than one.
    pub fn resolve(
        &self,
        codex_home: &Path,
        atm_home: &Path,
    ) -> Result<ThreadId, ThreadPrefixError> {
        self.resolve_with(Vec::new(), codex_home, atm_home)
    }

    /// Like [`ThreadPrefix::resolve`], but also among live threads, which need not have a
    /// rollout.
    ///
    /// # Errors
    ///
    /// [`ThreadPrefixError`], if there is none, or more than one.
    pub fn resolve_with(
        &self,
        live: Vec<ThreadId>,
        codex_home: &Path,
        atm_home: &Path,
    ) -> Result<ThreadId, ThreadPrefixError> {
        let prefix = self.0.clone();
        match rollouts::starting_with(codex_home, &self.0) {
            Matches::All(ids) => match with_live(ids, live).as_slice() {
                [only] => Ok(only.clone()),
                [] => Err(ThreadPrefixError::Unknown {
                    prefix,
                    sessions: codex_home.join("sessions"),
                }),
                several => {
                    let entries = registered(atm_home, &self.0)?;
                    let ids = several.iter().map(ThreadId::as_str);
                    let lines = ids.map(|id| line(id, entries.get(id)));
                    let known = listed(lines.collect());
                    Err(ThreadPrefixError::Ambiguous { prefix, known })
                }
            },
            // Codex itself can find a whole ID.
            Matches::TooMany => self.whole().ok_or(ThreadPrefixError::Unknown {
                prefix,
                sessions: codex_home.join("sessions"),
            }),
        }
    }
}

/// All threads, sorted and without duplicates.
fn with_live(ids: Vec<ThreadId>, live: Vec<ThreadId>) -> Vec<ThreadId> {
    let mut all = ids;
    all.extend(live);
    all.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    all.dedup();
    all
}

/// Resolves a thread by name or name prefix in the registries of all identities. A name that no
/// registry has is returned unchanged.
///
/// # Errors
///
/// [`ThreadPrefixError`], if several names have the prefix, or the registries cannot be read.
pub fn in_registry(atm_home: &Path, name: &ThreadName) -> Result<ThreadName, ThreadPrefixError> {
    let entries = registered(atm_home, name.as_str())?;
    if entries.contains_key(name.as_str()) {
        return Ok(name.clone());
    }
    let mut found = entries.values();
    match (found.next(), found.next()) {
        (None, _) => Ok(name.clone()),
        (Some(only), None) => Ok(only.thread_id.clone()),
        (Some(_), Some(_)) => {
            let lines = entries.iter().map(|(id, entry)| line(id, Some(entry)));
            Err(ThreadPrefixError::Ambiguous {
                prefix: name.to_string(),
                known: listed(lines.collect()),
            })
        }
    }
}

/// The threads with an ID prefix in all registries. Unreadable registries are skipped.
fn registered(atm_home: &Path, prefix: &str) -> Result<BTreeMap<String, Entry>, FileError> {
    let documents = registry::all(atm_home)?.filter_map(|(_, document)| document.ok());
    let mut found = BTreeMap::new();
    for document in documents {
        let entries = document.entries();
        let fitting = entries.filter(|entry| entry.thread_id.as_str().starts_with(prefix));
        found.extend(fitting.map(|entry| (entry.thread_id.to_string(), entry.clone())));
    }
    Ok(found)
}

fn line(id: &str, entry: Option<&Entry>) -> String {
    let Some(entry) = entry else {
        return format!("  {id}");
    };
    let age = SystemTime::now().duration_since(entry.last_active);
    let prompt = one_line(entry.prompt.as_deref().unwrap_or_default(), PROMPT);
    format!("  {id}  {}  {prompt}", ago(age.unwrap_or_default()))
}

fn listed(mut lines: Vec<String>) -> String {
    if lines.len() > NAMED {
        lines.truncate(NAMED);
        lines.push("  …".to_owned());
    }
    lines.join("\n")
}
