//! The table of threads for people.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::SystemTime;

use agent_team::logic::registry::{Entry, Status, TurnState};
use anstyle::{AnsiColor, Style};
use common::duration::age;
use common::output::{self, Output};

use crate::cli::table::{self, Cell};

/// The longest part of a made-up name that is shown at a terminal, in characters.
const LONGEST_NAME: usize = 24;

/// The longest part of a prompt that is shown at a terminal, in characters.
const LONGEST_PROMPT: usize = 120;

/// The shortest beginning of an id that is shown.
const SHORTEST_ID: usize = 8;

const HEADINGS: [&str; 7] = [
    "THREAD",
    "STATE",
    "LAST TURN",
    "SUMMARY",
    "AGE",
    "REPO",
    "PROMPT",
];

/// The same, where there are threads of several identities.
const HEADINGS_OF_ALL: [&str; 8] = [
    "THREAD",
    "IDENTITY",
    "STATE",
    "LAST TURN",
    "SUMMARY",
    "AGE",
    "REPO",
    "PROMPT",
];

/// Writes a table, in colours. At a terminal it has the terminal's width, and ids are as
/// short as they can be told apart; in a pipe nothing is cut.
pub(super) fn write(
    entries: &[Entry],
    now: SystemTime,
    out: &mut Output<impl Write>,
) -> io::Result<()> {
    write_within(entries, now, output::stdout_columns(), out)
}

fn write_within(
    entries: &[Entry],
    now: SystemTime,
    columns: Option<usize>,
    out: &mut Output<impl Write>,
) -> io::Result<()> {
    let id_length = columns.map_or(usize::MAX, |_| distinct_length(entries));
    let rows = entries.iter().map(|entry| cells(entry, now, id_length));
    let mut identities = entries.iter().map(|entry| &entry.identity);
    let first = identities.next();
    match identities.all(|identity| Some(identity) == first) {
        true => table::write_within(HEADINGS, rows, columns, out),
        false => {
            let rows = entries.iter().zip(rows).map(|(entry, cells)| {
                let identity = Cell::foreign(entry.identity.as_str(), LONGEST_NAME);
                let [id, state, turn, summary, age, repo, prompt] = cells;
                [id, identity, state, turn, summary, age, repo, prompt]
            });
            table::write_within(HEADINGS_OF_ALL, rows, columns, out)
        }
    }
}

/// The shortest length at which all IDs differ.
fn distinct_length(entries: &[Entry]) -> usize {
    let ids: BTreeSet<&str> = entries
        .iter()
        .map(|entry| entry.thread_id.as_str())
        .collect();
    let longest = ids.iter().map(|id| id.len()).max().unwrap_or_default();
    let are_distinct = |length: usize| {
        let beginnings: BTreeSet<&str> = ids.iter().map(|id| beginning(id, length)).collect();
        beginnings.len() == ids.len()
    };
    (SHORTEST_ID..longest)
        .find(|length| are_distinct(*length))
        .unwrap_or(longest)
}

fn beginning(id: &str, length: usize) -> &str {
    id.get(..length).unwrap_or(id)
}

fn cells(entry: &Entry, now: SystemTime, id_length: usize) -> [Cell; 7] {
    let (state, style) = state(&entry.status);
    let (turn, turn_style) = last_turn(entry);
    let summary = match entry.status {
        Status::Ended => "yes",
        _ => "no",
    };
    let repo = entry.repo_name.as_deref().unwrap_or_default();
    let prompt = match (&entry.tag, &entry.prompt) {
        (Some(tag), Some(prompt)) => format!("{tag}: {prompt}"),
        (tag, prompt) => tag
            .as_ref()
            .or(prompt.as_ref())
            .cloned()
            .unwrap_or_default(),
    };
    [
        Cell::plain(beginning(entry.thread_id.as_str(), id_length)),
        Cell::coloured(table::shortened(state, LONGEST_NAME), style),
        Cell::coloured(table::shortened(turn, LONGEST_NAME), turn_style),
        Cell::plain(summary),
        Cell::plain(age(now
            .duration_since(entry.last_active)
            .unwrap_or_default())),
        Cell::foreign(repo, LONGEST_NAME),
        Cell::foreign(&prompt, LONGEST_PROMPT),
    ]
}

