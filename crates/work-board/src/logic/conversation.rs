//! A session as the page shows it: the events of its log, put together to steps.
//!
//! ```text
//!   item/started   ─┐
//!   …/outputDelta   ├─► one step, put again when it changes, lengthened when it grows
//!   item/completed ─┘
//! ```

use std::collections::VecDeque;
use std::time::SystemTime;

use host_process::logic::handshake::{SessionEvent, SessionNews};
use serde_json::Value;

use super::item::{LONGEST_TEXT, beginning, bounded, closing, kind_of, plan, text};
use super::step::{PlanStep, Step, StepKind};

/// How many places there are for each event: the last one for a step that the event begins, and those
/// before it for prompts that came before the event.
const STRIDE: u64 = 1024;

/// The most steps that are kept. For one more, the oldest is dropped.
const MOST_STEPS: usize = 2000;

/// The most text that is kept of all steps, in bytes (8 MiB).
const MOST_TEXT: usize = 8 << 20;

/// How many of the latest texts may grow. A host tells more of the texts of its last 8 events.
const GROWING: usize = 32;

/// What has changed, for those who have seen what was before.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A step is new, or another one than before.
    Put(u64),
    /// A step has got more text.
    Append {
        /// The number of the step.
        number: u64,
        /// The text.
        text: String,
    },
    /// The plan is another one.
    Plan,
    /// The diff of the turn is another one.
    Diff,
    /// Codex has counted tokens.
    Tokens,
}

/// A conversation.
#[derive(Debug)]
pub struct Conversation {
    /// The most text that is kept of all steps, in bytes.
    most_text: usize,
    steps: VecDeque<Step>,
    /// The bytes of all texts.
    size: usize,
    /// The number of the next event.
    next: Option<u64>,
    /// The latest events that may grow, with the numbers of their steps.
    growing: VecDeque<(u64, u64)>,
    /// The place of the latest prompt.
    prompted: Option<u64>,
    plan: Vec<PlanStep>,
    diff: String,
    tokens: Option<Value>,
}

impl Default for Conversation {
    fn default() -> Self {
        Self {
            most_text: MOST_TEXT,
            steps: VecDeque::new(),
            size: 0,
            next: None,
            growing: VecDeque::new(),
            prompted: None,
            plan: Vec::new(),
            diff: String::new(),
            tokens: None,
        }
    }
}

impl Conversation {
    /// Bounds the text that is kept of all steps, in bytes. A conversation has room for 8 MiB at most.
    pub fn bound_text(&mut self, most: usize) {
        self.most_text = most.min(MOST_TEXT);
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        while self.steps.len() > MOST_STEPS || self.size > self.most_text {
            let Some(oldest) = self.steps.pop_front() else {
                break;
            };
            self.size -= oldest.kind.size();
        }
    }

