//! Templates of the prompts, which a project can replace.
//!
//! In a template, `{name}` is a placeholder, and `{{` and `}}` are plain braces. Braces in
//! inserted texts mean nothing.

use codex_config::logic::prompt_kind::PromptKind;
use common::text::BoundedText;
use serde::{Deserialize, Serialize};

/// The longest template, in bytes.
pub const TEMPLATE_LIMIT: usize = 16 * 1024;

/// The longest inserted text, but for the task, in bytes.
pub const INSERT_LIMIT: usize = 4 * 1024;

const INITIAL: &str = "\
{task}

Work in {repo}. Do the work now, with your shell and file tools, in this turn; \
do not describe what you plan to do. You are done when all of this holds:
{criteria}
When it does, report what you did.";

const NUDGE: &str = "\
Your previous response was words only: no tool was executed.

Task: {task}

Work in {repo}. Execute now: use your shell and file tools. Do not describe what \
you plan to do, do it. This is still missing:
{missing}
Respond only after that is done.";

const RECOVERY: &str = "\
The last turn ran into errors:
{errors}

Find out why and resolve it; if something is not allowed, reach the goal in \
another way. The task is still: {task}

Work in {repo}. This is still missing:
{missing}
Respond only after that is done.";

const CONTINUATION: &str = "\
The work is not complete. The task is: {task}

In {repo}, this is still missing:
{missing}
Go on and finish it now, with your shell and file tools. Respond only after that \
is done.";

fn default_text(kind: PromptKind) -> &'static str {
    match kind {
        PromptKind::Initial => INITIAL,
        PromptKind::Nudge => NUDGE,
        PromptKind::Recovery => RECOVERY,
        PromptKind::Continuation => CONTINUATION,
    }
}

/// The only line of an empty list of what is missing or went wrong.
const NOTHING: &str = "nothing in particular";

/// A placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Placeholder {
    Task,
    Repo,
    Criteria,
    Missing,
    Errors,
    Turn,
    MaxTurns,
}

const PLACEHOLDERS: [(&str, Placeholder); 7] = [
    ("task", Placeholder::Task),
    ("repo", Placeholder::Repo),
    ("criteria", Placeholder::Criteria),
    ("missing", Placeholder::Missing),
    ("errors", Placeholder::Errors),
    ("turn", Placeholder::Turn),
    ("max_turns", Placeholder::MaxTurns),
];

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// It is longer than [`TEMPLATE_LIMIT`].
    #[error("the template has more than {TEMPLATE_LIMIT} bytes; write a shorter one")]
    TooLong,
    /// The template has an unknown placeholder.
    #[error(
        "there is no placeholder {0:?}; known are {{task}}, {{repo}}, {{criteria}}, {{missing}}, {{errors}}, {{turn}} and {{max_turns}}; write {{{{ and }}}} for plain braces"
    )]
    Unknown(String),
    /// A brace is unbalanced.
    #[error("a brace stands alone in the template; write {{{{ and }}}} for plain braces")]
    Brace,
    /// The initial prompt lacks the task, so Codex would never learn it.
    #[error("the template of the initial prompt has no {{task}}; put it where the task belongs")]
    WithoutTask,
}

/// The text of a prompt with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

/// The texts for the placeholders.
#[derive(Debug, Clone, Copy)]
pub struct Inserts<'a> {
    /// `{task}`: the task, as it was given.
    pub task: &'a str,
    /// `{repo}`: the directory of the work, an absolute path.
    pub repo: &'a str,
    /// `{criteria}`: the criteria, a line each.
    pub criteria: &'a [String],
    /// `{missing}`: the criteria that do not hold yet, a line each.
    pub missing: &'a [String],
    /// `{errors}`: errors and refusals of the last turn, a line each.
    pub errors: &'a [String],
    /// `{turn}`: the number of the turn that this prompt begins.
    pub turn: u32,
    /// `{max_turns}`: the limit of turns.
    pub max_turns: u32,
}

