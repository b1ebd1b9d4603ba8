//! Labels of decisions, for buttons and menus.

use codex_engine::logic::action::Decision;
use codex_engine::logic::approval_text::command_line;
use common::text::visible_line;
use serde_json::Value;

/// The label of a decision: one line without hidden characters.
#[must_use]
pub fn decision_label(decision: &Decision) -> String {
    match decision {
        Decision::Accept => "Allow once".to_owned(),
        Decision::AcceptForSession => "Allow in this thread".to_owned(),
        Decision::AcceptWithExecpolicyAmendment(words) => format!(
            "Allow for good, in all threads, commands that begin with: {}",
            visible_line(&command_line(words))
        ),
        Decision::ApplyNetworkPolicyAmendment(rule) => {
            let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or("?");
            let rule = format!("{} {}", text("action"), text("host"));
            format!("Permanent rule for the network: {}", visible_line(&rule))
        }
        Decision::Decline => "Decline".to_owned(),
        Decision::Cancel => "Decline and end the turn".to_owned(),
        Decision::Submit(_) => "Send the answers".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule allows other commands than the words without quotes would.
    #[test]
    fn rule_of_a_choice_shows_where_its_words_end() {
        let label = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            decision_label(&Decision::AcceptWithExecpolicyAmendment(words))
        };
        let begin = "Allow for good, in all threads, commands that begin with: ";
        for (words, shown) in [
            (&["git", "push"][..], "git push"),
            (
                &["git", "commit", "-m", "two words"],
                "git commit -m 'two words'",
            ),
            (&["rm", "-rf", "; x"], "rm -rf '; x'"),
            (&["echo", "", "a\u{202e}"], "echo '' 'a\\u{202e}'"),
        ] {
            assert_eq!(label(words), format!("{begin}{shown}"));
        }
    }
}
