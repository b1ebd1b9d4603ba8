//! One event: its number, its time, and its data.

use std::time::SystemTime;

use codex_protocol::codex::DeltaSource;
use common::text::bounded;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{GROWTH_LIMIT, Rank};

/// The most that an event may hold, in bytes of JSON (64 KiB). Longer texts in
/// it are cut.
pub const EVENT_LIMIT: usize = 64 * 1024;

/// The length to which a text in an oversized event is cut, in bytes.
const TEXT_LIMIT: usize = 4 * 1024;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// Text that Codex, or a command, writes.
    Output,
    /// Progress of the turn.
    Progress,
    /// Codex asks something.
    ApprovalRequest,
    /// A question has been answered, or needs no answer any more.
    ApprovalResult,
    /// A turn has ended.
    Result,
    /// An error that ends the turn, or the exit of Codex.
    Error,
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number: one more than that of the previous event.
    pub id: u64,
    /// When it happened.
    pub at: SystemTime,
    /// Its data.
    pub data: EventData,
}

/// The data of an event: text that may grow, or data of fixed size.
#[derive(Debug, Clone, PartialEq)]
pub enum EventData {
    /// Text, which may grow.
    TextChunk(TextChunk),
    /// Anything else.
    FixedData(FixedData),
}

/// A stretch of text of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextChunk {
    /// The kind of text.
    pub source: DeltaSource,
    /// The turn.
    pub turn_id: String,
    /// The item.
    pub item_id: String,
    /// The text.
    pub text: String,
    characters: usize,
}

/// Data that do not grow.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedData {
    kind: EventType,
    rank: Rank,
    /// The data as JSON: parsed values can need a hundred times as much memory.
    json: Box<str>,
}

impl FixedData {
    fn data(&self) -> Map<String, Value> {
        // Written by `EventData::new`, so always read.
        serde_json::from_str(&self.json).unwrap_or_default()
    }
}

impl EventData {
    /// Data of the given type, cut to [`EVENT_LIMIT`].
    #[must_use]
    pub fn new(kind: EventType, mut data: Map<String, Value>) -> Self {
        let mut json = written(&data);
        if json.len() > EVENT_LIMIT {
            shorten(&mut data);
            json = written(&data);
        }
        let rank = match kind {
            EventType::Output | EventType::Progress => Rank::Transient,
            EventType::ApprovalResult => Rank::Settled,
            EventType::ApprovalRequest | EventType::Result | EventType::Error => Rank::Essential,
        };
        Self::FixedData(FixedData {
            kind,
            rank,
            json: json.into_boxed_str(),
        })
    }

    /// A stretch of text.
    #[must_use]
    pub fn text(source: DeltaSource, turn_id: &str, item_id: &str, text: &str) -> Self {
        Self::TextChunk(TextChunk {
            source,
            turn_id: turn_id.to_owned(),
            item_id: item_id.to_owned(),
            text: text.to_owned(),
            characters: text.chars().count(),
        })
    }

    /// The type of the event.
    #[must_use]
    pub fn kind(&self) -> EventType {
        match self {
            Self::TextChunk(_) => EventType::Output,
            Self::FixedData(fixed) => fixed.kind,
        }
    }

    /// The rank of the event.
    #[must_use]
    pub fn rank(&self) -> Rank {
        match self {
            Self::TextChunk(_) => Rank::Transient,
            Self::FixedData(fixed) => fixed.rank,
        }
    }

    /// The approximate size, in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::TextChunk(growing) => growing.size(),
            Self::FixedData(fixed) => fixed.json.len(),
        }
    }

    /// The complete data.
    pub(super) fn whole(&self) -> Map<String, Value> {
        match self {
            Self::TextChunk(growing) => growing.whole(),
            Self::FixedData(fixed) => fixed.data(),
        }
    }

    /// The complete data, unless it is text that may grow.
    pub(super) fn fixed(&self) -> Option<Map<String, Value>> {
        match self {
            Self::TextChunk(_) => None,
            Self::FixedData(fixed) => Some(fixed.data()),
        }
    }

    pub(super) fn settle(&mut self, request: &str) {
        if let Self::FixedData(fixed) = self
            && fixed.kind == EventType::ApprovalRequest
            && fixed.rank == Rank::Essential
            && fixed
                .data()
                .get("requestId")
                .is_some_and(|id| id == request)
        {
            fixed.rank = Rank::Settled;
        }
    }
}

impl TextChunk {
    pub(super) fn is_same_text(&self, other: &Self) -> bool {
        self.source == other.source
            && self.item_id == other.item_id
            && self.turn_id == other.turn_id
    }

    /// Appends text up to [`GROWTH_LIMIT`] characters; returns the rest.
    pub(super) fn append(&mut self, mut more: Self) -> Option<Self> {
        let rest = more.split_off_at(GROWTH_LIMIT.saturating_sub(self.characters));
        self.text.push_str(&more.text);
        self.characters += more.characters;
        rest
    }

