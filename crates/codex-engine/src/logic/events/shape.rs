//! The parts of an event that a reader sees.

use common::timestamp::timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::VariantNames;

use super::event::{Event, EventData, TextChunk};

/// How much of each event a reader requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ResponseMode {
    /// The essential fields, and the beginning of texts: for readers that pay for every
    /// word.
    #[default]
    Minimal,
    /// A few more fields, and more of the texts.
    DeltaCompact,
    /// All data of Codex.
    Full,
}

/// The fields of an event's data in [`ResponseMode::Minimal`].
const MINIMAL: [&str; 20] = [
    "method",
    "delta",
    "deltaTruncated",
    "message",
    "error",
    "status",
    "phase",
    "itemId",
    "itemType",
    "turnId",
    "requestId",
    "kind",
    "decision",
    "timeout",
    "willRetry",
    "retryCount",
    "maxRetries",
    "stalledForMs",
    "title",
    "truncated",
];

/// The further fields in [`ResponseMode::DeltaCompact`].
const COMPACT: [&str; 5] = ["reason", "command", "cwd", "sourceMethod", "denyMessage"];

impl ResponseMode {
    /// The longest text that is shown, in characters.
    fn text_limit(self) -> Option<usize> {
        match self {
            Self::Minimal => Some(256),
            Self::DeltaCompact => Some(2048),
            Self::Full => None,
        }
    }

    fn shows(self, key: &str) -> bool {
        match self {
            Self::Minimal => MINIMAL.contains(&key),
            Self::DeltaCompact => MINIMAL.contains(&key) || COMPACT.contains(&key),
            Self::Full => true,
        }
    }
}

impl Event {
    /// The event as a reader sees it: `{id, type, data, timestamp}`.
    #[must_use]
    pub fn shown(&self, mode: ResponseMode) -> Value {
        let mut event = Map::new();
        event.insert("id".to_owned(), self.id.into());
        let kind = serde_json::to_value(self.data.kind()).unwrap_or_default();
        event.insert("type".to_owned(), kind);
        event.insert("data".to_owned(), Value::Object(data(&self.data, mode)));
        let time = timestamp(self.at);
        event.insert("timestamp".to_owned(), time.into());
        Value::Object(event)
    }
}

fn data(data: &EventData, mode: ResponseMode) -> Map<String, Value> {
    let Some(limit) = mode.text_limit() else {
        return data.whole();
    };
    match data {
        EventData::TextChunk(growing) => growing_data(growing, limit),
        EventData::FixedData(_) => {
            let shown = data.fixed().into_iter().flatten();
            let shown = shown.filter(|(key, _)| mode.shows(key));
            shown
                .map(|(key, value)| (key, shortened(&value, limit)))
                .collect()
        }
    }
}

fn growing_data(growing: &TextChunk, limit: usize) -> Map<String, Value> {
    let text = beginning(&growing.text, limit);
    let mut data = Map::new();
    data.insert("method".to_owned(), growing.source.method().into());
    data.insert("turnId".to_owned(), growing.turn_id.as_str().into());
    data.insert("itemId".to_owned(), growing.item_id.as_str().into());
    data.insert("delta".to_owned(), text.into());
    if text.len() < growing.text.len() {
        data.insert("deltaTruncated".to_owned(), true.into());
    }
    data
}

/// Cuts a text; other values are unchanged, as errors and the like are small.
fn shortened(value: &Value, limit: usize) -> Value {
    match value {
        Value::String(text) => {
            let shown = beginning(text, limit);
            match shown.len() < text.len() {
                true => format!("{shown}…").into(),
                false => shown.into(),
            }
        }
        value => value.clone(),
    }
}

/// The first `limit` characters.
fn beginning(text: &str, limit: usize) -> &str {
    // A text has no more characters than bytes.
    if text.len() <= limit {
        return text;
    }
    let end = text.char_indices().nth(limit);
    end.map_or(text, |(end, _)| text.split_at(end).0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use codex_protocol::codex::DeltaSource;
    use serde_json::json;

    use super::super::event::EventType;
    use super::*;

    fn event(data: EventData) -> Event {
        Event {
            id: 7,
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
            data,
        }
    }

    #[test]
    fn text_is_cut_by_mode() {
        let text = "ß".repeat(3000);
        let event = event(EventData::text(DeltaSource::AgentMessage, "t", "i", &text));
        for (mode, length) in [
            (ResponseMode::Minimal, 256),
            (ResponseMode::DeltaCompact, 2048),
            (ResponseMode::Full, 3000),
        ] {
            let shown = event.shown(mode);
            let delta = shown["data"]["delta"].as_str().unwrap();
            assert_eq!(delta.chars().count(), length, "{mode:?}");
            let cut = shown["data"]["deltaTruncated"] == true;
            assert_eq!(cut, length < 3000, "{mode:?}");
        }
    }

    #[test]
    fn event_fields_are_selected_by_mode() {
        let Value::Object(data) = json!({
            "method": "m", "kind": "command", "command": "ls", "cwd": "/", "commandActions": [1],
        }) else {
            panic!("an object");
        };
        let event = event(EventData::new(EventType::ApprovalRequest, data.clone()));
        let shown = |mode| event.shown(mode)["data"].clone();
        assert_eq!(
            event.shown(ResponseMode::Minimal),
            json!({"id": 7, "type": "approval_request", "timestamp": "1970-01-01T00:00:01.500Z",
                "data": {"method": "m", "kind": "command"}})
        );
        assert_eq!(
            shown(ResponseMode::DeltaCompact),
            json!({"method": "m", "kind": "command", "command": "ls", "cwd": "/"})
        );
        assert_eq!(shown(ResponseMode::Full), Value::Object(data));
    }
}
