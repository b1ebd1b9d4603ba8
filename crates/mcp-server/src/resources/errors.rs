//! `errors`: the error codes of the tools. The classic codes are listed from the table that the
//! tools themselves use.

use std::collections::BTreeSet;

use crate::code::{Code, CodeRow, Retry};

/// The document, with a place for the classic codes.
const TEXT: &str = include_str!("errors.md");

/// The placeholder for the classic codes.
const PLACEHOLDER: &str = "{codes}";

/// The codes that only `codex_session` and `codex_check` have, under names of their own.
const OF_SESSIONS_ALONE: [Code; 4] = [
    Code::SessionNotRunning,
    Code::SessionCancelled,
    Code::CantFork,
    Code::RequestNotFound,
];

pub(super) fn text() -> String {
    TEXT.replace(PLACEHOLDER, &classic_codes())
}

fn classic_codes() -> String {
    let mut table = "| code | retry | what to do |\n| --- | --- | --- |".to_owned();
    let classic = |code: &&Code| !OF_SESSIONS_ALONE.contains(code);
    let mut listed = BTreeSet::new();
    for code in Code::ALL.iter().filter(classic) {
        let CodeRow { name, retry, hint } = code.row();
        // One name may have several hints; the first is for most cases.
        if !listed.insert(name) {
            continue;
        }
        let retry = match retry {
            Retry::Worthwhile => "yes",
            Retry::Pointless => "no",
        };
        table.push_str(&format!("\n| `{name}` | {retry} | {hint} |"));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes in the tables of a part of the document.
    fn listed(part: &str) -> Vec<&str> {
        let rows = part.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| row.split('`').next()).collect()
    }

    #[test]
    fn each_code_is_listed_once() {
        let text = text();
        let (sessions, classic) = text.split_once("## `codex` and `codex-reply`").unwrap();
        let names = |name: fn(Code) -> &'static str| -> BTreeSet<&str> {
            Code::ALL.iter().map(|code| name(*code)).collect()
        };
        let once = |part| {
            let listed = listed(part);
            let set = BTreeSet::from_iter(listed.clone());
            assert_eq!(set.len(), listed.len(), "{listed:?}");
            set
        };
        assert_eq!(once(sessions), names(Code::name_for_sessions));

        let mut classic_names = names(|code| code.row().name);
        for code in OF_SESSIONS_ALONE {
            classic_names.remove(code.row().name);
        }
        // The name of a cancelled call too.
        classic_names.insert("CANCELLED");
        assert_eq!(once(classic), classic_names);
    }

    #[test]
    fn error_table_rows_have_three_columns() {
        let text = text();
        for row in text.lines().filter(|line| line.starts_with('|')) {
            assert_eq!(row.matches('|').count(), 4, "{row}");
        }
        assert!(!text.contains(PLACEHOLDER));
    }
}
