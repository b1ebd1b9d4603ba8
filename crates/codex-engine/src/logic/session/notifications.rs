//! Handles the notifications of Codex in a session.

use std::time::Duration;

use codex_protocol::codex::{
    Delta, DeltaSource, FileChange, Item, Notification, StepStatus, ThreadNotification, TurnError,
    TurnId,
};
use common::timestamp::Now;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::turn::{FinalError, Phase, RunningTurn, TurnEnd, raw_turn_of};
use super::{Effect, FINAL_ERROR_GRACE, Form, Session};
use crate::logic::describe;
use crate::logic::events::{EventData, EventType};

/// The report of Codex that a request was answered by another model than the thread's (0.104.0 to
/// 0.171.0, `ModelReroutedNotification` in the schema of the app-server).
const REROUTED: &str = "model/rerouted";

/// The report of older releases that Codex has compacted the context, before it was an item
/// (`ContextCompactedNotification`).
const COMPACTED: &str = "thread/compacted";

impl Session {
    /// Handles a notification about the thread.
    pub fn on_notification(
        &mut self,
        notification: ThreadNotification<'_>,
        now: Now,
    ) -> Vec<Effect> {
        self.mark_active(now);
        let ThreadNotification {
            method,
            params,
            notification,
            ..
        } = notification;
        if let Some(turn) = self.turn.as_mut().filter(|_| shows_work(&notification)) {
            turn.final_error = None;
        }
        match notification {
            Notification::Delta(source, delta) => self.text_received(source, &delta, now),
            Notification::TurnStarted(turn) => {
                self.write_news(EventType::Progress, (method, params), None, now);
                self.activity.resume(now.instant);
                return self.started(turn.id, now);
            }
            Notification::TurnCompleted(turn) => {
                let raw_turn = raw_turn_of(params.get());
                return self.ended(TurnEnd { turn, raw_turn }, now);
            }
            Notification::ItemStarted(Item::UserMessage) => {}
            Notification::ItemCompleted(Item::UserMessage) => {
                let before = self.log.next_id();
                self.prompts.note(before, now.wall, params.get());
            }
            Notification::ItemStarted(item) => self.item_started(item, (method, params), now),
            Notification::ItemCompleted(item) => self.item_completed(item, (method, params), now),
            Notification::Raw(item) => {
                if let Some(turn) = &mut self.turn {
                    turn.raw_item(&item);
                }
            }
            Notification::Plan(plan) => {
                self.write_news(EventType::Progress, (method, params), None, now);
                if let Some(turn) = &mut self.turn {
                    turn.facts.plan = Some(plan);
                }
            }
            Notification::Diff(diff) => {
                if let Some(turn) = &mut self.turn {
                    turn.facts.set_diff(&diff);
                }
            }
            Notification::TokenUsage(usage) => {
                let words = describe::usage(&usage);
                self.write_news(EventType::Progress, (method, params), Some(&words), now);
                let before = self.used.replace(usage.total);
                if let Some(turn) = &mut self.turn {
                    turn.add_usage(usage, before);
                }
            }
            Notification::Error { error, will_retry } => {
                self.error_received(&error, will_retry, now);
            }
            Notification::Warning(_) => {}
            Notification::RequestResolved(request) => self.resolved(&request, now),
            Notification::Other => {
                if [REROUTED, COMPACTED].contains(&method) {
                    self.uses_model(None);
                }
                self.write_news(EventType::Progress, (method, params), None, now);
            }
        }
        Vec::new()
    }

    /// Notes the file changes that a step of a sub-agent is about to make, since the question about
    /// the step does not name them.
    pub fn changes_announced(&mut self, thread: &str, item: String, changes: Vec<FileChange>) {
        if let Some(turn) = &mut self.turn {
            turn.file_changes.add(thread, item, changes);
        }
    }

    /// Handles Codex's acceptance of the prompt of turn `number`. Notifications about the turn,
    /// even of its end, may have arrived before. Removes the end of the previous turn from the log.
    pub fn accepted(&mut self, number: u64, id: TurnId, now: Now) -> Vec<Effect> {
        let abandoned = self.abandoned.as_mut();
        if let Some(turn) = abandoned.filter(|turn| turn.number == number) {
            turn.id = Some(id);
            return Vec::new();
        }
        if self.turns != number {
            return Vec::new();
        }
        self.forget_previous_end();
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        turn.id.get_or_insert_with(|| id.clone());
        turn.answered = Some(id);
        match turn.early_end.take() {
            Some(end) => self.ended(end, now),
            None => Vec::new(),
        }
    }

    fn text_received(&mut self, source: DeltaSource, delta: &Delta<'_>, now: Now) {
        if let (Some(turn), DeltaSource::AgentMessage) = (&mut self.turn, source) {
            turn.append_delta(&delta.item_id, &delta.delta);
        }
        let text = EventData::text(source, &delta.turn_id, &delta.item_id, &delta.delta);
        self.log.push(now.wall, text);
    }

