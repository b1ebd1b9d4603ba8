use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::entry::{LONGEST_PATH, LONGEST_PROMPT, LONGEST_TEXT};
use super::*;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn name(thread: &str) -> ThreadName {
    thread.parse().unwrap()
}

fn entry(thread: &str, seconds: u64) -> Entry {
    Entry {
        thread_id: name(thread),
        identity: "codex".parse().unwrap(),
        team: None,
        repo_root: None,
        repo_name: None,
        branch: None,
        cwd: Some("/r".to_owned()),
        started_at: at(seconds),
        last_active: at(seconds),
        status: Status::Active,
        tag: None,
        role: None,
        backend: None,
        turns: 1,
        no_summary: None,
        prompt: None,
        last_turn: None,
        settings: Settings::default(),
        rest: Map::new(),
    }
}

fn begin(thread: &str, seconds: u64) -> Change {
    Change::Begin {
        entry: Box::new(entry(thread, seconds)),
    }
}

fn again(document: &Document) -> Document {
    Document::parse(&document.to_json().unwrap()).unwrap()
}

#[test]
fn entry_has_the_required_json_keys() {
    let mut document = Document::default();
    document.apply(&begin("t", 0));
    let json: Value = serde_json::from_str(&document.to_json().unwrap()).unwrap();
    assert_eq!(
        json,
        json!({"version": 1, "threads": [{
            "thread_id": "t", "identity": "codex", "team": null, "repo_root": null,
            "repo_name": null, "branch": null, "cwd": "/r",
            "started_at": "1970-01-01T00:00:00.000Z", "last_active": "1970-01-01T00:00:00.000Z",
            "status": "active", "tag": null, "role": null, "backend": null, "turns": 1,
            "model": null, "sandbox": null, "approval_policy": null, "reasoning_effort": null,
            "profile": null,
        }]})
    );
}

#[test]
fn unknown_keys_statuses_and_entries_are_kept() {
    let text = r#"{"later": [1.0, 2], "version": 7, "threads": [
        {"thread_id": "t", "identity": "codex", "started_at": "2026-01-01T00:00:00Z",
         "last_active": "2026-01-01T00:00:00Z", "status": "frozen", "colour": {"a": 1}},
        {"thread_id": "../x", "more": 1.50},
        5]}"#;
    let mut document = Document::parse(text).unwrap();
    assert_eq!(document.entries().count(), 1);
    assert_eq!(document.apply(&begin("u", 9)), ChangeOutcome::Changed);
    let written = again(&again(&document)).to_json().unwrap();
    for part in [
        r#""later":[1.0, 2]"#,
        r#""version":8"#,
        r#""status":"frozen""#,
        r#""colour":{"a":1}"#,
        r#"{"thread_id": "../x", "more": 1.50}"#,
        ",\n5",
    ] {
        assert!(written.contains(part), "{part} in {written}");
    }
}

#[test]
fn resumed_thread_keeps_its_start_tag_and_turns() {
    let mut document = Document::default();
    document.apply(&begin("t", 5));
    let update = ThreadUpdate {
        turns: 2,
        tag: Some("the tag".to_owned()),
        ..ThreadUpdate::default()
    };
    document.apply(&Change::Touch {
        thread_id: name("t"),
        at: at(6),
        update: Box::new(update),
    });
    document.apply(&Change::InterruptActive);
    document.apply(&begin("t", 9));
    let found = document.find(&name("t")).unwrap();
    let resumed = (found.started_at, found.last_active, found.turns);
    assert_eq!(resumed, (at(5), at(9), 4));
    assert_eq!(found.tag.as_deref(), Some("the tag"));
    assert_eq!(found.status, Status::Active);
    assert_eq!(document.entries().count(), 1);
}

#[test]
fn thread_used_while_the_clock_was_ahead_does_not_stay_the_last_used() {
    const DAY: u64 = 24 * 3600;
    let mut document = Document::default();
    document.apply(&begin("ahead", 300 * DAY));
    document.apply(&begin("later", 100 * DAY));
    let latest = |document: &Document, now: u64| {
        let latest = document.latest(at(now)).unwrap();
        (latest.thread_id.to_string(), latest.last_active)
    };
    let later = |seconds| ("later".to_owned(), at(seconds));
    let ahead = |seconds| ("ahead".to_owned(), at(seconds));
    assert_eq!(latest(&document, 100 * DAY), later(100 * DAY));
    // The controls: the clock was right, or is behind now.
    assert_eq!(latest(&document, 299 * DAY), ahead(300 * DAY));
    assert_eq!(latest(&document, 0), ahead(300 * DAY));
    let touch = |thread, seconds| Change::Touch {
        thread_id: name(thread),
        at: at(seconds),
        update: Box::default(),
    };
    document.apply(&touch("ahead", 101 * DAY));
    assert_eq!(latest(&document, 101 * DAY), ahead(101 * DAY));
    // A clock that was set back by a day at most.
    document.apply(&touch("ahead", 100 * DAY));
    assert_eq!(latest(&document, 100 * DAY), ahead(101 * DAY));
}

