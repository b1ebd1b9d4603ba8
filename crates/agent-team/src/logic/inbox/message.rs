//! An element of an inbox, as far as it is understood.

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
    /// What newer files have for `text`.
    content: Option<&'a RawValue>,
    timestamp: Option<&'a RawValue>,
    read: Option<&'a RawValue>,
    summary: Option<&'a RawValue>,
    message_id: Option<&'a RawValue>,
}

/// What tells a message from others, whatever program has written it again since.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Message {
        from: String,
        text: String,
        timestamp: Option<String>,
        id: Option<String>,
    },
    /// No message: the element as it stands.
    Odd(String),
}

/// A message that was given to somebody, to be marked as read.
#[derive(Debug, Clone)]
pub struct Mark {
    /// Where it was.
    pub(super) index: usize,
    pub(super) identity: Arc<Identity>,
}

impl<'a> Message<'a> {
    /// `None` if the element is no message: it has to have a sender and a text.
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
            None => Self::Odd(element.get().to_owned()),
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
    let Lossy(text) = serde_json::from_str(quoted).ok()?;
    Some(Cow::Owned(text))
}

/// A text of which half a surrogate pair, as JavaScript writes it, is replaced: the
/// rest of the message can be read.
struct Lossy(String);

impl<'de> Deserialize<'de> for Lossy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Lossy;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Lossy, E> {
                Ok(Lossy(String::from_utf8_lossy(bytes).into_owned()))
            }
        }

        // As bytes, serde_json lets such halves pass.
        deserializer.deserialize_bytes(Reader)
    }
}