    /// The steps, oldest first.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter()
    }

    /// The step with this number.
    #[must_use]
    pub fn step(&self, number: u64) -> Option<&Step> {
        let position = self.steps.binary_search_by_key(&number, |step| step.number);
        self.steps.get(position.ok()?)
    }

    /// The number of the next event.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next.unwrap_or_default()
    }

    /// Codex's plan.
    #[must_use]
    pub fn plan(&self) -> &[PlanStep] {
        &self.plan
    }

    /// All changes of files by the last turn that has changed some, as a unified diff.
    #[must_use]
    pub fn diff(&self) -> &str {
        &self.diff
    }

    /// Codex's count of tokens, as the app-server has it.
    #[must_use]
    pub fn tokens(&self) -> Option<&Value> {
        self.tokens.as_ref()
    }

    /// Notes the number of the first event that the host's log has ever had. What was before is not
    /// missing.
    pub fn begin(&mut self, first: u64) {
        self.next = self.next.map(|next| next.max(first));
    }

    /// Takes what a host has told.
    pub fn take(&mut self, news: SessionNews) -> Vec<Change> {
        let changes = match news {
            SessionNews::Event(event) => self.event(&event),
            SessionNews::More { id, text } => self.more(id, &text).into_iter().collect(),
            SessionNews::Prompt { before, at, text } => {
                self.prompt(before, at, &text).into_iter().collect()
            }
            SessionNews::Diff(diff) => {
                self.diff = bounded(&diff);
                vec![Change::Diff]
            }
        };
        self.drop_oldest();
        changes
    }

    /// A prompt. A host tells all prompts again to a watcher that connects again.
    fn prompt(&mut self, before: u64, at: SystemTime, text: &str) -> Option<Change> {
        let place = before * STRIDE;
        if self.prompted.is_some_and(|latest| latest >= place + STRIDE) {
            return None;
        }
        let text = bounded(text);
        let is_here = |step: &&Step| (place..place + STRIDE).contains(&step.number);
        let here = self.steps.iter().rev().filter(is_here);
        let is_same =
            |step: &Step| matches!(&step.kind, StepKind::Prompt { text: known } if *known == text);
        let mut place = place;
        for step in here {
            if is_same(step) {
                return None;
            }
            if matches!(step.kind, StepKind::Prompt { .. }) {
                place = place.max(step.number + 1);
            }
        }
        self.prompted = Some(place);
        Some(self.push(place, at, None, StepKind::Prompt { text }))
    }

    fn event(&mut self, event: &SessionEvent) -> Vec<Change> {
        let shown = &event.data;
        let Some(number) = shown["id"].as_u64() else {
            return Vec::new();
        };
        let mut changes = Vec::new();
        let missing = number - self.next.unwrap_or(number).min(number);
        if missing > 0 {
            let kind = StepKind::Gap { count: missing };
            // Prompts of turns that are missing stand before it.
            changes.push(self.push(place(number - 1), event.at, None, kind));
        }
        self.next = Some(number + 1);
        let (event_number, number) = (number, place(number));
        let data = &shown["data"];
        let change = match shown["type"].as_str() {
            Some("approval_request") => self.asked(number, event.at, data),
            Some("approval_result") => self.answered(data),
            Some("result" | "error") => Some(self.ended(number, event, data)),
            _ => self.notified((event_number, number), event, data),
        };
        changes.extend(change);
        changes
    }

    fn notified(
        &mut self,
        (event_number, number): (u64, u64),
        event: &SessionEvent,
        data: &Value,
    ) -> Option<Change> {
        match data["method"].as_str().unwrap_or_default() {
            "item/started" | "item/completed" => self.item(number, event, data),
            "turn/plan/updated" => {
                self.plan = plan(data);
                Some(Change::Plan)
            }
            "thread/tokenUsage/updated" => {
                self.tokens = Some(data["tokenUsage"].clone());
                Some(Change::Tokens)
            }
            "codex-mcp/stalled" | "codex-mcp/reconnect" | "warning" => {
                let title = text(data, "message").to_owned();
                let kind = StepKind::Other {
                    title,
                    text: String::new(),
                };
                Some(self.push(number, event.at, None, kind))
            }
            method => {
                let delta = data["delta"].as_str()?;
                let of = (method, text(data, "itemId"));
                self.delta((event_number, number), event.at, of, delta)
            }
        }
    }

    fn item(&mut self, number: u64, event: &SessionEvent, data: &Value) -> Option<Change> {
        let item = &data["item"];
        let id = text(item, "id");
        let earlier = self
            .of_item(id)
            .and_then(|position| self.steps.get(position));
        let earlier = earlier.map(|step| step.kind.clone());
        let kind = kind_of(item, text(data, "title"), earlier.as_ref())?;
        Some(self.put(number, event.at, id, kind))
    }

    /// A piece of text of an item.
    fn delta(
        &mut self,
        (event, number): (u64, u64),
        at: SystemTime,
        (method, item): (&str, &str),
        piece: &str,
    ) -> Option<Change> {
        if let Some(position) = self.of_item(item) {
            self.note_growing(event, position);
            return self.append(position, piece);
        }
        let text = bounded(piece);
        let kind = match method {
            "item/agentMessage/delta" => StepKind::Message { text },
            "item/reasoning/textDelta" | "item/reasoning/summaryTextDelta" => {
                StepKind::Thought { text }
            }
            _ => StepKind::Other {
                title: String::new(),
                text,
            },
        };
        let change = self.push(number, at, Some(item), kind);
        self.note_growing(event, self.steps.len() - 1);
        Some(change)
    }

    fn note_growing(&mut self, event: u64, position: usize) {
        let Some(step) = self.steps.get(position) else {
            return;
        };
        self.growing.push_back((event, step.number));
        if self.growing.len() > GROWING {
            self.growing.pop_front();
        }
    }

    /// More of the text of an event.
    fn more(&mut self, event: u64, piece: &str) -> Option<Change> {
        let (_, step) = self.growing.iter().find(|(one, _)| *one == event)?;
        let position = self
            .steps
            .binary_search_by_key(step, |step| step.number)
            .ok()?;
        self.append(position, piece)
    }

    fn append(&mut self, position: usize, piece: &str) -> Option<Change> {
        let step = self.steps.get_mut(position)?;
        let text = step.kind.text_mut()?;
        let piece = beginning(piece, LONGEST_TEXT.saturating_sub(text.len()));
        if piece.is_empty() {
            return None;
        }
        text.push_str(piece);
        self.size += piece.len();
        Some(Change::Append {
            number: step.number,
            text: piece.to_owned(),
        })
    }

    fn asked(&mut self, number: u64, at: SystemTime, data: &Value) -> Option<Change> {
        let title = match data["command"].as_str() {
            Some(command) => format!("{}: {command}", text(data, "kind")),
            None => text(data, "kind").to_owned(),
        };
        let kind = StepKind::Question {
            id: text(data, "requestId").to_owned(),
            title,
            closed: None,
        };
        Some(self.push(number, at, None, kind))
    }

    fn answered(&mut self, data: &Value) -> Option<Change> {
        let asked = text(data, "requestId");
        let is_it =
            |step: &&mut Step| matches!(&step.kind, StepKind::Question { id, .. } if id == asked);
        let step = self.steps.iter_mut().rev().find(is_it)?;
        if let StepKind::Question { closed, .. } = &mut step.kind {
            *closed = Some(closing(data));
        }
        Some(Change::Put(step.number))
    }

    fn ended(&mut self, number: u64, event: &SessionEvent, data: &Value) -> Change {
        let shown = &event.data;
        let failed = shown["type"] == "error" || data["status"] == "failed";
        let words = event.words.clone().unwrap_or_default();
        self.push(number, event.at, None, StepKind::End { words, failed })
    }

    /// Puts the step of an item in its place, or at the end.
    fn put(&mut self, number: u64, at: SystemTime, item: &str, kind: StepKind) -> Change {
        match self
            .of_item(item)
            .and_then(|position| self.steps.get_mut(position))
        {
            Some(step) => {
                self.size = self.size - step.kind.size() + kind.size();
                step.kind = kind;
                Change::Put(step.number)
            }
            None => self.push(number, at, Some(item), kind),
        }
    }

    fn push(&mut self, number: u64, at: SystemTime, item: Option<&str>, kind: StepKind) -> Change {
        self.size += kind.size();
        self.steps.push_back(Step {
            number,
            at,
            item: item.map(str::to_owned),
            kind,
        });
        Change::Put(number)
    }

    fn of_item(&self, item: &str) -> Option<usize> {
        let is_it = |step: &Step| step.item.as_deref() == Some(item);
        self.steps.iter().rposition(is_it)
    }
}

