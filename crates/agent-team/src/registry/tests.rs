use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;

use testkit::worker_process::{WorkerProcess, done, variable};

use super::*;
use crate::logic::registry::{Settings, ThreadUpdate};

const MODES: [Mode; 2] = [Mode::Document, Mode::Journal];

fn codex() -> AgentName {
    "codex".parse().unwrap()
}

fn name(thread: &str) -> ThreadName {
    thread.parse().unwrap()
}

fn open(home: &Path, mode: Mode) -> Registry {
    Registry::open(home, &codex(), mode).unwrap()
}

fn begin(thread: &str) -> Change {
    let now = SystemTime::now();
    Change::Begin {
        entry: Box::new(Entry {
            thread_id: name(thread),
            identity: codex(),
            team: Some("builders".parse().unwrap()),
            repo_root: Some("/home/somebody/projects/the-repository".to_owned()),
            repo_name: Some("the-repository".to_owned()),
            branch: Some("main".to_owned()),
            cwd: Some("/home/somebody/projects/the-repository/crates".to_owned()),
            started_at: now,
            last_active: now,
            status: Status::Active,
            tag: None,
            role: None,
            backend: None,
            turns: 0,
            no_summary: None,
            prompt: None,
            last_turn: None,
            settings: Settings::default(),
            rest: serde_json::Map::new(),
        }),
    }
}

fn touch(thread: &str) -> Change {
    let update = ThreadUpdate {
        turns: 1,
        ..ThreadUpdate::default()
    };
    Change::Touch {
        thread_id: name(thread),
        at: SystemTime::now(),
        update: Box::new(update),
    }
}

fn turns(home: &Path, thread: &str) -> u64 {
    let threads = read(home, &codex()).unwrap();
    threads.find(&name(thread)).map_or(0, |entry| entry.turns)
}

#[test]
fn malformed_registry_is_set_aside_at_takeover() {
    for broken in ["garbage", "{}", "", "{\"version\":1,\"threads\":[{"] {
        let home = tempfile::tempdir().unwrap();
        let mut registry = open(home.path(), Mode::Document);
        registry.apply(&begin("t")).unwrap();
        fs::write(&registry.paths.document, broken).unwrap();
        let mut next = open(home.path(), Mode::Document);
        assert_eq!(next.take_over().unwrap(), [], "{broken}");
        next.apply(&begin("u")).unwrap();
        assert_eq!(next.load().unwrap().len(), 1, "{broken}");
    }
}

#[test]
fn changes_are_visible_to_other_readers() {
    for mode in MODES {
        let home = tempfile::tempdir().unwrap();
        let mut registry = open(home.path(), mode);
        assert_eq!(registry.load().unwrap(), []);
        assert_eq!(
            registry.apply(&touch("t")).unwrap(),
            ChangeOutcome::Unchanged
        );
        registry.apply(&begin("u")).unwrap();
        registry.apply(&begin("t")).unwrap();
        registry.apply(&touch("t")).unwrap();
        assert_eq!(turns(home.path(), "t"), 1);
        let mut other = open(home.path(), mode);
        assert_eq!(other.latest().unwrap().unwrap().thread_id, name("t"));
        other.apply(&touch("t")).unwrap();
        // The current state counts, not the cached one.
        registry.apply(&touch("t")).unwrap();
        assert_eq!(registry.find(&name("t")).unwrap().unwrap().turns, 3);
        assert_eq!(read(home.path(), &codex()).unwrap().version, 5);
        assert_eq!(
            read(home.path(), &"nobody".parse().unwrap())
                .unwrap()
                .version,
            0
        );
        let journal = registry.paths.journal.exists();
        assert_eq!(journal, mode == Mode::Journal);
        let left = open(home.path(), mode).take_over().unwrap();
        assert_eq!(left, [name("u"), name("t")]);
        let status = registry.find(&name("u")).unwrap().unwrap().status;
        assert_eq!(status, Status::Interrupted);
    }
}

#[test]
fn document_and_journal_writers_work_together() {
    let home = tempfile::tempdir().unwrap();
    let mut registries = MODES.map(|mode| open(home.path(), mode));
    registries[0].apply(&begin("t")).unwrap();
    for round in 0..20 {
        registries[round * 7 % 3 % 2].apply(&touch("t")).unwrap();
        assert_eq!(turns(home.path(), "t"), round as u64 + 1);
    }
}

#[test]
fn long_journal_is_folded_into_the_document() {
    let home = tempfile::tempdir().unwrap();
    let mut registry = open(home.path(), Mode::Journal);
    registry.apply(&begin("t")).unwrap();
    for _ in 0..JOURNAL_LINES {
        registry.apply(&touch("t")).unwrap();
    }
    let paths = registry.paths.clone();
    let text = fs::read_to_string(&paths.document).unwrap();
    assert_eq!(Document::parse(&text).unwrap().version, 1001);
    assert!(!paths.journal.exists());
    registry.apply(&touch("t")).unwrap();
    assert_eq!(
        fs::read_to_string(&paths.journal).unwrap().lines().count(),
        1
    );
    assert_eq!(turns(home.path(), "t"), 1001);
}

