//! The views of a session for its readers.

use std::time::{Duration, Instant, SystemTime};

use codex_protocol::codex::{Ask, CommandApproval, McpElicitation, TokenCount, TurnId};
use common::json::{merged, without_nulls};
use common::text::bounded;
use common::timestamp::timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::turn::{Facts, TurnEnding, TurnOutcome};
use super::{Cancellation, Session, State, Timeouts};
use crate::logic::action::{Action, ActionKind, Decision};
use crate::logic::approval_text::{self, command_line};
use crate::logic::events::ResponseMode;
use crate::logic::progress::CurrentStep;

/// The recommended poll interval for a running turn in which Codex asks nothing.
pub const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(120_000);

/// The recommended poll interval while Codex waits for an answer.
const WAITING_POLL_INTERVAL: Duration = Duration::from_millis(1000);

/// The public state of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionView {
    /// Its state.
    pub state: State,
    /// When it began.
    pub created: SystemTime,
    /// The last notification of Codex, or use of the session.
    pub active: SystemTime,
    /// How many prompts Codex has accepted.
    pub turns: u64,
    /// The ID of the running turn, once it is known.
    pub turn: Option<TurnId>,
    /// The current step of the running turn.
    pub progress: CurrentStep,
    /// How many questions are open.
    pub open: usize,
    /// How long the turn has been silent, if it has stalled.
    pub stalled: Option<Duration>,
    /// The reason and time of its cancellation, if it was cancelled.
    pub cancelled: Option<(String, SystemTime)>,
    /// The description of Codex's exit, if the session has not recovered from it.
    pub error: Option<String>,
    /// The facts about the running turn, or else the last one.
    pub facts: Facts,
    /// The tokens that the thread has used, by Codex's last report.
    pub used: Option<TokenCount>,
    /// The model that has used all tokens of the thread; `None` if it is unknown, or if there may be
    /// several.
    pub sole_model: Option<String>,
    /// The number of the next event, and the number up to which events were read.
    pub events: (u64, u64),
}

impl Timeouts {
    /// The recommended poll interval for a turn in which Codex may ask: no longer than a
    /// question stays open, between 1 s and [`IDLE_POLL_INTERVAL`].
    #[must_use]
    pub fn poll_interval(&self) -> Duration {
        self.approval
            .clamp(WAITING_POLL_INTERVAL, IDLE_POLL_INTERVAL)
    }
}

impl State {
    /// The recommended time until the next poll, with `running` for a running turn;
    /// `None` if nothing will change by itself.
    #[must_use]
    pub fn poll_interval(self, running: Duration) -> Option<Duration> {
        match self {
            Self::Running => Some(running),
            Self::WaitingApproval => Some(WAITING_POLL_INTERVAL),
            Self::Idle | Self::Error | Self::Cancelled => None,
        }
    }
}

impl Session {
    /// The public state of the session.
    #[must_use]
    pub fn view(&self, now: Instant) -> SessionView {
        let last = self.outcome.as_ref().map(|(_, outcome)| &outcome.facts);
        let facts = self.turn.as_ref().map(|turn| &turn.facts).or(last);
        let silent = now.saturating_duration_since(self.last_heard);
        SessionView {
            state: self.state(),
            created: self.created.wall,
            active: self.active.wall,
            turns: self.turns - self.refused,
            turn: self.turn_id().cloned(),
            progress: match self.turn {
                Some(_) => self.progress(now),
                None => CurrentStep::default(),
            },
            open: self.actions.len(),
            stalled: self.stalled.filter(|_| self.turn.is_some()).map(|_| silent),
            cancelled: self
                .cancelled
                .as_ref()
                .map(|over| (over.why.clone(), over.at)),
            error: self.lost.as_ref().map(|lost| lost.how.clone()),
            facts: facts.cloned().unwrap_or_default(),
            used: self.used,
            sole_model: self.sole_model.clone(),
            events: (self.log.next_id(), self.log.read_to()),
        }
    }