#[test]
fn change_of_an_unknown_thread_leaves_the_version() {
    let mut document = Document::default();
    for change in [
        Change::Touch {
            thread_id: name("t"),
            at: at(0),
            update: Box::default(),
        },
        Change::Remove {
            thread_id: name("t"),
            idle_since: None,
        },
        Change::InterruptActive,
    ] {
        assert_eq!(document.apply(&change), ChangeOutcome::Unchanged);
    }
    assert_eq!(document.version, 0);
}

#[test]
fn thread_used_since_is_not_removed() {
    let mut document = Document::default();
    document.apply(&begin("t", 5));
    for (since, expected) in [(4, ChangeOutcome::Unchanged), (5, ChangeOutcome::Changed)] {
        let change = Change::Remove {
            thread_id: name("t"),
            idle_since: Some(at(since)),
        };
        let json = serde_json::to_string(&change).unwrap();
        assert_eq!(serde_json::from_str::<Change>(&json).unwrap(), change);
        assert_eq!(document.apply(&change), expected);
    }
}

#[test]
fn oldest_inactive_thread_is_removed_when_full() {
    let mut document = Document::default();
    for number in 0..MAX_THREADS {
        let entry = entry(&format!("t{number}"), number as u64);
        document.threads.push(Item::Entry(Box::new(entry)));
    }
    for thread in ["t7", "t5"] {
        document.apply(&Change::SetStatus {
            thread_id: name(thread),
            status: Status::Ended,
            no_summary: None,
        });
    }
    document.apply(&begin("one", 1));
    document.apply(&begin("two", 1));
    document.apply(&begin("three", 99_999));
    assert_eq!(document.entries().count(), MAX_THREADS);
    for (thread, is_there) in [("t5", false), ("t7", false), ("t0", false), ("t1", true)] {
        assert_eq!(document.find(&name(thread)).is_some(), is_there, "{thread}");
    }
}

#[test]
fn long_texts_are_cut_between_characters() {
    let mut long = entry("t", 0);
    long.tag = Some("ß".repeat(LONGEST_TEXT));
    long.cwd = Some(format!("x{}", "ß".repeat(LONGEST_PATH)));
    let mut document = Document::default();
    document.apply(&Change::Begin {
        entry: Box::new(long),
    });
    let found = document.find(&name("t")).unwrap();
    assert_eq!(found.tag.as_ref().unwrap().len(), LONGEST_TEXT);
    assert_eq!(found.cwd.as_ref().unwrap().len(), LONGEST_PATH - 1);
}

#[test]
fn long_prompt_is_cut_with_a_mark_and_only_once() {
    let prompt_of = |prompt: &str| {
        let mut new = entry("t", 0);
        new.prompt = Some(prompt.to_owned());
        let mut document = Document::default();
        document.apply(&Change::Begin {
            entry: Box::new(new),
        });
        let found = document.find(&name("t")).unwrap();
        found.prompt.clone().unwrap()
    };
    let longest = "x".repeat(LONGEST_PROMPT);
    assert_eq!(prompt_of(&longest), longest);
    let cut = prompt_of(&format!("{longest}y"));
    assert_eq!(cut, format!("{}…", "x".repeat(LONGEST_PROMPT - 3)));
    assert_eq!(prompt_of(&cut), cut);
    let cut = prompt_of(&"ß".repeat(LONGEST_PROMPT));
    assert_eq!(cut, format!("{}…", "ß".repeat(98)));
}

#[test]
fn last_turn_is_kept_beside_the_status() {
    let mut document = Document::default();
    document.apply(&begin("t", 0));
    let prompted = |prompt: &str| Change::Touch {
        thread_id: name("t"),
        at: at(1),
        update: Box::new(ThreadUpdate {
            turns: 1,
            prompt: Some(prompt.to_owned()),
            ..ThreadUpdate::default()
        }),
    };
    let found = |document: &Document| {
        let entry = again(document).find(&name("t")).unwrap().clone();
        (entry.status, entry.last_turn, entry.prompt)
    };
    let first = Some("first".to_owned());
    document.apply(&prompted("first"));
    let running = Some(TurnState::Running);
    assert_eq!(found(&document), (Status::Active, running, first.clone()));
    let (thread_id, state) = (name("t"), TurnState::Completed);
    document.apply(&Change::TurnEnded { thread_id, state });
    document.apply(&Change::InterruptActive);
    let completed = Some(TurnState::Completed);
    assert_eq!(
        found(&document),
        (Status::Interrupted, completed, first.clone())
    );
    document.apply(&prompted("second"));
    let other = Change::Interrupt {
        thread_id: name("u"),
    };
    assert_eq!(document.apply(&other), ChangeOutcome::Unchanged);
    let thread_id = name("t");
    document.apply(&Change::Interrupt { thread_id });
    let interrupted = Some(TurnState::Interrupted);
    assert_eq!(found(&document), (Status::Interrupted, interrupted, first));
}

