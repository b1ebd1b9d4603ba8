//! Polling the log within the reader's limits.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shape::ResponseMode;
use super::{Event, EventLog, Page};

/// A request to poll a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poll {
    /// The number of the first event; if absent, the first unread one.
    pub cursor: Option<u64>,
    /// The most events to return.
    pub max_events: usize,
    /// How much of each event to return.
    pub mode: ResponseMode,
    /// The parts to return.
    pub options: PollOptions,
}

/// The parts of a session to return, and the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollOptions {
    /// The events.
    pub include_events: bool,
    /// The open questions.
    pub include_actions: bool,
    /// The result of the turn.
    pub include_result: bool,
    /// The largest response, in bytes of JSON. Values below [`FLOOR`] count as that.
    pub max_bytes: Option<u64>,
}

impl Default for PollOptions {
    fn default() -> Self {
        Self {
            include_events: true,
            include_actions: true,
            include_result: true,
            max_bytes: None,
        }
    }
}

/// The smallest size limit, in bytes: an event without its texts fits.
pub const FLOOR: usize = 640;

/// The most that the caller adds around a [`PollContent`], in bytes.
const ENVELOPE: usize = 160;

/// The mark of a cut text.
const CUT: &str = "…";

/// The longest text that counts as a name and is not cut, in bytes.
const SHORT: usize = 40;

/// The members that are removed from a result, in this order, before its output is cut.
const BESIDES: [&str; 7] = [
    "turn",
    "diff",
    "plan",
    "changedFiles",
    "structuredOutput",
    "usage",
    "turnError",
];

/// The content of a poll response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollContent {
    /// The number of the first event here, if earlier ones are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor_reset_to: Option<u64>,
    /// The events, oldest first.
    pub events: Vec<Value>,
    /// The cursor of the next poll.
    pub next_cursor: u64,
    /// How many events between those here are gone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// The open questions, if there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Value>,
    /// The result of the turn, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Whether something was left out because of the size limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The parts that were left out or cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated_fields: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl EventLog {
    /// Reads the log and marks the returned events as read. The cursor must not be beyond
    /// the end.
    pub fn read(&mut self, poll: &Poll, actions: Vec<Value>, result: Option<Value>) -> PollContent {
        let PollOptions {
            include_events,
            include_actions,
            include_result,
            max_bytes,
        } = poll.options;
        let cursor = poll.cursor.unwrap_or(self.read_to());
        let most = match include_events {
            true => poll.max_events,
            false => 0,
        };
        let room = max_bytes.map(|limit| {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            limit.max(FLOOR) - ENVELOPE
        });
        let page = self.page(cursor, most);
        let mut shown = PollContent {
            cursor_reset_to: page.reset_to.filter(|_| most > 0),
            events: beginning(&page.events, poll.mode, room),
            actions: if include_actions { actions } else { Vec::new() },
            result: result.filter(|_| include_result),
            ..PollContent::default()
        };
        if let Some(room) = room {
            let wanted = page.events.len();
            Fitting::new(&mut shown, room).fit(wanted);
        }
        let page = Page {
            events: page.events.into_iter().take(shown.events.len()).collect(),
            ..page
        };
        shown.dropped = page.dropped();
        shown.next_cursor = match page.events.last() {
            Some(last) => last.id + 1,
            // All events before the reset cursor are gone.
            None => shown.cursor_reset_to.unwrap_or(cursor),
        };
        if !shown.events.is_empty() || shown.cursor_reset_to.is_some() {
            self.mark_read(shown.next_cursor);
        }
        shown
    }
}

/// The events in the reader's form, up to the size limit, but at least the first one.
/// Events that certainly do not fit are not converted.
fn beginning(events: &[&Event], mode: ResponseMode, room: Option<usize>) -> Vec<Value> {
    let mut beginning = Vec::new();
    let mut left = room.unwrap_or(usize::MAX);
    for event in events {
        let event = event.shown(mode);
        if room.is_some() {
            let length = length(&event);
            if length > left && !beginning.is_empty() {
                break;
            }
            left = left.saturating_sub(length);
        }
        beginning.push(event);
    }
    beginning
}

/// Makes a response fit its size limit. Removes, in this order: duplicate details of questions;
/// events, down to one, unless the result would have to be removed anyway; the result, and all
/// details of questions. Finally cuts the one remaining event, or the result.
struct Fitting<'a> {
    shown: &'a mut PollContent,
    room: usize,
}

