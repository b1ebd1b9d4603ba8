//! Who asked for what, a JSON object a line: `audit.jsonl` in the identity's directory
//! (FR-9). Older lines are in `audit.jsonl.1` to `.5`.
//!
//! A line is one `write` to the end of the file, under a lock: so no line is lost
//! to a process that begins a new file meanwhile, and none is mixed with another.
//! It is not waited for until the disk has it: a line is lost when the power fails,
//! but not when we die.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::secrets;
use common::timestamp::timestamp;
use safe_files::state_file::{self, FileError, about};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Member, identities};
use crate::logic::inbox::Envelope;
use crate::logic::{AgentName, TeamName};

const FILE: &str = "audit.jsonl";
const LOCK: &str = "audit.lock";

/// How long the lock is waited for. Whoever asks Codex something waits as long.
const PATIENCE: Duration = Duration::from_millis(50);

/// From which size on a new file is begun, in bytes.
const LIMIT: u64 = 10 << 20;

/// How many older files are kept.
const OLDER: u32 = 5;

/// How much is shown of a prompt or a message, in characters (FR-9.2).
const SUMMARY: usize = 200;

/// How many messages are listed of those that were read: a line stays below 8 KiB.
const MESSAGES: usize = 20;

/// How much is shown of the sender and the id of a message, in characters.
const MESSAGE: usize = 60;

/// How much is shown of a name that a caller has made up, and of an error.
const NAME: usize = 200;
const ERROR: usize = 500;

/// Something that was asked for, or has come of it. Texts may be as they came:
/// they are cut, and credentials in them masked, when they are written.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// The same for all that belongs to one call.
    pub id: Uuid,
    /// What.
    pub event: Event,
    /// How far it is.
    pub outcome: Outcome,
    /// The thread.
    pub thread_id: Option<&'a str>,
    /// Whom a message is for.
    pub recipient: Option<&'a str>,
    /// The prompt, the message, or Codex's question.
    pub summary: Option<&'a str>,
    /// How a question was decided.
    pub decision: Option<&'a str>,
    /// By whom, see [`DecidedBy`](codex_engine::logic::action::DecidedBy).
    pub decided_by: Option<&'a str>,
    /// The messages that were read.
    pub messages: &'a [Envelope],
    /// Why it failed.
    pub error: Option<&'a str>,
}

impl Record<'_> {
    /// A record with nothing else to say.
    #[must_use]
    pub fn new(id: Uuid, event: Event, outcome: Outcome) -> Self {
        Self {
            id,
            event,
            outcome,
            thread_id: None,
            recipient: None,
            summary: None,
            decision: None,
            decided_by: None,
            messages: &[],
            error: None,
        }
    }
}

/// What was asked for: mostly a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names of the tools")]
pub enum Event {
    Codex,
    CodexReply,
    CodexSession,
    AtmSend,
    AtmRead,
    AtmBroadcast,
    AtmPendingCount,
    CallCodex,
    CallCancel,
    CallRespond,
    CallSteer,
    CodexRun,
    /// The server asks for the summary of a thread, as it ends.
    Summary,
    /// A turn of a thread.
    Turn,
    /// A question of Codex's that the client has decided, or nobody in time.
    Approval,
    /// A new thread begins from where another one stands.
    Fork,
    /// A turn is to be interrupted.
    Interrupt,
    /// A session is ended.
    Cancel,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It has begun; another record tells its end.
    Begun,
    /// It was done.
    Done,
    /// It could not be done.
    Failed,
    /// It was not tried.
    Refused,
    /// The caller has called it off.
    Cancelled,
    /// It took too long.
    TimedOut,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When. RFC 3339.
    pub ts: String,
    /// The same for all that belongs to one call.
    pub id: String,
    /// Who was asked, or has asked.
    pub identity: AgentName,
    /// Its team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    /// What.
    pub event: Event,
    /// How far it is.
    pub outcome: Outcome,
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Whom a message is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// The beginning of the prompt, the message or the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// How a question was decided, also where it ran into its time-out or the end of its
    /// turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// By whom: see [`DecidedBy`](codex_engine::logic::action::DecidedBy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// How many messages were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<ReadMessage>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A message that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMessage {
    /// Who says to have written it.
    pub from: String,
    /// Its id, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The audit log of an identity.
#[derive(Debug)]
pub struct Audit {
    member: Member,
    path: PathBuf,
    lock: PathBuf,
    limit: u64,
    open: Option<File>,
}

impl Audit {
    /// The log of a member, below the home directory of the agents. Makes the
    /// identity's directory.
    ///
    /// # Errors
    ///
    /// When that can't be.
    pub fn open(atm_home: &Path, member: &Member) -> Result<Self, FileError> {
        let directory = identities::directory_of(atm_home, &member.identity);
        state_file::make_directory(&directory)?;
        Ok(Self {
            member: member.clone(),
            path: directory.join(FILE),
            lock: directory.join(LOCK),
            limit: LIMIT,
            open: None,
        })
    }