    /// The text in pieces of at most [`GROWTH_LIMIT`] characters.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Self> {
        let mut rest = self.text.as_str();
        std::iter::from_fn(move || {
            let end = rest.char_indices().nth(GROWTH_LIMIT);
            let (piece, after) = rest.split_at(end.map_or(rest.len(), |(end, _)| end));
            rest = after;
            (!piece.is_empty()).then(|| Self {
                source: self.source,
                turn_id: self.turn_id.clone(),
                item_id: self.item_id.clone(),
                text: piece.to_owned(),
                characters: piece.chars().count(),
            })
        })
    }

    fn split_off_at(&mut self, limit: usize) -> Option<Self> {
        if self.characters <= limit {
            return None;
        }
        let (end, _) = self.text.char_indices().nth(limit)?;
        let rest = Self {
            text: self.text.split_off(end),
            characters: self.characters - limit,
            turn_id: self.turn_id.clone(),
            item_id: self.item_id.clone(),
            source: self.source,
        };
        self.characters = limit;
        Some(rest)
    }

    pub(super) fn size(&self) -> usize {
        self.text.len() + self.item_id.len() + self.turn_id.len() + ENVELOPE
    }

    fn whole(&self) -> Map<String, Value> {
        let mut data = Map::new();
        data.insert("method".to_owned(), self.source.method().into());
        data.insert("turnId".to_owned(), self.turn_id.as_str().into());
        data.insert("itemId".to_owned(), self.item_id.as_str().into());
        data.insert("delta".to_owned(), self.text.as_str().into());
        data
    }
}

/// The approximate size that JSON adds to the texts of a [`TextChunk`], in bytes.
const ENVELOPE: usize = 96;

fn written(data: &impl Serialize) -> String {
    // JSON values can always be written.
    serde_json::to_string(data).unwrap_or_default()
}

/// Cuts long texts. If that is not enough, removes nested values, and finally all members that do
/// not fit.
fn shorten(data: &mut Map<String, Value>) {
    data.values_mut().for_each(cut_texts);
    if written(data).len() > EVENT_LIMIT {
        data.retain(|_, value| !value.is_object() && !value.is_array());
    }
    let mut room = EVENT_LIMIT - r#"{"truncated":true}"#.len();
    data.retain(|key, value| {
        let size = written(key).len() + written(value).len() + ":,".len();
        let fits = size <= room;
        if fits {
            room -= size;
        }
        fits
    });
    data.insert("truncated".to_owned(), true.into());
}

fn cut_texts(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > TEXT_LIMIT => {
            *text = bounded(text, TEXT_LIMIT);
        }
        Value::Array(values) => values.iter_mut().for_each(cut_texts),
        Value::Object(object) => object.values_mut().for_each(cut_texts),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn oversized_event_is_cut_and_marked_as_truncated() {
        let long = "ß".repeat(EVENT_LIMIT);
        let data = object(json!({"method": "m", "item": {"text": long, "id": "i"}}));
        let event = EventData::new(EventType::Progress, data);
        let whole = Value::Object(event.whole());
        assert!(event.size() <= EVENT_LIMIT);
        assert_eq!(whole["truncated"], true);
        assert_eq!(whole["item"]["id"], "i");
        assert!(whole["item"]["text"].as_str().unwrap().ends_with("here]"));

        let many: Vec<Value> = (0..EVENT_LIMIT).map(Value::from).collect();
        let data = object(json!({"method": "m", "items": many}));
        let event = EventData::new(EventType::Progress, data);
        assert_eq!(
            Value::Object(event.whole()),
            json!({"method": "m", "truncated": true})
        );
    }

    #[test]
    fn event_stays_within_the_limit_whatever_it_holds() {
        let long = "\u{1}".repeat(EVENT_LIMIT);
        let texts = (0..20).map(|n| (format!("a{n}"), long.as_str().into()));
        let mut texts: Map<String, Value> = texts.collect();
        texts.insert("requestId".to_owned(), "r".into());
        let event = EventData::new(EventType::ApprovalRequest, texts);
        assert!(event.size() <= EVENT_LIMIT);
        assert_eq!(Value::Object(event.whole())["requestId"], "r");

        let numbers = (0..EVENT_LIMIT).map(|n| (n.to_string(), n.into()));
        let event = EventData::new(EventType::Progress, numbers.collect());
        assert!(event.size() <= EVENT_LIMIT);
    }

    #[test]
    fn text_is_split_between_characters() {
        let piece = |text: &str| match EventData::text(DeltaSource::Plan, "t", "i", text) {
            EventData::TextChunk(growing) => growing,
            EventData::FixedData(_) => panic!("grows"),
        };
        let mut one = piece(&"ß".repeat(GROWTH_LIMIT - 1));
        let rest = one.append(piece("aßb")).unwrap();
        assert_eq!(one.text.chars().count(), GROWTH_LIMIT);
        assert_eq!((rest.text.as_str(), rest.characters), ("ßb", 2));
    }
}
