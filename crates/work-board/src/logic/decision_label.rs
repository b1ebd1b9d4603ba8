//! Labels of decisions, for buttons and menus.

use codex_engine::logic::action::Decision;
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
            visible_line(&words.join(" "))
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
