//! Threads, for people.

use std::io::{self, Write};
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use codex_mcp_core::team::registry::{Entry, Status};

use crate::cli::table::{self, Cell};
use crate::cli::times::ago;
use crate::output::Output;

/// The most that is shown of a text that somebody has made up, in characters.
const LONGEST: usize = 32;

const HEADINGS: [&str; COLUMNS] = [
    "THREAD", "IDENTITY", "STATUS", "ACTIVE", "TURNS", "REPO", "BRANCH", "TAG",
];
const COLUMNS: usize = 8;

/// Writes a table, in colours.
pub(super) fn write(
    entries: &[Entry],
    now: SystemTime,
    out: &mut Output<impl Write>,
) -> io::Result<()> {
    let rows = entries.iter().map(|entry| cells(entry, now));
    table::write(HEADINGS, rows, out)
}

fn cells(entry: &Entry, now: SystemTime) -> [Cell; COLUMNS] {
    let foreign = |text: &str| Cell::foreign(text, LONGEST);
    let text = |text: &Option<String>| foreign(text.as_deref().unwrap_or_default());
    let status = table::shortened(entry.status.as_str(), LONGEST);
    [
        Cell::plain(entry.thread_id.to_string()),
        Cell::plain(entry.identity.to_string()),
        Cell::coloured(status, style(&entry.status)),
        Cell::plain(ago(now
            .duration_since(entry.last_active)
            .unwrap_or_default())),
        Cell::plain(entry.turns.to_string()),
        text(&entry.repo_name),
        text(&entry.branch),
        text(&entry.tag),
    ]
}

fn style(status: &Status) -> Style {
    match status {
        Status::Active => AnsiColor::Green.on_default(),
        Status::Ended => Style::new(),
        Status::Interrupted => AnsiColor::Yellow.on_default(),
        Status::Other(_) => AnsiColor::Cyan.on_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::output::Colours;

    fn entry(more: &Value) -> Entry {
        let mut json = json!({
            "thread_id": "t", "identity": "codex", "status": "ended",
            "started_at": "2026-01-01T00:00:00Z", "last_active": "2026-01-01T00:00:00Z",
        });
        let members = json.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_table_is_aligned_and_does_nothing_to_a_terminal() {
        let entries = [
            entry(&json!({"status": "active", "repo_name": "r", "turns": 12, "branch": "main"})),
            entry(&json!({"thread_id": "long-name", "tag": "x\u{1b}[31m\ny", "status": "frozen"})),
            entry(&json!({"tag": "ß".repeat(100)})),
        ];
        let now = entries[0].last_active + Duration::from_secs(7300);
        let mut plain = Output::new(Vec::new(), Colours::Off);
        write(&entries, now, &mut plain).unwrap();
        let text = String::from_utf8(plain.into_inner()).unwrap();
        let tag = format!("{}…", "ß".repeat(LONGEST - 1));
        assert_eq!(
            text,
            format!(
                "THREAD     IDENTITY  STATUS  ACTIVE  TURNS  REPO  BRANCH  TAG\n\
                 t          codex     active  2h ago  12     r     main\n\
                 long-name  codex     frozen  2h ago  0                    x\\u{{1b}}[31m y\n\
                 t          codex     ended   2h ago  0                    {tag}\n"
            )
        );
        let mut coloured = Output::new(Vec::new(), Colours::On);
        write(&entries, now, &mut coloured).unwrap();
        let text = String::from_utf8(coloured.into_inner()).unwrap();
        assert!(text.contains("\u{1b}[32mactive\u{1b}[0m  2h"), "{text}");
    }
}
