//! The audit log: a JSON object per line for each request, in `audit.jsonl` of the identity's
//! directory (FR-9). Older lines are in `audit.jsonl.1` to `.5`.
//!
//! Each line is appended by one `write` under a lock, so that no line is mixed with another, or
//! lost because another process rotates the files at the same time. The file is not synced: a line
//! can be lost when the power fails, but not when this process dies.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
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

/// The longest wait for the lock. A call that prompts Codex waits as long.
const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// The size at which the file is rotated, in bytes.
const FILE_LIMIT: u64 = 10 << 20;

/// The number of older files that are kept.
const OLDER_FILES: u32 = 5;

/// The longest excerpt of a prompt or a message, in characters (FR-9.2).
const SUMMARY_CHARS: usize = 200;

/// The most messages that a line lists as read: a line stays below 8 KiB.
const LISTED_MESSAGES: usize = 20;

/// The longest excerpt of a message's sender and ID, in characters.
const MESSAGE_CHARS: usize = 60;

/// The longest excerpt of a name that a caller has made up, in characters.
const NAME_CHARS: usize = 200;
/// The longest excerpt of an error, in characters.
const ERROR_CHARS: usize = 500;

/// A request, or its result. Texts may have any length: when a record is written, they are cut and
/// credentials in them are masked.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// The ID that all records of one call share.
    pub id: Uuid,
    /// The kind of the event.
    pub event: Event,
    /// The progress or the result of the event.
    pub outcome: AuditOutcome,
    /// The thread.
    pub thread_id: Option<&'a str>,
    /// The recipient of a message.
    pub recipient: Option<&'a str>,
    /// The prompt, the message, or Codex's question.
    pub summary: Option<&'a str>,
    /// The decision on a question.
    pub decision: Option<&'a str>,
    /// The deciding party, see [`DecidedBy`](codex_engine::logic::action::DecidedBy).
    pub decided_by: Option<&'a str>,
    /// The agent that decided by mail.
    pub decided_agent: Option<&'a str>,
    /// The messages that were read.
    pub messages: &'a [Envelope],
    /// The error, if the event failed or a broadcast did not reach all members.
    pub error: Option<&'a str>,
}

impl Record<'_> {
    /// A record without the optional fields.
    #[must_use]
    pub fn new(id: Uuid, event: Event, outcome: AuditOutcome) -> Self {
        Self {
            id,
            event,
            outcome,
            thread_id: None,
            recipient: None,
            summary: None,
            decision: None,
            decided_by: None,
            decided_agent: None,
            messages: &[],
            error: None,
        }
    }
}

/// The kind of an event: mostly the call of a tool.
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
    /// The server asks a thread for its summary as the server ends.
    Summary,
    /// A turn of a thread.
    Turn,
    /// A question of Codex that was decided, withdrawn, or not decided in time.
    Approval,
    /// A new thread is forked from another one.
    Fork,
    /// A turn is interrupted.
    Interrupt,
    /// A session is ended.
    Cancel,
}

/// The progress or the result of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// The event has begun; another record says how it ended.
    #[serde(rename = "begun")]
    Started,
    /// The event succeeded.
    #[serde(rename = "done")]
    Succeeded,
    /// The event failed.
    Failed,
    /// The event was refused before anything was done.
    Refused,
    /// The caller cancelled the event.
    Cancelled,
    /// The event timed out.
    TimedOut,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// The time of the record, in RFC 3339.
    pub ts: String,
    /// The ID that all records of one call share.
    pub id: String,
    /// The identity of the server.
    pub identity: AgentName,
    /// The team of that identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    /// The kind of the event.
    pub event: Event,
    /// The progress or the result of the event.
    pub outcome: AuditOutcome,
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The recipient of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// The beginning of the prompt, the message or the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The decision on a question, also of one that timed out or ended with its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// The deciding party, see [`DecidedBy`](codex_engine::logic::action::DecidedBy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The agent that decided by mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_agent: Option<String>,
    /// The number of messages that were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// The first messages that were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<ReadMessage>,
    /// The error, if the event failed or a broadcast did not reach all members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A message that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMessage {
    /// The sender that the message names.
    pub from: String,
    /// The message's ID, if it has one.
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
    keeps_open: bool,
}

