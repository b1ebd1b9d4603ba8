//! Settings, and the values in them.
//!
//! Input: the text of a file. Each of its lines is also read as a value.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use agent_team::logic::{Address, AgentName, ThreadName};
use codex_config::layers;
use codex_config::rules;
use codex_protocol::codex::{Release, ThreadId};
use common::text::is_hidden;
use goal_run::logic::criteria::Criterion;
use goal_run::logic::irc::address::IrcAddress;
use goal_run::logic::names::{BranchName, CommandLine, Issue};
use goal_run::logic::notifier::Notifier;
use image_request::logic::path::PicturePath;
use image_request::logic::queue::WrapperId;
use serde_json::{Map, Value};
use settings::{Location, parsers};

/// Tests one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    settings(text);
    codex(text);
    text.lines().take(50).for_each(value);
}

/// A file is read in the same way whoever it belongs to, and what is said about it shows nothing
/// hidden.
fn settings(text: &str) {
    let path = Path::new("/repo/.atm.toml");
    let read = parsers::file(path, text);
    if let Ok(warnings) = &read {
        for warning in warnings {
            let words = format!("{} {}", warning.message, warning.hint);
            assert!(!words.contains(is_hidden), "{words:?}");
        }
    }
    // A table that is no TOML is no settings.
    let is_toml = toml::from_str::<toml::Table>(text).is_ok();
    assert!(is_toml || read.is_err());
}

/// A dotted key finds what nested tables have.
fn codex(text: &str) {
    let Ok(layer) = toml::from_str::<Map<String, Value>>(text) else {
        return drop(rules::lines_that_allow_git(text));
    };
    for (table, value) in &layer {
        assert_eq!(layers::get(&layer, table), Some(value));
        for (key, value) in value.as_object().into_iter().flatten() {
            let dotted = format!("{table}.{key}");
            if !layer.contains_key(&dotted) {
                let found = layers::get(&layer, &dotted);
                assert!(found.is_some(), "{dotted:?} of {value:?}");
            }
        }
    }
}

/// A value that is written as it was read reads the same.
fn same<T: FromStr + Display + PartialEq>(text: &str) -> Option<T> {
    let value: T = text.parse().ok()?;
    let written = value.to_string();
    let again = written.parse::<T>().ok();
    assert!(
        again.as_ref() == Some(&value),
        "{text:?} is written as {written:?}"
    );
    Some(value)
}

fn value(text: &str) {
    same::<AgentName>(text);
    same::<ThreadName>(text);
    same::<Address>(text);
    same::<BranchName>(text);
    same::<Issue>(text);
    same::<CommandLine>(text);
    same::<Criterion>(text);
    same::<IrcAddress>(text);
    same::<WrapperId>(text);
    if let Some(path) = same::<PicturePath>(text) {
        assert!(path.as_str().starts_with("./"));
        assert!(path.as_str().split('/').all(|part| part != ".."));
    }
    if let Ok(notifier) = text.parse::<Notifier>() {
        let again = notifier.secret().parse::<Notifier>();
        assert_eq!(again.as_ref(), Ok(&notifier));
    }
    if let Ok(id) = ThreadId::parse(text) {
        assert_eq!(ThreadId::parse(id.as_str()), Ok(id));
    }
    if let Some(release) = Release::parse(text) {
        assert_eq!(Release::parse(&release.to_string()), Some(release));
    }
    location(text);
}

/// A message about a place shows no password.
fn location(text: &str) {
    match text.parse::<Location>() {
        Ok(location) => {
            let secret = location.with_secrets().into_string().unwrap();
            let again = secret.parse::<Location>();
            assert!(again.is_ok_and(|again| again.with_secrets() == *secret));
            hides_password(text, &location.to_string());
        }
        Err(error) => hides_password(text, &error.to_string()),
    }
}

fn hides_password(url: &str, shown: &str) {
    let password = url
        .split_once("://")
        .filter(|(scheme, _)| matches!(*scheme, "postgres" | "postgresql"))
        .and_then(|(_, rest)| rest.split_once('@'))
        .and_then(|(user, _)| user.split_once(':'))
        .map(|(_, password)| password);
    // One that stands elsewhere in the URL too is shown, and one may be a part of the message's words.
    let words = "postgres://h:port"
        .parse::<Location>()
        .map_or_else(|error| error.to_string(), |_| String::new());
    let is_secret = |password: &&str| {
        password.len() > 8 && url.matches(*password).count() == 1 && !words.contains(*password)
    };
    if let Some(password) = password.filter(is_secret) {
        assert!(!shown.contains(password), "{shown:?} has {password:?}");
    }
}
