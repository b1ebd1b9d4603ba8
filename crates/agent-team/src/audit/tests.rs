use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;

use testkit::worker_process::{WorkerProcess, variable};

use super::*;

fn member() -> Member {
    Member {
        identity: "codex".parse().unwrap(),
        team: Some("builders".parse().unwrap()),
    }
}

fn audit(home: &Path, limit: u64) -> Audit {
    Audit {
        limit,
        ..Audit::open(home, &member()).unwrap()
    }
}

fn record(summary: &str) -> Record<'_> {
    Record {
        summary: Some(summary),
        ..Record::new(Uuid::new_v4(), Event::Codex, AuditOutcome::Started)
    }
}

/// The lines of a file; none if it isn't there.
fn lines(path: &Path) -> Vec<AuditLine> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn older(audit: &Audit, number: u32) -> PathBuf {
    state_file::with_suffix(&audit.path, &format!(".{number}"))
}

#[test]
fn line_has_all_given_fields_and_masks_credentials() {
    let home = tempfile::tempdir().unwrap();
    let mut audit = audit(home.path(), FILE_LIMIT);
    audit.write(&record("do\nit")).unwrap();
    let id = Uuid::new_v4();
    let failed = Record {
        recipient: Some("lead@builders"),
        summary: Some("password=hunter2"),
        error: Some("there is no token ghp_0123456789abcdefghij"),
        ..Record::new(id, Event::AtmSend, AuditOutcome::TimedOut)
    };
    audit.write(&failed).unwrap();
    let text = fs::read_to_string(&audit.path).unwrap();
    let second = text.lines().nth(1).unwrap();
    let (ts, rest) = second.split_at(second.find(",\"id\"").unwrap());
    assert!(ts.starts_with("{\"ts\":\"2"), "{ts}");
    assert_eq!(
        rest,
        format!(
            ",\"id\":\"{id}\",\"identity\":\"codex\",\"team\":\"builders\",\"event\":\"atm_send\",\
             \"outcome\":\"timed_out\",\"recipient\":\"lead@builders\",\
             \"summary\":\"password=[masked]\",\"error\":\"there is no token [masked]\"}}"
        )
    );
    assert_eq!(lines(&audit.path)[0].summary.as_deref(), Some("do\nit"));
    assert_eq!(fs::metadata(&audit.path).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn line_length_is_bounded() {
    let home = tempfile::tempdir().unwrap();
    let mut audit = audit(home.path(), FILE_LIMIT);
    let long = "\u{1}".repeat(100_000);
    let record = Record {
        thread_id: Some(&long),
        recipient: Some(&long),
        error: Some(&long),
        ..record(&long)
    };
    audit.write(&record).unwrap();
    assert!(fs::metadata(&audit.path).unwrap().len() <= 8 << 10);
    assert_eq!(lines(&audit.path).len(), 1);
}

#[test]
fn full_files_are_rotated_and_the_oldest_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let mut audit = audit(home.path(), 1);
    for number in 0..8 {
        audit.write(&record(&number.to_string())).unwrap();
    }
    let summary = |path: &Path| lines(path)[0].summary.clone().unwrap();
    assert_eq!(summary(&audit.path), "7");
    for (number, expected) in [(1, "6"), (2, "5"), (5, "2")] {
        assert_eq!(summary(&older(&audit, number)), expected);
    }
    assert!(!older(&audit, 6).exists());
}

#[test]
fn partial_line_does_not_corrupt_later_lines() {
    let home = tempfile::tempdir().unwrap();
    let mut audit = audit(home.path(), FILE_LIMIT);
    fs::write(&audit.path, "{\"ts\":").unwrap();
    audit.write(&record("a")).unwrap();
    audit.write(&record("b")).unwrap();
    let text = fs::read_to_string(&audit.path).unwrap();
    let begins: Vec<&str> = text.lines().map(|line| &line[..5]).collect();
    assert_eq!(begins, ["{\"ts\"", "{\"ts\"", "{\"ts\""]);
    assert_eq!(text.lines().next(), Some("{\"ts\":"));
}

#[test]
fn audit_file_that_is_a_link_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut audit = audit(home.path(), FILE_LIMIT);
    let victim = home.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, &audit.path).unwrap();
    assert!(audit.write(&record("a")).is_err());
    assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
}

const WRITERS: u64 = 8;
const EACH: u64 = 200;

/// Eight processes write four files of this size.
const SMALL: u64 = 80_000;

/// Not a test, but the program of another test's processes.
#[test]
#[ignore = "the other process of another test"]
fn writer() {
    let name = variable("STORE_NAME").display().to_string();
    let mut audit = audit(&variable("STORE_HOME"), SMALL);
    for number in 0..EACH {
        audit.write(&record(&format!("{name} {number}"))).unwrap();
    }
}

#[test]
fn concurrent_processes_lose_no_line_during_rotation() {
    let home = tempfile::tempdir().unwrap();
    let workers: Vec<WorkerProcess> = (0..WRITERS)
        .map(|number| {
            let name = number.to_string();
            let variables = [
                ("STORE_HOME", home.path().as_os_str()),
                ("STORE_NAME", OsStr::new(&name)),
            ];
            WorkerProcess::start("audit::tests::writer", &variables)
        })
        .collect();
    workers.into_iter().for_each(WorkerProcess::wait);
    let audit = audit(home.path(), SMALL);
    assert!(older(&audit, 1).exists() && !older(&audit, OLDER_FILES).exists());
    // No file's length is checked: a writer that has waited too long for the lock appends to a full one.
    let mut found: HashMap<String, u32> = HashMap::new();
    let older = (1..=OLDER_FILES).map(|number| older(&audit, number));
    for path in older.chain([audit.path.clone()]) {
        for line in lines(&path) {
            *found.entry(line.summary.unwrap()).or_default() += 1;
        }
    }
    assert_eq!(found.len() as u64, WRITERS * EACH);
    assert!(found.values().all(|times| *times == 1));
}

#[test]
fn released_log_takes_lines_and_keeps_no_file_open() {
    let home = tempfile::tempdir().unwrap();
    let mut audit = audit(home.path(), FILE_LIMIT);
    audit.write(&record("a")).unwrap();
    assert!(audit.open.is_some());
    audit.release();
    audit.write(&record("b")).unwrap();
    assert!(audit.open.is_none());
    assert_eq!(lines(&audit.path).len(), 2);
}
