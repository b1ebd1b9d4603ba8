//! The tools of a member of a team: mail, and the list of its threads. Both backends have them, and
//! Codex's threads get those for mail.

mod atm_broadcast;
pub(crate) mod atm_pending_count;
mod atm_read;
mod atm_send;
pub(crate) mod codex_threads;

use agent_team::audit::Event;
use agent_team::mail::MailError;
use agent_team::{MailClient, MailClientError, TeamServices};
use rmcp::model::{JsonObject, Tool};

use crate::code::Code;
use crate::deliveries::ToolOutcome;
use crate::error::ToolError;
use crate::tools::annotations::Effect;

/// A tool of a member of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeamTool {
    /// `codex_threads`.
    Threads,
    /// A tool for mail.
    Mail(MailTool),
}

/// A tool for mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailTool {
    /// `atm_send`.
    Send,
    /// `atm_read`.
    Read,
    /// `atm_broadcast`.
    Broadcast,
    /// `atm_pending_count`.
    PendingCount,
}

impl MailTool {
    pub(crate) const ALL: [Self; 4] = [Self::Send, Self::Read, Self::Broadcast, Self::PendingCount];

    pub(crate) fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mail| mail.as_str() == text)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Send => atm_send::NAME,
            Self::Read => atm_read::NAME,
            Self::Broadcast => atm_broadcast::NAME,
            Self::PendingCount => atm_pending_count::NAME,
        }
    }

    pub(crate) fn describe(self) -> Tool {
        match self {
            Self::Send => atm_send::describe(),
            Self::Read => atm_read::describe(),
            Self::Broadcast => atm_broadcast::describe(),
            Self::PendingCount => atm_pending_count::describe(),
        }
    }

    /// The tool as clients list it.
    pub(crate) fn annotated(self) -> Tool {
        self.describe().annotate(self.effect().annotations())
    }

    fn effect(self) -> Effect {
        match self {
            Self::Send | Self::Read | Self::Broadcast => Effect::Exchanges,
            Self::PendingCount => Effect::Looks,
        }
    }

    /// Answers a call.
    ///
    /// # Errors
    ///
    /// [`ToolError`] for wrong arguments, or a failure of the team's files.
    pub(crate) async fn call(
        self,
        mail_client: &MailClient,
        given: JsonObject,
    ) -> Result<ToolOutcome, ToolError> {
        let outcome = match self {
            Self::Send => atm_send::call(mail_client, given).await,
            Self::Read => atm_read::call(mail_client, given).await,
            Self::Broadcast => atm_broadcast::call(mail_client, given).await,
            Self::PendingCount => atm_pending_count::call(mail_client, given).await,
        };
        // The mail client has recorded all other errors.
        outcome.inspect_err(|error| {
            if error.is_invalid_argument() {
                mail_client.refused(self.event(), error.message());
            }
        })
    }

    fn event(self) -> Event {
        match self {
            Self::Send => Event::AtmSend,
            Self::Read => Event::AtmRead,
            Self::Broadcast => Event::AtmBroadcast,
            Self::PendingCount => Event::AtmPendingCount,
        }
    }
}

impl TeamTool {
    /// The available tools, with mail or without.
    pub fn all(mail_client: Option<&MailClient>) -> Vec<Self> {
        let mail = mail_client.map_or([].as_slice(), |_| &MailTool::ALL);
        let mail = mail.iter().copied().map(Self::Mail);
        std::iter::once(Self::Threads).chain(mail).collect()
    }

    /// The name of the tool.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Threads => codex_threads::NAME,
            Self::Mail(mail) => mail.as_str(),
        }
    }

    pub(crate) fn describe(self) -> Tool {
        match self {
            Self::Threads => codex_threads::describe(),
            Self::Mail(mail) => mail.describe(),
        }
    }

    pub(crate) fn effect(self) -> Effect {
        match self {
            Self::Threads => Effect::Looks,
            Self::Mail(mail) => mail.effect(),
        }
    }

    /// Answers a call.
    ///
    /// # Errors
    ///
    /// [`ToolError`] for wrong arguments, or a failure of the team's files.
    pub async fn call(
        self,
        services: &TeamServices,
        given: JsonObject,
    ) -> Result<ToolOutcome, ToolError> {
        let TeamServices {
            records,
            mail_client,
        } = services;
        match (self, mail_client) {
            (Self::Threads, _) => codex_threads::call(records.as_deref(), given).await,
            (Self::Mail(mail), Some(mail_client)) => mail.call(mail_client, given).await,
            (Self::Mail(_), None) => Err(ToolError::new(Code::NoTeam, "this server is in no team")),
        }
    }
}

impl From<MailClientError> for ToolError {
    fn from(error: MailClientError) -> Self {
        let code = match &error {
            MailClientError::Mail(
                MailError::UnknownTeam { .. } | MailError::UnknownAgent { .. },
            ) => Code::UnknownRecipient,
            MailClientError::NotAMember(_) => Code::NoTeam,
            MailClientError::Mail(MailError::TooLong { .. }) => Code::MessageTooLong,
            MailClientError::Mail(_) | MailClientError::Audit(_) => Code::TeamFiles,
            MailClientError::IoThread(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}