impl<'a> Fitting<'a> {
    fn new(shown: &'a mut PollContent, room: usize) -> Self {
        Self { shown, room }
    }

    /// `wanted` is the number of events without a size limit.
    fn fit(mut self, wanted: usize) {
        if self.shown.events.len() < wanted {
            self.left_out("events");
        }
        if self.excess() == 0 {
            return;
        }
        self.thin_out_actions(|key| key != "params");
        self.drop_result_beside_events();
        self.drop_events();
        self.thin_out_actions(|key| matches!(key, "type" | "requestId" | "kind"));
        self.cut_result();
        self.cut_event();
        self.drop_actions();
    }

    /// The number of bytes over the limit.
    fn excess(&self) -> usize {
        length(&*self.shown).saturating_sub(self.room)
    }

    fn left_out(&mut self, field: &str) {
        self.shown.truncated = true;
        if !self.shown.truncated_fields.iter().any(|one| one == field) {
            self.shown.truncated_fields.push(field.to_owned());
        }
    }

    /// Removes a result that does not fit even with a single event. A later poll returns it once
    /// the events are read.
    fn drop_result_beside_events(&mut self) {
        let Some((_, others)) = self.shown.events.split_first() else {
            return;
        };
        let spared: usize = others.iter().map(|event| length(event) + 1).sum();
        if self.excess() > spared && self.shown.result.take().is_some() {
            self.left_out("result");
        }
    }

    fn drop_events(&mut self) {
        if self.shown.events.len() < 2 || self.excess() == 0 {
            return;
        }
        self.left_out("events");
        let mut excess = self.excess();
        while excess > 0 && self.shown.events.len() > 1 {
            let Some(event) = self.shown.events.pop() else {
                return;
            };
            // The comma after the event is removed too.
            excess = excess.saturating_sub(length(&event) + 1);
        }
    }

    fn thin_out_actions(&mut self, stays: impl Fn(&str) -> bool) {
        if self.shown.actions.is_empty() || self.excess() == 0 {
            return;
        }
        self.left_out("actions");
        for action in &mut self.shown.actions {
            if let Value::Object(action) = action {
                action.retain(|key, _| stays(key));
            }
        }
    }

    fn cut_result(&mut self) {
        for part in BESIDES {
            if self.excess() == 0 {
                return;
            }
            let result = self.shown.result.as_mut().and_then(Value::as_object_mut);
            if result.and_then(|result| result.remove(part)).is_some() {
                self.left_out(&format!("result.{part}"));
            }
        }
        if self.excess() > 0 && self.shown.result.is_some() {
            self.left_out("result.output");
            let excess = self.excess();
            if let Some(result) = &mut self.shown.result {
                cut_texts(result, excess);
            }
        }
    }

    fn cut_event(&mut self) {
        if self.excess() == 0 || self.shown.events.is_empty() {
            return;
        }
        self.left_out("events");
        let excess = self.excess();
        let Some(data) = self.shown.events.first_mut().and_then(data_of) else {
            return;
        };
        if cut_texts(data, excess) > 0
            && let Some(data) = data.as_object_mut()
        {
            data.retain(|key, _| key == "method");
        }
    }

    fn drop_actions(&mut self) {
        while self.excess() > 0 && self.shown.actions.len() > 1 {
            self.shown.actions.pop();
        }
    }
}

fn data_of(event: &mut Value) -> Option<&mut Value> {
    event.get_mut("data")
}

/// Cuts the longest texts until `excess` bytes are saved. Returns the number of bytes that are
/// still over the limit. A text in JSON is at least as long as the text itself.
fn cut_texts(value: &mut Value, mut excess: usize) -> usize {
    while excess > 0 {
        let Some(text) = longest(value).filter(|text| text.len() > SHORT) else {
            break;
        };
        let before = text.len();
        let keep = before.saturating_sub(excess + CUT.len());
        text.truncate(text.floor_char_boundary(keep));
        text.push_str(CUT);
        excess = excess.saturating_sub(before - text.len());
    }
    excess
}

fn longest(value: &mut Value) -> Option<&mut String> {
    match value {
        Value::String(text) => Some(text),
        Value::Array(values) => values
            .iter_mut()
            .filter_map(longest)
            .max_by_key(|text| text.len()),
        Value::Object(object) => object
            .values_mut()
            .filter_map(longest)
            .max_by_key(|text| text.len()),
        _ => None,
    }
}

fn length(value: &impl Serialize) -> usize {
    // JSON values can always be written.
    serde_json::to_string(value).map_or(0, |text| text.len())
}
