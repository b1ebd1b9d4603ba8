//! Mail between the agents of teams, in the files that Claude Code and the program `atm` share:
//! `teams/TEAM/config.json` lists the members, and `teams/TEAM/inboxes/AGENT.json` holds the mail
//! of one member.
//!
//! All functions block, usually for milliseconds, but for seconds if another program holds a lock.
//! Call them on a separate thread.

mod error;
mod file;
mod lock;
mod replace;
mod roster;
mod team;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use uuid::Uuid;

use crate::logic::inbox::{
    self, BadInbox, Envelope, FirstLine, Inbox, MOST_VALUES, Mark, NewMessage, PendingMail,
};
use crate::logic::{AgentName, TeamName};
use lock::InboxLock;
use replace::{
    Change, FileState, SETTLE_TIMEOUT, keep_lost_drafts, read_settled, replace,
    retry_while_malformed,
};
use team::Team;

pub use crate::logic::inbox::ReadLimits;
pub use error::MailError;
pub(crate) use roster::kept_note;
pub use roster::{JoinOutcome, LeaveOutcome, Membership};
pub use team::Fingerprint;

/// The longest text of a message, in bytes. Each reader of the inbox reads the text again and again
/// until it is removed, so anything longer should be a file.
pub const LONGEST_TEXT: usize = 1024 * 1024;

/// The longest summary, in bytes: it is to be a line.
pub const LONGEST_SUMMARY: usize = 4 * 1024;

/// The largest inbox that is read, and the most of all inboxes of a member, in bytes: an inbox is held
/// in memory several times over when it is written.
pub const LARGEST_INBOX: u64 = 256 * 1024 * 1024;

/// The mail of all teams below one home directory.
#[derive(Debug, Clone)]
pub struct MailStore {
    home: PathBuf,
    /// The most that is read of all inboxes of a member, in bytes.
    largest: u64,
}

/// The sender of mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    /// Its identity.
    pub identity: AgentName,
    /// The team that an answer would go to.
    pub team: Option<TeamName>,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageContent {
    /// At most [`LONGEST_TEXT`] bytes.
    pub text: String,
    /// At most [`LONGEST_SUMMARY`] bytes.
    pub summary: Option<String>,
}

/// The ID of a message: a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId(Uuid);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Unread messages.
#[derive(Debug)]
pub struct Unread {
    /// The oldest messages.
    pub messages: Vec<Envelope>,
    /// The number of unread messages that are left.
    pub remaining: usize,
    /// The receipts that mark them as read.
    pub receipts: Vec<Receipt>,
}

/// The receipt of a delivered message. It identifies the message also after the inbox was
/// rewritten.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// The name of the inbox's file.
    file: String,
    mark: Mark,
}

