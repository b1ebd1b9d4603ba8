//! The unread messages of an agent, out of all its inboxes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::{Inbox, Mark, Message};

/// The longest sender, time and ID of a delivered message, in characters. Some readers get a
/// limited number of characters, and each of these may become an escape: longer members could leave
/// no room for any mail.
const NAME_CHARS: usize = 100;

/// The longest summary of a delivered message, in characters.
const SUMMARY_CHARS: usize = 500;

/// The longest first line that [`first_lines`] returns, in bytes.
const FIRST_LINE: usize = 100;

/// The most senders that are listed with the number of unread messages, and the longest sender there,
/// in characters: the list has at most 8000 characters in JSON, where each may be an escape of six.
const LISTED_SENDERS: usize = 20;
const LISTED_SENDER_CHARS: usize = 60;

/// The limits of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// The most messages that are returned.
    pub max_messages: usize,
    /// The longest excerpt of a message, in characters.
    pub max_length: usize,
}

/// A message as it is delivered, set apart as its sender's words. Shortened members end with `…`; for
/// the text, see `truncated_from`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// The sender that the message names.
    pub from: String,
    /// The text; if it was cut, the last line says so and states the whole length.
    pub message: String,
    /// The time that the sender states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The ID; mail of Claude Code has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The sender's summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The length of the whole text in characters, where it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated_from: Option<usize>,
}

/// The oldest unread messages of some inboxes.
#[derive(Debug, Default)]
pub struct UnreadBatch {
    /// The oldest messages.
    pub messages: Vec<Envelope>,
    /// The number of unread messages that are left.
    pub remaining: usize,
    /// The marks of the messages, each with the index of its inbox. A message that was found twice
    /// has two.
    pub marks: Vec<(usize, Mark)>,
}

/// The number of unread messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PendingMail {
    /// The number of unread messages.
    pub count: usize,
    /// The first 20 senders with their numbers of messages, in the order in which they first wrote.
    pub senders: Vec<(String, usize)>,
    /// The number of further senders.
    pub other_senders: usize,
}

/// The first line of an unread message, with its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstLine {
    /// The sender that the message names.
    pub from: String,
    /// The team of the sender, if the message names one.
    pub source_team: Option<String>,
    /// The first line that is not blank, without white space around it.
    pub line: String,
    /// Identifies the message when the inbox is read again.
    pub key: u64,
}

/// An unread message and its position.
struct UnreadMessage<'a> {
    inbox: usize,
    index: usize,
    message: Message<'a>,
    /// The other positions of the same message.
    duplicates: Vec<(usize, usize)>,
}

