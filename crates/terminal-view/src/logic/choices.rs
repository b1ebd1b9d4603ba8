//! An open question, and the choices that it offers under numbers.

use codex_engine::logic::action::Decision;
use work_board::decision_label;

use super::rows::{ASKING, PLAIN, Row, gap, push};

/// What a number key chooses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    /// Answers are typed, field by field.
    Type(Vec<String>),
    Decide(Decision),
}

/// An open question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) id: &'a str,
    pub(crate) text: &'a str,
    /// Exactly what Codex offers.
    pub(crate) decisions: &'a [Decision],
    /// What wants a text as answer.
    pub(crate) fields: &'a [String],
}

/// The choices of a question.
pub(crate) fn choices(question: Asked<'_>) -> Vec<Choice> {
    let typed = (!question.fields.is_empty()).then(|| Choice::Type(question.fields.to_vec()));
    let decisions = question.decisions.iter().cloned().map(Choice::Decide);
    typed.into_iter().chain(decisions).collect()
}

/// The question as a whole, and its choices. The last row is the last choice.
pub(crate) fn rows(question: Asked<'_>, open: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    let title = match open {
        1 => "Codex asks:".to_owned(),
        _ => format!("Codex asks (the first of {open} questions):"),
    };
    push(&mut rows, ASKING, "", &title);
    push(&mut rows, PLAIN, "", question.text);
    gap(&mut rows);
    for (number, choice) in choices(question).iter().enumerate() {
        let line = format!("{} {}", number + 1, label(choice));
        push(&mut rows, ASKING, "  ", &line);
    }
    rows
}

/// What a choice does, on one line.
pub(crate) fn label(choice: &Choice) -> String {
    match choice {
        Choice::Type(_) => "Type the answers".to_owned(),
        Choice::Decide(decision) => decision_label(decision),
    }
}
