//! What a person may have to see to while a turn is under way.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::Session;
use crate::action::{Action, ActionId};
use crate::approval_text;
use crate::describe;

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

impl Session {
    /// The alerts since the last time: one for each question, and one for each silence.
    pub fn take_alerts(&mut self) -> Vec<Alert> {
        std::mem::take(&mut self.alerts)
    }

    pub(super) fn alert_of_question(&mut self, action: &Action) {
        self.alerts.push(Alert::Question {
            id: action.id.clone(),
            summary: describe::ask(&action.ask),
            text: approval_text::question(&action.ask),
            expires: action.expires,
        });
    }

    pub(super) fn alert_of_stall(&mut self, silent: Duration) {
        let doing = self.activity.words().to_owned();
        self.alerts.push(Alert::Stalled { silent, doing });
    }
}
