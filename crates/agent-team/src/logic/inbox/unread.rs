//! The unread messages of an agent, out of all its inboxes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::{Inbox, Mark, Message};

/// The limits of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// The most messages that are returned.
    pub max_messages: usize,
    /// The longest excerpt of a message, in characters.
    pub max_length: usize,
}

/// A message as it is delivered, set apart as its sender's words.
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
    /// The senders with their numbers of messages, in the order in which they first wrote.
    pub senders: Vec<(String, usize)>,
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
        let identity = Arc::new(one.message.identity());
        let places = one.duplicates.iter().copied();
        for (inbox, index) in places.chain([(one.inbox, one.index)]) {
            let identity = Arc::clone(&identity);
            batch.marks.push((inbox, Mark { index, identity }));
        }
    }
    batch
}

/// The number of unread messages.
#[must_use]
pub fn pending(inboxes: &[Inbox<'_>]) -> PendingMail {
    let mut pending = PendingMail::default();
    let mut places: HashMap<String, usize> = HashMap::new();
    for one in unread(inboxes) {
        pending.count += 1;
        let from = one.message.from();
        match places
            .get(&*from)
            .and_then(|at| pending.senders.get_mut(*at))
        {
            Some((_, count)) => *count += 1,
            None => {
                places.insert(from.clone().into_owned(), pending.senders.len());
                pending.senders.push((from.into_owned(), 1));
            }
        }
    }
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
    let end = text.char_indices().nth(limits.max_length);
    let (shown, truncated_from) = match end.and_then(|(end, _)| text.get(..end)) {
        Some(start) => {
            let whole = text.chars().count();
            let shown = limits.max_length;
            let note = format!("{start}\n[… cut here: {shown} of {whole} characters]");
            (note, Some(whole))
        }
        None => (text.into_owned(), None),
    };
    Envelope {
        from: message.from().into_owned(),
        message: shown,
        timestamp: message.timestamp().map(Into::into),
        message_id: message.id().map(Into::into),
        summary: message.summary().map(Into::into),
        truncated_from,
    }
}
