//! Whether stored files are whole after processes were killed or the disk was full.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

/// Checks that each file of ours below a directory parses.
pub(super) fn check_files(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.extension().and_then(|end| end.to_str()) {
            _ if path.is_dir() => check_files(&path),
            Some("json") => {
                let text = fs::read_to_string(&path).unwrap();
                assert!(text.parse::<Value>().is_ok(), "{}: {text}", path.display());
            }
            Some("jsonl") => check_lines(&path),
            _ => {}
        }
        let name = path.file_name().unwrap().to_string_lossy();
        // What its own writers leave never makes a registry unreadable.
        let is_set_aside = name.starts_with("registry.") && name.contains(".broken-");
        assert!(!is_set_aside, "{}", path.display());
    }
}

/// Checks that each line of a file parses, or is cut off where its readers expect that of a writer that
/// was killed or had no room.
fn check_lines(path: &Path) {
    let text = fs::read(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let may_be_cut = match name {
            // The next line ends it.
            "audit.jsonl" => true,
            // The journal is folded into the document then, instead of getting a line.
            _ if name.starts_with("registry.") => !line.ends_with(b"\n"),
            _ => false,
        };
        match serde_json::from_slice::<Value>(line.trim_ascii_end()) {
            Ok(_) => {}
            Err(error) if may_be_cut && error.is_eof() => {}
            Err(error) => {
                let line = String::from_utf8_lossy(line);
                panic!("{}: {error}: {line}", path.display());
            }
        }
    }
}

/// Checks the pages and the rows of a database of SQLite.
pub(super) async fn check_database(path: &Path) {
    let options = SqliteConnectOptions::new().filename(path);
    let mut database = options.connect().await.unwrap();
    let check = "PRAGMA integrity_check";
    let found: Vec<(String,)> = sqlx::query_as(check)
        .fetch_all(&mut database)
        .await
        .unwrap();
    assert_eq!(found, [("ok".to_owned(),)], "{}", path.display());
}

#[test]
fn cut_line_is_allowed_where_readers_expect_it() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text, is_allowed) in [
        ("audit.jsonl", "{\"a\":1}\n{\"a\n{\"a\":2}\n", true),
        ("audit.jsonl", "{\"a{\"a\":1}\n", false),
        ("registry.codex.jsonl", "{\"a\":1}\n{\"a", true),
        ("registry.codex.jsonl", "{\"a\n{\"a\":1}\n", false),
        ("run-1.jsonl", "{\"a\":1}\n", true),
        ("run-1.jsonl", "{\"a", false),
        ("registry.codex.json", "{\"a\":1}", true),
        ("registry.codex.json", "{\"a", false),
        ("registry.codex.json.broken-1", "{\"a\":1}", false),
    ] {
        let below = tempfile::tempdir_in(directory.path()).unwrap();
        fs::write(below.path().join(name), text).unwrap();
        let checked = std::panic::catch_unwind(|| check_files(directory.path()));
        assert_eq!(checked.is_ok(), is_allowed, "{name}: {text}");
    }
}
