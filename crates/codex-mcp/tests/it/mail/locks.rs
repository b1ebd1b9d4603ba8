//! Writers that lock inboxes in other ways than we do.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{io, thread};

use agent_team::mail::MailError;
use serde_json::json;
use testkit::wait::wait_for_blocking;

use super::writer::Writer;
use super::{TeamFixture, codex, content, name, team, texts, write_plainly};

/// Longer than the age at which a lock directory counts as stale.
const LONG_AGO: Duration = Duration::from_secs(60);

/// Writes as Claude Code is said to do: with a directory as the lock, and the file written in
/// place.
fn write_as_claude_does(inbox: &Path, text: &str) {
    let lock = inbox.with_extension("json.lock");
    wait_for_blocking("the lock directory", || match fs::create_dir(&lock) {
        Ok(()) => Some(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        Err(error) => panic!("{error}"),
    });
    let time = "2026-02-18T10:00:00.000Z";
    let message = json!({"from": "claude", "text": text, "timestamp": time, "read": false});
    write_plainly(inbox, message);
    fs::remove_dir(lock).unwrap();
}

#[test]
fn messages_survive_writers_that_lock_with_a_directory() {
    let stage = TeamFixture::new();
    let inbox = stage.inbox("lead.json");
    let writers = ["first", "second"].map(|name| Writer::start(stage.home.path(), name, 100));
    let claude = thread::spawn({
        let inbox = inbox.clone();
        move || (0..100).for_each(|n| write_as_claude_does(&inbox, &format!("claude {n}")))
    });
    let mut read: Vec<String> = Vec::new();
    while !claude.is_finished() {
        read.extend(stage.read_and_mark("lead"));
    }
    claude.join().unwrap();
    for writer in writers {
        writer.listen(|_, _| {});
    }
    while stage
        .mail_store
        .pending(&name("lead"), &team())
        .unwrap()
        .count
        > 0
    {
        read.extend(stage.read_and_mark("lead"));
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
fn stale_lock_directory_is_removed_and_a_live_one_is_named() {
    let stage = TeamFixture::new();
    let lock = stage.inbox("lead.json.lock");
    fs::create_dir(&lock).unwrap();
    let refused = stage
        .mail_store
        .send(&codex(), &name("lead"), &team(), &content("x"));
    let Err(MailError::Busy { lock: named, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(named, lock.canonicalize().unwrap());
    assert!(!stage.inbox("lead.json").exists());

    let old = SystemTime::now() - LONG_AGO;
    File::open(&lock).unwrap().set_modified(old).unwrap();
    stage.send("lead", "after it");
    assert!(!lock.exists());
    assert_eq!(stage.read_and_mark("lead"), ["after it"]);
}

#[test]
fn lock_file_is_respected_and_stays() {
    let stage = TeamFixture::new();
    let lock = stage.inbox("lead.json.lock");
    let held = File::create(&lock).unwrap();
    held.lock().unwrap();
    thread::scope(|scope| {
        let sent = scope.spawn(|| stage.send("lead", "patient"));
        // The sender waits for as long as the lock is held: it keeps its first lock meanwhile.
        let first = stage.inbox("lead.lock");
        wait_for_blocking("the sender holds its first lock", || {
            let first = File::open(&first).ok()?;
            matches!(first.try_lock(), Err(TryLockError::WouldBlock)).then_some(())
        });
        assert!(!sent.is_finished());
        assert!(!stage.inbox("lead.json").exists());
        held.unlock().unwrap();
        sent.join().unwrap();
    });
    assert!(lock.is_file());
    for version in testkit::atm::versions() {
        stage.atm(version, "atm", &["send", "lead", version]);
    }
    assert_eq!(stage.read_and_mark("lead")[0], "patient");
}

#[test]
fn atm_and_we_wait_for_the_same_lock() {
    for version in testkit::atm::versions() {
        let stage = TeamFixture::new();
        let first = File::create(stage.inbox("lead.lock")).unwrap();
        first.lock().unwrap();
        thread::scope(|scope| {
            let theirs = scope.spawn(|| stage.atm(version, "atm", &["send", "lead", "theirs"]));
            let ours = scope.spawn(|| stage.send("lead", "ours"));
            // Both poll for their first lock, which leaves no trace that could be awaited.
            thread::sleep(Duration::from_millis(50));
            assert!(!theirs.is_finished() && !ours.is_finished());
            first.unlock().unwrap();
            assert_eq!(theirs.join().unwrap()["outcome"], "success");
            ours.join().unwrap();
        });
        let mut read = stage.read_and_mark("lead");
        read.sort();
        assert_eq!(read, ["ours", "theirs"]);
    }
}
