//! Parses TOML, with errors that quote no values: those of a file of settings can be passwords,
//! tokens and secret addresses.

use std::error::Error;
use std::fmt;

use serde::de::DeserializeOwned;

use crate::text::one_line;

/// The longest path of keys that is shown, in bytes.
const LONGEST_KEYS: usize = 100;

/// Why and where a text is not the expected TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TomlError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in characters.
    pub column: usize,
    /// The key, if one is known, and the error without the value.
    pub message: String,
}

impl fmt::Display for TomlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl Error for TomlError {}

/// Parses a TOML document.
///
/// # Errors
///
/// [`TomlError`].
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    toml::from_str(text).map_err(|error| located(text, &error))
}

fn located(text: &str, error: &toml::de::Error) -> TomlError {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let in_line = before.get(line_start..).unwrap_or_default();
    let message = in_plain_words(error.message());
    let key = key(in_line).map(str::to_owned).or_else(|| {
        let keys = keys(error)?;
        Some(one_line(&keys, LONGEST_KEYS))
    });
    TomlError {
        line: before.matches('\n').count() + 1,
        column: in_line.chars().count() + 1,
        message: match key {
            Some(key) => format!("`{key}`: {message}"),
            None => message,
        },
    }
}

/// The key of the value, or of the list of values, that goes on behind this part of a line.
fn key(before: &str) -> Option<&str> {
    let (key, value) = before.split_once('=')?;
    let (key, value) = (key.trim(), value.trim_start());
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_key = !key.is_empty() && key.chars().all(is_of_key);
    // In the table of a list, the key is another one.
    let is_alone = value.is_empty() || (value.starts_with('[') && !value.contains('='));
    (is_key && is_alone).then_some(key)
}

/// The keys from the top of the document to the value, joined by dots; `None` if the text is not
/// TOML at all.
fn keys(error: &toml::de::Error) -> Option<String> {
    let mut error = error.clone();
    // An error that knows its text shows the line instead.
    error.set_input(None);
    let shown = error.to_string();
    let keys = shown.strip_prefix(error.message())?.trim();
    let keys = keys.strip_prefix("in `")?.strip_suffix('`')?;
    Some(keys.to_owned())
}

/// The beginnings of serde's messages that go on with a value of the document, and then with
/// what was expected instead.
///
/// Source: `Error::invalid_type`, `invalid_value` and `unknown_variant` of serde 1.0.229.
const QUOTING: [&str; 3] = ["invalid type: ", "invalid value: ", "unknown variant "];

/// Words of the parser whose whole message says nothing to a person, and what is said instead. The
/// parser's own messages quote nothing.
///
/// Source: toml 1.2.1 and toml_parser 1.1.5.
const PARSER_MESSAGES: [(&str, &str); 2] = [
    (
        "string values must be quoted, expected literal string",
        "a text needs quotes, and so does a time with a unit, as in \"90s\"",
    ),
    ("wanted string or table", "it must be a text in quotes"),
];

/// A message without the value and without the terms of Rust and of serde.
fn in_plain_words(message: &str) -> String {
    if let Some((_, plain)) = PARSER_MESSAGES.iter().find(|(words, _)| *words == message) {
        return (*plain).to_owned();
    }
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

/// What was expected, in plain words; `is_text` if a text stands there instead.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Switch {
        On,
        Off,
    }

    fn message<T: DeserializeOwned + Debug>(text: &str) -> String {
        // The parser's own text shows the line.
        let whole = toml::from_str::<T>(text).unwrap_err().to_string();
        assert!(whole.contains("sesame"), "{whole}");
        parse::<T>(text).unwrap_err().to_string()
    }

    #[test]
    fn error_quotes_no_value() {
        assert_eq!(
            message::<BTreeMap<String, bool>>("x = true\ntoken = \"sesame\"\n"),
            "line 2, column 9: `token`: it must be true or false, without quotes"
        );
        assert_eq!(
            message::<BTreeMap<String, bool>>("token = \"sesame, expected sesame\"\n"),
            "line 1, column 9: `token`: it must be true or false, without quotes"
        );
        assert_eq!(
            message::<BTreeMap<String, Switch>>("token = \"sesame\"\n"),
            "line 1, column 9: `token`: it must be `on` or `off`"
        );
        let of_number = parse::<BTreeMap<String, bool>>("token = 123456\n").unwrap_err();
        assert_eq!(
            of_number.to_string(),
            "line 1, column 9: `token`: it must be true or false"
        );
        for text in [
            "token = \"sesame\" x\n",
            "token = sesame\n",
            "token = 1\ntoken = \"sesame\"\n",
        ] {
            let shown = message::<toml::Table>(text);
            assert!(!shown.contains("sesame"), "{shown}");
            assert!(shown.starts_with("line "), "{shown}");
        }
        let unterminated = parse::<toml::Table>("token = \"sesame\n").unwrap_err();
        assert!(!unterminated.to_string().contains("sesame"));
    }

    #[test]
    fn error_names_the_key_and_what_to_write() {
        let switches = "tokens = [\"on\", \"sesame\"]\n";
        assert_eq!(
            message::<BTreeMap<String, Vec<Switch>>>(switches),
            "line 1, column 17: `tokens`: it must be `on` or `off`"
        );
        let in_lines = "tokens = [\n  \"on\",\n  \"sesame\",\n]\n";
        assert_eq!(
            message::<BTreeMap<String, Vec<Switch>>>(in_lines),
            "line 3, column 3: `tokens`: it must be `on` or `off`"
        );
        let nested = "prices.\"m.1\" = { input = \"sesame\" }\n";
        type Prices = BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>;
        assert_eq!(
            message::<Prices>(nested),
            "line 1, column 26: `prices.m.1.input`: it must be a number, without quotes"
        );
        assert_eq!(
            message::<BTreeMap<String, Vec<String>>>("token = \"sesame\"\n"),
            "line 1, column 9: `token`: it must be a list in brackets, as in [\"…\"]"
        );
        assert_eq!(
            message::<BTreeMap<String, BTreeMap<String, u8>>>("token = \"sesame\"\n"),
            "line 1, column 9: `token`: it must be a table"
        );
        assert_eq!(
            message::<toml::Table>("token = 5m # sesame\n"),
            "line 1, column 9: `token`: a text needs quotes, and so does a time with a unit, as in \
             \"90s\""
        );
    }

    #[test]
    fn position_is_counted_in_characters() {
        let place = |text: &str| {
            let error = parse::<toml::Table>(text).unwrap_err();
            (error.line, error.column)
        };
        assert_eq!(place("model = \"m\"\nbad = = 3\n"), (2, 7));
        assert_eq!(place("\"ü\" = = 3\n"), (1, 7));
        assert_eq!(place("a = 1\n\n\nb"), (4, 2));
    }
}
