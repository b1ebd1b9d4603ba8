//! Serde's errors in plain words, without the value: it can be a password, a token or a secret
//! address.

/// The beginnings of serde's messages that go on with a value, and then with
/// what was expected instead.
///
/// Source: `Error::invalid_type`, `invalid_value` and `unknown_variant` of serde 1.0.229.
const QUOTING: [&str; 3] = ["invalid type: ", "invalid value: ", "unknown variant "];

/// A message of serde without the value and without the terms of Rust and of serde.
#[must_use]
pub fn in_plain_words(message: &str) -> String {
    if !QUOTING.iter().any(|start| message.starts_with(start)) {
        return message.to_owned();
    }
    // The last one: the value can have the same words.
    match message.rsplit_once(", expected ") {
        Some((found, expected)) => {
            let is_text = found.starts_with("invalid type: string ");
            format!("it must be {}", expected_words(expected, is_text))
        }
        None => "it must be another value".to_owned(),
    }
}

/// What was expected, in plain words; `is_text` if a text was found.
fn expected_words(expected: &str, is_text: bool) -> String {
    let words = match expected {
        "a sequence" => return "a list in brackets, as in [\"…\"]".to_owned(),
        "a map" => return "a table".to_owned(),
        "a string" | "path string" => return "a text in quotes".to_owned(),
        "a boolean" => "true or false",
        "f64" => "a number",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number that is not negative",
        table if table.starts_with("struct ") => return "a table".to_owned(),
        other => return other.to_owned(),
    };
    match is_text {
        true => format!("{words}, without quotes"),
        false => words.to_owned(),
    }
}
