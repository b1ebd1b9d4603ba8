//! A session as the page shows it: the events of its log, put together to steps.
//!
//! ```text
//!   item/started   ─┐
//!   …/outputDelta   ├─► one step, put again when it changes, lengthened when it grows
//!   item/completed ─┘
//! ```
//!
//! A model may give several items the same ID. Each is a step of its own, so that none is hidden.

use std::collections::VecDeque;
use std::time::SystemTime;

use host_process::logic::handshake::{SessionEvent, SessionNews};
use serde_json::Value;

use super::item::{LONGEST_TEXT, beginning, bounded, closing, kind_of, plan, question_title, text};
use super::step::{PlanStep, Step, StepItem, StepKind};

/// How many places there are for each event: the last one for a step that the event begins, and those
/// before it for prompts that came before the event.
const STRIDE: u64 = 1024;

/// The most steps that are kept. For one more, the oldest is dropped.
const MOST_STEPS: usize = 2000;

/// The most text that is kept of all steps, in bytes (8 MiB).
const MOST_TEXT: usize = 8 << 20;

/// How many of the latest texts may grow. A host tells more of the texts of its last 8 events.
const GROWING: usize = 32;

/// A change, for readers who have seen the earlier state.
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

    /// All changes of files by the patches of the last turn, as a unified diff.
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
            // Prompts of turns that are missing stand before it, as does one just before this event.
            let after_last = self.steps.back().map_or(0, |step| step.number + 1);
            let at = place(number - 1).max(after_last);
            changes.push(self.push(at, event.at, None, kind));
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
                let of = StepItem {
                    turn: text(data, "turnId").to_owned(),
                    id: text(data, "itemId").to_owned(),
                    has_ended: false,
                };
                self.delta((event_number, number), event.at, (method, of), delta)
            }
        }
    }

    fn item(&mut self, number: u64, event: &SessionEvent, data: &Value) -> Option<Change> {
        let item = &data["item"];
        let mut kind = kind_of(item, text(data, "title"))?;
        let of = StepItem {
            turn: text(data, "turnId").to_owned(),
            id: text(item, "id").to_owned(),
            has_ended: data["method"] == "item/completed",
        };
        let open = self.of_item(&of, |known, step| {
            !known.has_ended && step.can_become(&kind)
        });
        // The host that follows a killed one tells the ends of items again.
        let position = match of.has_ended {
            true => open.or_else(|| self.of_item(&of, |_, step| step.can_become(&kind))),
            false => open,
        };
        let Some(step) = position.and_then(|position| self.steps.get_mut(position)) else {
            return Some(self.push(number, event.at, Some(of), kind));
        };
        if let Some(text) = kind.text_mut()
            && text.is_empty()
        {
            text.push_str(step.kind.text());
        }
        self.size = self.size - step.kind.size() + kind.size();
        step.kind = kind;
        if let Some(known) = &mut step.item {
            known.has_ended = of.has_ended;
        }
        Some(Change::Put(step.number))
    }

    /// A piece of text of an item.
    fn delta(
        &mut self,
        (event, number): (u64, u64),
        at: SystemTime,
        (method, of): (&str, StepItem),
        piece: &str,
    ) -> Option<Change> {
        if let Some(position) = self.of_item(&of, |_, _| true) {
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
        let change = self.push(number, at, Some(of), kind);
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
        let kind = StepKind::Question {
            id: text(data, "requestId").to_owned(),
            title: question_title(data),
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

    fn push(
        &mut self,
        number: u64,
        at: SystemTime,
        item: Option<StepItem>,
        kind: StepKind,
    ) -> Change {
        self.size += kind.size();
        self.steps.push_back(Step {
            number,
            at,
            item,
            kind,
        });
        Change::Put(number)
    }

    /// The last step with the ID and turn of an item for which `is_it` holds.
    fn of_item(
        &self,
        of: &StepItem,
        is_it: impl Fn(&StepItem, &StepKind) -> bool,
    ) -> Option<usize> {
        let is_it = |step: &Step| {
            let item = step.item.as_ref();
            item.is_some_and(|item| item.has_id_of(of) && is_it(item, &step.kind))
        };
        self.steps.iter().rposition(is_it)
    }
}

/// The place of the step that an event begins.
fn place(event: u64) -> u64 {
    event * STRIDE + STRIDE - 1
}

#[cfg(test)]
mod tests;
