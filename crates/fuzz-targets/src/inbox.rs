//! Inboxes of agents, which other programs write too.
//!
//! Input: up to three inboxes with a line `---` between them.

use std::time::SystemTime;

use agent_team::logic::inbox::{
    Inbox, NewMessage, ReadLimits, UnreadBatch, merge, oldest_unread, pending,
};
use serde_json::Value;

const ALL: ReadLimits = ReadLimits {
    max_messages: usize::MAX,
    max_length: usize::MAX,
};

/// Tests one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        assert!(Inbox::parse(data).is_err(), "bytes that are no text");
        return;
    };
    let parts: Vec<&str> = text.splitn(3, "\n---\n").collect();
    let read: Vec<Inbox<'_>> = parts.iter().filter_map(|part| parse(part)).collect();
    for inbox in &read {
        append(inbox);
        mark(inbox);
        excerpts(inbox);
    }
    together(&read);
    if let [before, ours, found] = read.as_slice() {
        assert_eq!(merge(before, before, found), found.text());
        assert_eq!(
            elements(&merge(before, ours, before)).len(),
            longer(before, ours)
        );
        let merged = merge(before, ours, found);
        let (merged, found) = (elements(&merged), elements(found.text()));
        assert!(merged.starts_with(&found), "an element is lost");
    }
}

fn parse(text: &str) -> Option<Inbox<'_>> {
    let inbox = Inbox::parse(text.as_bytes());
    let is_array = serde_json::from_str::<Vec<Value>>(text).is_ok();
    assert!(!is_array || inbox.is_ok(), "an array that is no inbox");
    inbox.ok()
}

/// The elements as they are written.
fn elements(text: &str) -> Vec<String> {
    let elements: Vec<&serde_json::value::RawValue> = serde_json::from_str(text).unwrap();
    elements
        .iter()
        .map(|element| element.get().to_owned())
        .collect()
}

/// How many elements `before` has with the additions of `ours`.
fn longer(before: &Inbox<'_>, ours: &Inbox<'_>) -> usize {
    let merged = merge(before, ours, before);
    // What was merged is merged.
    let again = Inbox::parse(merged.as_bytes()).unwrap();
    assert_eq!(merge(before, ours, &again), merged);
    elements(&merged).len()
}

fn message(id: &str) -> NewMessage {
    let from = "codex".parse().unwrap();
    NewMessage::new(
        from,
        "a\n\"b\"".to_owned(),
        SystemTime::UNIX_EPOCH,
        id.to_owned(),
    )
}

fn append(inbox: &Inbox<'_>) {
    let new = message("an ID that nobody has");
    let longer = inbox.append(&new);
    let (before, after) = (elements(inbox.text()), elements(&longer));
    assert_eq!(before, after[..after.len() - 1]);
    assert!(Inbox::parse(longer.as_bytes()).unwrap().contains(&new));
    let unread = |inbox: &Inbox<'_>| oldest_unread(std::slice::from_ref(inbox), ALL).messages;
    let mut expected = unread(inbox).len();
    expected += 1;
    let again = Inbox::parse(longer.as_bytes()).unwrap();
    let now = unread(&again);
    assert_eq!(now.len(), expected);
    assert_eq!(now.last().unwrap().message, "a\n\"b\"");
}

/// Messages that were marked are not delivered again, and nothing else has changed.
fn mark(inbox: &Inbox<'_>) {
    let batch = oldest_unread(std::slice::from_ref(inbox), ALL);
    let marked = inbox.mark(marks(&batch, 0));
    let Some(text) = marked.text else {
        assert!(
            batch.messages.is_empty(),
            "{:?} is not marked",
            batch.messages
        );
        return;
    };
    let again = Inbox::parse(text.as_bytes()).unwrap();
    assert_eq!(pending(std::slice::from_ref(&again)).count, 0);
    let (before, after) = (elements(inbox.text()), elements(&text));
    assert_eq!(before.len(), after.len());
    let changed = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after);
    assert_eq!(changed.count(), marked.count);
    assert_eq!(again.mark(marks(&batch, 0)).count, 0);
}

fn marks(
    batch: &UnreadBatch,
    inbox: usize,
) -> impl Iterator<Item = &agent_team::logic::inbox::Mark> {
    let of_inbox = batch.marks.iter().filter(move |(index, _)| *index == inbox);
    of_inbox.map(|(_, mark)| mark)
}

/// An excerpt is a beginning of the message, and says when it is shorter.
fn excerpts(inbox: &Inbox<'_>) {
    let inboxes = std::slice::from_ref(inbox);
    let whole = oldest_unread(inboxes, ALL);
    let limits = ReadLimits {
        max_messages: 2,
        max_length: 5,
    };
    let batch = oldest_unread(inboxes, limits);
    assert_eq!(batch.messages.len() + batch.remaining, whole.messages.len());
    for (short, whole) in batch.messages.iter().zip(&whole.messages) {
        let length = whole.message.chars().count();
        let beginning: String = whole.message.chars().take(5).collect();
        assert!(short.message.starts_with(&beginning));
        assert_eq!(short.truncated_from, (length > 5).then_some(length));
    }
}

fn together(inboxes: &[Inbox<'_>]) {
    let batch = oldest_unread(inboxes, ALL);
    let count = pending(inboxes);
    assert_eq!(batch.messages.len(), count.count);
    let of_senders: usize = count.senders.iter().map(|(_, count)| count).sum();
    let of_others = count.count - of_senders;
    assert!(of_others >= count.other_senders, "{count:?}");
    assert_eq!(of_others == 0, count.other_senders == 0, "{count:?}");
    for (index, inbox) in inboxes.iter().enumerate() {
        if let Some(text) = inbox.mark(marks(&batch, index)).text {
            let again = Inbox::parse(text.as_bytes()).unwrap();
            assert_eq!(pending(std::slice::from_ref(&again)).count, 0);
        }
    }
}
