//! An element of an inbox, read as far as it is known.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;

use crate::logic::time;

/// A message as it is stored. Members that are texts are only read when they are
/// needed: most messages of a long inbox are of no interest.
#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    from: &'a RawValue,
    text: Option<&'a RawValue>,
    /// The name of `text` in newer files.
    content: Option<&'a RawValue>,
    timestamp: Option<&'a RawValue>,
    read: Option<&'a RawValue>,
    summary: Option<&'a RawValue>,
    message_id: Option<&'a RawValue>,
    source_team: Option<&'a RawValue>,
}

/// The members that identify a message, also after another program has rewritten the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Message {
        from: String,
        text: String,
        timestamp: Option<String>,
        id: Option<String>,
    },
    /// The text of an element that is not a message.
    NotAMessage(String),
}

/// A message that was delivered and is to be marked as read.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Its index when it was read.
    pub(super) index: usize,
    pub(super) identity: Arc<Identity>,
}

impl<'a> Message<'a> {
    /// Parses an element; `None` if it is not a message, as a message has a sender and a text.
    pub(super) fn of(element: &'a RawValue) -> Option<Self> {
        let message: Self = serde_json::from_str(element.get()).ok()?;
        let is_whole = is_text(message.from) && message.body().is_some_and(is_text);
        is_whole.then_some(message)
    }

    fn body(&self) -> Option<&'a RawValue> {
        self.text.or(self.content)
    }

    /// A message without `read` is unread.
    pub(super) fn is_read(&self) -> bool {
        self.read.is_some_and(|read| read.get() == "true")
    }

    pub(super) fn has_id(&self, id: &str) -> bool {
        self.id().is_some_and(|own| own == id)
    }

    pub(super) fn from(&self) -> Cow<'a, str> {
        text(self.from).unwrap_or_default()
    }

    pub(super) fn text(&self) -> Cow<'a, str> {
        self.body().and_then(text).unwrap_or_default()
    }

    pub(super) fn timestamp(&self) -> Option<Cow<'a, str>> {
        self.timestamp.and_then(text)
    }

    pub(super) fn summary(&self) -> Option<Cow<'a, str>> {
        self.summary.and_then(text)
    }

    pub(super) fn id(&self) -> Option<Cow<'a, str>> {
        self.message_id.and_then(text)
    }

    pub(super) fn source_team(&self) -> Option<Cow<'a, str>> {
        self.source_team.and_then(text)
    }

    pub(super) fn time(&self) -> Option<SystemTime> {
        time::parse(&self.timestamp()?)
    }

    pub(super) fn identity(&self) -> Identity {
        Identity::Message {
            from: self.from().into_owned(),
            text: self.text().into_owned(),
            timestamp: self.timestamp().map(Cow::into_owned),
            id: self.id().map(Cow::into_owned),
        }
    }
}

impl Identity {
    pub(super) fn of(element: &RawValue) -> Self {
        match Message::of(element) {
            Some(message) => message.identity(),
            None => Self::NotAMessage(element.get().to_owned()),
        }
    }
}

fn is_text(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

/// A text, borrowed where it has no escapes.
fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    let quoted = value.get();
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let LossyText(text) = serde_json::from_str(quoted).ok()?;
    Some(Cow::Owned(text))
}

/// A text in which unpaired surrogates, as JavaScript may write them, are replaced, so that the
/// rest of the message can be read.
struct LossyText(String);

impl<'de> Deserialize<'de> for LossyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = LossyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<LossyText, E> {
                Ok(LossyText(String::from_utf8_lossy(bytes).into_owned()))
            }
        }

        // serde_json accepts half a pair only in bytes.
        deserializer.deserialize_bytes(Reader)
    }
}
