//! The candidates, and the choice of those that are offered. This module only decides.

use clap_complete::engine::CompletionCandidate;
use common::secrets::mask;
use common::text::one_line;
use job_queue::logic::JobState;

use super::MOST;
use crate::cli::work_list::{Kind, Work};

/// The longest description, in bytes. Its text comes from models and users.
const LONGEST_DESCRIPTION: usize = 100;

/// The longest value, in bytes.
const LONGEST_VALUE: usize = 200;

/// Something that can be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) value: String,
    pub(super) description: String,
}

/// The jobs and sessions that a verb can be used on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobChoice {
    /// Work in which Codex asks something.
    Asking,
    /// Work in which Codex works at present.
    Running,
    /// Work that has not ended.
    Unfinished,
    /// Sessions only.
    Sessions,
    /// All work, including jobs that have ended.
    All,
}

impl JobChoice {
    /// The choice of a verb.
    pub(super) fn of(verb: &str) -> Self {
        match verb {
            "approve" | "decline" => Self::Asking,
            "steer" => Self::Running,
            "cancel" => Self::Unfinished,
            "attach" => Self::Sessions,
            _ => Self::All,
        }
    }

    /// Whether the choice includes this work, which has not ended.
    pub(super) fn has(self, work: &Work) -> bool {
        match self {
            Self::Asking => work.is_asking(),
            Self::Running => work.is_asking() || work.state == JobState::Running.as_str(),
            Self::Sessions => work.kind == Kind::Session,
            Self::Unfinished | Self::All => true,
        }
    }
}

impl Candidate {
    /// A candidate with a description that others may have written.
    pub(super) fn new(value: impl Into<String>, description: &str) -> Self {
        Self {
            value: value.into(),
            description: one_line(&mask(description), LONGEST_DESCRIPTION),
        }
    }

    /// Some work under way.
    pub(super) fn of_work(work: &Work) -> Self {
        let doing = || work.doing.as_ref().map(ToString::to_string);
        let about = work.task.clone().or_else(doing);
        let kind = work.kind.as_ref();
        let state = &work.state;
        let description = match about {
            Some(about) => format!("{kind}, {state}: {about}"),
            None => format!("{kind}, {state}"),
        };
        Self::new(&work.id, &description)
    }
}

/// Whether every shell reads a text as one word at most. bash inserts a candidate without quotes.
pub(super) fn is_plain(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty()
        && text.len() <= LONGEST_VALUE
        && !text.starts_with('-')
        && text.bytes().all(is_plain)
}

/// The candidates for a word that begins with `begun`.
pub(super) fn offered(all: Vec<Candidate>, begun: &str) -> Vec<CompletionCandidate> {
    let fitting = all
        .into_iter()
        .filter(|one| is_plain(&one.value) && one.value.starts_with(begun));
    let offered = fitting.take(MOST).enumerate().map(|(order, one)| {
        let help = (!one.description.is_empty()).then(|| one.description.into());
        CompletionCandidate::new(one.value)
            .help(help)
            // In the order in which they were found: the newest first.
            .display_order(Some(order))
    });
    offered.collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::cli::work_list::CurrentActivity;

    fn work(kind: Kind, state: &str, task: Option<&str>) -> Work {
        Work {
            id: "sess_0123456789ab".to_owned(),
            kind,
            state: state.to_owned(),
            created_at: UNIX_EPOCH,
            task: task.map(str::to_owned),
            doing: Some(CurrentActivity {
                words: "running cargo test".to_owned(),
                since: None,
            }),
            tokens: None,
            cost: None,
            directory: None,
            thread_id: None,
        }
    }

    #[test]
    fn verbs_get_the_work_that_they_can_be_used_on() {
        let all = [
            work(Kind::Session, "asking", None),
            work(Kind::Session, "idle", None),
            work(Kind::Job, "running", None),
            work(Kind::Job, "queued", None),
        ];
        for (verb, expected) in [
            ("approve", [true, false, false, false]),
            ("decline", [true, false, false, false]),
            ("steer", [true, false, true, false]),
            ("cancel", [true; 4]),
            ("attach", [true, true, false, false]),
            ("logs", [true; 4]),
        ] {
            let choice = JobChoice::of(verb);
            assert_eq!(
                all.each_ref().map(|work| choice.has(work)),
                expected,
                "{verb}"
            );
        }
    }

    #[test]
    fn description_is_one_bounded_line_without_control_characters() {
        let hostile = format!("a\u{1b}[31m\nb\t:{}", "x".repeat(1000));
        let work = work(Kind::Job, "queued", Some(&hostile));
        let Candidate { description, .. } = Candidate::of_work(&work);
        assert!(description.len() <= LONGEST_DESCRIPTION, "{description}");
        assert!(!description.chars().any(char::is_control), "{description}");
        assert!(description.starts_with("job, queued: a"), "{description}");
    }

    #[test]
    fn value_with_a_special_character_is_never_offered() {
        let values = [
            "plain-1_a.b",
            "",
            "-rf",
            "$(x)",
            "`x`",
            "a b",
            "a;b",
            "a*",
            "~",
            "a'b",
            "a\\b",
            "ä",
            "a\u{b}b",
            "a\nb",
            "a:b",
        ];
        let all = values.map(|value| Candidate::new(value, ""));
        let offered = offered(all.to_vec(), "");
        let offered: Vec<_> = offered.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(offered, ["plain-1_a.b"]);
    }

    #[test]
    fn candidates_begin_with_the_word_and_are_bounded() {
        let all: Vec<_> = (0..1000)
            .map(|number| Candidate::new(format!("{}{number}", "ab".repeat(number % 2 + 1)), ""))
            .collect();
        assert_eq!(offered(all.clone(), "abab").len(), MOST);
        assert_eq!(offered(all, "abc").len(), 0);
    }
}
