//! By mail: the letter is in the audit before it is sent.

use std::time::Duration;

use agent_team::logic::{Address, AgentName, BadName, TeamName};
use agent_team::mail::{Letter, MailError};
use agent_team::{MailClient, MailClientError, Member};
use safe_files::state_file::FileError;
use tokio::time::timeout;

use super::{Teller, Telling};
use crate::logic::outcome::letter;

/// Who writes where nobody has a name.
const NAMELESS: &str = "codex-mcp";

/// Why a letter was not sent.
#[derive(Debug, thiserror::Error)]
pub enum LetterError {
    /// There is no home directory.
    #[error("there is no mail: neither ATM_HOME nor HOME is set to an absolute path")]
    NoHome,
    /// Nobody knows which team is meant.
    #[error(
        "{agent} of which team? This program is in none: write mail:{agent}@TEAM, or name one by --team"
    )]
    NoTeam {
        /// Whom the letter is for.
        agent: AgentName,
    },
    /// The sender has no name.
    #[error(transparent)]
    Name(#[from] BadName),
    /// Nothing can be written down of it, so it isn't sent.
    #[error("the audit log can't be written, so nothing was sent: {0}")]
    Audit(#[from] FileError),
    /// The team of the agent can't be used, or there is none.
    #[error(transparent)]
    Team(MailError),
    /// It can't be sent.
    #[error(transparent)]
    MailClient(MailClientError),
    /// The locks are held by somebody else, or the disk is slow.
    #[error(
        "the letter was not sent within {} s, and may still be; look for what holds the locks of that inbox",
        .0.as_secs_f64()
    )]
    Late(Duration),
}

pub(super) async fn tell(
    address: &Address,
    telling: Telling<'_>,
    teller: &Teller,
) -> Result<(), LetterError> {
    let mail_client = mail_client(address, teller)?;
    let is_other = |own: &TeamName| address.team.as_ref().is_some_and(|team| team != own);
    let member = teller.member.as_ref();
    let own_is_other = member
        .and_then(|member| member.team.as_ref())
        .is_some_and(is_other);
    let letter = Letter {
        text: letter(telling.line, telling.result),
        summary: Some(telling.line.to_owned()),
    };
    let patience = teller.patience.mail;
    match timeout(patience, mail_client.send(address.clone(), letter)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(MailClientError::NotIn(error))) if !own_is_other => Err(LetterError::Team(error)),
        Ok(Err(error)) => Err(LetterError::MailClient(error)),
        Err(_) => Err(LetterError::Late(patience)),
    }
}

/// The mail of our own; of somebody in no team, it is written as from within that of
/// the agent.
fn mail_client(address: &Address, teller: &Teller) -> Result<MailClient, LetterError> {
    if let Some(mail_client) = &teller.mail_client {
        return Ok(mail_client.clone());
    }
    if !teller.atm_home.is_absolute() {
        return Err(LetterError::NoHome);
    }
    let (identity, own) = match &teller.member {
        Some(Member { identity, team }) => (identity.clone(), team.clone()),
        None => (NAMELESS.parse()?, None),
    };
    let member = Member {
        identity,
        team: own.or_else(|| address.team.clone()),
    };
    MailClient::of(&member, &teller.atm_home)?.ok_or_else(|| LetterError::NoTeam {
        agent: address.agent.clone(),
    })
}