    /// Adds a line of at most 8 KiB.
    ///
    /// # Errors
    ///
    /// When it can't be written; then there is nothing of it.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), FileError> {
        let line = self.line(record);
        let mut text = serde_json::to_string(&line)
            .map_err(io::Error::from)
            .map_err(about(&self.path))?;
        text.push('\n');
        match state_file::lock_within(&self.lock, PATIENCE) {
            Ok(_lock) => {
                let file = self.file(text.len() as u64)?;
                add(file, text.as_bytes()).map_err(about(&self.path))
            }
            // The lock is for those who begin a new file; a line at the end of one that
            // is not the newest any more is not lost.
            Err(FileError::Busy { .. }) => {
                let file = state_file::open_to_append(&self.path)?;
                (&file)
                    .write_all(text.as_bytes())
                    .map_err(about(&self.path))
            }
            Err(error) => Err(error),
        }
    }

    fn line(&self, record: &Record<'_>) -> Line {
        let shown = |text: Option<&str>, most| text.map(|text| secrets::excerpt(text, most));
        Line {
            ts: timestamp(SystemTime::now()),
            id: record.id.to_string(),
            identity: self.member.identity.clone(),
            team: self.member.team.clone(),
            event: record.event,
            outcome: record.outcome,
            thread_id: shown(record.thread_id, NAME),
            recipient: shown(record.recipient, NAME),
            summary: shown(record.summary, SUMMARY),
            decision: shown(record.decision, NAME),
            decided_by: shown(record.decided_by, NAME),
            count: (record.event == Event::AtmRead && record.outcome == Outcome::Done)
                .then_some(record.messages.len()),
            messages: record.messages.iter().take(MESSAGES).map(read).collect(),
            error: shown(record.error, ERROR),
        }
    }

    /// The file, with room for so many bytes more.
    fn file(&mut self, more: u64) -> Result<&mut File, FileError> {
        let mut file = match self.open.take().filter(|file| is(file, &self.path)) {
            Some(file) => file,
            None => state_file::open_to_append(&self.path)?,
        };
        let length = file.metadata().map_err(about(&self.path))?.len();
        if length > 0 && length.saturating_add(more) > self.limit {
            self.rotate()?;
            file = state_file::open_to_append(&self.path)?;
        }
        Ok(self.open.insert(file))
    }

    fn rotate(&self) -> Result<(), FileError> {
        let older = |number| state_file::with_suffix(&self.path, &format!(".{number}"));
        for number in (1..OLDER).rev() {
            rename(&older(number), &older(number + 1))?;
        }
        rename(&self.path, &older(1))
    }
}

fn read(message: &Envelope) -> ReadMessage {
    let shown = |text: &str| secrets::excerpt(text, MESSAGE);
    ReadMessage {
        from: shown(&message.from),
        id: message.message_id.as_deref().map(shown),
    }
}

/// Whether it is still the file of that name.
fn is(file: &File, path: &Path) -> bool {
    let (Ok(opened), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    (opened.dev(), opened.ino()) == (named.dev(), named.ino())
}

/// Renames a file, if it is there.
fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(from)(error)),
        _ => Ok(()),
    }
}

/// Adds a line, or nothing of it.
fn add(file: &mut File, line: &[u8]) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    // Half a line is left where the power has failed.
    let begun;
    let line = match last == [b'\n'] {
        true => line,
        false => {
            begun = [b"\n", line].concat();
            &begun
        }
    };
    match file.write(line) {
        Ok(written) if written == line.len() => Ok(()),
        Ok(_) => {
            file.set_len(length)?;
            Err(io::ErrorKind::StorageFull.into())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