#[test]
fn partial_journal_line_is_dropped() {
    for mode in MODES {
        let home = tempfile::tempdir().unwrap();
        let mut registry = open(home.path(), Mode::Journal);
        registry.apply(&begin("t")).unwrap();
        registry.apply(&touch("t")).unwrap();
        let journal = registry.paths.journal.clone();
        let text = fs::read_to_string(&journal).unwrap();
        fs::write(&journal, &text[..text.len() - 1]).unwrap();
        assert_eq!(turns(home.path(), "t"), 0);
        let mut other = open(home.path(), mode);
        other.apply(&touch("t")).unwrap();
        registry.apply(&touch("t")).unwrap();
        assert_eq!(turns(home.path(), "t"), 2);
    }
}

#[test]
fn unreadable_document_is_set_aside() {
    let home = tempfile::tempdir().unwrap();
    let mut registry = open(home.path(), Mode::Document);
    let document = registry.paths.document.clone();
    for (number, text) in ["{\"version\": 3, \"thr", "", "\u{0}\u{0}"]
        .iter()
        .enumerate()
    {
        registry.apply(&begin("t")).unwrap();
        fs::write(&document, text).unwrap();
        let message = registry.load().unwrap_err().to_string();
        assert!(
            message.contains("registry.codex.json: it is not"),
            "{message}"
        );
        registry.apply(&begin("u")).unwrap();
        assert_eq!(registry.load().unwrap().len(), 1);
        let aside = state_file::with_suffix(&document, &format!(".broken-{}", number + 1));
        assert_eq!(fs::read_to_string(aside).unwrap(), *text);
    }
}

#[test]
fn journal_with_unknown_lines_is_set_aside() {
    let home = tempfile::tempdir().unwrap();
    let mut registry = open(home.path(), Mode::Journal);
    registry.apply(&begin("t")).unwrap();
    let journal = registry.paths.journal.clone();
    let mut text = fs::read_to_string(&journal).unwrap();
    text.push_str("{\"version\":2,\"change\":\"made_up\"}\n");
    fs::write(&journal, &text).unwrap();
    registry.apply(&touch("t")).unwrap();
    assert_eq!(turns(home.path(), "t"), 1);
    let aside = state_file::with_suffix(&journal, ".broken-1");
    assert_eq!(fs::read_to_string(aside).unwrap(), text);
}

#[test]
fn restored_old_document_does_not_lower_the_version() {
    for mode in MODES {
        let home = tempfile::tempdir().unwrap();
        let mut registry = open(home.path(), mode);
        registry.apply(&begin("t")).unwrap();
        fs::write(&registry.paths.document, "{\"version\":0,\"threads\":[]}").unwrap();
        let _ = fs::remove_file(&registry.paths.journal);
        registry.apply(&begin("u")).unwrap();
        let threads = read(home.path(), &codex()).unwrap();
        assert_eq!((threads.version, threads.entries().count()), (2, 1));
    }
}

