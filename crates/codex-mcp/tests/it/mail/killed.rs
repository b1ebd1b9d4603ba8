//! Writers that are killed at any moment.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use super::writer::Writer;
use super::{TeamFixture, text};
use crate::random::Random;

const KILLS: u32 = 60;

/// The most messages that one writer sends before it is killed.
const MOST: u32 = 12;

/// The longest time from the last message to the kill, in nanoseconds: about that of one message.
const LONGEST_PAUSE: u64 = 4_000_000;

/// A mailbox whose writers are killed.
pub(crate) struct KilledWriters {
    stage: TeamFixture,
    /// What was sent, as far as the writers said so.
    acknowledged: Vec<String>,
    kills: u32,
}

impl KilledWriters {
    pub(crate) fn new() -> Self {
        Self {
            stage: TeamFixture::new(),
            acknowledged: Vec::new(),
            kills: 0,
        }
    }

    /// Starts a writer, and kills it at a random point of one of its next messages.
    pub(crate) fn kill_one(&mut self, random: &mut Random) {
        let kill = self.kills;
        let writer = Writer::start(
            self.stage.home.path(),
            &format!("writer-{kill}"),
            usize::MAX,
        );
        let mut sent = 0;
        writer.listen(|child, text| {
            self.acknowledged.push(text);
            sent += 1;
            if sent == 1 + kill % MOST {
                thread::sleep(Duration::from_nanos(random.below(LONGEST_PAUSE)));
                child.kill().unwrap();
            }
        });
        self.kills += 1;
    }

    /// Checks that each message that was sent is there once; returns how many there are.
    pub(crate) fn check(&self) -> usize {
        let stored = self.stage.stored("lead.json");
        let texts: HashSet<String> = stored
            .iter()
            .map(|message| text(&message["text"]))
            .collect();
        assert_eq!(texts.len(), stored.len(), "a message is stored twice");
        let lost: Vec<&String> = self
            .acknowledged
            .iter()
            .filter(|one| !texts.contains(*one))
            .collect();
        assert!(lost.is_empty(), "{lost:?}");
        stored.len()
    }
}

#[test]
fn killed_writers_lose_no_acknowledged_message() {
    let mut writers = KilledWriters::new();
    let mut random = Random::seeded("mail");
    for _ in 0..KILLS {
        writers.kill_one(&mut random);
        writers.check();
    }
    let stage = &writers.stage;
    // The next writer removes the temporary files of killed writers.
    stage.send("lead", "last");
    let mut left: Vec<String> = std::fs::read_dir(stage.inbox(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["lead.json", "lead.lock"]);
}