    /// The result of the last turn, once it has ended, or of the session's cancellation.
    #[must_use]
    pub fn result(&self, mode: ResponseMode) -> Option<Value> {
        if let Some(over) = &self.cancelled {
            return Some(self.result_of_cancelled(over, mode));
        }
        match (&self.turn, &self.outcome, &self.lost) {
            (Some(_), ..) => None,
            (None, Some((_, outcome)), None) => Some(outcome.result(mode)),
            // The result of the last turn stays available.
            (None, Some((_, outcome)), Some(lost)) => {
                let lost = json!({ "status": "error", "error": lost.how });
                Some(merged(outcome.result(mode), lost))
            }
            (None, None, Some(lost)) => Some(json!({
                "status": "error",
                "error": lost.how,
                "completedAt": timestamp(lost.at),
            })),
            (None, None, None) => None,
        }
    }
}

impl Session {
    /// The result of the last turn stays available.
    fn result_of_cancelled(&self, over: &Cancellation, mode: ResponseMode) -> Value {
        let last = self.outcome.as_ref().map(|(_, outcome)| outcome);
        let last = last.filter(|outcome| outcome.turn == over.turn);
        let result = last.map_or_else(|| json!({}), |outcome| outcome.result(mode));
        let cancelled = json!({
            "status": "cancelled",
            "reason": over.why,
            "error": over.why,
            "turnId": over.turn,
            "completedAt": timestamp(over.at),
        });
        merged(result, cancelled)
    }
}

impl TurnOutcome {
    fn status(&self) -> &'static str {
        match self.ending {
            TurnEnding::Completed => "completed",
            TurnEnding::Interrupted => "interrupted",
            TurnEnding::Failed(_) => "failed",
            TurnEnding::Lost(_) => "error",
        }
    }

    fn error(&self) -> Option<&str> {
        match &self.ending {
            TurnEnding::Completed | TurnEnding::Interrupted => None,
            TurnEnding::Failed(error) => Some(&error.message),
            TurnEnding::Lost(how) => Some(how),
        }
    }

    /// The result for a reader: the final message whole in every mode.
    #[must_use]
    pub fn result(&self, mode: ResponseMode) -> Value {
        let turn_error = match &self.ending {
            TurnEnding::Failed(error) => json!(error),
            _ => Value::Null,
        };
        let result = json!({
            "turnId": self.turn,
            "status": self.status(),
            "output": self.text,
            "structuredOutput": self.structured,
            "turnError": turn_error,
            "error": self.error(),
            "completedAt": timestamp(self.at),
            "turn": self.raw_turn.as_ref().map(|turn| shown_turn(turn, mode)),
        });
        merged(result, Value::Object(self.facts.shown(mode)))
    }

    /// The data of the event about the result, without the details in the result.
    pub(super) fn event_data(&self) -> Value {
        without_nulls(json!({
            "method": "turn/completed",
            "turnId": self.turn,
            "status": self.status(),
            "error": self.error(),
            "completedAt": timestamp(self.at),
            "turn": self.raw_turn,
        }))
    }
}

/// A turn as Codex reported it. Since 0.153.4 at the latest it repeats the final message,
/// which the compact modes leave out.
fn shown_turn(turn: &Value, mode: ResponseMode) -> Value {
    let mut shown = turn.clone();
    if mode != ResponseMode::Full
        && let Some(shown) = shown.as_object_mut()
        && let Some(items) = shown.get_mut("items")
    {
        *items = json!([]);
        if let Some(view) = shown.get_mut("itemsView") {
            *view = "notLoaded".into();
        }
    }
    shown
}

impl Facts {
    /// The facts, under the names that readers see. The diff is cut in the compact modes.
    #[must_use]
    pub fn shown(&self, mode: ResponseMode) -> Map<String, Value> {
        let mut shown = Map::new();
        if let Some(usage) = &self.usage {
            shown.insert("usage".to_owned(), json!(usage));
        }
        if let Some(plan) = &self.plan {
            shown.insert("plan".to_owned(), json!(plan));
        }
        if !self.diff.is_empty() {
            let limit = match mode {
                ResponseMode::Minimal => 8 * 1024,
                ResponseMode::DeltaCompact => 32 * 1024,
                ResponseMode::Full => usize::MAX,
            };
            shown.insert("diff".to_owned(), bounded(&self.diff, limit).into());
            if self.diff.len() > limit {
                shown.insert("diffTruncated".to_owned(), true.into());
            }
        }
        if !self.changed_files.is_empty() {
            shown.insert("changedFiles".to_owned(), json!(self.changed_files));
        }
        if self.unlisted_files > 0 {
            shown.insert("changedFilesOmitted".to_owned(), self.unlisted_files.into());
        }
        shown
    }
}