impl MailStore {
    /// The mail below a home directory: `ATM_HOME`, or else the user's home.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            largest: LARGEST_INBOX,
        }
    }

    /// The same mail, of which no member's is read whose inboxes have more than `largest` bytes
    /// together. To look for messages takes several times as much memory.
    #[must_use]
    pub fn reading_at_most(self, largest: u64) -> Self {
        Self { largest, ..self }
    }

    /// The members of a team, in the order in which they are listed.
    ///
    /// # Errors
    ///
    /// [`MailError`], for example if there is no such team.
    pub fn members(&self, team: &TeamName) -> Result<Vec<AgentName>, MailError> {
        self.team(team)?.members()
    }

    /// The members of a team that are not marked as absent, in the order in which they are listed.
    ///
    /// # Errors
    ///
    /// [`MailError`], for example if there is no such team.
    pub fn active_members(&self, team: &TeamName) -> Result<Vec<AgentName>, MailError> {
        self.team(team)?.active_members()
    }

    /// Checks that a team has that member.
    ///
    /// # Errors
    ///
    /// [`MailError`], which lists the members there are.
    pub fn check(&self, agent: &AgentName, team: &TeamName) -> Result<(), MailError> {
        self.team(team)?.check(agent).map(drop)
    }

    /// Sends a message to a member of a team. When this returns the message's ID, the message is on
    /// the disk.
    ///
    /// # Errors
    ///
    /// [`MailError`]; then nothing was sent.
    pub fn send(
        &self,
        from: &Sender,
        to: &AgentName,
        team: &TeamName,
        content: &MessageContent,
    ) -> Result<MessageId, MailError> {
        content.check()?;
        let found = self.team(team)?;
        found.check(to)?;
        deliver(&found, from, to, content)
    }

    /// Sends a message to every member of a team but the sender, in their order, and returns the
    /// result for each.
    ///
    /// # Errors
    ///
    /// [`MailError`], if nothing was sent to anybody.
    #[expect(clippy::type_complexity, reason = "it is a list of results by name")]
    pub fn broadcast(
        &self,
        from: &Sender,
        team: &TeamName,
        content: &MessageContent,
    ) -> Result<Vec<(AgentName, Result<MessageId, MailError>)>, MailError> {
        content.check()?;
        let found = self.team(team)?;
        let is_own = from.team.as_ref().is_none_or(|own| own == team);
        let members = found.members()?.into_iter();
        Ok(members
            .filter(|member| !(is_own && *member == from.identity))
            .map(|member| {
                let sent = deliver(&found, from, &member, content);
                (member, sent)
            })
            .collect())
    }

    /// The oldest unread messages of a member. They stay unread until [`MailStore::mark_read`].
    ///
    /// # Errors
    ///
    /// [`MailError`].
    pub fn unread(
        &self,
        agent: &AgentName,
        team: &TeamName,
        limits: ReadLimits,
    ) -> Result<Unread, MailError> {
        self.with_inboxes(agent, team, |files, inboxes| {
            let batch = inbox::oldest_unread(inboxes, limits);
            Unread {
                messages: batch.messages,
                remaining: batch.remaining,
                receipts: receipts(files, batch.marks),
            }
        })
    }

    /// The first lines of a member's unread messages, with receipts, see [`inbox::first_lines`].
    ///
    /// # Errors
    ///
    /// [`MailError`].
    pub fn first_lines(
        &self,
        agent: &AgentName,
        team: &TeamName,
    ) -> Result<Vec<(FirstLine, Vec<Receipt>)>, MailError> {
        self.with_inboxes(agent, team, |files, inboxes| {
            let lines = inbox::first_lines(inboxes).into_iter();
            lines
                .map(|(line, marks)| (line, receipts(files, marks)))
                .collect()
        })
    }

    /// Marks delivered messages as read, and returns how many were marked. Messages that another
    /// process has marked or removed since are not counted.
    ///
    /// # Errors
    ///
    /// [`MailError`]. With mail from other hosts, some messages may be marked nevertheless.
    pub fn mark_read(
        &self,
        agent: &AgentName,
        team: &TeamName,
        receipts: &[Receipt],
    ) -> Result<usize, MailError> {
        let found = self.team(team)?;
        let mut count = 0;
        for file in found.inboxes_of(agent)? {
            let receipts = receipts.iter().filter(|receipt| receipt.file == file);
            let marks: Vec<&Mark> = receipts.map(|receipt| &receipt.mark).collect();
            if !marks.is_empty() {
                count += mark(&found.inbox(&file)?, &marks)?;
            }
        }
        Ok(count)
    }

    /// The number of a member's unread messages, and their senders.
    ///
    /// # Errors
    ///
    /// [`MailError`].
    pub fn pending(&self, agent: &AgentName, team: &TeamName) -> Result<PendingMail, MailError> {
        self.with_inboxes(agent, team, |_, inboxes| inbox::pending(inboxes))
    }

    /// A fingerprint that differs when a member's mail may have changed. It costs a look at the
    /// directory, not at the mail.
    #[must_use]
    pub fn fingerprint(&self, agent: &AgentName, team: &TeamName) -> Fingerprint {
        let team = self.team(team);
        team.map_or_else(|_| Fingerprint::default(), |team| team.fingerprint(agent))
    }

    fn team(&self, team: &TeamName) -> Result<Team, MailError> {
        Team::find(&self.home, team)
    }

    /// Reads all inboxes of a member; `find` is given their names too.
    fn with_inboxes<T>(
        &self,
        agent: &AgentName,
        team: &TeamName,
        find: impl Fn(&[String], &[Inbox<'_>]) -> T,
    ) -> Result<T, MailError> {
        let team = self.team(team)?;
        let files = team.inboxes_of(agent)?;
        retry_while_malformed(|| {
            let texts = read_all(&team, agent, &files, self.largest)?;
            let mut inboxes = Vec::new();
            let mut elements = 0;
            for (path, bytes) in &texts {
                let inbox = parse(path, bytes)?;
                elements += inbox.length();
                if elements > MOST_VALUES {
                    return Err(MailError::InboxesTooLarge {
                        agent: agent.clone(),
                        limit: u64::try_from(MOST_VALUES).unwrap_or(u64::MAX),
                        unit: "messages",
                    });
                }
                inboxes.push(inbox);
            }
            Ok(find(&files, &inboxes))
        })
    }
}

fn receipts(files: &[String], marks: Vec<(usize, Mark)>) -> Vec<Receipt> {
    let receipts = marks.into_iter().filter_map(|(inbox, mark)| {
        let file = files.get(inbox)?.clone();
        Some(Receipt { file, mark })
    });
    receipts.collect()
}

/// The texts of an agent's inboxes, which have at most `limit` bytes together.
fn read_all(
    team: &Team,
    agent: &AgentName,
    files: &[String],
    limit: u64,
) -> Result<Vec<(PathBuf, Vec<u8>)>, MailError> {
    let mut texts = Vec::new();
    let mut rest = limit;
    for file in files {
        let path = team.inbox(file)?;
        let contents = read_settled(&path, rest, SETTLE_TIMEOUT).map_err(|error| match error {
            MailError::TooLarge { .. } if rest < limit => MailError::InboxesTooLarge {
                agent: agent.clone(),
                limit,
                unit: "bytes",
            },
            error => error,
        })?;
        let bytes = contents.map_or_else(Vec::new, |file| file.bytes);
        rest = rest.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        texts.push((path, bytes));
    }
    Ok(texts)
}

impl MessageContent {
    fn check(&self) -> Result<(), MailError> {
        let summary = self.summary.as_ref().map_or(0, String::len);
        for (part, bytes, limit) in [
            ("message", self.text.len(), LONGEST_TEXT),
            ("summary", summary, LONGEST_SUMMARY),
        ] {
            if bytes > limit {
                return Err(MailError::TooLong { part, bytes, limit });
            }
        }
        Ok(())
    }
}

/// Writes a message into the inbox of a member.
fn deliver(
    team: &Team,
    from: &Sender,
    to: &AgentName,
    content: &MessageContent,
) -> Result<MessageId, MailError> {
    team.make_inboxes()?;
    let path = team.inbox(&format!("{to}.json"))?;
    let _lock = InboxLock::take(&path)?;
    let id = MessageId(Uuid::new_v4());
    let other_team = from.team.clone().filter(|own| *own != team.name);
    // The time is taken under the lock: `atm read` shows only messages that are later than those it
    // has shown.
    let now = SystemTime::now();
    let message = NewMessage::new(
        from.identity.clone(),
        content.text.clone(),
        now,
        id.to_string(),
    )
    .summary(content.summary.clone())
    .source_team(other_team);
    replace_inbox(&path, |state| {
        let text = match state {
            FileState::Current(now) => parse(&path, now)?.append(&message),
            FileState::Collision {
                before,
                ours,
                found,
            } => {
                let merged = merge(&path, [before, ours, found])?;
                let merged = parse(&path, merged.as_bytes())?;
                match merged.contains(&message) {
                    true => merged.text().to_owned(),
                    false => merged.append(&message),
                }
            }
        };
        Ok(Some(text.into_bytes()))
    })?;
    Ok(id)
}

/// Marks messages in one file.
fn mark(path: &Path, marks: &[&Mark]) -> Result<usize, MailError> {
    let _lock = InboxLock::take(path)?;
    let mut count = 0;
    replace_inbox(path, |state| match state {
        FileState::Current(now) => {
            let marked = parse(path, now)?.mark(marks.iter().copied());
            count = marked.count;
            Ok(marked.text.map(String::into_bytes))
        }
        FileState::Collision {
            before,
            ours,
            found,
        } => {
            let merged = merge(path, [before, ours, found])?;
            let marked = parse(path, merged.as_bytes())?.mark(marks.iter().copied());
            Ok(Some(marked.text.unwrap_or(merged).into_bytes()))
        }
    })?;
    Ok(count)
}

/// Replaces an inbox, which the caller has locked, by the text that `change` makes of it.
fn replace_inbox(path: &Path, change: impl Change) -> Result<(), MailError> {
    keep_lost_drafts(path, LARGEST_INBOX, |current, draft| {
        let current = parse(path, current)?;
        // A draft that is not whole was never the inbox.
        Ok(Inbox::parse(draft).is_ok_and(|draft| inbox::has_lost(&current, &draft)))
    })?;
    replace(path, LARGEST_INBOX, change)
}

fn merge(path: &Path, [before, ours, found]: [&[u8]; 3]) -> Result<String, MailError> {
    let (before, ours) = (parse(path, before)?, parse(path, ours)?);
    Ok(inbox::merge(&before, &ours, &parse(path, found)?))
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<Inbox<'a>, MailError> {
    Inbox::parse(bytes).map_err(|error| bad_inbox(path, error))
}

fn bad_inbox(path: &Path, error: BadInbox) -> MailError {
    MailError::BadInbox {
        path: path.to_owned(),
        error,
    }
}