    /// Notes a step whose tokens are not among those of the thread: Codex counts those of other
    /// agents in their own threads, and those of OpenAI's compaction nowhere.
    fn note_uncounted(&mut self, item: &Item) {
        let is_uncounted = matches!(
            item,
            Item::CollabAgentToolCall { .. } | Item::ContextCompaction
        );
        if is_uncounted {
            self.uses_model(None);
        }
    }

    fn item_started(&mut self, item: Item, message: (&str, &RawValue), now: Now) {
        self.note_uncounted(&item);
        let words = describe::item(&item);
        self.write_news(kind_of(&item), message, words.as_deref(), now);
        if let Some(words) = words {
            self.activity.begin(step_id(&item), words, now.instant);
        }
        if let Some(turn) = &mut self.turn {
            turn.item_started(&item);
            if let Item::FileChange { id, changes, .. } = item {
                turn.file_changes.add(&self.thread, id, changes);
            }
        }
    }

    fn item_completed(&mut self, item: Item, message: (&str, &RawValue), now: Now) {
        self.note_uncounted(&item);
        let words = describe::ended(&item);
        self.write_news(kind_of(&item), message, words.as_deref(), now);
        // A message is followed by another step or by the end of the turn.
        if !matches!(item, Item::AgentMessage { .. }) {
            self.activity.end(step_id(&item), now.instant);
        }
        let Some(turn) = &mut self.turn else { return };
        turn.item_completed(&item);
        match item {
            Item::AgentMessage { id, text } => turn.message_completed(&id, text),
            Item::FileChange {
                changes,
                status: StepStatus::Completed,
                ..
            } => turn.facts.changed(changes),
            _ => {}
        }
    }

    /// Removes the end of the previous turn from the log, as Codex has the next prompt.
    fn forget_previous_end(&mut self) {
        if let Some(since) = self.turn.as_ref().map(|turn| turn.since) {
            self.log.forget(|event| {
                let ends = matches!(event.data.kind(), EventType::Result | EventType::Error);
                ends && event.id < since
            });
        }
    }

    fn started(&mut self, id: TurnId, now: Now) -> Vec<Effect> {
        if self.is_abandoned(&id) {
            self.abandoned = None;
            return vec![Effect::Interrupt(id)];
        }
        // A start before the prompt has been sent belongs to a turn that was given up.
        if self.has_unsent_prompt() {
            return Vec::new();
        }
        self.begin_elsewhere(&id, now);
        self.forget_previous_end();
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        self.abandoned = None;
        turn.id = Some(id.clone());
        let before = std::mem::replace(&mut turn.phase, Phase::Started);
        if turn.interrupt_wanted && before == Phase::Sent {
            vec![Effect::Interrupt(id)]
        } else {
            Vec::new()
        }
    }

    /// Returns whether the turn with this ID, which begins now, was given up before.
    fn is_abandoned(&self, id: &TurnId) -> bool {
        let unsent = |turn: &RunningTurn| turn.phase == Phase::Pending;
        // Codex begins a review under another ID than that of its answer.
        let is_only_one = !self.is_attached && self.turn.as_ref().is_none_or(unsent);
        let abandoned = self.abandoned.as_ref();
        abandoned.is_some_and(|turn| is_only_one || turn.id.as_ref() == Some(id))
    }

    /// Begins a turn if another client of Codex has begun one.
    fn begin_elsewhere(&mut self, id: &TurnId, now: Now) {
        let last = self.outcome.as_ref().map(|(_, outcome)| &outcome.turn);
        let has_ended = last.is_some_and(|last| last.as_ref() == Some(id));
        let is_idle = self.turn.is_none() && self.cancelled.is_none();
        if self.is_attached && is_idle && !has_ended {
            let since = self.log.next_id();
            let mut turn = RunningTurn::new(Form::Text, self.lost.take(), since);
            turn.phase = Phase::Sent;
            turn.is_foreign = true;
            self.turn = Some(turn);
            self.turns += 1;
            self.activity.turn_begins(now.instant);
        }
    }

    /// Handles an error. An error that Codex does not retry ends the turn.
    fn error_received(&mut self, error: &TurnError, will_retry: bool, now: Now) {
        if !will_retry {
            self.expect_end(error, now);
            let data = json!({
                "method": "error",
                "message": error.message,
                "error": error,
                "willRetry": false,
                "threadId": self.thread,
                "turnId": self.turn_id(),
            });
            return self.write(now, EventType::Error, data);
        }
        let words = describe::line(&error.message);
        self.activity.report(words, now.instant);
        let mut data = json!({
            "method": "codex-mcp/reconnect",
            "sourceMethod": "error",
            "message": error.message,
            "error": error,
            "phase": "retrying",
            "willRetry": true,
            "threadId": self.thread,
            "turnId": self.turn_id(),
        });
        if let (Some((count, most)), Some(data)) = (retries(&error.message), data.as_object_mut()) {
            data.insert("retryCount".to_owned(), count.into());
            data.insert("maxRetries".to_owned(), most.into());
        }
        self.write(now, EventType::Progress, data);
    }

