//! Delivery by mail. The letter is in the audit log before it is sent.

use std::time::Duration;

use agent_team::logic::{Address, AgentName, BadName, TeamName};
use agent_team::mail::{MailError, MessageContent};
use agent_team::{MailClient, MailClientError, Member};
use safe_files::state_file::FileError;
use tokio::time::timeout;

use super::{Notification, NotifierContext};
use crate::logic::outcome::letter;

/// The sender if no member is configured.
const NAMELESS: &str = "codex-mcp";

/// Why a letter was not sent.
#[derive(Debug, thiserror::Error)]
pub enum LetterError {
    /// There is no home directory.
    #[error("there is no mail: neither ATM_HOME nor HOME is set to an absolute path")]
    NoHome,
    /// No team is named or configured.
    #[error("no team is set for {agent}: write mail:{agent}@TEAM, or use --team")]
    NoTeam {
        /// The receiver of the letter.
        agent: AgentName,
    },
    /// The name of the sender is invalid.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The audit log cannot be written, so the letter is not sent.
    #[error("cannot write to the audit log, so nothing was done: {0}")]
    Audit(#[from] FileError),
    /// The team of the agent cannot be used, or does not exist.
    #[error(transparent)]
    Team(MailError),
    /// The letter cannot be sent.
    #[error(transparent)]
    MailClient(MailClientError),
    /// Another process holds the locks, or the disk is slow.
    #[error(
        "the message was not sent within {} s, and may still be sent later; another program may hold the locks of that inbox",
        .0.as_secs_f64()
    )]
    Late(Duration),
}

pub(super) async fn send(
    address: &Address,
    notification: Notification<'_>,
    secret_end: Option<String>,
    context: &NotifierContext,
) -> Result<(), LetterError> {
    let mail_client = mail_client(address, context)?;
    let is_other = |own: &TeamName| address.team.as_ref().is_some_and(|team| team != own);
    let member = context.member.as_ref();
    let own_is_other = member
        .and_then(|member| member.team.as_ref())
        .is_some_and(is_other);
    let mut text = letter(notification.line, notification.result);
    // Those who approve a question have to see all of it; if this text hides a part, mail cannot
    // approve it.
    if let (Some(_), Some(question)) = (&secret_end, notification.result.get("question")) {
        text += "\n\n";
        text += question.as_str().unwrap_or_default();
    }
    let content = MessageContent {
        text,
        summary: Some(notification.line.to_owned()),
    };
    let limit = context.timeouts.mail;
    let sending = mail_client.send_with(address.clone(), content, secret_end);
    match timeout(limit, sending).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(MailClientError::NotAMember(error))) if !own_is_other => {
            Err(LetterError::Team(error))
        }
        Ok(Err(error)) => Err(LetterError::MailClient(error)),
        Err(_) => Err(LetterError::Late(limit)),
    }
}

/// The mail client of the sender. A sender without a team writes as if it were in the agent's team.
fn mail_client(address: &Address, context: &NotifierContext) -> Result<MailClient, LetterError> {
    if let Some(mail_client) = &context.mail_client {
        return Ok(mail_client.clone());
    }
    if !context.atm_home.is_absolute() {
        return Err(LetterError::NoHome);
    }
    let (identity, own) = match &context.member {
        Some(Member { identity, team }) => (identity.clone(), team.clone()),
        None => (NAMELESS.parse()?, None),
    };
    let member = Member {
        identity,
        team: own.or_else(|| address.team.clone()),
    };
    let mail_client = MailClient::of(&member, &context.atm_home, context.audit_limit)?;
    mail_client.ok_or_else(|| LetterError::NoTeam {
        agent: address.agent.clone(),
    })
}
