//! An open question, and the choices that it offers under numbers.

use codex_engine::logic::action::{ActionKind, Decision};
use codex_engine::logic::form::{Field, FieldKind};
use common::text::visible_line;
use work_board::{StoredQuestion, WholeChange, WholePart, decision_label};

use super::rows::{self, ASKING, DIM, GOOD, INPUT, PLAIN, Row, TITLE, gap, push};

/// The choice of a number key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    /// Answers are typed, field by field.
    Type(Vec<Field>),
    Decide(Decision),
}

/// An open question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) id: &'a str,
    /// With exactly the decisions that Codex offers.
    pub(crate) question: &'a StoredQuestion,
}

impl Asked<'_> {
    /// What the question is about, in two or three words.
    pub(crate) fn subject(&self) -> &'static str {
        match self.question.kind {
            ActionKind::Command => "a command",
            ActionKind::FileChange => "a change of files",
            ActionKind::Permissions => "more permissions",
            ActionKind::McpTool => "an MCP server",
            ActionKind::UserInput => "a question of Codex",
        }
    }
}

/// The choices of a question.
pub(crate) fn choices(asked: Asked<'_>) -> Vec<Choice> {
    let fields = &asked.question.fields;
    let typed = (!fields.is_empty()).then(|| Choice::Type(fields.clone()));
    let decisions = asked.question.decisions.iter().cloned();
    typed
        .into_iter()
        .chain(decisions.map(Choice::Decide))
        .collect()
}

/// The question as a whole, and its choices. The last row is the last choice.
pub(crate) fn rows(asked: Asked<'_>, open: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let title = match open {
        1 => "Codex asks:".to_owned(),
        _ => format!("Codex asks (the first of {open} questions):"),
    };
    let question = asked.question;
    push(&mut rows, ASKING, "", &title);
    push(&mut rows, PLAIN, "", &question.text);
    push_whole(&mut rows, question);
    if !question.fields.is_empty() {
        gap(&mut rows);
    }
    for (number, field) in question.fields.iter().enumerate() {
        push_field(&mut rows, number + 1, field);
    }
    gap(&mut rows);
    if let Some(at) = question.declined_at() {
        let line = format!("Declined at {at} unless answered.");
        push(&mut rows, DIM, "", &line);
    }
    for (number, choice) in choices(asked).iter().enumerate() {
        let line = format!("{} {}", number + 1, label(choice));
        push(&mut rows, ASKING, "  ", &line);
    }
    rows
}

/// Adds what the text may leave out.
fn push_whole(rows: &mut Vec<Row>, question: &StoredQuestion) {
    for part in question.beside_text() {
        gap(rows);
        match part {
            WholePart::Text { label, text } => {
                push(
                    rows,
                    TITLE,
                    "",
                    &format!("{}, in full:", visible_line(label)),
                );
                push(rows, INPUT, "  ", text);
            }
            WholePart::Change(change) => push_change(rows, change),
        }
    }
    if question.details.is_none() {
        push(rows, DIM, "", "The details are too long to be shown here.");
    }
}

fn push_change(rows: &mut Vec<Row>, change: WholeChange<'_>) {
    let to = change.moved_to.map(|to| format!(" to {to}"));
    let title = format!("{} {}{}", change.kind, change.path, to.unwrap_or_default());
    push(rows, TITLE, "", &title);
    match change.kind {
        _ if change.diff.is_empty() => {}
        "add" => push(rows, GOOD, "", change.diff),
        _ => rows.extend(rows::diff(change.diff)),
    }
}

fn push_field(rows: &mut Vec<Row>, number: usize, field: &Field) {
    let hint = field.hint().map(|hint| format!(" ({hint})"));
    let line = format!("{number}. {}{}", field.label, hint.unwrap_or_default());
    push(rows, PLAIN, "", &line);
    for (number, option) in field.options.iter().enumerate() {
        let line = format!("{} {}", number + 1, option.label);
        push(rows, PLAIN, "     ", &line);
    }
    if !field.options.is_empty() && field.takes_others {
        push(rows, DIM, "     ", "or another answer");
    }
}

/// The effect of a choice, on one line.
pub(crate) fn label(choice: &Choice) -> String {
    match choice {
        Choice::Type(_) => "Type the answers".to_owned(),
        Choice::Decide(decision) => decision_label(decision),
    }
}

/// The text that is meant by one that was typed: options are chosen by their numbers, too.
pub(crate) fn meant(field: &Field, typed: &str) -> String {
    match field.kind {
        FieldKind::Choice => numbered(field, typed),
        FieldKind::Choices => {
            let chosen = typed.split(',').map(|one| numbered(field, one));
            chosen.collect::<Vec<_>>().join(",")
        }
        _ => typed.to_owned(),
    }
}

/// The option with this number, unless the text is an option itself.
fn numbered(field: &Field, typed: &str) -> String {
    let text = typed.trim();
    let is_value = field.options.iter().any(|option| option.value == text);
    let number = text.parse::<usize>().ok().filter(|_| !is_value);
    let option = number.and_then(|number| field.options.get(number.checked_sub(1)?));
    match option {
        Some(option) => option.value.clone(),
        None if is_value => text.to_owned(),
        None => typed.to_owned(),
    }
}
