//! Parses TOML, with errors that quote no values: those of a file of settings can be passwords,
//! tokens and secret addresses.

use std::error::Error;
use std::fmt;

use serde::de::DeserializeOwned;

/// Why and where a text is not the expected TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TomlError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1 in characters.
    pub column: usize,
    /// The key, if it stands alone before the error, and the error without the value.
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
    let message = without_value(error.message());
    TomlError {
        line: before.matches('\n').count() + 1,
        column: in_line.chars().count() + 1,
        message: match key(in_line) {
            Some(key) => format!("`{key}`: {message}"),
            None => message,
        },
    }
}

/// The key of the value that begins behind this part of a line.
fn key(before: &str) -> Option<&str> {
    let key = before.trim_end().strip_suffix('=')?.trim();
    let is_of_key = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (!key.is_empty() && key.chars().all(is_of_key)).then_some(key)
}

/// The beginnings of serde's messages that go on with a value of the document, and then with
/// what was expected instead.
///
/// Source: `Error::invalid_type`, `invalid_value` and `unknown_variant` of serde 1.0.229. The
/// parser's own messages quote nothing (toml 1.2.1).
const QUOTING: [&str; 3] = ["invalid type: ", "invalid value: ", "unknown variant "];

fn without_value(message: &str) -> String {
    let is_start = |start: &&str| message.starts_with(*start);
    let Some(start) = QUOTING.into_iter().find(is_start) else {
        return message.to_owned();
    };
    // `invalid type: integer `7``: the kind is one word, or two without a value.
    let rest = message.get(start.len()..).unwrap_or_default();
    let kind = rest.find([' ', ',']).and_then(|end| rest.get(..end));
    let kind = kind.filter(|kind| !kind.contains('`')).unwrap_or_default();
    // The last one: the value can have the same words.
    let expected = message.rfind(", expected ");
    let expected = expected.and_then(|at| message.get(at..));
    // A variant is a term of Rust.
    let start = format!("{}{kind}", start.replace("variant", "value"));
    format!("{}{}", start.trim_end(), expected.unwrap_or_default())
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
            "line 2, column 9: `token`: invalid type: string, expected a boolean"
        );
        assert_eq!(
            message::<BTreeMap<String, bool>>("token = \"sesame, expected sesame\"\n"),
            "line 1, column 9: `token`: invalid type: string, expected a boolean"
        );
        assert_eq!(
            message::<BTreeMap<String, Switch>>("token = \"sesame\"\n"),
            "line 1, column 9: `token`: unknown value, expected `on` or `off`"
        );
        let of_number = parse::<BTreeMap<String, bool>>("token = 123456\n").unwrap_err();
        assert_eq!(
            of_number.to_string(),
            "line 1, column 9: `token`: invalid type: integer, expected a boolean"
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
