//! Writers that are killed at any moment.

use std::collections::HashSet;
use std::time::Instant;

use super::writer::Writer;
use super::{TeamFixture, text};

const KILLS: u32 = 60;

/// The most messages that one writer sends before it is killed.
const MOST: u32 = 12;

#[test]
fn killed_writers_lose_no_acknowledged_message() {
    let stage = TeamFixture::new();
    let mut acknowledged = Vec::new();
    for kill in 0..KILLS {
        let sender = format!("writer-{kill}");
        let writer = Writer::start(stage.home.path(), &sender, usize::MAX);
        let begin = Instant::now();
        let mut sent = 0;
        writer.listen(|child, text| {
            acknowledged.push(text);
            sent += 1;
            // The kill falls at a random point of the next message.
            if sent == 1 + kill % MOST {
                let pause = begin.elapsed().subsec_nanos() % 4_000_000;
                std::thread::sleep(std::time::Duration::from_nanos(pause.into()));
                child.kill().unwrap();
            }
        });
        let stored = stage.stored("lead.json");
        let texts: HashSet<String> = stored
            .iter()
            .map(|message| text(&message["text"]))
            .collect();
        assert_eq!(texts.len(), stored.len(), "a message is stored twice");
        let lost: Vec<&String> = acknowledged
            .iter()
            .filter(|one| !texts.contains(*one))
            .collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
    // The next writer removes the temporary files of killed writers.
    stage.send("lead", "last");
    let mut left: Vec<String> = std::fs::read_dir(stage.inbox(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["lead.json", "lead.lock"]);
}
