//! What goes to stdout.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use super::stored::harmless;

/// Prints a text of somebody else's: as it is for a program, and without what would do
/// something to a terminal for a person.
pub(super) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.is_terminal() {
        true => writeln!(out, "{}", harmless(text.trim_end()))?,
        false => writeln!(out, "{text}")?,
    }
    Ok(())
}

/// Prints JSON over several lines.
pub(super) fn pretty(value: &Value) -> io::Result<()> {
    let json = serde_json::to_string_pretty(value)?;
    line(&json)
}

/// Prints JSON that is there already.
pub(super) fn line(json: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", escaped(json))?;
    Ok(())
}

/// JSON without the control characters that it may hold, and that a terminal heeds.
/// They only stand in texts.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\u{7f}'..='\u{9f}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_means_the_same_and_does_nothing_to_a_terminal() {
        let value = json!({"a": "x\u{1b}[31m\u{9b}31m\u{7f}\n\u{e4}"});
        let text = escaped(&value.to_string());
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
