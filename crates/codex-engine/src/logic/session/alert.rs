//! What a person may have to see to while a turn is under way.

use std::time::{Duration, SystemTime};

use codex_protocol::codex::Ask;
use serde::{Deserialize, Serialize};

use super::Session;
use crate::logic::action::{Action, ActionId};
use crate::logic::{approval_text, describe};

/// Something that a person may have to see to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alert {
    /// Codex waits for an answer.
    Question {
        /// The name of the question.
        id: ActionId,
        /// It in one line.
        summary: String,
        /// It as the person reads it who answers.
        text: String,
        /// When it is declined, unless somebody is shown it later.
        expires: SystemTime,
    },
    /// No event of the turn came for too long while no question was open.
    Stalled {
        /// How long.
        silent: Duration,
        /// The step that the turn is at.
        doing: String,
    },
}

impl Alert {
    /// That of an open question.
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
    /// The alerts since the last time: one for each question, and one for each silence.
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
