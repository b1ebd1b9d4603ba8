//! What a session shows of itself to those who look in.

use std::time::{Duration, Instant, SystemTime};

use codex_protocol::codex::{Ask, CommandApproval, McpElicitation, TurnId};
use common::json::{merged, without_nulls};
use common::text::BoundedText;
use common::timestamp::timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::turn::{Ending, Facts, Outcome};
use super::{Cancelled, Patience, Session, State};
use crate::logic::action::{Action, ActionKind, Decision};
use crate::logic::approval_text;
use crate::logic::events::ResponseMode;
use crate::logic::progress::CurrentStep;

/// How long a client may well wait between two looks at a running turn in which
/// Codex asks nothing.
pub const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(120_000);

/// The same while Codex waits for an answer.
const WAITING_POLL_INTERVAL: Duration = Duration::from_millis(1000);

/// What of a session is told to those who ask for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// How it stands.
    pub state: State,
    /// When it began.
    pub created: SystemTime,
    /// When it was used, or Codex heard, last.
    pub active: SystemTime,
    /// How many prompts it has taken.
    pub turns: u64,
    /// The running turn, once its name is known.
    pub turn: Option<TurnId>,
    /// The step that the running turn is at.
    pub progress: CurrentStep,
    /// How many questions are open.
    pub open: usize,
    /// For how long nothing was heard of the turn, if that is too long.
    pub stalled: Option<Duration>,
    /// Why the session was cancelled, if it was, and when.
    pub cancelled: Option<(String, SystemTime)>,
    /// How Codex went away, if it did.
    pub error: Option<String>,
    /// What is known of the running turn, or else of the last one.
    pub facts: Facts,
    /// The number that the next event gets, and up to where events were read.
    pub events: (u64, u64),
}

impl Patience {
    /// How long a client may well wait between two looks at a turn in which Codex may
    /// ask: no longer than a question stays open, within 1 s and
    /// [`IDLE_POLL_INTERVAL`].
    #[must_use]
    pub fn poll_interval(&self) -> Duration {
        self.approval
            .clamp(WAITING_POLL_INTERVAL, IDLE_POLL_INTERVAL)
    }
}

impl State {
    /// How long a client may well wait before it looks again, with `running` for a
    /// turn that runs; `None` if nothing will change by itself.
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
    /// What it shows of itself.
    #[must_use]
    pub fn view(&self, now: Instant) -> View {
        let last = self.outcome.as_ref().map(|(_, outcome)| &outcome.facts);
        let facts = self.turn.as_ref().map(|turn| &turn.facts).or(last);
        let silent = now.saturating_duration_since(self.heard);
        View {
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
            events: (self.log.next_id(), self.log.read_to()),
        }
    }

    /// What came of the last turn, once it has ended; or that the session was
    /// cancelled.
    #[must_use]
    pub fn result(&self, mode: ResponseMode) -> Option<Value> {
        if let Some(over) = &self.cancelled {
            return Some(self.result_of_cancelled(over, mode));
        }
        match (&self.turn, &self.outcome, &self.lost) {
            (Some(_), ..) => None,
            (None, Some((_, outcome)), None) => Some(outcome.result(mode)),
            // What the last turn has brought stays to be had.
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
    /// What the last turn has brought stays to be had.
    fn result_of_cancelled(&self, over: &Cancelled, mode: ResponseMode) -> Value {
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

impl Outcome {
    fn status(&self) -> &'static str {
        match self.ending {
            Ending::Completed => "completed",
            Ending::Interrupted => "interrupted",
            Ending::Failed(_) => "failed",
            Ending::Lost(_) => "error",
        }
    }

    fn error(&self) -> Option<&str> {
        match &self.ending {
            Ending::Completed | Ending::Interrupted => None,
            Ending::Failed(error) => Some(&error.message),
            Ending::Lost(how) => Some(how),
        }
    }

    /// The result for a reader: the final message whole in every mode.
    #[must_use]
    pub fn result(&self, mode: ResponseMode) -> Value {
        let turn_error = match &self.ending {
            Ending::Failed(error) => json!(error),
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
            "turn": self.told.as_ref().map(|turn| shown_turn(turn, mode)),
        });
        merged(result, Value::Object(self.facts.shown(mode)))
    }

    /// The result as an event tells it: what is in the result need not be here.
    pub(super) fn told(&self) -> Value {
        without_nulls(json!({
            "method": "turn/completed",
            "turnId": self.turn,
            "status": self.status(),
            "error": self.error(),
            "completedAt": timestamp(self.at),
            "turn": self.told,
        }))
    }
}

/// A turn as Codex told it. Since 0.153.4 at the latest it holds the final message once
/// more, which the modes that are meant to be small leave out.
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
    /// What is known, by the names that readers see. A diff is cut in the modes
    /// that are meant to be small.
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
            let mut diff = BoundedText::default();
            diff.push(&self.diff, limit);
            shown.insert("diff".to_owned(), diff.as_str().into());
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
    /// Codex's name for the step that waits.
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

    /// The question for a client that is to decide it.
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

    /// The question as an event tells it.
    pub(super) fn told(&self) -> Value {
        let told = json!({
            "requestId": self.id,
            "kind": ActionKind::from(&self.ask),
            "itemId": self.item_id(),
        });
        merged(told, particulars(&self.ask))
    }
}

/// What a question is about, by the names that readers see.
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
            "command": asked.command.join(" "),
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

/// The decisions that Codex offers on a command, and those that it always takes.
fn with_those_always_taken(asked: &CommandApproval) -> Option<Vec<Value>> {
    let mut offered = asked.available_decisions.clone()?;
    for always in ["acceptForSession", "decline"] {
        if !offered.iter().any(|decision| decision == always) {
            offered.push(always.into());
        }
    }
    Some(offered)
}

/// What Codex takes for an answer to whether a tool may run; it lists it in its
/// own way.
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
    /// Its name, as clients write it.
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