impl Template {
    /// Reads the template of a prompt.
    ///
    /// # Errors
    ///
    /// [`BadTemplate`], with advice.
    pub fn read(kind: PromptKind, text: &str) -> Result<Self, BadTemplate> {
        if text.len() > TEMPLATE_LIMIT {
            return Err(BadTemplate::TooLong);
        }
        let template = Self(pieces(text)?);
        let has_task = template.0.contains(&Piece::Placeholder(Placeholder::Task));
        match kind {
            PromptKind::Initial if !has_task => Err(BadTemplate::WithoutTask),
            _ => Ok(template),
        }
    }

    /// The prompt with the texts inserted.
    #[must_use]
    pub fn fill(&self, inserts: &Inserts<'_>) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Placeholder(placeholder) => inserts.get(*placeholder),
        });
        pieces.collect()
    }
}

impl Inserts<'_> {
    fn get(&self, placeholder: Placeholder) -> String {
        match placeholder {
            Placeholder::Task => self.task.to_owned(),
            Placeholder::Repo => self.repo.to_owned(),
            Placeholder::Criteria => listed(self.criteria, "the task is done"),
            Placeholder::Missing => listed(self.missing, NOTHING),
            Placeholder::Errors => listed(self.errors, NOTHING),
            Placeholder::Turn => self.turn.to_string(),
            Placeholder::MaxTurns => self.max_turns.to_string(),
        }
    }
}

/// A list, or `none` as its only line if it is empty.
fn listed(lines: &[String], none: &str) -> String {
    let mut list = BoundedText::default();
    for line in lines {
        if !list.is_empty() {
            list.push("\n", INSERT_LIMIT);
        }
        list.push("- ", INSERT_LIMIT);
        list.push(line, INSERT_LIMIT);
    }
    match list.is_empty() {
        true => format!("- {none}"),
        false => list.as_str().to_owned(),
    }
}

fn pieces(mut rest: &str) -> Result<Vec<Piece>, BadTemplate> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    while let Some((before, brace, after)) = split_at_brace(rest) {
        text.push_str(before);
        rest = match (brace, after.strip_prefix(brace)) {
            (_, Some(after)) => {
                text.push(brace);
                after
            }
            ('{', None) => {
                let (name, after) = after.split_once('}').ok_or(BadTemplate::Brace)?;
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Placeholder(placeholder(name)?));
                after
            }
            (_, None) => return Err(BadTemplate::Brace),
        };
    }
    text.push_str(rest);
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

fn split_at_brace(text: &str) -> Option<(&str, char, &str)> {
    let at = text.find(['{', '}'])?;
    let (before, from) = text.split_at(at);
    let brace = from.chars().next()?;
    Some((before, brace, from.strip_prefix(brace)?))
}

fn placeholder(name: &str) -> Result<Placeholder, BadTemplate> {
    let mut known = PLACEHOLDERS.into_iter();
    let found = known.find(|(known, _)| *known == name);
    let unknown = || BadTemplate::Unknown(name.chars().take(50).collect());
    found
        .map(|(_, placeholder)| placeholder)
        .ok_or_else(unknown)
}

/// The templates of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Templates([Template; 4]);

impl Templates {
    /// The default templates, except those that `replaced` returns.
    ///
    /// # Errors
    ///
    /// The kind of the invalid template, and why it is invalid.
    pub fn new(
        replaced: impl Fn(PromptKind) -> Option<String>,
    ) -> Result<Self, (PromptKind, BadTemplate)> {
        let read = |kind: PromptKind| {
            let theirs = replaced(kind);
            let text = theirs.as_deref().unwrap_or(default_text(kind));
            Template::read(kind, text).map_err(|why| (kind, why))
        };
        let [initial, nudge, recovery, continuation] = PromptKind::ALL;
        Ok(Self([
            read(initial)?,
            read(nudge)?,
            read(recovery)?,
            read(continuation)?,
        ]))
    }

