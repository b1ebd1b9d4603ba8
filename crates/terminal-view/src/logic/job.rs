//! A job or run as rows.

use ratatui::style::Style;
use serde_json::Value;

use super::rows::{BAD, DIM, GOOD, INPUT, PLAIN, Row, TITLE, gap, push};

/// The texts of a job, as its record has them.
const TEXTS: [(&str, &str, Style); 3] = [
    ("prompt", "Prompt", INPUT),
    ("error", "Error", BAD),
    ("response", "Answer", PLAIN),
];

/// The prompt and answer of a record, the criteria of a run as a check list, problems and warnings.
pub(crate) fn rows(record: &Value, criteria: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    for (key, title, style) in TEXTS {
        if let Some(text) = record[key].as_str() {
            push_title(&mut rows, title);
            push(&mut rows, style, "", text);
        }
    }
    let criteria = criteria.as_array().map(Vec::as_slice).unwrap_or_default();
    if !criteria.is_empty() {
        push_title(&mut rows, "Criteria");
    }
    for one in criteria {
        push_criterion(&mut rows, one);
    }
    for (key, title) in [("problems", "Problems"), ("warnings", "Warnings")] {
        let lines = record[key]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        if !lines.is_empty() {
            push_title(&mut rows, title);
        }
        for line in lines {
            push(&mut rows, PLAIN, "- ", line.as_str().unwrap_or_default());
        }
    }
    rows
}

fn push_title(rows: &mut Vec<Row>, title: &str) {
    gap(rows);
    push(rows, TITLE, "", title);
}

fn push_criterion(rows: &mut Vec<Row>, one: &Value) {
    let text = |key: &str| one[key].as_str().unwrap_or_default();
    let (sign, style) = match text("state") {
        "satisfied" => ("[x] ", GOOD),
        "not_yet" | "not_run" => ("[ ] ", BAD),
        _ => ("[?] ", PLAIN),
    };
    push(rows, style, sign, text("criterion"));
    let found = ["found", "missing", "why"].map(text);
    if let Some(found) = found.into_iter().find(|text| !text.is_empty()) {
        push(rows, DIM, "    ", found);
    }
}
