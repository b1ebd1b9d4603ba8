//! The parts of a question that its text leaves out, in lines for a terminal.

use common::text::visible_line;
use job_queue::question::{StoredQuestion, WholePart};

/// The parts, each under its name. Their lines are indented, so that none can be taken for one of
/// ours.
pub(super) fn left_out(question: &StoredQuestion) -> Vec<String> {
    let mut lines = Vec::new();
    for part in question.whole() {
        match part {
            WholePart::Text { .. } if !question.is_shortened() => {}
            WholePart::Text { label, text } => {
                push(&mut lines, &format!("{label}, in full:"), text);
            }
            WholePart::Change(change) => {
                let to = change.moved_to.map(|to| format!(" to {to}"));
                let to = to.unwrap_or_default();
                push(
                    &mut lines,
                    &format!("{} {}{to}", change.kind, change.path),
                    change.diff,
                );
            }
        }
    }
    if question.details.is_none() {
        let missing =
            "The details are missing: they were too long, or too many questions are open.";
        lines.push(missing.to_owned());
    }
    lines
}

fn push(lines: &mut Vec<String>, name: &str, text: &str) {
    lines.push(visible_line(name).into_owned());
    lines.extend(text.lines().map(|line| format!("  {line}")));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lines(text: &str, details: &Value) -> Vec<String> {
        let question = json!({ "kind": "command", "text": text, "decisions": [],
            "expires_at": "", "details": details });
        left_out(&serde_json::from_value(question).unwrap())
    }

    #[test]
    fn command_is_shown_if_the_text_leaves_out_part_of_it() {
        let details = json!({ "command": "one\ntwo" });
        let shown = lines(
            "Codex wants to run a command.\n… 9 more lines left out …",
            &details,
        );
        assert_eq!(shown, ["Command, in full:", "  one", "  two"]);
        assert_eq!(lines("Codex wants to run a command.", &details), [""; 0]);
        let shown = lines("Codex wants to run a command.", &Value::Null);
        assert_eq!(shown.len(), 1);
        assert!(shown[0].starts_with("The details are missing"), "{shown:?}");
    }

    #[test]
    fn changes_of_files_are_shown() {
        let details = json!({ "changes": [
            { "path": "a\nb", "kind": { "type": "update", "move_path": "c" }, "diff": "-x\n+y" },
            { "path": "d", "kind": { "type": "delete" }, "diff": "" },
        ] });
        let shown = lines("Codex wants to change files.", &details);
        assert_eq!(shown, ["update a\\u{a}b to c", "  -x", "  +y", "delete d"]);
    }
}