    /// Sets the deadline for the end of a turn that has failed. Codex reports the end right after
    /// such an error, unless it could not begin the turn, such as a review of a branch for which
    /// its git fails.
    fn expect_end(&mut self, error: &TurnError, now: Now) {
        let sent = |turn: &&mut RunningTurn| turn.phase != Phase::Pending;
        if let Some(turn) = self.turn.as_mut().filter(sent) {
            turn.final_error = Some(FinalError {
                error: error.clone(),
                deadline: now.instant + FINAL_ERROR_GRACE,
            });
        }
    }

    pub(super) fn log_stall(&mut self, silent: Duration, now: Now) {
        let silent = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let data = json!({
            "method": "codex-mcp/stalled",
            "message": format!("nothing was heard of the turn for {} s", silent / 1000),
            "stalledForMs": silent,
            "turnId": self.turn_id(),
        });
        self.write(now, EventType::Progress, data);
    }

    /// Writes to the log that a text was added to the running turn, as not only the session's client
    /// can have added it.
    pub fn log_steering(&mut self, text: &str, now: Now) {
        let data = json!({
            "method": "codex-mcp/steered",
            "message": text,
            "turnId": self.turn_id(),
        });
        self.write(now, EventType::Progress, data);
    }

    /// Writes a notification to the log, with important fields of its item raised to the
    /// top level.
    fn write_news(
        &mut self,
        kind: EventType,
        (method, params): (&str, &RawValue),
        title: Option<&str>,
        now: Now,
    ) {
        let Ok(mut data) = serde_json::from_str::<Map<String, Value>>(params.get()) else {
            return;
        };
        data.insert("method".to_owned(), method.into());
        data.get_mut("item")
            .into_iter()
            .for_each(leave_out_pictures);
        let raised: Vec<(&str, Value)> = match (data.get("item"), data.get("turn")) {
            (Some(item), _) => RAISED_OF_ITEMS
                .iter()
                .filter_map(|(from, to)| Some((*to, item.get(from)?.clone())))
                .collect(),
            (None, Some(turn)) => RAISED_OF_TURNS
                .iter()
                .filter_map(|(from, to)| Some((*to, turn.get(from)?.clone())))
                .collect(),
            (None, None) => Vec::new(),
        };
        for (key, value) in raised {
            data.entry(key).or_insert(value);
        }
        if let Some(title) = title {
            data.insert("title".to_owned(), title.into());
        }
        self.log.push(now.wall, EventData::new(kind, data));
    }
}

/// Whether a notification shows that Codex still works on the turn.
fn shows_work(notification: &Notification<'_>) -> bool {
    matches!(
        notification,
        Notification::TurnStarted(_)
            | Notification::ItemStarted(_)
            | Notification::Delta(..)
            | Notification::Error {
                will_retry: true,
                ..
            }
    )
}

/// Replaces pictures in an item: readers of the log already have them, or cannot use them.
fn leave_out_pictures(item: &mut Value) {
    let parts = item.get_mut("contentItems").and_then(Value::as_array_mut);
    for part in parts.into_iter().flatten() {
        if let Some(Value::String(url)) = part.get_mut("imageUrl") {
            *url = format!("({} bytes left out)", url.len());
        }
    }
}

/// The type of the events of an item: messages of Codex are output.
fn kind_of(item: &Item) -> EventType {
    match item {
        Item::AgentMessage { .. } => EventType::Output,
        _ => EventType::Progress,
    }
}

/// The ID with which Codex reports the end of a step; empty if it has none.
fn step_id(item: &Item) -> &str {
    match item {
        Item::CommandExecution { id, .. }
        | Item::FileChange { id, .. }
        | Item::McpToolCall { id, .. }
        | Item::DynamicToolCall { id, .. }
        | Item::WebSearch { id, .. } => id,
        _ => "",
    }
}

/// The fields of an item that are raised to the top level of an event's data, with their
/// names there.
const RAISED_OF_ITEMS: [(&str, &str); 6] = [
    ("id", "itemId"),
    ("type", "itemType"),
    ("status", "status"),
    ("phase", "phase"),
    ("command", "command"),
    ("cwd", "cwd"),
];

/// The raised fields of a turn.
const RAISED_OF_TURNS: [(&str, &str); 2] = [("id", "turnId"), ("status", "status")];

/// `3` and `5` of "Reconnecting... 3/5", the wording of every release up to 0.169.0.
fn retries(message: &str) -> Option<(u64, u64)> {
    let fraction = message.split_whitespace().find(|word| word.contains('/'))?;
    let (count, most) = fraction.split_once('/')?;
    Some((count.parse().ok()?, most.parse().ok()?))
}
