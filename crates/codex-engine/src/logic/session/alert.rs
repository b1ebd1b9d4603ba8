//! Alerts about a running turn that may need a person's attention.

use std::time::{Duration, SystemTime};

use codex_protocol::codex::Ask;
use serde::{Deserialize, Serialize};

use super::Session;
use crate::logic::action::{Action, ActionId};
use crate::logic::{approval_text, describe};

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
        /// The time at which it is declined, unless it is shown to somebody first.
        expires: SystemTime,
    },
    /// No event of the turn came for too long while no question was open.
    Stalled {
        /// For how long.
        silent: Duration,
        /// The current step of the turn.
        doing: String,
    },
}

impl Alert {
    /// The alert of an open question.
    #[must_use]
    pub fn of_question(id: &ActionId, ask: &Ask, expires: SystemTime) -> Self {
        Self::Question {
            id: id.clone(),
            summary: describe::ask(ask),
            text: approval_text::question(ask),
            expires,
        }
    }
}

impl Session {
    /// Takes the alerts since the last call: one for each question, and one for each
    /// silence.
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
}
