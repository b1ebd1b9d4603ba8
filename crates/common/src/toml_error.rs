//! Parses TOML, with errors that quote no values: those of a file of settings can be passwords,
//! tokens and secret addresses.

use std::error::Error;
use std::fmt;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::serde_error;
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
    /// The keys from the top of the document to the value, joined by dots; `None` if the text is
    /// not TOML at all.
    pub keys: Option<String>,
    /// The key, if one is known, and the error without the value.
    pub message: String,
}

impl TomlError {
    /// The place without the reason, which names keys: for files of strangers.
    #[must_use]
    pub fn place(&self) -> String {
        format!("line {}, column {}", self.line, self.column)
    }
}

impl fmt::Display for TomlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.message)
    }
}

impl Error for TomlError {}

/// Parses a TOML document.
///
/// # Errors
///
/// [`TomlError`].
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    parse_without(text, &[], &[])
}

/// Parses a TOML document as if the keys `left_out` were not in one of its tables. `table` has the
/// keys from the top of the document to that table.
///
/// # Errors
///
/// [`TomlError`].
pub fn parse_without<T: DeserializeOwned>(
    text: &str,
    table: &[&str],
    left_out: &[&str],
) -> Result<T, TomlError> {
    let in_document = |error: toml::de::Error| located(text, &error);
    let mut document = DeTable::parse(text).map_err(in_document)?;
    let mut found = Some(document.get_mut());
    for key in table {
        found = found.and_then(|table| match table.get_mut(*key)?.get_mut() {
            DeValue::Table(table) => Some(table),
            _ => None,
        });
    }
    if let Some(table) = found {
        for key in left_out {
            table.remove(*key);
        }
    }
    T::deserialize(Deserializer::from(document)).map_err(in_document)
}

fn located(text: &str, error: &toml::de::Error) -> TomlError {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let in_line = before.get(line_start..).unwrap_or_default();
    let message = in_plain_words(error.message());
    let message = match (element(text, start), message.strip_prefix("it ")) {
        (Some(number), Some(rest)) => format!("element {number} {rest}"),
        _ => message,
    };
    let keys = keys(error);
    let key = key(in_line).map(str::to_owned);
    let key = key.or_else(|| Some(one_line(keys.as_deref()?, LONGEST_KEYS)));
    TomlError {
        line: before.matches('\n').count() + 1,
        column: in_line.chars().count() + 1,
        message: match key {
            Some(key) => format!("`{key}`: {message}"),
            None => message,
        },
        keys,
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

/// The number, from 1, of the element of a list that begins at `start`. A table is no such element:
/// a list of tables begins where its first table does.
fn element(text: &str, start: usize) -> Option<usize> {
    fn within(value: &DeValue<'_>, start: usize) -> Option<usize> {
        match value {
            DeValue::Array(list) => {
                let is_meant = |one: &Spanned<DeValue<'_>>| {
                    !one.get_ref().is_table() && one.span().start == start
                };
                let found = list.iter().position(is_meant).map(|before| before + 1);
                found.or_else(|| list.iter().find_map(|one| within(one.get_ref(), start)))
            }
            DeValue::Table(table) => table
                .values()
                .find_map(|value| within(value.get_ref(), start)),
            _ => None,
        }
    }
    let document = DeTable::parse(text).ok()?;
    let mut values = document.get_ref().values();
    values.find_map(|value| within(value.get_ref(), start))
}

/// The keys from the top of the document to the value.
fn keys(error: &toml::de::Error) -> Option<String> {
    let mut error = error.clone();
    // An error that knows its text shows the line instead.
    error.set_input(None);
    let shown = error.to_string();
    let keys = shown.strip_prefix(error.message())?.trim();
    let keys = keys.strip_prefix("in `")?.strip_suffix('`')?;
    Some(keys.to_owned())
}

/// Words of the parser whose whole message says nothing to a person, and what is said instead. The
/// parser's own messages quote nothing.
///
/// Source: toml 1.2.1 and toml_parser 1.1.5.
const PARSER_MESSAGES: [(&str, &str); 4] = [
    (
        "invalid boolean, expected `true`",
        "it must be true or false, in small letters",
    ),
    (
        "invalid boolean, expected `false`",
        "it must be true or false, in small letters",
    ),
    (
        "string values must be quoted, expected literal string",
        "a text needs quotes, and so does a time with a unit, as in \"90s\"",
    ),
    ("wanted string or table", "it must be a text in quotes"),
];

/// A message without the value and without the terms of the parser and of serde.
fn in_plain_words(message: &str) -> String {
    let known = PARSER_MESSAGES.iter().find(|(words, _)| *words == message);
    match known {
        Some((_, plain)) => (*plain).to_owned(),
        None => serde_error::in_plain_words(message),
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
            "line 1, column 17: `tokens`: element 2 must be `on` or `off`"
        );
        let in_lines = "tokens = [\n  \"on\",\n  \"sesame\",\n]\n";
        assert_eq!(
            message::<BTreeMap<String, Vec<Switch>>>(in_lines),
            "line 3, column 3: `tokens`: element 2 must be `on` or `off`"
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
        for word in ["True", "False", "TRUE"] {
            assert_eq!(
                message::<toml::Table>(&format!("token = {word} # sesame\n")),
                "line 1, column 9: `token`: it must be true or false, in small letters"
            );
        }
        assert_eq!(
            message::<toml::Table>("token = 5m # sesame\n"),
            "line 1, column 9: `token`: a text needs quotes, and so does a time with a unit, as in \
             \"90s\""
        );
    }

    #[test]
    fn key_that_is_left_out_is_not_parsed() {
        type Tables = BTreeMap<String, BTreeMap<String, BTreeMap<String, bool>>>;
        let text = "[a.b]\nwrong = \"x\"\nother = 1\nright = true\n[c.b]\nwrong = true\n";
        let parse = |left_out: &[&str]| parse_without::<Tables>(text, &["a", "b"], left_out);
        assert_eq!(
            parse(&["wrong"]).unwrap_err().to_string(),
            "line 3, column 9: `other`: it must be true or false"
        );
        let keys = |left_out: &[&str]| parse(left_out).unwrap_err().keys;
        assert_eq!(keys(&["wrong"]).as_deref(), Some("a.b.other"));
        assert_eq!(keys(&["other"]).as_deref(), Some("a.b.wrong"));
        let tables = parse(&["wrong", "other"]).unwrap();
        let kept = |of: &str, key: &str| {
            let inner = BTreeMap::from([(key.to_owned(), true)]);
            (of.to_owned(), BTreeMap::from([("b".to_owned(), inner)]))
        };
        let expected = Tables::from([kept("a", "right"), kept("c", "wrong")]);
        assert_eq!(tables, expected);
        let error = super::parse::<toml::Table>("a = = 3\n").unwrap_err();
        assert_eq!(error.keys, None);
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
