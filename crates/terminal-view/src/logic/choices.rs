//! An open question, and the choices that it offers under numbers.

use codex_engine::logic::action::Decision;
use common::text::visible_line;
use serde_json::Value;

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
    let decision = match choice {
        Choice::Type(_) => return "Type the answers".to_owned(),
        Choice::Decide(decision) => decision,
    };
    match decision {
        Decision::Accept => "Allow once".to_owned(),
        Decision::AcceptForSession => "Allow in this thread".to_owned(),
        Decision::AcceptWithExecpolicyAmendment(words) => format!(
            "Always allow commands that begin with: {}",
            visible_line(&words.join(" "))
        ),
        Decision::ApplyNetworkPolicyAmendment(rule) => {
            let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or("?");
            let rule = format!("{} {}", text("action"), text("host"));
            format!("Rule for the network: {}", visible_line(&rule))
        }
        Decision::Decline => "Decline".to_owned(),
        Decision::Cancel => "Decline and end the turn".to_owned(),
        Decision::Submit(_) => "Send the answers".to_owned(),
    }
}