fn state(status: &Status) -> (&str, Style) {
    let style = match status {
        Status::Active => AnsiColor::Green.on_default(),
        Status::Ended | Status::Interrupted => Style::new(),
        Status::Other(_) => AnsiColor::Cyan.on_default(),
    };
    (status.shown(), style)
}

fn last_turn(entry: &Entry) -> (&str, Style) {
    let style = match &entry.last_turn {
        Some(TurnState::Running) => AnsiColor::Cyan.on_default(),
        Some(TurnState::Completed) => AnsiColor::Green.on_default(),
        Some(TurnState::Interrupted) => AnsiColor::Yellow.on_default(),
        Some(TurnState::Failed) => AnsiColor::Red.on_default(),
        Some(TurnState::Other(_)) | None => Style::new(),
    };
    let word = entry.last_turn.as_ref().map_or("-", TurnState::as_str);
    (word, style)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use common::output::Colours;

    fn entry(more: &Value) -> Entry {
        let mut json = json!({
            "thread_id": "t", "identity": "codex", "status": "ended",
            "started_at": "2026-01-01T00:00:00Z", "last_active": "2026-01-01T00:00:00Z",
        });
        let members = json.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    }

    fn written(entries: &[Entry], columns: Option<usize>, colours: Colours) -> String {
        let now = entries[0].last_active + Duration::from_secs(7300);
        let mut out = Output::new(Vec::new(), colours);
        write_within(entries, now, columns, &mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn table_is_uncut_in_a_pipe_and_has_no_control_characters() {
        let entries = [
            entry(
                &json!({"status": "active", "repo_name": "r", "last_turn": "running",
                          "prompt": "Fix it"}),
            ),
            entry(&json!({"thread_id": "long-name", "tag": "x\u{1b}[31m\ny", "status": "frozen"})),
            entry(&json!({"prompt": "ß".repeat(200), "status": "interrupted",
                          "last_turn": "completed"})),
        ];
        let prompt = "ß".repeat(200);
        assert_eq!(
            written(&entries, None, Colours::Off),
            format!(
                "THREAD     STATE   LAST TURN  SUMMARY  AGE  REPO  PROMPT\n\
                 t          active  running    no       2h   r     Fix it\n\
                 long-name  frozen  -          no       2h         x\\u{{1b}}[31m y\n\
                 t          ended   completed  no       2h         {prompt}\n"
            )
        );
        let text = written(&entries, None, Colours::On);
        assert!(text.contains("\u{1b}[32mactive\u{1b}[0m  "), "{text}");
    }

    #[test]
    fn table_of_several_identities_fits_80_columns() {
        let long = "a name that is as long as nobody wants one to be";
        let id = |last: u32| format!("01a20215-f913-7932-b284-7a45b6e7{last:04}");
        let more = |last: u32| {
            json!({"thread_id": id(last), "repo_name": long, "prompt": long,
                   "identity": format!("identity-{last}"), "last_turn": "interrupted"})
        };
        let apart = json!({"thread_id": "01a20216-0000-7932-b284-7a45b6e77ace"});
        let mut apart_more = more(2);
        apart_more
            .as_object_mut()
            .unwrap()
            .extend(apart.as_object().unwrap().clone());
        let ours = [entry(&more(1)), entry(&apart_more)];
        let text = written(&ours, Some(80), Colours::Off);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(
            text.contains("\n01a20215  ") && text.contains("\n01a20216  "),
            "{text}"
        );
        assert!(!written(&ours, None, Colours::Off).contains('…'));
    }
}
