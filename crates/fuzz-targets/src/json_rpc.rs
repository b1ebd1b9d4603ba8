//! JSON-RPC envelopes, against values that are parsed whole.
//!
//! Input: one message.

use codex_protocol::rpc::{self, Message, RequestId, TruncatedMessage};
use codex_protocol::{duplicates, json_values};
use serde_json::{Map, Value};

/// Tests one input.
pub fn run(data: &[u8]) {
    let message = Message::read(data);
    // Each prefix is what may be left of a message that is too long.
    for end in [data.len() / 4, data.len() / 2, data.len()] {
        let _ = TruncatedMessage::guess(&data[..end]);
    }
    let _ = json_values::exceed(data, 3);
    let value = serde_json::from_slice::<Value>(data);
    if let (Ok(text), Ok(value)) = (std::str::from_utf8(data), &value) {
        counts_and_duplicates(text, value);
    }
    match (&message, &value) {
        (Ok(message), Ok(value)) => same_envelope(message, value),
        // Numbers that no value can hold are passed on raw.
        (Ok(message), Err(_)) => drop(format!("{message:?}")),
        (Err(_), _) => {}
    }
    if let Ok(message) = &message {
        write_and_read(message);
    }
}

/// The signs between the values of a text, which are counted instead of the values.
#[derive(Default)]
struct Signs {
    colons: usize,
    others: usize,
}

impl Signs {
    fn of(value: &Value) -> Self {
        let mut signs = Self::default();
        signs.add(value);
        signs
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                self.others += items.len().max(1);
                items.iter().for_each(|item| self.add(item));
            }
            Value::Object(members) => {
                self.colons += members.len();
                self.others += members.len().max(1);
                members.values().for_each(|member| self.add(member));
            }
            _ => {}
        }
    }
}

fn colons_outside_strings(text: &str) -> usize {
    let (mut colons, mut in_string, mut escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b':' if !in_string => colons += 1,
            _ => {}
        }
    }
    colons
}

/// A parsed object has each member once, so a text with a member twice has more colons.
fn counts_and_duplicates(text: &str, value: &Value) {
    let signs = Signs::of(value);
    let is_unique = colons_outside_strings(text) == signs.colons;
    assert_eq!(duplicates::check(text).is_ok(), is_unique, "duplicates");
    if is_unique {
        let count = signs.colons + signs.others;
        assert!(!json_values::exceed(text.as_bytes(), count), "{count}");
        if let Some(fewer) = count.checked_sub(1) {
            assert!(json_values::exceed(text.as_bytes(), fewer), "{count}");
        }
    }
}

fn member<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

fn same_id(id: &RequestId, value: Option<&Value>) {
    let same = match id {
        RequestId::Number(number) => value.and_then(Value::as_i64) == Some(*number),
        RequestId::Text(text) => value.and_then(Value::as_str) == Some(text),
    };
    assert!(same, "{id:?} is not {value:?}");
}

/// The message that was read from the envelope is the one that a parser of the whole value sees.
fn same_envelope(message: &Message<'_>, value: &Value) {
    let Value::Object(object) = value else {
        panic!("a message that is no object: {message:?}");
    };
    let method = member(object, "method").map(|method| method.as_str().unwrap());
    let params = member(object, "params");
    let same_params = |raw: &Option<&serde_json::value::RawValue>| {
        let raw = raw.map(|raw| serde_json::from_str::<Value>(raw.get()).unwrap());
        assert_eq!(raw.as_ref(), params);
    };
    match message {
        Message::Request {
            id,
            method: read,
            params,
        } => {
            assert_eq!(Some(&**read), method);
            same_id(id, member(object, "id"));
            same_params(params);
        }
        Message::Notification {
            method: read,
            params,
        } => {
            assert_eq!(Some(&**read), method);
            assert!(!object.contains_key("id"));
            same_params(params);
        }
        Message::Response { id, outcome } => {
            assert_eq!(method, None);
            same_id(id, member(object, "id"));
            assert_eq!(outcome.is_err(), member(object, "error").is_some());
        }
    }
}

/// A message that we write again reads the same, and its beginning identifies it.
fn write_and_read(message: &Message<'_>) {
    match message {
        Message::Request { id, method, params } => {
            let line = rpc::request_line(id, method, params).unwrap();
            let line = line.strip_suffix(b"\n").unwrap();
            match Message::read(line).unwrap() {
                Message::Request {
                    id: again,
                    method: named,
                    params: given,
                } => {
                    assert_eq!((&again, &named), (id, method));
                    let text = |raw: Option<&serde_json::value::RawValue>| {
                        raw.map(|raw| raw.get().to_owned())
                    };
                    assert_eq!(text(given), text(*params));
                }
                other => panic!("not a request: {other:?}"),
            }
            let is_plain = |c: char| c != '"' && c != '\\' && !c.is_control();
            if method.chars().all(is_plain) {
                let guessed = TruncatedMessage::guess(line);
                let expected = TruncatedMessage::Request {
                    id: id.clone(),
                    method,
                };
                assert_eq!(guessed, Some(expected));
            }
        }
        Message::Response {
            id,
            outcome: Ok(result),
        } => {
            let line = rpc::response_line(id, Ok(result)).unwrap();
            let line = line.strip_suffix(b"\n").unwrap();
            let guessed = TruncatedMessage::guess(line);
            assert_eq!(guessed, Some(TruncatedMessage::Response(id.clone())));
            assert!(matches!(
                Message::read(line).unwrap(),
                Message::Response { id: again, outcome: Ok(same) }
                    if again == *id && same.get() == result.get()
            ));
        }
        Message::Response { .. } | Message::Notification { .. } => {}
    }
}
