//! The mail of the team, as a person sees it: what is unread, and for whom.

use std::path::PathBuf;
use std::sync::Arc;

use agent_team::logic::inbox::{Envelope, ReadLimits};
use agent_team::logic::{Address, AgentName, TeamName};
use agent_team::mail::{MailError, MailStore, MessageContent};
use agent_team::{MailClient, MailClientError, Member};
use goal_run::logic::mail_answers::without_codes;
use safe_files::off_runtime;
use safe_files::state_file::FileError;
use serde::Serialize;
use tokio::sync::OnceCell;

use crate::latest::{FILES_TIMEOUT, Latest};

/// What is read of each member's unread mail.
const LIMITS: ReadLimits = ReadLimits {
    max_messages: 50,
    max_length: 10_000,
};

/// The most that is read of the inboxes of a member, in bytes (4 MiB). Of many short messages, it takes
/// up to ten times as much memory.
const LARGEST_INBOXES: u64 = 4 << 20;

/// The mail of a team.
#[derive(Debug, Clone, Serialize)]
pub struct TeamMail {
    /// The team.
    pub team: TeamName,
    /// Its members, in the order of its roster.
    pub members: Vec<MemberMail>,
}

/// The mail of a member.
#[derive(Debug, Clone, Serialize)]
pub struct MemberMail {
    /// The member.
    pub member: AgentName,
    /// Its oldest unread messages.
    pub unread: Vec<Envelope>,
    /// How many more there are.
    pub remaining: usize,
    /// Why its mail cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why mail cannot be read or sent.
#[derive(Debug, thiserror::Error)]
pub enum MailBoardError {
    /// There is no team.
    #[error("no team is configured; `team = \"NAME\"` in the configuration names it")]
    NoTeam,
    /// The team or its mail cannot be read, for this reason.
    #[error("{0}")]
    Read(String),
    /// The message was not sent.
    #[error(transparent)]
    Send(#[from] MailClientError),
    /// The records of the sender cannot be opened.
    #[error(transparent)]
    Records(#[from] FileError),
}

/// The mail of the configured team.
pub struct MailBoard {
    member: Member,
    atm_home: PathBuf,
    audit_limit: u64,
    /// The mail of all members. Those who ask for it at the same time share a read.
    latest: Latest<Option<Arc<TeamMail>>>,
    client: OnceCell<Option<MailClient>>,
}

impl MailBoard {
    /// The mail of a member's team below the home directory of the agents. What a person sends is
    /// sent in the name of this member, whose audit log is set aside at `audit_limit` bytes.
    #[must_use]
    pub fn new(member: Member, atm_home: PathBuf, audit_limit: u64) -> Self {
        Self {
            member,
            atm_home,
            audit_limit,
            latest: Latest::new(FILES_TIMEOUT),
            client: OnceCell::new(),
        }
    }

    /// In whose name messages are sent.
    #[must_use]
    pub fn sender(&self) -> &AgentName {
        &self.member.identity
    }

    /// The unread mail of all members. It stays unread. Codes that answer questions are hidden: what
    /// is sent here is sent in one name for all readers.
    ///
    /// # Errors
    ///
    /// [`MailBoardError`].
    pub async fn read(&self) -> Result<Arc<TeamMail>, MailBoardError> {
        let team = self.member.team.clone().ok_or(MailBoardError::NoTeam)?;
        let store = MailStore::new(&self.atm_home).reading_at_most(LARGEST_INBOXES);
        let reading = async move {
            let read = off_runtime::run(move || of_team(&store, team)).await;
            let mail = read.map_err(|error| format!("the mail was not read: {error}"))?;
            let mail = mail.map_err(|error| error.to_string())?;
            Ok::<_, String>(Some(Arc::new(mail)))
        };
        match self.latest.read(reading).await {
            (Some(mail), None) => Ok(mail),
            (_, failure) => Err(MailBoardError::Read(failure.unwrap_or_default())),
        }
    }

    /// Sends a message to a member.
    ///
    /// # Errors
    ///
    /// [`MailBoardError`]; then nothing was sent.
    pub async fn send(&self, to: Address, text: String) -> Result<(), MailBoardError> {
        let open = || async { MailClient::of(&self.member, &self.atm_home, self.audit_limit) };
        let client = self.client.get_or_try_init(open).await?;
        let client = client.as_ref().ok_or(MailBoardError::NoTeam)?;
        let content = MessageContent {
            text,
            summary: None,
        };
        client.send(to, content).await?;
        Ok(())
    }
}

fn of_team(store: &MailStore, team: TeamName) -> Result<TeamMail, MailError> {
    let members = store.members(&team)?.into_iter();
    let members = members.map(|member| of_member(store, &team, member));
    let members = members.collect();
    Ok(TeamMail { team, members })
}

/// One mailbox that cannot be read does not hide those of others.
fn of_member(store: &MailStore, team: &TeamName, member: AgentName) -> MemberMail {
    let (unread, remaining, error) = match store.unread(&member, team, LIMITS) {
        Ok(unread) => {
            let messages = unread.messages.into_iter().map(hide_codes).collect();
            (messages, unread.remaining, None)
        }
        Err(error) => (Vec::new(), 0, Some(error.to_string())),
    };
    MemberMail {
        member,
        unread,
        remaining,
        error,
    }
}

fn hide_codes(envelope: Envelope) -> Envelope {
    Envelope {
        message: without_codes(&envelope.message),
        summary: envelope.summary.as_deref().map(without_codes),
        ..envelope
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn inbox_that_is_too_large_is_not_read_and_hides_no_other() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(".claude/teams/t");
        fs::create_dir_all(directory.join("inboxes")).unwrap();
        let roster = r#"{"name":"t","members":[{"name":"full"},{"name":"lead"}]}"#;
        fs::write(directory.join("config.json"), roster).unwrap();
        let put = |member: &str, spaces: usize| {
            let message = r#"{"from":"codex","text":"hello"}"#;
            let inbox = format!("[{message}{}]", " ".repeat(spaces));
            fs::write(directory.join(format!("inboxes/{member}.json")), inbox).unwrap();
        };
        put("full", 1000);
        put("lead", 0);
        let store = MailStore::new(home.path()).reading_at_most(1000);
        let mail = of_team(&store, "t".parse().unwrap()).unwrap();
        let mut members = mail.members.into_iter();
        let (full, lead) = (members.next().unwrap(), members.next().unwrap());
        let why = full.error.unwrap();
        assert!(
            why.contains("at most 1000 are read; remove old messages"),
            "{why}"
        );
        assert!(full.unread.is_empty());
        assert_eq!(lead.error, None);
        assert_eq!(lead.unread.len(), 1);
    }
}
