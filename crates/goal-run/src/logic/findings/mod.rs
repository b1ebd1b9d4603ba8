//! What was found of each criterion: how things stand now, beside how they stood at
//! the start.
//!
//! | asked for | also wanted |
//! | --- | --- |
//! | nothing | a step that succeeded, none refused in the end, and an answer |
//! | only what is judged at the end | evidence of work, and an answer |
//! | something new, and something judged at the end | evidence of work, or something new |
//! | only something new | nothing |
//!
//! The answer is wanted where nothing new is: only it tells that Codex was done, and
//! not in the middle of something.

mod asking;

use std::fmt;

use codex_engine::logic::work::Refusal;
use serde::Serialize;

use super::criteria::{Criteria, Criterion, Judging};
use super::snapshot::{Answer, Preexisting, Snapshot, Work};

/// What must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// What was asked for.
    Asked(Criterion),
    /// Codex has executed something.
    Work,
    /// Codex has ended a turn with an answer.
    Answer,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(criterion) => criterion.fmt(f),
            Self::Work => f.write_str("work"),
            Self::Answer => f.write_str("answer"),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Whether it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Finding {
    /// It does.
    Satisfied {
        /// What was found: a line.
        found: String,
    },
    /// It doesn't, or not yet.
    NotYet {
        /// What is missing: a line, for people and programs.
        missing: String,
        /// What Codex is to do about it, for Codex alone; may be empty.
        #[serde(skip)]
        instruction: String,
    },
    /// Nobody can tell.
    Unknown {
        /// Why: a line.
        why: String,
    },
}

impl Finding {
    fn not_yet(missing: impl Into<String>, instruction: impl Into<String>) -> Self {
        Self::NotYet {
            missing: missing.into(),
            instruction: instruction.into(),
        }
    }
}

/// What was found of one thing that must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// What must hold, as `--until` takes it; or `work`, or `answer`.
    #[serde(rename = "criterion")]
    pub subject: Subject,
    /// Whether it does.
    #[serde(flatten)]
    pub finding: Finding,
}

/// What was found of all that must hold. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Verdict(Vec<Judged>);

/// How far the work has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All holds.
    Satisfied,
    /// Something is missing.
    Lacking,
    /// Nothing is missing as far as one can tell, but of something one can't.
    Unclear,
}

impl Verdict {
    /// What was found of each.
    pub fn iter(&self) -> std::slice::Iter<'_, Judged> {
        self.0.iter()
    }

    /// How far the work has come.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let mut standing = Standing::Satisfied;
        for judged in self.iter() {
            match judged.finding {
                Finding::Satisfied { .. } => {}
                Finding::NotYet { .. } => return Standing::Lacking,
                Finding::Unknown { .. } => standing = Standing::Unclear,
            }
        }
        standing
    }

    /// Whether nothing is missing but commands and the review that follows them, so that it
    /// is worthwhile to run those.
    #[must_use]
    pub fn is_worth_commands(&self) -> bool {
        self.lacks_only(|criterion| matches!(criterion, Criterion::Command(_) | Criterion::Review))
    }

    /// Whether nothing is missing but the review, so that it is worthwhile to make it.
    #[must_use]
    pub fn is_worth_review(&self) -> bool {
        let wants_review = |judged: &Judged| judged.subject == Subject::Asked(Criterion::Review);
        self.iter().any(wants_review)
            && self.lacks_only(|criterion| *criterion == Criterion::Review)
    }

    fn lacks_only(&self, expected: impl Fn(&Criterion) -> bool) -> bool {
        self.iter()
            .all(|judged| match (&judged.finding, &judged.subject) {
                (Finding::NotYet { .. }, Subject::Asked(criterion)) => expected(criterion),
                (Finding::NotYet { .. }, Subject::Work | Subject::Answer) => false,
                (Finding::Satisfied { .. } | Finding::Unknown { .. }, _) => true,
            })
    }

    /// Whether anything was asked for, so that it could be checked.
    #[must_use]
    pub fn has_criteria(&self) -> bool {
        let mut subjects = self.iter().map(|judged| &judged.subject);
        subjects.any(|subject| matches!(subject, Subject::Asked(_)))
    }

    /// What is missing, and what nobody can tell: lines for people and programs.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.lacking(|missing, _| missing.to_owned())
    }

    /// The same for Codex, with what it is to do.
    #[must_use]
    pub fn instructions(&self) -> Vec<String> {
        self.lacking(|missing, instruction| match instruction {
            "" => missing.to_owned(),
            instruction => format!("{missing}: {instruction}"),
        })
    }

    fn lacking(&self, line: impl Fn(&str, &str) -> String) -> Vec<String> {
        let lines = self.iter().filter_map(|judged| match &judged.finding {
            Finding::Satisfied { .. } => None,
            Finding::NotYet {
                missing,
                instruction,
            } => Some(line(missing, instruction)),
            Finding::Unknown { why } => {
                Some(format!("{}: this can't be checked: {why}", judged.subject))
            }
        });
        lines.collect()
    }
}

