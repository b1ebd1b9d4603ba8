//! Resolves threads by ID prefix.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use agent_team::logic::ThreadName;
use agent_team::logic::registry::Entry;
use agent_team::registry;
use codex_engine::rollouts::{self, Found};
use codex_protocol::codex::ThreadId;
use common::duration::ago;
use common::text::one_line;
use safe_files::state_file::FileError;

/// How much of an id stands for it at least, in characters.
const SHORTEST: usize = 8;

/// How many threads are named that begin alike.
const NAMED: usize = 10;

/// How much of a prompt is shown, in bytes.
const PROMPT: usize = 60;

/// How the id of a Codex thread begins; all of it is fine too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPrefix(String);

/// Why a text is not the beginning of a thread's id.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no thread: give the id of one, such as 0199a213-81c0-7800-8aa1-bbab2a035a53, or how \
     it begins, {SHORTEST} characters or more"
)]
pub struct NotAThread(String);

impl FromStr for ThreadPrefix {
    type Err = NotAThread;

    fn from_str(text: &str) -> Result<Self, NotAThread> {
        // The rest is made up, so that what is there is held to the form of an id.
        let rest = "00000000-0000-0000-0000-000000000000".get(text.len()..);
        let is_prefix = text.len() >= SHORTEST
            && rest.is_some_and(|rest| ThreadId::parse(&format!("{text}{rest}")).is_ok());
        match is_prefix {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(NotAThread(one_line(text, 100))),
        }
    }
}

impl fmt::Display for ThreadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a beginning stands for no thread.
#[derive(Debug, thiserror::Error)]
pub enum NoThread {
    /// No thread begins with it.
    #[error(
        "there is no thread {prefix} in {}; `codex-mcp threads` lists those that there are",
        sessions.display()
    )]
    Unknown {
        /// What was given.
        prefix: String,
        /// The directory that was searched.
        sessions: PathBuf,
    },
    /// Several threads begin with it.
    #[error("several threads begin with {prefix}; give more of the id:\n{known}")]
    Ambiguous {
        /// What was given.
        prefix: String,
        /// The threads, a line each.
        known: String,
    },
    /// A directory cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ThreadPrefix {
    /// The thread, if it is all of its id.
    pub fn whole(&self) -> Option<ThreadId> {
        ThreadId::parse(&self.0).ok()
    }

    /// Whether a thread's id begins so.
    pub fn fits(&self, thread: &ThreadId) -> bool {
        thread.as_str().starts_with(&self.0)
    }

    /// The thread of which Codex in this home has a rollout.
    ///
    /// # Errors
    ///
    /// [`NoThread`], if there is none, or more than one.
    pub fn resolve(&self, codex_home: &Path, atm_home: &Path) -> Result<ThreadId, NoThread> {
        self.resolve_with(Vec::new(), codex_home, atm_home)
    }

    /// The same among these threads too, which need not have a rollout.
    ///
    /// # Errors
    ///
    /// [`NoThread`], if there is none, or more than one.
    pub fn resolve_with(
        &self,
        live: Vec<ThreadId>,
        codex_home: &Path,
        atm_home: &Path,
    ) -> Result<ThreadId, NoThread> {
        let prefix = self.0.clone();
        match rollouts::starting_with(codex_home, &self.0) {
            Found::All(ids) => match with_live(ids, live).as_slice() {
                [only] => Ok(only.clone()),
                [] => Err(NoThread::Unknown {
                    prefix,
                    sessions: codex_home.join("sessions"),
                }),
                several => {
                    let entries = registered(atm_home, &self.0)?;
                    let ids = several.iter().map(ThreadId::as_str);
                    let lines = ids.map(|id| line(id, entries.get(id)));
                    let known = listed(lines.collect());
                    Err(NoThread::Ambiguous { prefix, known })
                }
            },
            // Codex looks for it in its own way.
            Found::TooMany => self.whole().ok_or(NoThread::Unknown {
                prefix,
                sessions: codex_home.join("sessions"),
            }),
        }
    }
}

/// All of them, each once.
fn with_live(ids: Vec<ThreadId>, live: Vec<ThreadId>) -> Vec<ThreadId> {
    let mut all = ids;
    all.extend(live);
    all.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    all.dedup();
    all
}

/// The thread of this name, or the one in the registries of all identities whose name
/// begins so. A name that no registry has is left as it is.
///
/// # Errors
///
/// [`NoThread`], if several begin so, or the registries cannot be read.
pub fn in_registry(atm_home: &Path, name: &ThreadName) -> Result<ThreadName, NoThread> {
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
            Err(NoThread::Ambiguous {
                prefix: name.to_string(),
                known: listed(lines.collect()),
            })
        }
    }
}

/// The threads in all registries whose ids begin so. One that cannot be read has none.
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