impl Action {
    /// Codex's ID of the step that waits.
    #[must_use]
    pub fn item_id(&self) -> Option<&str> {
        let id = match &self.ask {
            Ask::Command(asked) => &asked.item_id,
            Ask::FileChange(asked) => &asked.item_id,
            Ask::Permissions(asked) => &asked.item_id,
            Ask::UserInput(asked) => &asked.item_id,
            Ask::LegacyCommand(asked) => &asked.call_id,
            Ask::LegacyPatch(asked) => &asked.call_id,
            Ask::McpElicitation(_) => return None,
        };
        Some(id)
    }

    /// The question with its details, for the client that decides it.
    #[must_use]
    pub fn shown(&self) -> Value {
        let user_input = matches!(self.ask, Ask::UserInput(_));
        let action = json!({
            "type": if user_input { "user_input" } else { "approval" },
            "requestId": self.id,
            "kind": ActionKind::from(&self.ask),
            "question": approval_text::question(&self.ask),
            "params": self.params,
            "itemId": self.item_id(),
            "createdAt": timestamp(self.created),
            "expiresAt": timestamp(self.expires),
        });
        merged(action, particulars(&self.ask))
    }

    /// The question's data in its event.
    pub(super) fn event_data(&self) -> Value {
        let data = json!({
            "requestId": self.id,
            "kind": ActionKind::from(&self.ask),
            "itemId": self.item_id(),
        });
        merged(data, particulars(&self.ask))
    }
}

/// The details of a question, under the names that readers see.
fn particulars(ask: &Ask) -> Value {
    match ask {
        Ask::Command(asked) => json!({
            "command": asked.command,
            "cwd": asked.cwd,
            "reason": asked.reason,
            "approvalId": asked.approval_id,
            "commandActions": asked.command_actions,
            "proposedExecpolicyAmendment": asked.proposed_execpolicy_amendment,
            "availableDecisions": with_those_always_taken(asked),
            "proposedNetworkPolicyAmendments": asked.proposed_network_policy_amendments,
            "additionalPermissions": asked.additional_permissions,
            "networkApprovalContext": asked.network_approval_context,
        }),
        Ask::LegacyCommand(asked) => json!({
            "command": command_line(&asked.command),
            "cwd": asked.cwd,
            "reason": asked.reason,
        }),
        Ask::FileChange(asked) => json!({
            "reason": asked.reason,
            "grantRoot": asked.grant_root,
            "changes": asked.changes,
        }),
        Ask::LegacyPatch(asked) => json!({
            "reason": asked.reason,
            "grantRoot": asked.grant_root,
            "changes": asked.file_changes,
        }),
        Ask::Permissions(asked) => json!({
            "reason": asked.reason,
            "permissions": asked.permissions,
        }),
        Ask::McpElicitation(asked) => json!({
            "serverName": asked.server_name,
            "message": asked.message,
            "requestedSchema": asked.requested_schema,
            "availableDecisions": asked.is_tool_approval().then(|| tool_decisions(asked)),
        }),
        Ask::UserInput(asked) => json!({ "questions": asked.questions }),
    }
}

/// The decisions that Codex offers on a command, and those that it always accepts.
fn with_those_always_taken(asked: &CommandApproval) -> Option<Vec<Value>> {
    let mut offered = asked.available_decisions.clone()?;
    for always in ["acceptForSession", "decline"] {
        if !offered.iter().any(|decision| decision == always) {
            offered.push(always.into());
        }
    }
    Some(offered)
}

/// The possible decisions on a tool call; Codex lists them in a form of its own.
fn tool_decisions(asked: &McpElicitation) -> Vec<&'static str> {
    let for_session = asked.may_be_kept_for_session();
    let kept = for_session.then_some("acceptForSession");
    ["accept"]
        .into_iter()
        .chain(kept)
        .chain(["decline", "cancel"])
        .collect()
}

impl Decision {
    /// The decision's name in clients' requests.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Accept | Self::Submit(_) => "accept",
            Self::AcceptForSession => "acceptForSession",
            Self::AcceptWithExecpolicyAmendment(_) => "acceptWithExecpolicyAmendment",
            Self::ApplyNetworkPolicyAmendment(_) => "applyNetworkPolicyAmendment",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }
}
