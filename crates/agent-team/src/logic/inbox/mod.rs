//! An inbox: what others write each other with, kept byte for byte where it isn't
//! ours to change.
//!
//! An inbox is the text of a file, an array of messages. Several programs write
//! there, and each knows members that others don't: a message is read as far as it
//! is understood and otherwise left as it is, also an element that is no message at
//! all.

mod message;
pub mod unread;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::RawValue;

use super::layout::{place, with_last, with_member};
use super::name::{AgentName, TeamName};
use super::time;
use message::{Identity, Message};

pub use message::Mark;
pub use unread::{Envelope, Pending, Reading, Taken, pending, take};

/// The indent that atm writes arrays with.
const INDENT: &str = "  ";

/// Why a text is no inbox.
#[derive(Debug, thiserror::Error)]
pub enum BadInbox {
    /// It isn't even text.
    #[error("it is not UTF-8 text: {0}")]
    Encoding(#[from] std::str::Utf8Error),
    /// It is something else.
    #[error("it is not a JSON array: {0}")]
    Json(#[from] serde_json::Error),
}

/// An inbox as its file has it.
#[derive(Debug)]
pub struct Inbox<'a> {
    text: &'a str,
    elements: Vec<&'a RawValue>,
}

/// A message to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewMessage {
    from: AgentName,
    text: String,
    timestamp: String,
    read: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    message_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_team: Option<TeamName>,
}

impl NewMessage {
    /// A message that was written at that time and is called `id`.
    #[must_use]
    pub fn new(from: AgentName, text: String, written: SystemTime, id: String) -> Self {
        Self {
            from,
            text,
            timestamp: time::written(written),
            read: false,
            summary: None,
            message_id: id,
            source_team: None,
        }
    }

    /// With a summary.
    #[must_use]
    pub fn summary(mut self, summary: Option<String>) -> Self {
        self.summary = summary;
        self
    }

    /// From another team than the inbox is in, to which an answer would go.
    #[must_use]
    pub fn source_team(mut self, team: Option<TeamName>) -> Self {
        self.source_team = team;
        self
    }
}

/// An inbox with messages marked.
#[derive(Debug, PartialEq, Eq)]
pub struct Marked {
    /// Its new text; `None` if there was nothing to mark.
    pub text: Option<String>,
    /// How many were marked.
    pub count: usize,
}

impl<'a> Inbox<'a> {
    /// Reads a file. An empty one is an inbox without messages: a peer that was
    /// ended as it began to write leaves one.
    ///
    /// # Errors
    ///
    /// [`BadInbox`]: such a file must not be written.
    pub fn parse(file: &'a [u8]) -> Result<Self, BadInbox> {
        let text = std::str::from_utf8(file)?.trim_ascii();
        let text = if text.is_empty() { "[]" } else { text };
        let elements = serde_json::from_str(text)?;
        Ok(Self { text, elements })
    }

    /// It as text.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The inbox with one message more, at its end.
    #[must_use]
    pub fn append(&self, message: &NewMessage) -> String {
        // A message can always be written, and the text has been read as an array.
        let item = serde_json::to_string(message).unwrap_or_default();
        with_last(self.text, &item, INDENT).unwrap_or_else(|| self.text.to_owned())
    }

    /// Whether this message is in it.
    #[must_use]
    pub fn contains(&self, message: &NewMessage) -> bool {
        let id = message.message_id.as_str();
        let mut messages = self.elements.iter().filter_map(|raw| Message::of(raw));
        messages.any(|message| message.has_id(id))
    }

    /// Marks messages as read that were given to somebody, wherever they are by
    /// now. Of messages that are the same in all that tells them apart, as many are
    /// marked as were given.
    #[must_use]
    pub fn mark<'m>(&self, marks: impl IntoIterator<Item = &'m Mark>) -> Marked {
        let targets = self.targets(marks);
        let mut text = String::with_capacity(self.text.len() + targets.len() * 16);
        let (mut copied, mut count) = (0, 0);
        for index in targets {
            let marked = self.elements.get(index).and_then(|element| {
                let place = place(self.text, element.get())?;
                let before = self.text.get(copied..place.start)?;
                Some((before, with_member(element.get(), "read", "true")?, place))
            });
            if let Some((before, marked, place)) = marked {
                text.push_str(before);
                text.push_str(&marked);
                copied = place.end;
                count += 1;
            }
        }
        text.push_str(self.text.get(copied..).unwrap_or_default());
        Marked {
            text: (count > 0).then_some(text),
            count,
        }
    }

    /// The elements that are to be marked, in their order.
    fn targets<'m>(&self, marks: impl IntoIterator<Item = &'m Mark>) -> BTreeSet<usize> {
        let mut targets = BTreeSet::new();
        let mut moved: HashMap<&Identity, usize> = HashMap::new();
        for mark in marks {
            let element = self.elements.get(mark.index);
            let message = element.and_then(|element| Message::of(element));
            match message.filter(|message| message.identity() == *mark.identity) {
                // Also if somebody has marked it: then its twins aren't meant.
                Some(message) if message.is_read() => {}
                Some(_) => drop(targets.insert(mark.index)),
                None => *moved.entry(&mark.identity).or_default() += 1,
            }
        }
        if !moved.is_empty() {
            for (index, message) in self.unread() {
                let open = moved.get_mut(&message.identity());
                let open = open.filter(|open| **open > 0 && !targets.contains(&index));
                if let Some(open) = open {
                    *open -= 1;
                    targets.insert(index);
                }
            }
        }
        targets
    }

    /// The messages that nobody has read, with their places.
    fn unread(&self) -> impl Iterator<Item = (usize, Message<'a>)> {
        let messages = self.elements.iter().enumerate().filter_map(|(index, raw)| {
            let message = Message::of(raw)?;
            Some((index, message))
        });
        messages.filter(|(_, message)| !message.is_read())
    }
}

/// What an inbox has to become if somebody else wrote it while we did: we had read
/// `before` and put `ours` in its place, and what we then took away was `found`.
///
/// What was found stays as it is, and what we had added is added to it unless it is
/// there.
#[must_use]
pub fn merge(before: &Inbox<'_>, ours: &Inbox<'_>, found: &Inbox<'_>) -> String {
    // How many of each we had added and they have not.
    let mut missing: HashMap<Identity, usize> = HashMap::new();
    for element in &ours.elements {
        *missing.entry(Identity::of(element)).or_default() += 1;
    }
    let mut theirs: HashMap<Identity, usize> = HashMap::new();
    for element in &found.elements {
        *theirs.entry(Identity::of(element)).or_default() += 1;
    }
    for element in &before.elements {
        let identity = Identity::of(element);
        for counts in [&mut missing, &mut theirs] {
            if let Some(count) = counts.get_mut(&identity) {
                *count = count.saturating_sub(1);
            }
        }
    }
    for (identity, count) in theirs {
        if let Some(missing) = missing.get_mut(&identity) {
            *missing = missing.saturating_sub(count);
        }
    }
    let mut text = found.text.to_owned();
    // From the end: what was added last is at the end.
    let mut added = Vec::new();
    for element in ours.elements.iter().rev() {
        if let Some(count) = missing.get_mut(&Identity::of(element))
            && *count > 0
        {
            *count -= 1;
            added.push(element.get());
        }
    }
    for element in added.into_iter().rev() {
        text = with_last(&text, element, INDENT).unwrap_or(text);
    }
    text
}
