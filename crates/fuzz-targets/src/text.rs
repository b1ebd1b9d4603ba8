//! Texts of others: made visible, bounded, masked, and as parts of command lines.
//!
//! Input: a text.

use common::text::{
    BoundedText, escape_json, is_hidden, one_line, shell_word, visible, visible_line, wrapped,
};
use common::{duration, secrets, toml_value};
use serde_json::Value;

/// Tests one input.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    show(&text);
    bound(&text);
    quote(&text);
    let masked = secrets::mask(&text);
    assert_eq!(secrets::mask(&masked), masked, "masked twice");
    if let Ok(read) = duration::parse(&text) {
        let written = humantime::format_duration(read).to_string();
        assert_eq!(duration::parse(&written), Ok(read));
    }
    if let Ok(value) = serde_json::from_str::<Value>(&text) {
        json(&text, &value);
    }
}

fn show(text: &str) {
    let shown = visible(text);
    assert!(!shown.contains(|c| is_hidden(c) && !matches!(c, '\n' | '\t')));
    assert_eq!(visible(&shown), shown);
    let line = visible_line(text);
    assert!(!line.contains(is_hidden));
    assert_eq!(visible_line(&line), line);
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(&wrapped(text, 20).join("\n")), words(text));
}

fn bound(text: &str) {
    for limit in [0, 4, 5, 20, 100] {
        let line = one_line(text, limit);
        assert!(
            line.len() <= limit.max(4),
            "{} bytes over {limit}",
            line.len()
        );
        assert!(!line.contains(is_hidden));
        let mut bounded = BoundedText::default();
        bounded.push(text, limit);
        let cut = bounded.as_str();
        assert!(
            cut == text || cut.len() <= limit + 20,
            "{} bytes",
            cut.len()
        );
    }
}

/// A shell reads the word as what it was.
fn quote(text: &str) {
    let word = shell_word(text);
    let plain = text.replace('\0', "");
    assert_eq!(shlex::split(&word), Some(vec![plain]));
}

fn json(text: &str, value: &Value) {
    let escaped = escape_json(text);
    assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), *value);
    assert!(!escaped.contains(|c: char| c >= '\u{7f}' && is_hidden(c)));
    // TOML has no null, and no numbers beyond 64 bits.
    if let Some(written) = toml_value::value(value)
        && is_of_toml(value)
    {
        let read = toml::from_str::<Value>(&format!("x = {written}"));
        assert_eq!(read.unwrap()["x"], *value, "{written}");
    }
}

fn is_of_toml(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.is_i64() || number.is_f64(),
        Value::Array(items) => items.iter().all(is_of_toml),
        Value::Object(members) => members.values().all(is_of_toml),
    }
}
