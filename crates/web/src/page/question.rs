//! An open question of Codex, with exactly the decisions that it offers.

use codex_engine::logic::action::Decision;
use common::text::visible_line;
use job_queue::question::{StoredQuestion, WholeChange, WholePart};
use maud::{Markup, html};
use work_board::decision_label;

use super::layout::foreign;
use super::{diff, field};
use crate::logic::access::Scope;

/// How much of a question is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Its text, in which long parts are shortened.
    Text,
    /// The whole command or change too.
    Whole,
}

/// A question of the work at `address`.
pub(crate) fn card(
    scope: Scope,
    address: &str,
    (id, question): (&str, &StoredQuestion),
    extent: Extent,
) -> Markup {
    html! {
        section.question aria-label="Question of Codex" {
            pre.asked id={ (id) "-text" } { (foreign(&question.text)) }
            @match extent {
                Extent::Text => (link_to_whole(address, question)),
                Extent::Whole => (whole(id, question)),
            }
            (expiry(question))
            @if scope == Scope::Decide {
                (form(address, id, question))
            } @else {
                p.hint { "This browser may look, but not decide." }
            }
        }
    }
}

/// The link to the page with all of the question, if its text does not have all.
fn link_to_whole(address: &str, question: &StoredQuestion) -> Markup {
    let words = match (question.is_shortened(), question.changes().is_empty()) {
        (true, _) => "Shortened: open it to see all",
        (false, false) => "Open it to see the changes",
        (false, true) => return html! {},
    };
    html! { p.hint { a href=(address) { (words) } } }
}

/// The parts that the text may leave out.
fn whole(id: &str, question: &StoredQuestion) -> Markup {
    let parts = question.beside_text();
    html! {
        @for (number, part) in parts.iter().enumerate() {
            @match part {
                WholePart::Text { label, text } => {
                    (labelled(&format!("{id}-whole-{number}"), label, text))
                }
                WholePart::Change(change) => (changed(&format!("{id}-whole-{number}"), change)),
            }
        }
        @if question.details.is_none() {
            p.hint { "The details are too long to be shown here." }
        }
    }
}

fn labelled(id: &str, label: &str, text: &str) -> Markup {
    html! {
        p.label id=(id) { (visible_line(label)) ", in full" }
        pre.output id={ (id) "-text" } tabindex="0" role="group" aria-labelledby=(id) { (foreign(text)) }
    }
}

fn changed(id: &str, change: &WholeChange<'_>) -> Markup {
    let is_new = change.kind == "add";
    html! {
        p.label id=(id) {
            (visible_line(change.kind)) " " code { (visible_line(change.path)) }
            @if let Some(to) = change.moved_to { " to " code { (visible_line(to)) } }
        }
        div role="group" aria-labelledby=(id) {
            (diff::lines(&format!("{id}-text"), change.diff, is_new, usize::MAX))
        }
    }
}

fn expiry(question: &StoredQuestion) -> Markup {
    html! {
        @if let Some(at) = question.declined_at() {
            p.hint {
                "Declined at "
                time datetime=(visible_line(&question.expires_at)) { (at) }
                " unless answered."
            }
        }
    }
}

fn form(address: &str, id: &str, question: &StoredQuestion) -> Markup {
    html! {
        form method="post" action={ (address) "/answer" } data-live {
            input type="hidden" name="question" value=(id);
            @for (number, one) in question.fields.iter().enumerate() {
                (field::input(&format!("{id}-field-{number}"), one))
            }
            @if !question.fields.is_empty() {
                button.primary id={ (id) "-submit" } name="decision" value="submit" {
                    "Send the answers"
                }
            }
            @for (number, decision) in question.decisions.iter().enumerate() {
                button id={ (id) "-" (number) } class=(class(decision)) name="decision"
                    value=(in_json(decision)) aria-describedby={ (id) "-text" } formnovalidate {
                    (decision_label(decision))
                }
            }
        }
    }
}

fn in_json(decision: &Decision) -> String {
    serde_json::to_string(decision).unwrap_or_default()
}