/// The place of the step that an event begins.
fn place(event: u64) -> u64 {
    event * STRIDE + STRIDE - 1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(id: u64, kind: &str, data: Value) -> SessionNews {
        SessionNews::Event(SessionEvent {
            at: SystemTime::UNIX_EPOCH,
            words: Some("words".to_owned()),
            data: json!({ "id": id, "type": kind, "data": data }),
        })
    }

    fn item(id: u64, method: &str, item: Value) -> SessionNews {
        event(
            id,
            "progress",
            json!({ "method": method, "item": item, "title": "a step" }),
        )
    }

    fn delta(id: u64, item: &str, text: &str) -> SessionNews {
        let method = "item/commandExecution/outputDelta";
        event(
            id,
            "output",
            json!({ "method": method, "itemId": item, "delta": text }),
        )
    }

    fn kinds(conversation: &Conversation) -> Vec<&StepKind> {
        conversation.steps().map(|step| &step.kind).collect()
    }

    fn command(text: &str, status: &str, exit_code: Option<i64>) -> StepKind {
        StepKind::Command {
            command: "ls".to_owned(),
            text: text.to_owned(),
            status: status.to_owned(),
            exit_code,
        }
    }

    #[test]
    fn events_of_an_item_are_one_step() {
        let mut one = Conversation::default();
        let started = json!({ "type": "commandExecution", "id": "c", "command": "ls", "status": "inProgress" });
        assert_eq!(
            one.take(item(0, "item/started", started)),
            [Change::Put(place(0))]
        );
        let grown = one.take(delta(1, "c", "a\n"));
        assert_eq!(
            grown,
            [Change::Append {
                number: place(0),
                text: "a\n".to_owned()
            }]
        );
        let more = SessionNews::More {
            id: 1,
            text: "b\n".to_owned(),
        };
        assert_eq!(
            one.take(more),
            [Change::Append {
                number: place(0),
                text: "b\n".to_owned()
            }]
        );
        assert_eq!(kinds(&one), [&command("a\nb\n", "inProgress", None)]);
        let ended = json!({ "type": "commandExecution", "id": "c", "command": "ls",
            "status": "completed", "exitCode": 0 });
        assert_eq!(
            one.take(item(2, "item/completed", ended)),
            [Change::Put(place(0))]
        );
        assert_eq!(kinds(&one), [&command("a\nb\n", "completed", Some(0))]);
        assert_eq!(one.next(), 3);
    }

    #[test]
    fn missing_events_are_a_gap() {
        let mut one = Conversation::default();
        let message = |id: &str| json!({ "type": "agentMessage", "id": id, "text": "m" });
        one.take(item(5, "item/completed", message("a")));
        let changes = one.take(item(9, "item/completed", message("b")));
        assert_eq!(changes, [Change::Put(place(8)), Change::Put(place(9))]);
        assert_eq!(one.step(place(8)).unwrap().kind, StepKind::Gap { count: 3 });
    }

    #[test]
    fn log_of_the_next_host_is_no_gap() {
        let mut one = Conversation::default();
        let message = |id: &str| json!({ "type": "agentMessage", "id": id, "text": "m" });
        one.take(item(5, "item/completed", message("a")));
        one.begin(1_000_000);
        let changes = one.take(item(1_000_002, "item/completed", message("b")));
        assert_eq!(
            changes,
            [Change::Put(place(1_000_001)), Change::Put(place(1_000_002))]
        );
        one.begin(0);
        let changes = one.take(item(1_000_003, "item/completed", message("c")));
        assert_eq!(changes, [Change::Put(place(1_000_003))]);
    }

    fn prompt(before: u64, text: &str) -> SessionNews {
        SessionNews::Prompt {
            before,
            at: SystemTime::UNIX_EPOCH,
            text: text.to_owned(),
        }
    }

    #[test]
    fn prompts_of_missing_events_come_before_the_gap() {
        let mut one = Conversation::default();
        let message = |id: &str| json!({ "type": "agentMessage", "id": id, "text": "m" });
        one.take(prompt(0, "first"));
        one.take(item(0, "item/completed", message("a")));
        one.take(prompt(500, "second"));
        one.take(item(1200, "item/completed", message("b")));
        let shown: Vec<&StepKind> = one.steps().map(|step| &step.kind).collect();
        assert!(
            matches!(
                shown[..],
                [
                    StepKind::Prompt { .. },
                    StepKind::Message { .. },
                    StepKind::Prompt { .. },
                    StepKind::Gap { count: 1199 },
                    StepKind::Message { .. }
                ]
            ),
            "{shown:?}"
        );
    }

    #[test]
    fn prompt_comes_before_its_events_and_once() {
        let mut one = Conversation::default();
        let message = json!({ "type": "agentMessage", "id": "a", "text": "m" });
        assert_eq!(one.take(prompt(0, "do it")), [Change::Put(0)]);
        one.take(item(0, "item/completed", message.clone()));
        assert_eq!(one.take(prompt(1, "more")).len(), 1);
        assert_eq!(one.take(prompt(1, "and more")).len(), 1);
        one.take(item(1, "item/completed", message));
        for (before, text) in [(0, "do it"), (1, "more"), (1, "and more")] {
            assert_eq!(one.take(prompt(before, text)), [], "{text}");
        }
        let places: Vec<u64> = one.steps().map(|step| step.number).collect();
        assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
    }

    #[test]
    fn closed_question_says_who_decided() {
        let mut one = Conversation::default();
        let asked = json!({ "requestId": "q", "kind": "command", "command": "ls" });
        one.take(event(0, "approval_request", asked));
        let answered = json!({ "requestId": "q", "decision": "accept", "decidedBy": "terminal" });
        assert_eq!(
            one.take(event(1, "approval_result", answered)),
            [Change::Put(place(0))]
        );
        let closed = StepKind::Question {
            id: "q".to_owned(),
            title: "command: ls".to_owned(),
            closed: Some("accept, terminal".to_owned()),
        };
        assert_eq!(kinds(&one), [&closed]);
    }

    #[test]
    fn texts_and_steps_are_bounded() {
        let mut one = Conversation::default();
        let large = "ä".repeat(LONGEST_TEXT);
        for id in 0..3000 {
            let text = if id < 100 { large.as_str() } else { "m" };
            let message = json!({ "type": "agentMessage", "id": id.to_string(), "text": text });
            one.take(item(id, "item/completed", message));
            assert!(one.size <= MOST_TEXT);
        }
        assert_eq!(one.steps().count(), MOST_STEPS);
        let size: usize = one.steps().map(|step| step.kind.size()).sum();
        assert_eq!(one.size, size);
        let more = one.take(delta(3000, "2999", &large));
        assert!(
            matches!(more.as_slice(), [Change::Append { text, .. }] if text.len() < LONGEST_TEXT)
        );
    }

    #[test]
    fn lower_bound_drops_the_oldest_texts() {
        let mut one = Conversation::default();
        let text = "m".repeat(1000);
        let take = |one: &mut Conversation, id: u64| {
            let message = json!({ "type": "agentMessage", "id": id.to_string(), "text": text });
            one.take(item(id, "item/completed", message));
        };
        for id in 0..10 {
            take(&mut one, id);
        }
        one.bound_text(3000);
        let numbers = |one: &Conversation| -> Vec<u64> {
            let numbers = one.steps().map(|step| step.number / STRIDE);
            numbers.collect()
        };
        assert_eq!(numbers(&one), [7, 8, 9]);
        take(&mut one, 10);
        assert_eq!(numbers(&one), [8, 9, 10]);
        one.bound_text(usize::MAX);
        for id in 11..20 {
            take(&mut one, id);
        }
        assert_eq!(numbers(&one).len(), 12);
        assert_eq!(one.most_text, MOST_TEXT);
    }
}
