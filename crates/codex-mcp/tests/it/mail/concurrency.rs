//! Many processes that write into one inbox while it is read.

use std::collections::{HashMap, HashSet};
use std::thread;

use super::writer::Writer;
use super::{TeamFixture, text};

const WRITERS: usize = 8;

/// Messages of each of our processes.
const EACH: usize = 150;

/// Messages of each atm: each takes a process start, and a second and a half more if the lock is
/// busy.
const EACH_ATM: usize = 12;

/// Sends messages with an atm and returns those that it reports as written. When it could not get
/// the lock, atm queues the message and says so; a queued message is not in the inbox.
fn write_with_atm(stage: &TeamFixture, version: &str) -> Vec<String> {
    let mut written = Vec::new();
    for number in 0..EACH_ATM {
        let text = format!("{version} {number}");
        let sent = stage.atm(version, "atm", &["send", "lead", &text]);
        match sent["outcome"].as_str() {
            Some("success") => written.push(text),
            // atm believed that another writer had ignored the lock, which none did.
            other => assert_eq!(other, Some("queued"), "{sent}"),
        }
    }
    written
}

#[test]
fn messages_of_many_writers_arrive_once_and_in_order() {
    let stage = TeamFixture::new();
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
            read.extend(stage.read_and_mark("lead"));
        }
    });
    loop {
        let more = stage.read_and_mark("lead");
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
    assert_eq!(read, stored, "messages were read once each, in order");
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
