//! The commands that answer a question of Codex. They name the question: by the time they are run,
//! another question that nobody has read may have taken its place.

use codex_engine::logic::action::Decision;
use job_queue::question::StoredQuestion;

/// The longest name of a question or a field in a command, in bytes.
const LONGEST_NAME: usize = 120;

/// A sentence that says how to answer a question. `program` is the words before the verb.
pub(super) fn how_to_answer(
    program: &str,
    work: &str,
    (id, question): (&str, &StoredQuestion),
) -> String {
    // The names of fields come from the model or from an MCP server, and others may write to a
    // store of jobs.
    let name = if is_plain(id) { id } else { "QUESTION" };
    let approve = format!("{program} approve {work} {name}");
    let decline = format!("`{program} decline {work} {name}` declines it");
    match question.fields.as_slice() {
        [] if question.decisions.contains(&Decision::Accept) => {
            format!("`{approve}` allows what Codex asks for, {decline}.")
        }
        [] => format!("{decline}."),
        [_] => format!("`{approve} --answer TEXT` answers it, {decline}."),
        several if several.iter().all(|field| is_plain(&field.id)) => {
            let answers = several
                .iter()
                .map(|field| format!(" --answer {}=TEXT", field.id));
            let answers: String = answers.collect();
            format!("`{approve}{answers}` answers it, {decline}.")
        }
        _ => format!(
            "`{approve} --answer FIELD=TEXT`, with an --answer for each field, answers it, {decline}."
        ),
    }
}

/// Whether every shell reads a name as one plain word.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    name.len() <= LONGEST_NAME && !name.starts_with('-') && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(id: &str, decisions: &[Decision], fields: &[&str]) -> String {
        let question = json!({ "kind": "user_input", "text": "Which?", "decisions": decisions,
            "fields": fields, "expires_at": "" });
        let question: StoredQuestion = serde_json::from_value(question).unwrap();
        how_to_answer("codex-mcp", "1", (id, &question))
    }

    #[test]
    fn command_names_the_question_and_each_field() {
        for (fields, command) in [
            (&["x"][..], "approve 1 req_a --answer TEXT`"),
            (
                &["x", "y"],
                "approve 1 req_a --answer x=TEXT --answer y=TEXT`",
            ),
            (
                &["x", "y; touch planted #"],
                "approve 1 req_a --answer FIELD=TEXT`",
            ),
        ] {
            let sentence = answer("req_a", &[Decision::Decline], fields);
            assert!(sentence.contains(command), "{command}: {sentence}");
            assert!(sentence.ends_with("`codex-mcp decline 1 req_a` declines it."));
        }
    }

    #[test]
    fn command_approves_what_can_be_approved() {
        let both = [Decision::Accept, Decision::Decline];
        let sentence = answer("req_a", &both, &[]);
        assert_eq!(
            sentence,
            "`codex-mcp approve 1 req_a` allows what Codex asks for, \
             `codex-mcp decline 1 req_a` declines it."
        );
        let sentence = answer("req_a", &[Decision::Decline], &[]);
        assert_eq!(sentence, "`codex-mcp decline 1 req_a` declines it.");
    }

    #[test]
    fn name_that_a_shell_would_run_is_in_no_command() {
        for id in ["a; touch planted #", "-a", "a\u{1b}"] {
            let sentence = answer(id, &[Decision::Accept], &[]);
            assert!(sentence.contains("approve 1 QUESTION`"), "{sentence}");
            assert!(!sentence.contains(id), "{sentence}");
        }
    }
}