#[test]
fn registry_files_that_are_links_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let victim = home.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    for mode in MODES {
        let mut registry = open(home.path(), mode);
        let path = match mode {
            Mode::Document => registry.paths.document.clone(),
            Mode::Journal => registry.paths.journal.clone(),
        };
        symlink(&victim, &path).unwrap();
        assert!(registry.apply(&begin("t")).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn registries_of_all_identities_are_listed() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(all(home.path()).unwrap().count(), 0);
    for identity in ["b", "a"] {
        let identity = identity.parse().unwrap();
        let mut registry = Registry::open(home.path(), &identity, Mode::Document).unwrap();
        registry.apply(&begin(identity.as_str())).unwrap();
    }
    let sessions = home.path().join(super::super::identities::SESSIONS);
    fs::create_dir(sessions.join(".hidden")).unwrap();
    symlink(sessions.join("a"), sessions.join("c")).unwrap();
    let found: Vec<String> = all(home.path())
        .unwrap()
        .map(|(identity, threads)| {
            let threads = threads.unwrap();
            format!(
                "{identity}: {}",
                threads.latest(SystemTime::now()).unwrap().thread_id
            )
        })
        .collect();
    assert_eq!(found, ["a: a", "b: b"]);
}

const WRITER: &str = "registry::tests::writer";

/// Not a test, but the program of other tests' processes.
#[test]
#[ignore = "the other process of another test"]
fn writer() {
    let home = variable("STORE_HOME");
    let thread = variable("STORE_THREAD").display().to_string();
    let times: u64 = variable("STORE_TIMES")
        .display()
        .to_string()
        .parse()
        .unwrap();
    let mut registry = open(&home, mode(&variable("STORE_MODE").display().to_string()));
    apply_patiently(&mut registry, &begin(&thread));
    for number in 1..=times {
        apply_patiently(&mut registry, &touch(&thread));
        apply_patiently(&mut registry, &touch("shared"));
        done(number);
    }
}

/// Applies a change also where the other process has held the lock nearly all the time for longer than a
/// change waits, as on a busy machine. Nothing was changed then.
fn apply_patiently(registry: &mut Registry, change: &Change) {
    for _ in 0..10 {
        match registry.apply(change) {
            Err(RegistryError::File(FileError::Busy { .. })) => {}
            applied => {
                applied.unwrap();
                return;
            }
        }
    }
    panic!("the lock is never free");
}

fn mode(word: &str) -> Mode {
    match word {
        "journal" => Mode::Journal,
        _ => Mode::Document,
    }
}

fn start(home: &Path, mode: Mode, thread: &str, times: u64) -> WorkerProcess {
    let times = times.to_string();
    let mode = match mode {
        Mode::Document => "document",
        Mode::Journal => "journal",
    };
    let variables = [
        ("STORE_HOME", home.as_os_str()),
        ("STORE_MODE", OsStr::new(mode)),
        ("STORE_THREAD", OsStr::new(thread)),
        ("STORE_TIMES", OsStr::new(&times)),
    ];
    WorkerProcess::start(WRITER, &variables)
}

#[test]
fn concurrent_processes_lose_no_change() {
    for modes in [MODES, [Mode::Document; 2], [Mode::Journal; 2]] {
        let home = tempfile::tempdir().unwrap();
        open(home.path(), modes[0]).apply(&begin("shared")).unwrap();
        let [one, two] = ["one", "two"];
        let workers = [
            start(home.path(), modes[0], one, 500),
            start(home.path(), modes[1], two, 500),
        ];
        workers.into_iter().for_each(WorkerProcess::wait);
        for (thread, expected) in [(one, 500), (two, 500), ("shared", 1000)] {
            assert_eq!(turns(home.path(), thread), expected, "{modes:?} {thread}");
        }
        // 1,000 updates by each of the two processes, and three first entries.
        assert_eq!(read(home.path(), &codex()).unwrap().version, 2003);
    }
}

#[test]
fn acknowledged_change_survives_a_kill() {
    for mode in MODES {
        let home = tempfile::tempdir().unwrap();
        open(home.path(), mode).apply(&begin("shared")).unwrap();
        let mut before = 0;
        for round in 0..20_u64 {
            let mut worker = start(home.path(), mode, "own", u64::MAX);
            let acknowledged = worker.until(1 + round * 7 % 11);
            // Somewhere in the next update.
            std::thread::sleep(std::time::Duration::from_micros(round * 97));
            let acknowledged = worker.kill().unwrap_or(acknowledged);
            for thread in ["own", "shared"] {
                let found = turns(home.path(), thread) - before;
                let expected = acknowledged..=acknowledged + 1;
                assert!(
                    expected.contains(&found),
                    "{found} of {expected:?} {thread}"
                );
            }
            // The shared thread catches up with the other one.
            let mut registry = open(home.path(), mode);
            while turns(home.path(), "shared") < turns(home.path(), "own") {
                registry.apply(&touch("shared")).unwrap();
            }
            before = turns(home.path(), "own");
        }
        let directory = identities::directory_of(home.path(), &codex());
        let broken = fs::read_dir(directory).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("broken")
        });
        assert_eq!(broken.count(), 0);
    }
}

/// Not a test: how long an update takes. Run it in a release build.
#[test]
#[ignore = "a measurement"]
fn time_of_an_update() {
    for mode in MODES {
        let home = tempfile::tempdir().unwrap();
        let mut registry = open(home.path(), mode);
        let began = std::time::Instant::now();
        for number in 0..1000 {
            registry.apply(&begin(&format!("thread-{number}"))).unwrap();
        }
        let begun = began.elapsed();
        for number in 0..1000 {
            let thread = format!("thread-{}", number * 7 % 1000);
            registry.apply(&touch(&thread)).unwrap();
        }
        let touched = began.elapsed() - begun;
        let read_at = std::time::Instant::now();
        read(home.path(), &codex()).unwrap();
        let message = format!(
            "{mode:?}: 1000 beginnings {begun:?}, 1000 updates of 1000 {touched:?}, reading {:?}\n",
            read_at.elapsed()
        );
        common::output::stderr()
            .write_all(message.as_bytes())
            .unwrap();
    }
}

#[test]
fn released_registry_keeps_no_state_and_continues_its_versions() {
    for mode in MODES {
        let home = tempfile::tempdir().unwrap();
        let mut registry = open(home.path(), mode);
        registry.apply(&begin("t")).unwrap();
        registry.release();
        registry.apply(&touch("t")).unwrap();
        assert!(registry.cache.is_none());
        assert_eq!(turns(home.path(), "t"), 1);
        fs::write(&registry.paths.document, "{\"version\":0,\"threads\":[]}").unwrap();
        let _ = fs::remove_file(&registry.paths.journal);
        registry.apply(&begin("t")).unwrap();
        assert_eq!(read(home.path(), &codex()).unwrap().version, 3);
    }
}