impl Audit {
    /// Opens the log of a member below the home directory of the agents, and creates the identity's
    /// directory.
    ///
    /// # Errors
    ///
    /// When the directory can't be created.
    pub fn open(atm_home: &Path, member: &Member) -> Result<Self, FileError> {
        let directory = identities::directory_of(atm_home, &member.identity);
        state_file::make_directory(&directory)?;
        Ok(Self {
            member: member.clone(),
            path: directory.join(FILE),
            lock: directory.join(LOCK),
            limit: FILE_LIMIT,
            open: None,
            keeps_open: true,
        })
    }

    /// Rotates the file at this size, in bytes, in place of 10 MiB.
    pub fn rotate_at(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Closes the file now and after each further line, to save descriptors: a host has the logs of
    /// many clients that have gone.
    pub fn release(&mut self) {
        self.keeps_open = false;
        self.open = None;
    }

    /// Adds a line of at most 8 KiB.
    ///
    /// # Errors
    ///
    /// When the line can't be written. Then the file contains no part of it, unless another process
    /// wrote at the same moment without the lock, having waited for it too long.
    pub fn write(&mut self, record: &Record<'_>) -> Result<(), FileError> {
        let line = self.line(record);
        let mut text = serde_json::to_string(&line)
            .map_err(io::Error::from)
            .map_err(about(&self.path))?;
        text.push('\n');
        match state_file::lock_within(&self.lock, LOCK_TIMEOUT) {
            Ok(_lock) => {
                let file = self.file(text.len() as u64)?;
                let appended = state_file::append_line(file, text.as_bytes());
                if !self.keeps_open {
                    self.open = None;
                }
                appended.map_err(about(&self.path))
            }
            // The lock is needed for rotation alone: a line that is appended to a file which was
            // just rotated is not lost.
            Err(FileError::Busy { .. }) => {
                let file = state_file::open_to_append(&self.path)?;
                state_file::append_line(&file, text.as_bytes()).map_err(about(&self.path))
            }
            Err(error) => Err(error),
        }
    }

    fn line(&self, record: &Record<'_>) -> AuditLine {
        let shown = |text: Option<&str>, most| text.map(|text| secrets::excerpt(text, most));
        AuditLine {
            ts: timestamp(SystemTime::now()),
            id: record.id.to_string(),
            identity: self.member.identity.clone(),
            team: self.member.team.clone(),
            event: record.event,
            outcome: record.outcome,
            thread_id: shown(record.thread_id, NAME_CHARS),
            recipient: shown(record.recipient, NAME_CHARS),
            summary: shown(record.summary, SUMMARY_CHARS),
            decision: shown(record.decision, NAME_CHARS),
            decided_by: shown(record.decided_by, NAME_CHARS),
            decided_agent: shown(record.decided_agent, NAME_CHARS),
            count: (record.event == Event::AtmRead && record.outcome == AuditOutcome::Succeeded)
                .then_some(record.messages.len()),
            messages: record
                .messages
                .iter()
                .take(LISTED_MESSAGES)
                .map(read_message)
                .collect(),
            error: shown(record.error, ERROR_CHARS),
        }
    }

    /// The open file, with room for `more` bytes.
    fn file(&mut self, more: u64) -> Result<&mut File, FileError> {
        let mut file = match self.open.take().filter(|file| is_file_at(file, &self.path)) {
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
        for number in (1..OLDER_FILES).rev() {
            rename(&older(number), &older(number + 1))?;
        }
        rename(&self.path, &older(1))
    }
}

fn read_message(message: &Envelope) -> ReadMessage {
    let shown = |text: &str| secrets::excerpt(text, MESSAGE_CHARS);
    ReadMessage {
        from: shown(&message.from),
        id: message.message_id.as_deref().map(shown),
    }
}

/// Whether the path still names this file.
fn is_file_at(file: &File, path: &Path) -> bool {
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

#[cfg(test)]
mod tests;