fn class(decision: &Decision) -> &'static str {
    match decision {
        Decision::Accept => "primary",
        Decision::Decline | Decision::Cancel => "danger",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use codex_engine::logic::action::ActionKind;
    use codex_engine::logic::approval_text::ShortenedValue;
    use codex_engine::logic::form::Field;
    use serde_json::{Value, json};

    use super::*;

    fn question() -> StoredQuestion {
        StoredQuestion {
            kind: ActionKind::Command,
            text: "Run <script>alert(1)</script>\u{202e}?".to_owned(),
            decisions: vec![
                Decision::Accept,
                Decision::AcceptWithExecpolicyAmendment(vec!["<b>".to_owned()]),
                Decision::Decline,
            ],
            fields: vec![Field::named("\"><img src=x>")],
            expires_at: "2026-11-23T14:05:09.000Z".to_owned(),
            details: None,
            shortened: Vec::new(),
        }
    }

    fn with_details(details: Value) -> StoredQuestion {
        StoredQuestion {
            details: details.as_object().cloned(),
            ..question()
        }
    }

    fn shown(scope: Scope, question: &StoredQuestion, extent: Extent) -> String {
        card(scope, "/sessions/s", ("q\"", question), extent).into_string()
    }

    #[test]
    fn markup_and_hidden_characters_stay_text() {
        let change = json!({ "path": "<img>\u{202e}", "kind": { "type": "<b>" }, "diff": "<b>" });
        let details = json!({ "command": "<script>\u{202e}", "changes": [change] });
        let mut asked = with_details(details);
        asked.shortened = vec![ShortenedValue {
            label: "<b>\u{202e}".to_owned(),
            text: "<b>\u{202e}".to_owned(),
        }];
        for extent in [Extent::Text, Extent::Whole] {
            let html = shown(Scope::Decide, &asked, extent);
            for forbidden in ["<script", "<b>", "<img", "\u{202e}", "q\"\""] {
                assert!(!html.contains(forbidden), "{forbidden}: {html}");
            }
            assert!(html.contains("\\u{202e}"), "{html}");
        }
    }

    #[test]
    fn look_only_credential_gets_no_buttons() {
        let html = shown(Scope::Look, &question(), Extent::Whole);
        assert!(
            !html.contains("<button") && !html.contains("<form"),
            "{html}"
        );
        let html = shown(Scope::Decide, &question(), Extent::Whole);
        assert_eq!(html.matches("<button").count(), 4, "{html}");
    }

    #[test]
    fn card_says_when_the_question_is_declined() {
        let html = shown(Scope::Look, &question(), Extent::Text);
        let expected = "Declined at <time datetime=\"2026-11-23T14:05:09.000Z\">\
                        2026-11-23 14:05 UTC</time> unless answered.";
        assert!(html.contains(expected), "{html}");
    }

    #[test]
    fn whole_command_and_change_are_before_the_buttons() {
        let command = format!("echo {}", "word\n".repeat(2000));
        let change = json!({ "path": "a.rs", "kind": { "type": "update" },
            "diff": "@@ -1 +1 @@\n-old\n+new\n" });
        let asked = with_details(json!({ "command": command, "changes": [change] }));
        let html = shown(Scope::Decide, &asked, Extent::Whole);
        let (before, _) = html.split_once("<form").unwrap();
        assert!(before.contains(&command), "{before}");
        assert!(before.contains("removed\">-old"), "{before}");
        assert!(before.contains("tabindex=\"0\""), "{before}");
        let html = shown(Scope::Decide, &asked, Extent::Text);
        assert!(!html.contains(&command), "{html}");
        let link = "<a href=\"/sessions/s\">Open it to see the changes</a>";
        assert!(html.contains(link), "{html}");
    }

    #[test]
    fn shortened_text_in_a_list_has_a_link_to_all() {
        let link = "<a href=\"/sessions/s\">Shortened: open it to see all</a>";
        assert!(!shown(Scope::Look, &question(), Extent::Text).contains(link));
        let mut cut = question();
        cut.text = "Command: a … 1,842 characters left out … z".to_owned();
        assert!(shown(Scope::Look, &cut, Extent::Text).contains(link));
        assert!(!shown(Scope::Look, &cut, Extent::Whole).contains(link));
    }
}
