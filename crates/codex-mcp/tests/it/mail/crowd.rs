//! Many processes write into one inbox while it is read.

use std::collections::{HashMap, HashSet};
use std::thread;

use super::writer::Writer;
use super::{Stage, text};

const WRITERS: usize = 8;

/// Messages of each of our processes.
const EACH: usize = 500;

/// Messages of each atm: a process start for each, and a second and a half for each
/// that it can't write at once.
const EACH_ATM: usize = 12;

/// The messages that an atm says it has written. Where it couldn't get the lock, it
/// has put the message aside and says so: that one isn't in the inbox, and what
/// becomes of it is its own affair.
fn write_with_atm(stage: &Stage, version: &str) -> Vec<String> {
    let mut written = Vec::new();
    for number in 0..EACH_ATM {
        let text = format!("{version} {number}");
        let sent = stage.atm(version, "atm", &["send", "lead", &text]);
        match sent["outcome"].as_str() {
            Some("success") => written.push(text),
            // It found that somebody had written beside the lock, which nobody did.
            other => assert_eq!(other, Some("queued"), "{sent}"),
        }
    }
    written
}

#[test]
fn none_is_lost_none_is_doubled_and_each_sender_keeps_its_order() {
    let stage = Stage::new();
    let mut expected: HashMap<String, Vec<String>> = HashMap::new();
    let mut read = Vec::new();
    thread::scope(|scope| {
        let ours: Vec<_> = (0..WRITERS)
            .map(|number| {
                let sender = format!("codex-{number}");
                let writer = Writer::start(stage.home.path(), &sender, EACH);
                scope.spawn(move || {
                    let mut sent = Vec::new();
                    writer.listen(|_, text| sent.push(text));
                    (sender, sent)
                })
            })
            .collect();
        let theirs = testkit::atm::versions()
            .into_iter()
            .map(|version| scope.spawn(|| (version.to_owned(), write_with_atm(&stage, version))));
        let mut writers: Vec<_> = ours.into_iter().chain(theirs).collect();
        while !writers.is_empty() {
            let (done, busy): (Vec<_>, Vec<_>) =
                writers.into_iter().partition(|writer| writer.is_finished());
            expected.extend(done.into_iter().map(|writer| writer.join().unwrap()));
            writers = busy;
            read.extend(stage.take("lead"));
        }
    });
    loop {
        let more = stage.take("lead");
        if more.is_empty() {
            break;
        }
        read.extend(more);
    }
    let stored: Vec<String> = stage
        .stored("lead.json")
        .iter()
        .map(|message| text(&message["text"]))
        .collect();
    assert_eq!(
        read, stored,
        "each was given once, in the order in which it was stored"
    );
    assert_eq!(stored.iter().collect::<HashSet<_>>().len(), stored.len());
    let mut by_sender: HashMap<String, Vec<String>> = HashMap::new();
    for text in stored {
        let sender = text.split(' ').next().unwrap().to_owned();
        by_sender.entry(sender).or_default().push(text);
    }
    for (sender, sent) in expected {
        if sender.starts_with("codex") {
            assert_eq!(sent.len(), EACH);
        }
        assert_eq!(
            by_sender.remove(&sender).unwrap_or_default(),
            sent,
            "{sender}"
        );
    }
    assert!(by_sender.is_empty(), "{by_sender:?}");
}
