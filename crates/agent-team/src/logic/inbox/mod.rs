//! The inbox of an agent. Edits keep every byte that is not ours to change.
//!
//! An inbox is the text of a file with an array of messages. Several programs write to it, and each
//! has members that others don't know. A message is parsed as far as its members are known; unknown
//! members and elements are kept.

mod message;
pub mod unread;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;

use codex_protocol::json_values;
use common::json::range_of;
use serde::Serialize;
use serde_json::value::RawValue;

use super::json_edit::{with_appended, with_member};
use super::name::{AgentName, TeamName};
use super::time;
use message::{Identity, Message};

pub use message::Mark;
pub use unread::{
    Envelope, FirstLine, PendingMail, ReadLimits, UnreadBatch, first_lines, oldest_unread, pending,
};

/// The indent that atm writes arrays with.
const INDENT: &str = "  ";

/// The most JSON values of an inbox, and the most elements of all inboxes of a member. Each element
/// takes many times its bytes in memory if it is short.
pub(crate) const MOST_VALUES: usize = 2_000_000;

/// Why a text is not an inbox.
#[derive(Debug, thiserror::Error)]
pub enum BadInbox {
    /// The text is not UTF-8.
    #[error("it is not UTF-8 text: {0}")]
    Encoding(#[from] std::str::Utf8Error),
    /// The text is not a JSON array.
    #[error("it is not a JSON array: {0}")]
    Json(#[from] serde_json::Error),
    /// The text, or those of all inboxes of the member, have too many values.
    #[error("it has too many JSON values (the most is {MOST_VALUES})")]
    TooManyValues,
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
    /// A message with this ID, written at this time.
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

    /// Sets the summary.
    #[must_use]
    pub fn summary(mut self, summary: Option<String>) -> Self {
        self.summary = summary;
        self
    }

    /// Sets the team for answers, if it is not the team of the inbox.
    #[must_use]
    pub fn source_team(mut self, team: Option<TeamName>) -> Self {
        self.source_team = team;
        self
    }
}

/// An inbox with messages marked.
#[derive(Debug, PartialEq, Eq)]
pub struct MarkedInbox {
    /// Its new text; `None` if there was nothing to mark.
    pub text: Option<String>,
    /// The number of messages that were marked.
    pub count: usize,
}

impl<'a> Inbox<'a> {
    /// Reads a file. An empty file is an inbox without messages: a peer that is killed as it begins
    /// to write leaves one.
    ///
    /// # Errors
    ///
    /// [`BadInbox`]: such a file must not be written.
    pub fn parse(file: &'a [u8]) -> Result<Self, BadInbox> {
        if json_values::exceed(file, MOST_VALUES) {
            return Err(BadInbox::TooManyValues);
        }
        let text = std::str::from_utf8(file)?.trim_ascii();
        let text = if text.is_empty() { "[]" } else { text };
        let elements = serde_json::from_str(text)?;
        Ok(Self { text, elements })
    }

    /// The number of its elements.
    pub(crate) fn length(&self) -> usize {
        self.elements.len()
    }

    /// The text of the inbox.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The inbox with a message appended.
    #[must_use]
    pub fn append(&self, message: &NewMessage) -> String {
        // A message can always be serialized, and the text was parsed as an array.
        let item = serde_json::to_string(message).unwrap_or_default();
        with_appended(self.text, &item, INDENT).unwrap_or_else(|| self.text.to_owned())
    }

    /// Whether this message is in it.
    #[must_use]
    pub fn contains(&self, message: &NewMessage) -> bool {
        let id = message.message_id.as_str();
        let mut messages = self.elements.iter().filter_map(|raw| Message::of(raw));
        messages.any(|message| message.has_id(id))
    }

    /// Marks delivered messages as read, wherever in the inbox they are now. If several messages
    /// have the same identity, as many are marked as were delivered.
    #[must_use]
    pub fn mark<'m>(&self, marks: impl IntoIterator<Item = &'m Mark>) -> MarkedInbox {
        let targets = self.targets(marks);
        let mut text = String::with_capacity(self.text.len() + targets.len() * 16);
        let (mut copied, mut count) = (0, 0);
        for index in targets {
            let marked = self.elements.get(index).and_then(|element| {
                let range = range_of(self.text, element.get())?;
                let before = self.text.get(copied..range.start)?;
                Some((before, with_member(element.get(), "read", "true")?, range))
            });
            if let Some((before, marked, range)) = marked {
                text.push_str(before);
                text.push_str(&marked);
                copied = range.end;
                count += 1;
            }
        }
        text.push_str(self.text.get(copied..).unwrap_or_default());
        MarkedInbox {
            text: (count > 0).then_some(text),
            count,
        }
    }

    /// The indices of the elements to mark, in their order.
    fn targets<'m>(&self, marks: impl IntoIterator<Item = &'m Mark>) -> BTreeSet<usize> {
        let mut targets = BTreeSet::new();
        let mut moved: HashMap<&Identity, usize> = HashMap::new();
        for mark in marks {
            let element = self.elements.get(mark.index);
            let message = element.and_then(|element| Message::of(element));
            match message.filter(|message| message.identity() == *mark.identity) {
                // Another process has marked it. Other messages of the same identity must not be
                // marked instead.
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

    /// The unread messages with their indices.
    fn unread(&self) -> impl Iterator<Item = (usize, Message<'a>)> {
        let messages = self.elements.iter().enumerate().filter_map(|(index, raw)| {
            let message = Message::of(raw)?;
            Some((index, message))
        });
        messages.filter(|(_, message)| !message.is_read())
    }
}

/// Merges a concurrent write: we read `before` and wrote `ours`, but the file that we replaced was
/// `found`.
///
/// `found` stays as it is, and our additions are appended to it unless it has them.
#[must_use]
pub fn merge(before: &Inbox<'_>, ours: &Inbox<'_>, found: &Inbox<'_>) -> String {
    // The number of each element that we have added and `found` lacks.
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
    // In reverse, as the newest additions are at the end.
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
        text = with_appended(&text, element, INDENT).unwrap_or(text);
    }
    text
}

/// Whether the inbox `current` lacks messages that the `draft` of a dead writer contains.
///
/// A draft that only appends to the inbox does not count: it was never exchanged with the inbox,
/// and its additional message was never sent.
#[must_use]
pub fn has_lost(current: &Inbox<'_>, draft: &Inbox<'_>) -> bool {
    let mut pairs = current.elements.iter().zip(&draft.elements);
    let is_unsent = draft.elements.len() >= current.elements.len()
        && pairs.all(|(current, draft)| current.get() == draft.get());
    !is_unsent && merge(current, draft, current) != current.text
}
