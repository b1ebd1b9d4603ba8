//! Configuration files of clients, edited in place: comments, order, white space and members that
//! we do not know stay as they are.

mod json;
mod toml;
mod yaml;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

/// The format of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum Format {
    /// JSON, also with comments and commas at the end.
    #[strum(serialize = "JSON")]
    Json,
    /// TOML.
    #[strum(serialize = "TOML")]
    Toml,
    /// YAML.
    #[strum(serialize = "YAML")]
    Yaml,
}

/// A member of an entry, in the order in which it is written.
pub type Member = (String, Value);

/// Why a configuration file is not edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file has another format.
    #[error("it is not valid {format}: {message}. Correct it, then run the command again")]
    Syntax {
        /// The format that it should have.
        format: Format,
        /// The message of the parser.
        message: String,
    },
    /// Something in it is not a table, where one is needed.
    #[error("{what} is not a table of names and values. Correct it, then run the command again")]
    NoTable {
        /// Its description.
        what: String,
    },
    /// It names something twice: clients differ in which one counts.
    #[error("it has `{0}` twice. Remove one, then run the command again")]
    Twice(String),
    /// It has line ends of both kinds, which the editor of TOML would change.
    #[error("its lines end in different ways (LF and CRLF); make them the same")]
    LineEnds,
    /// The edited text does not read as it should.
    #[error("it is written in a way that cannot be edited safely; edit it by hand")]
    Unsafe,
}

impl EditError {
    fn no_table(what: impl Into<String>) -> Self {
        Self::NoTable { what: what.into() }
    }
}

/// The servers that a configuration file has below a key, by their names.
pub type Servers = Map<String, Value>;

/// Some editors put it at the beginning of a file, where no parser expects it.
const BYTE_ORDER_MARK: &str = "\u{feff}";

impl Format {
    /// The whole document; `null` if it is empty.
    ///
    /// # Errors
    ///
    /// [`EditError`], if the file cannot be read.
    pub fn read(self, text: &str) -> Result<Value, EditError> {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        match self {
            Self::Json => json::read(text),
            Self::Toml => toml::read(text),
            Self::Yaml => yaml::read(text),
        }
    }

    /// The servers below `key`.
    ///
    /// # Errors
    ///
    /// [`EditError`], if the file cannot be read.
    pub fn servers(self, text: &str, key: &str) -> Result<Servers, EditError> {
        match self.read(text)? {
            Value::Null => Ok(Servers::new()),
            Value::Object(mut members) => match members.remove(key) {
                None | Some(Value::Null) => Ok(Servers::new()),
                Some(Value::Object(servers)) => Ok(servers),
                Some(_) => Err(EditError::no_table(format!("`{key}`"))),
            },
            _ => Err(EditError::no_table("its content")),
        }
    }

    /// The text with these members of the server `name` below `key`. Other members of the server
    /// stay, and other members of a table in it. If all members are there already, the text is the
    /// same.
    ///
    /// # Errors
    ///
    /// [`EditError`], if the file cannot be edited.
    pub fn set(
        self,
        text: &str,
        key: &str,
        name: &str,
        members: &[Member],
    ) -> Result<String, EditError> {
        let servers = self.servers(text, key)?;
        let present = servers.get(name);
        let is_missing = |(member, value): &&Member| {
            let present = present.and_then(|server| server.get(member));
            present.is_none_or(|present| !has(present, value))
        };
        let missing: Vec<Member> = members.iter().filter(is_missing).cloned().collect();
        if missing.is_empty() {
            return Ok(text.to_owned());
        }
        let after = edited(text, |text| match self {
            Self::Json => json::set(text, key, name, &missing),
            Self::Toml => toml::set(text, key, name, &missing),
            Self::Yaml => yaml::set(text, key, name, &missing),
        })?;
        let (rest, server) = self.without(&after, key, name)?;
        let server = server.unwrap_or_default();
        let has_members = members
            .iter()
            .all(|(member, value)| server.get(member).is_some_and(|now| has(now, value)));
        let keeps_others = present
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter(|(member, _)| members.iter().all(|(set, _)| set != *member))
            .all(|(member, value)| server.get(member) == Some(value));
        let is_rest_same = self.without(text, key, name)?.0 == rest;
        match has_members && keeps_others && is_rest_same {
            true => Ok(after),
            false => Err(EditError::Unsafe),
        }
    }

    /// The text without the server `name` below `key`.
    ///
    /// # Errors
    ///
    /// [`EditError`], if the file cannot be edited.
    pub fn remove(self, text: &str, key: &str, name: &str) -> Result<String, EditError> {
        if !self.servers(text, key)?.contains_key(name) {
            return Ok(text.to_owned());
        }
        let after = edited(text, |text| match self {
            Self::Json => json::remove(text, key, name),
            Self::Toml => toml::remove(text, key, name),
            Self::Yaml => yaml::remove(text, key, name),
        })?;
        let (rest, server) = self.without(&after, key, name)?;
        match server.is_none() && self.without(text, key, name)?.0 == rest {
            true => Ok(after),
            false => Err(EditError::Unsafe),
        }
    }

    /// All values of a text but one server, and this server.
    fn without(
        self,
        text: &str,
        key: &str,
        name: &str,
    ) -> Result<(Value, Option<Value>), EditError> {
        let mut servers = self.servers(text, key)?;
        let server = servers.remove(name);
        let mut rest = match self.read(text)? {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        rest.remove(key);
        Ok((json!([rest, servers]), server))
    }
}

/// Edits a text, and keeps its byte order mark and its kind of line ends.
fn edited(
    text: &str,
    edit: impl FnOnce(&str) -> Result<String, EditError>,
) -> Result<String, EditError> {
    let (mark, body) = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (BYTE_ORDER_MARK, body),
        None => ("", text),
    };
    let newlines = body.matches('\n').count();
    let has_returns = newlines > 0 && body.matches("\r\n").count() == newlines;
    let edited = edit(body)?;
    Ok(match has_returns {
        true => {
            let lines = edited.replace("\r\n", "\n").replace('\n', "\r\n");
            format!("{mark}{lines}")
        }
        false => format!("{mark}{edited}"),
    })
}

/// Whether a value has all that is wanted: a table may have more.
fn has(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, value)| present.get(name).is_some_and(|present| has(present, value))),
        _ => present == wanted,
    }
}