#[test]
fn malformed_registry_is_refused() {
    for text in [
        "",
        "{",
        "[]",
        "{\"version\": 1}",
        "{\"version\": -1, \"threads\": []}",
    ] {
        assert!(Document::parse(text).is_err(), "{text}");
    }
}

fn change() -> impl Strategy<Value = Change> {
    let thread = || prop_oneof!["[a-d]", "[a-z]{2}"].prop_map(|text: String| name(&text));
    let seconds = 0..1_000_000_u64;
    let text = || proptest::option::of("\\PC{0,9}");
    let status = prop_oneof![
        Just(Status::Ended),
        Just(Status::Interrupted),
        Just(Status::Other("frozen".to_owned()))
    ];
    prop_oneof![
        3 => (thread(), seconds.clone(), text()).prop_map(|(thread, seconds, tag)| {
            let mut entry = entry(thread.as_str(), seconds);
            entry.tag = tag;
            Change::Begin { entry: Box::new(entry) }
        }),
        4 => (thread(), seconds, text(), text(), 0..3_u64).prop_map(
            |(thread_id, seconds, branch, model, turns)| {
                let settings = Settings { model, ..Settings::default() };
                let update = ThreadUpdate { turns, branch, settings, ..ThreadUpdate::default() };
                Change::Touch { thread_id, at: at(seconds), update: Box::new(update) }
            }
        ),
        2 => (thread(), status).prop_map(|(thread_id, status)| Change::SetStatus { thread_id, status, no_summary: None }),
        1 => (thread(), proptest::option::of(0..1_000_000_u64)).prop_map(|(thread_id, since)| {
            Change::Remove { thread_id, idle_since: since.map(at) }
        }),
        1 => thread().prop_map(|thread_id| {
            Change::TurnEnded { thread_id, state: TurnState::Completed }
        }),
        1 => thread().prop_map(|thread_id| Change::Interrupt { thread_id }),
        1 => Just(Change::InterruptActive),
    ]
}

/// How a change is written.
#[derive(Debug, Clone, Copy)]
enum WriteMode {
    /// The document is rewritten.
    Document,
    /// A line is added to the journal.
    Journal,
    /// The same, and then the journal is folded into the document.
    Compacted,
    /// The same, and the journal stays because the process dies.
    HalfCompacted,
}

/// The files.
#[derive(Default)]
struct Files {
    document: Document,
    journal: Vec<String>,
}

impl Files {
    fn read(&self) -> Document {
        let mut document = again(&self.document);
        for line in &self.journal {
            document.fold(&serde_json::from_str(line).unwrap());
        }
        document
    }

    fn make(&mut self, change: &Change, way: WriteMode) {
        let mut now = self.read();
        if now.apply(change) == ChangeOutcome::Unchanged {
            return;
        }
        let line = JournalLine {
            version: now.version,
            change: change.clone(),
        };
        match way {
            WriteMode::Document => {
                *self = Self {
                    document: now,
                    ..Self::default()
                }
            }
            WriteMode::Journal => self.journal.push(serde_json::to_string(&line).unwrap()),
            WriteMode::Compacted => {
                self.make(change, WriteMode::Journal);
                *self = Self {
                    document: self.read(),
                    ..Self::default()
                };
            }
            WriteMode::HalfCompacted => {
                self.make(change, WriteMode::Journal);
                self.document = self.read();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_write_modes_give_the_same_document(
        changes in proptest::collection::vec((change(), 0..4_usize), 0..40)
    ) {
        let ways = [WriteMode::Document, WriteMode::Journal, WriteMode::Compacted, WriteMode::HalfCompacted];
        let mut plain = Document::default();
        let mut files = Files::default();
        for (change, way) in &changes {
            plain.apply(change);
            files.make(change, ways[*way]);
            prop_assert_eq!(files.read().to_json().unwrap(), plain.to_json().unwrap());
        }
        let turns: u64 = plain.entries().map(|entry| entry.turns).sum();
        prop_assert!(turns <= changes.len() as u64 * 3);
    }
}