/// The oldest unread messages. Each inbox is in the order in which it was written;
/// of several, the older message comes first.
#[must_use]
pub fn oldest_unread(inboxes: &[Inbox<'_>], limits: ReadLimits) -> UnreadBatch {
    let mut unread = unread(inboxes);
    let remaining = unread.len().saturating_sub(limits.max_messages);
    unread.truncate(limits.max_messages);
    let mut batch = UnreadBatch {
        remaining,
        ..UnreadBatch::default()
    };
    for one in &unread {
        batch.messages.push(envelope(&one.message, limits));
        batch.marks.extend(one.marks());
    }
    batch
}

/// The first lines of the unread messages, each with the marks of its message. Messages whose first
/// line is longer than 100 bytes are left out.
#[must_use]
pub fn first_lines(inboxes: &[Inbox<'_>]) -> Vec<(FirstLine, Vec<(usize, Mark)>)> {
    let unread = unread(inboxes);
    let short = unread.iter().filter_map(|one| {
        let text = one.message.text();
        let mut lines = text.lines().map(str::trim);
        let line = lines.find(|line| !line.is_empty())?;
        (line.len() <= FIRST_LINE).then(|| (first_line(&one.message, line), one.marks()))
    });
    short.collect()
}

fn first_line(message: &Message<'_>, line: &str) -> FirstLine {
    let mut hasher = DefaultHasher::new();
    message.identity().hash(&mut hasher);
    FirstLine {
        from: message.from().into_owned(),
        source_team: message.source_team().map(Cow::into_owned),
        line: line.to_owned(),
        key: hasher.finish(),
    }
}

impl UnreadMessage<'_> {
    /// The marks of the message, each with the index of its inbox.
    fn marks(&self) -> Vec<(usize, Mark)> {
        let identity = Arc::new(self.message.identity());
        let places = self.duplicates.iter().copied();
        let places = places.chain([(self.inbox, self.index)]);
        let marks = places.map(|(inbox, index)| {
            let identity = Arc::clone(&identity);
            (inbox, Mark { index, identity })
        });
        marks.collect()
    }
}

/// The number of unread messages.
#[must_use]
pub fn pending(inboxes: &[Inbox<'_>]) -> PendingMail {
    let mut pending = PendingMail::default();
    let mut places: HashMap<String, usize> = HashMap::new();
    for one in unread(inboxes) {
        pending.count += 1;
        let from = one.message.from();
        let place = places.get(&*from);
        match place.map(|place| pending.senders.get_mut(*place)) {
            Some(Some((_, count))) => *count += 1,
            Some(None) => {}
            None => {
                if places.len() < LISTED_SENDERS {
                    let shown = cut(&from, LISTED_SENDER_CHARS);
                    pending.senders.push((shown, 1));
                }
                places.insert(from.into_owned(), places.len());
            }
        }
    }
    pending.other_senders = places.len().saturating_sub(LISTED_SENDERS);
    pending
}

/// All unread messages, each once, oldest first.
fn unread<'a>(inboxes: &[Inbox<'a>]) -> Vec<UnreadMessage<'a>> {
    let mut all: Vec<UnreadMessage<'a>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (inbox, messages) in inboxes.iter().enumerate() {
        for (index, message) in messages.unread() {
            let id = message.id();
            let first = id.as_ref().and_then(|id| known.get(&**id).copied());
            match first.and_then(|first| all.get_mut(first)) {
                Some(first) if first.message.identity() == message.identity() => {
                    first.duplicates.push((inbox, index));
                    continue;
                }
                Some(_) => {}
                None => drop(id.map(|id| known.insert(id.into_owned(), all.len()))),
            }
            all.push(UnreadMessage {
                inbox,
                index,
                message,
                duplicates: Vec::new(),
            });
        }
    }
    match inboxes {
        [] | [_] => all,
        _ => by_time(all),
    }
}

/// Orders the messages of several inboxes by their times, and keeps those of one
/// inbox in their order whatever their times are.
fn by_time(unread: Vec<UnreadMessage<'_>>) -> Vec<UnreadMessage<'_>> {
    let mut latest: HashMap<usize, SystemTime> = HashMap::new();
    let mut timed: Vec<(SystemTime, UnreadMessage<'_>)> = Vec::with_capacity(unread.len());
    for one in unread {
        let latest = latest.entry(one.inbox).or_insert(SystemTime::UNIX_EPOCH);
        *latest = (*latest).max(one.message.time().unwrap_or(*latest));
        timed.push((*latest, one));
    }
    timed.sort_by_key(|(time, _)| *time);
    timed.into_iter().map(|(_, one)| one).collect()
}

fn envelope(message: &Message<'_>, limits: ReadLimits) -> Envelope {
    let text = message.text();
    let (shown, truncated_from) = match beginning(&text, limits.max_length) {
        Some(start) => {
            let whole = text.chars().count();
            let shown = limits.max_length;
            let note = format!("{start}\n[… cut here: {shown} of {whole} characters]");
            (note, Some(whole))
        }
        None => (text.into_owned(), None),
    };
    Envelope {
        from: cut(&message.from(), NAME_CHARS),
        message: shown,
        timestamp: message.timestamp().map(|time| cut(&time, NAME_CHARS)),
        message_id: message.id().map(|id| cut(&id, NAME_CHARS)),
        summary: message
            .summary()
            .map(|summary| cut(&summary, SUMMARY_CHARS)),
        truncated_from,
    }
}

/// The first characters of a text; `None` if it has no more.
fn beginning(text: &str, characters: usize) -> Option<&str> {
    let (end, _) = text.char_indices().nth(characters)?;
    text.get(..end)
}

/// A text with at most this many characters, and `…` if it was cut.
fn cut(text: &str, characters: usize) -> String {
    match beginning(text, characters) {
        Some(start) => format!("{start}…"),
        None => text.to_owned(),
    }
}
