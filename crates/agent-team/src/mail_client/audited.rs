//! Performs actions of a member, with lines in the audit log.

use common::sync::lock;
use safe_files::state_file::FileError;
use uuid::Uuid;

use super::{Inner, MailClientError};
use crate::audit::{AuditOutcome, Event, Record};
use crate::logic::AgentName;
use crate::logic::inbox::Envelope;
use crate::mail::{MailError, MessageId};

/// An action, as the audit log describes it.
pub(super) struct AuditedAction<'a> {
    pub(super) event: Event,
    pub(super) recipient: Option<&'a str>,
    pub(super) summary: Option<&'a str>,
}

/// The result of an action that was performed, as the audit log describes it.
pub(super) struct AuditedResult<'a> {
    pub(super) outcome: AuditOutcome,
    pub(super) messages: &'a [Envelope],
    pub(super) error: Option<String>,
}

impl AuditedResult<'_> {
    pub(super) fn succeeded() -> Self {
        Self {
            outcome: AuditOutcome::Succeeded,
            messages: &[],
            error: None,
        }
    }
}

/// A broadcast that reached nobody has failed. The error names the members that it did not reach, and
/// the reason for the first of them.
pub(super) fn broadcast_result(
    sent: &[(AgentName, Result<MessageId, MailError>)],
) -> AuditedResult<'static> {
    let failed = sent.iter().filter_map(|(agent, sent)| {
        let error = sent.as_ref().err()?;
        Some((agent.as_str(), error))
    });
    let (names, errors): (Vec<&str>, Vec<&MailError>) = failed.unzip();
    let Some(first) = errors.first() else {
        return AuditedResult::succeeded();
    };
    AuditedResult {
        outcome: match names.len() == sent.len() {
            true => AuditOutcome::Failed,
            false => AuditOutcome::Succeeded,
        },
        messages: &[],
        error: Some(format!(
            "the broadcast did not reach {}: {first}",
            names.join(", ")
        )),
    }
}

impl Inner {
    /// Performs an action, with a line in the audit log before and after it. If the first can't be
    /// written, the action is not performed.
    pub(super) fn audited<T, E>(
        &self,
        action: &AuditedAction<'_>,
        act: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, MailClientError>
    where
        MailClientError: From<E>,
    {
        self.audited_as(action, act, |_| AuditedResult::succeeded())
    }

    /// Performs an action like [`audited`](Self::audited), with a description of the result for the
    /// audit log.
    pub(super) fn audited_as<T, E>(
        &self,
        action: &AuditedAction<'_>,
        act: impl FnOnce() -> Result<T, E>,
        describe: impl FnOnce(&T) -> AuditedResult<'_>,
    ) -> Result<T, MailClientError>
    where
        MailClientError: From<E>,
    {
        let id = Uuid::new_v4();
        let started = Record {
            recipient: action.recipient,
            summary: action.summary,
            ..Record::new(id, action.event, AuditOutcome::Started)
        };
        self.write(&started)?;
        let result = self.ensure_member().and_then(|()| Ok(act()?));
        let described = match &result {
            Ok(done) => describe(done),
            Err(error) => AuditedResult {
                outcome: AuditOutcome::Failed,
                messages: &[],
                error: Some(error.to_string()),
            },
        };
        let ended = Record {
            recipient: action.recipient,
            messages: described.messages,
            error: described.error.as_deref(),
            ..Record::new(id, action.event, described.outcome)
        };
        if let Err(error) = self.write(&ended) {
            tracing::error!("cannot write to the audit log: {error}");
        }
        result
    }

    pub(super) fn write(&self, record: &Record<'_>) -> Result<(), FileError> {
        lock(&self.audit).write(record)
    }
}
