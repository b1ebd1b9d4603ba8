//! What somebody hasn't read yet, out of all the inboxes that are theirs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::{Inbox, Mark, Message};

/// How much is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// At most so many messages.
    pub max_messages: usize,
    /// At most so much of each, in characters.
    pub max_length: usize,
}

/// A message as it is handed over: marked off as somebody's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// Who says to have written it.
    pub from: String,
    /// The text; where it was cut, the last line says so and tells its length.
    pub message: String,
    /// When it was written, as the sender has put it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Mail of Claude Code has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// What the sender says it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The length of the whole text in characters, where it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated_from: Option<usize>,
}

/// What was taken out of some inboxes.
#[derive(Debug, Default)]
pub struct Taken {
    /// The oldest messages.
    pub messages: Vec<Envelope>,
    /// How many more there are.
    pub remaining: usize,
    /// For each message where it is: the number of the inbox, and the mark. A
    /// message that was there twice has two.
    pub marks: Vec<(usize, Mark)>,
}

/// How much there is to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// How many messages.
    pub count: usize,
    /// From whom, and how many: in the order in which they first wrote.
    pub senders: Vec<(String, usize)>,
}

/// A message, and where it is.
struct Waiting<'a> {
    inbox: usize,
    index: usize,
    message: Message<'a>,
    /// Where the same message is once more.
    doubles: Vec<(usize, usize)>,
}

/// The oldest unread messages. Each inbox is in the order in which it was written;
/// of several, the older message comes first.
#[must_use]
pub fn take(inboxes: &[Inbox<'_>], reading: Reading) -> Taken {
    let mut waiting = waiting(inboxes);
    let remaining = waiting.len().saturating_sub(reading.max_messages);
    waiting.truncate(reading.max_messages);
    let mut taken = Taken {
        remaining,
        ..Taken::default()
    };
    for one in &waiting {
        taken.messages.push(envelope(&one.message, reading));
        let identity = Arc::new(one.message.identity());
        let places = one.doubles.iter().copied();
        for (inbox, index) in places.chain([(one.inbox, one.index)]) {
            let identity = Arc::clone(&identity);
            taken.marks.push((inbox, Mark { index, identity }));
        }
    }
    taken
}

/// How much there is to read.
#[must_use]
pub fn pending(inboxes: &[Inbox<'_>]) -> Pending {
    let mut pending = Pending::default();
    let mut places: HashMap<String, usize> = HashMap::new();
    for one in waiting(inboxes) {
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

/// All that is unread, each message once, oldest first.
fn waiting<'a>(inboxes: &[Inbox<'a>]) -> Vec<Waiting<'a>> {
    let mut all: Vec<Waiting<'a>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (inbox, messages) in inboxes.iter().enumerate() {
        for (index, message) in messages.unread() {
            let id = message.id();
            let first = id.as_ref().and_then(|id| known.get(&**id).copied());
            match first.and_then(|first| all.get_mut(first)) {
                Some(first) if first.message.identity() == message.identity() => {
                    first.doubles.push((inbox, index));
                    continue;
                }
                Some(_) => {}
                None => drop(id.map(|id| known.insert(id.into_owned(), all.len()))),
            }
            all.push(Waiting {
                inbox,
                index,
                message,
                doubles: Vec::new(),
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
fn by_time(waiting: Vec<Waiting<'_>>) -> Vec<Waiting<'_>> {
    let mut latest: HashMap<usize, SystemTime> = HashMap::new();
    let mut timed: Vec<(SystemTime, Waiting<'_>)> = Vec::with_capacity(waiting.len());
    for one in waiting {
        let latest = latest.entry(one.inbox).or_insert(SystemTime::UNIX_EPOCH);
        *latest = (*latest).max(one.message.time().unwrap_or(*latest));
        timed.push((*latest, one));
    }
    timed.sort_by_key(|(time, _)| *time);
    timed.into_iter().map(|(_, one)| one).collect()
}

fn envelope(message: &Message<'_>, reading: Reading) -> Envelope {
    let text = message.text();
    let end = text.char_indices().nth(reading.max_length);
    let (shown, truncated_from) = match end.and_then(|(end, _)| text.get(..end)) {
        Some(start) => {
            let whole = text.chars().count();
            let shown = reading.max_length;
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