/// What holds `now`, of a run that began with `start`.
#[must_use]
pub fn judge(
    criteria: &Criteria,
    start: &Snapshot,
    now: &Snapshot,
    work: &Work,
    preexisting: Preexisting,
) -> Verdict {
    let scene = asking::Scene {
        start,
        now,
        preexisting,
    };
    let mut judged: Vec<Judged> = criteria
        .iter()
        .map(|criterion| Judged {
            finding: scene.judge(criterion),
            subject: Subject::Asked(criterion.clone()),
        })
        .collect();
    judged.extend(beside(criteria, &scene, work));
    Verdict(judged)
}

/// What must hold beside the criteria.
fn beside(criteria: &Criteria, scene: &asking::Scene<'_>, work: &Work) -> Vec<Judged> {
    let mut at_the_end = criteria.is_empty();
    let mut wants_new = false;
    for criterion in criteria.iter() {
        match criterion.judging() {
            Judging::AtTheEnd => at_the_end = true,
            Judging::BySomethingNew => wants_new = true,
        }
    }
    let mut judged = Vec::new();
    if at_the_end {
        judged.push(Judged {
            subject: Subject::Work,
            finding: match criteria.is_empty() {
                true => succeeded(scene, work),
                false => worked(scene, work),
            },
        });
    }
    if !wants_new {
        judged.push(Judged {
            subject: Subject::Answer,
            finding: answered(work),
        });
    }
    judged
}

/// What is missing where Codex has only spoken.
const NOTHING_EXECUTED: &str = "nothing was executed";

/// What Codex is to do then.
const USE_TOOLS: &str = "use your tools to do the work";

/// What Codex is to do where it was refused something.
const ANOTHER_WAY: &str = "reach the goal in another way";

fn worked(scene: &asking::Scene<'_>, work: &Work) -> Finding {
    let steps = work.evidence.executed();
    match steps {
        0 if scene.has_something_new() => Finding::Satisfied {
            found: "something new is there".to_owned(),
        },
        0 => Finding::not_yet(NOTHING_EXECUTED, USE_TOOLS),
        steps => Finding::Satisfied {
            found: format!("steps executed: {steps}"),
        },
    }
}

/// Where nothing was asked for, only the steps can tell whether the work was done.
fn succeeded(scene: &asking::Scene<'_>, work: &Work) -> Finding {
    let (missing, instruction) = match (work.succeeded, work.refusal) {
        (0, _) if work.evidence.executed() == 0 => (NOTHING_EXECUTED, USE_TOOLS),
        (0, _) => ("no step has succeeded", "find out why, and do the work"),
        (_, Refusal::Last) => ("the last step was refused", ANOTHER_WAY),
        (_, Refusal::Followed) if !scene.has_something_new() => {
            ("a step was refused, and nothing has changed", ANOTHER_WAY)
        }
        (steps, Refusal::None | Refusal::Followed) => {
            return Finding::Satisfied {
                found: format!("steps that succeeded: {steps}"),
            };
        }
    };
    Finding::not_yet(missing, instruction)
}

fn answered(work: &Work) -> Finding {
    match work.answer {
        Answer::Given => Finding::Satisfied {
            found: "the turn ended with an answer".to_owned(),
        },
        Answer::Missing => Finding::not_yet(
            "there is no final message",
            "when the work is done, report what you did",
        ),
    }
}

#[cfg(test)]
mod tests;
