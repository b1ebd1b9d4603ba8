//! The registry of threads: written and read again, and kept by a journal.
//!
//! Input: a document in the first part, and a change in each line after the line `---`.

use std::time::SystemTime;

use agent_team::logic::registry::{Change, Document, JournalLine};

/// Tests one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (document, changes) = text.split_once("\n---\n").unwrap_or((text, ""));
    let Ok(document) = Document::parse(document) else {
        return;
    };
    let document = write_and_read(&document);
    let changes = changes.lines().take(50);
    let changes = changes.filter_map(|line| serde_json::from_str::<Change>(line).ok());
    apply(document, &changes.collect::<Vec<_>>());
}

/// What was written once reads and writes the same.
fn write_and_read(document: &Document) -> Document {
    let text = document.to_json().unwrap();
    let again = Document::parse(&text).unwrap();
    assert_eq!(again.to_json().unwrap(), text);
    assert_eq!(again.version, document.version);
    assert_eq!(again.entries().count(), document.entries().count());
    again
}

/// A document with its journal is the document with all changes.
fn apply(start: Document, changes: &[Change]) {
    let mut whole = start.clone();
    let mut journal = Vec::new();
    for change in changes {
        let before = whole.version;
        whole.apply(change);
        if whole.version > before {
            let line = JournalLine {
                version: whole.version,
                change: change.clone(),
            };
            let text = serde_json::to_string(&line).unwrap();
            let read: JournalLine = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
            journal.push(read);
        }
        whole = write_and_read(&whole);
        if let Some(latest) = whole.latest(SystemTime::UNIX_EPOCH) {
            assert!(whole.find(&latest.thread_id).is_some());
        }
    }
    let mut folded = start;
    // A process may die when it has written the document, and before it removes the journal.
    for _ in 0..2 {
        journal.iter().for_each(|line| folded.fold(line));
        folded = write_and_read(&folded);
        assert_eq!(folded.to_json().unwrap(), whole.to_json().unwrap());
    }
}