    /// The template of a kind of prompt.
    #[must_use]
    pub fn get(&self, kind: PromptKind) -> &Template {
        let Self([initial, nudge, recovery, continuation]) = self;
        match kind {
            PromptKind::Initial => initial,
            PromptKind::Nudge => nudge,
            PromptKind::Recovery => recovery,
            PromptKind::Continuation => continuation,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fill(kind: PromptKind, text: Option<&str>, inserts: &Inserts<'_>) -> String {
        let replaced = |_| text.map(str::to_owned);
        Templates::new(replaced).unwrap().get(kind).fill(inserts)
    }

    #[test]
    fn default_prompts_are_filled() {
        let list = |lines: [&str; 2]| lines.map(str::to_owned).to_vec();
        let inserts = Inserts {
            task: "Write a.tex; {missing} $(reboot) {{",
            repo: "/home/me/it's {repo}",
            criteria: &list(["a.tex must exist", "one commit"]),
            missing: &list(["a.tex does not exist", "no commit"]),
            errors: &list(["git push exited with 1", "denied: rm -rf /"]),
            turn: 2,
            max_turns: 10,
        };
        let all = PromptKind::ALL.map(|kind| {
            let prompt = fill(kind, None, &inserts);
            assert!(prompt.contains(inserts.task) && prompt.contains(inserts.repo));
            format!("{kind}\n------\n{prompt}\n\n")
        });
        insta::assert_snapshot!(all.concat());
    }

    fn only(task: &str) -> Inserts<'_> {
        Inserts {
            task,
            repo: "",
            criteria: &[],
            missing: &[],
            errors: &[],
            turn: 3,
            max_turns: 9,
        }
    }

    #[test]
    fn project_template_replaces_the_default() {
        let text = "{{{turn}/{max_turns}}} {task}{missing}";
        let filled = fill(PromptKind::Initial, Some(text), &only("T"));
        assert_eq!(filled, "{3/9} T- nothing in particular");
    }

    #[test]
    fn prompt_without_criteria_asks_for_the_whole_task() {
        let filled = fill(PromptKind::Initial, None, &only("T"));
        let told = "You are done when all of this holds:\n- the task is done\n";
        assert!(filled.contains(told), "{filled}");
    }

    #[test]
    fn malformed_template_is_refused_with_advice() {
        let read = |text: &str| Template::read(PromptKind::Initial, text);
        let unknown = read("{task} {branch}").unwrap_err();
        assert_eq!(unknown, BadTemplate::Unknown("branch".to_owned()));
        insta::assert_snapshot!(unknown.to_string());
        for text in ["{task", "{task}}", "}", "{"] {
            assert_eq!(read(text), Err(BadTemplate::Brace), "{text}");
        }
        assert_eq!(read("{{task}}"), Err(BadTemplate::WithoutTask));
        assert!(Template::read(PromptKind::Nudge, "Go.").is_ok());
        assert_eq!(
            read(&"x".repeat(TEMPLATE_LIMIT + 1)),
            Err(BadTemplate::TooLong)
        );
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let lines = vec!["ß".repeat(100); 1000];
        let inserts = Inserts {
            missing: &lines,
            ..only("")
        };
        let filled = fill(PromptKind::Nudge, Some("{task}{missing}"), &inserts);
        assert!(filled.len() < INSERT_LIMIT + 100 && filled.contains("cut here"));
    }

    proptest! {
        #[test]
        fn inserted_text_is_not_expanded(task in any::<String>(), braces in r"[{}a-z]{0,20}") {
            for task in [task, braces] {
                let filled = fill(PromptKind::Initial, Some("<{task}>"), &only(&task));
                prop_assert_eq!(filled, format!("<{task}>"));
            }
        }

        #[test]
        fn arbitrary_template_does_not_panic(text in any::<String>(), braces in r"[{}task]{0,20}") {
            for text in [text, braces] {
                if let Ok(template) = Template::read(PromptKind::Nudge, &text) {
                    prop_assert!(template.fill(&only("")).len() <= 4 * text.len() + 100);
                }
            }
        }
    }
}
