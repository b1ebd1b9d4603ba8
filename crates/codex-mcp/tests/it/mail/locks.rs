//! Beside writers that lock in other ways.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{io, thread};

use agent_team::mail::MailError;
use serde_json::json;

use super::writer::Writer;
use super::{Stage, codex, letter, name, team, texts, write_plainly};

/// Longer than any directory lock is taken to be held without a sign of life.
const LONG_AGO: Duration = Duration::from_secs(60);

/// As Claude Code is said to: a directory for a lock, and the file written in place.
fn write_as_claude_does(inbox: &Path, text: &str) {
    let lock = inbox.with_extension("json.lock");
    loop {
        match fs::create_dir(&lock) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    let time = "2026-02-18T10:00:00.000Z";
    let message = json!({"from": "claude", "text": text, "timestamp": time, "read": false});
    write_plainly(inbox, message);
    fs::remove_dir(lock).unwrap();
}

#[test]
fn nothing_is_lost_beside_writers_that_lock_with_a_directory_and_write_in_place() {
    let stage = Stage::new();
    let inbox = stage.inbox("lead.json");
    let writers = ["first", "second"].map(|name| Writer::start(stage.home.path(), name, 100));
    let claude = thread::spawn({
        let inbox = inbox.clone();
        move || (0..100).for_each(|n| write_as_claude_does(&inbox, &format!("claude {n}")))
    });
    let mut read: Vec<String> = Vec::new();
    while !claude.is_finished() {
        read.extend(stage.take("lead"));
    }
    claude.join().unwrap();
    for writer in writers {
        writer.listen(|_, _| {});
    }
    while stage.room.pending(&name("lead"), &team()).unwrap().count > 0 {
        read.extend(stage.take("lead"));
    }
    assert_eq!(texts(&stage.stored("lead.json")), read);
    for sender in ["first", "second", "claude"] {
        let sent: Vec<String> = (0..100).map(|n| format!("{sender} {n}")).collect();
        let own: Vec<&String> = read
            .iter()
            .filter(|text| text.starts_with(sender))
            .collect();
        assert_eq!(own, sent.iter().collect::<Vec<_>>());
    }
    assert!(!inbox.with_extension("json.lock").exists());
}

#[test]
fn a_directory_left_behind_by_the_dead_is_taken_over_and_one_of_the_living_is_named() {
    let stage = Stage::new();
    let lock = stage.inbox("lead.json.lock");
    fs::create_dir(&lock).unwrap();
    let refused = stage
        .room
        .send(&codex(), &name("lead"), &team(), &letter("x"));
    let Err(MailError::Busy { lock: named, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(named, lock.canonicalize().unwrap());
    assert!(!stage.inbox("lead.json").exists());

    let old = SystemTime::now() - LONG_AGO;
    File::open(&lock).unwrap().set_modified(old).unwrap();
    stage.send("lead", "after it");
    assert!(!lock.exists());
    assert_eq!(stage.take("lead"), ["after it"]);
}

#[test]
fn a_lock_that_is_a_file_is_respected_and_stays() {
    let stage = Stage::new();
    let lock = stage.inbox("lead.json.lock");
    let held = File::create(&lock).unwrap();
    held.lock().unwrap();
    thread::scope(|scope| {
        let sent = scope.spawn(|| stage.send("lead", "patient"));
        // It waits as long as the lock is held, however long this takes.
        thread::sleep(Duration::from_millis(50));
        assert!(!sent.is_finished());
        assert!(!stage.inbox("lead.json").exists());
        held.unlock().unwrap();
        sent.join().unwrap();
    });
    assert!(lock.is_file());
    for version in testkit::atm::versions() {
        stage.atm(version, "atm", &["send", "lead", version]);
    }
    assert_eq!(stage.take("lead")[0], "patient");
}

#[test]
fn atm_waits_for_us_and_we_wait_for_it() {
    for version in testkit::atm::versions() {
        let stage = Stage::new();
        let first = File::create(stage.inbox("lead.lock")).unwrap();
        first.lock().unwrap();
        thread::scope(|scope| {
            let theirs = scope.spawn(|| stage.atm(version, "atm", &["send", "lead", "theirs"]));
            let ours = scope.spawn(|| stage.send("lead", "ours"));
            thread::sleep(Duration::from_millis(50));
            assert!(!theirs.is_finished() && !ours.is_finished());
            first.unlock().unwrap();
            assert_eq!(theirs.join().unwrap()["outcome"], "success");
            ours.join().unwrap();
        });
        let mut read = stage.take("lead");
        read.sort();
        assert_eq!(read, ["ours", "theirs"]);
    }
}
