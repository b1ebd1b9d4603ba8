//! Alerts about a turn that may need a person's attention, or has ended.

use std::time::{Duration, SystemTime};

use codex_protocol::codex::Ask;
use common::secrets::excerpt;
use serde::{Deserialize, Serialize};

use super::{Session, TurnEnding, TurnOutcome};
use crate::logic::action::{Action, ActionId};
use crate::logic::{approval_text, describe};

/// The longest summary of an ended turn, in characters.
const SUMMARY: usize = 200;

/// The kinds of alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// Codex waits for an answer.
    Asks,
    /// A turn has stalled.
    Stalls,
    /// A turn has ended.
    Ends,
}

/// An event that may need a person's attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alert {
    /// Codex waits for an answer.
    Question {
        /// The ID of the question.
        id: ActionId,
        /// The question in one line.
        summary: String,
        /// The full text for the person who answers.
        text: String,
        /// The time at which the question is declined if nobody has seen it before.
        expires: SystemTime,
    },
    /// The turn has sent no event for too long while no question was open.
    Stalled {
        /// For how long.
        silent: Duration,
        /// The current step of the turn.
        doing: String,
    },
    /// The turn has ended.
    Ended {
        /// How.
        status: EndStatus,
        /// The first line of the last message, or the error. Credentials are masked.
        summary: String,
    },
}

/// The way in which a turn has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EndStatus {
    /// By itself.
    Completed,
    /// It was interrupted.
    Interrupted,
    /// By an error, or with its Codex.
    Failed,
}

impl Alert {
    /// The kind of the alert.
    #[must_use]
    pub fn kind(&self) -> AlertKind {
        match self {
            Self::Question { .. } => AlertKind::Asks,
            Self::Stalled { .. } => AlertKind::Stalls,
            Self::Ended { .. } => AlertKind::Ends,
        }
    }

    fn of_end(outcome: &TurnOutcome) -> Self {
        let (status, text) = match &outcome.ending {
            TurnEnding::Completed => (EndStatus::Completed, &outcome.text),
            TurnEnding::Interrupted => (EndStatus::Interrupted, &outcome.text),
            TurnEnding::Failed(error) => (EndStatus::Failed, &error.message),
            TurnEnding::Lost(how) => (EndStatus::Failed, how),
        };
        let mut lines = text.lines().map(str::trim);
        let line = lines.find(|line| !line.is_empty()).unwrap_or_default();
        Self::Ended {
            status,
            summary: excerpt(line, SUMMARY),
        }
    }

    /// The alert of an open question.
    #[must_use]
    pub fn of_question(id: &ActionId, ask: &Ask, expires: SystemTime) -> Self {
        Self::Question {
            id: id.clone(),
            summary: describe::ask(ask),
            text: approval_text::masked_question(ask),
            expires,
        }
    }
}

impl Session {
    /// Takes the alerts since the last call: one for each question, one for each silence, and
    /// one for each end of a turn.
    pub fn take_alerts(&mut self) -> Vec<Alert> {
        std::mem::take(&mut self.alerts)
    }

    pub(super) fn alert_of_question(&mut self, action: &Action) {
        let alert = Alert::of_question(&action.id, &action.ask, action.expires);
        self.alerts.push(alert);
    }

    pub(super) fn alert_of_stall(&mut self, silent: Duration) {
        let doing = self.activity.words().to_owned();
        self.alerts.push(Alert::Stalled { silent, doing });
    }

    pub(super) fn alert_of_end(&mut self, outcome: &TurnOutcome) {
        self.alerts.push(Alert::of_end(outcome));
    }
}
