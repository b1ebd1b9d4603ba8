//! An open question of Codex, with exactly the decisions that it offers.

use codex_engine::logic::action::Decision;
use common::text::visible_line;
use job_queue::question::StoredQuestion;
use maud::{Markup, html};
use work_board::decision_label;

use super::layout::foreign;
use crate::logic::access::Scope;

/// A question of the work at `address`.
pub(crate) fn card(scope: Scope, address: &str, id: &str, question: &StoredQuestion) -> Markup {
    html! {
        section.question aria-label="Question of Codex" {
            pre.asked id={ (id) "-text" } { (foreign(&question.text)) }
            @if scope == Scope::Decide {
                form method="post" action={ (address) "/answer" } data-live {
                    input type="hidden" name="question" value=(id);
                    @for (number, field) in question.fields.iter().enumerate() {
                        (answer_field(&format!("{id}-field-{number}"), field))
                    }
                    @if !question.fields.is_empty() {
                        button.primary id={ (id) "-submit" } name="decision" value="submit" {
                            "Send the answers"
                        }
                    }
                    @for (number, decision) in question.decisions.iter().enumerate() {
                        button id={ (id) "-" (number) } class=(class(decision)) name="decision"
                            value=(in_json(decision)) aria-describedby={ (id) "-text" } {
                            (decision_label(decision))
                        }
                    }
                }
            } @else {
                p.hint { "This browser may look, but not decide." }
            }
        }
    }
}

fn answer_field(id: &str, field: &str) -> Markup {
    html! {
        label {
            (visible_line(field))
            input id=(id) name={ "answer." (field) } autocomplete="off";
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
            fields: vec!["\"><img src=x>".to_owned()],
            expires_at: String::new(),
            details: None,
        }
    }

    #[test]
    fn markup_and_hidden_characters_stay_text() {
        let html = card(Scope::Decide, "/sessions/s", "q\"", &question()).into_string();
        for forbidden in ["<script", "<b>", "<img", "\u{202e}", "q\"\""] {
            assert!(!html.contains(forbidden), "{forbidden}: {html}");
        }
        assert!(html.contains("\\u{202e}"), "{html}");
    }

    #[test]
    fn who_may_only_look_gets_no_buttons() {
        let html = card(Scope::Look, "/sessions/s", "q", &question()).into_string();
        assert!(
            !html.contains("<button") && !html.contains("<form"),
            "{html}"
        );
        let html = card(Scope::Decide, "/sessions/s", "q", &question()).into_string();
        assert_eq!(html.matches("<button").count(), 4, "{html}");
    }
}
