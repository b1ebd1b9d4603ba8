//! The verdict on a run: its criteria judged by the snapshots of the start and of now.
//!
//! | criteria | implied requirements |
//! | --- | --- |
//! | none | a step that succeeded, none refused at the end, and an answer |
//! | only of the end state | evidence of work, and an answer |
//! | of new work and of the end state | evidence of work, or something new |
//! | only of new work | none |
//!
//! Without a criterion of new work, only an answer shows that Codex had finished.

mod criterion_finding;

use std::fmt;
use std::str::FromStr;

use codex_engine::logic::work::Refusal;
use common::text::counted;
use serde::{Deserialize, Serialize};

use super::criteria::{BadCriterion, Basis, Criteria, Criterion};
use super::snapshot::{Answer, Preexisting, Snapshot, Work};

/// The names of the subjects that are not criteria.
const WORK: &str = "work";
const ANSWER: &str = "answer";

/// The subject of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A criterion of the run.
    Criterion(Criterion),
    /// Codex must have executed something.
    Work,
    /// Codex must have ended a turn with an answer.
    Answer,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Criterion(criterion) => criterion.fmt(f),
            Self::Work => f.write_str(WORK),
            Self::Answer => f.write_str(ANSWER),
        }
    }
}

impl FromStr for Subject {
    type Err = BadCriterion;

    fn from_str(text: &str) -> Result<Self, BadCriterion> {
        match text {
            WORK => Ok(Self::Work),
            ANSWER => Ok(Self::Answer),
            criterion => criterion.parse().map(Self::Criterion),
        }
    }
}

impl<'de> Deserialize<'de> for Subject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Subject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A finding: whether a subject holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Finding {
    /// The subject holds.
    Satisfied {
        /// What was found: a line.
        found: String,
    },
    /// The subject does not hold, or not yet.
    NotYet {
        /// The missing requirement: a line, for people and programs.
        missing: String,
        /// The instruction for Codex alone.
        #[serde(skip)]
        instruction: String,
    },
    /// The subject was not checked yet: it is checked once all others hold.
    NotRun {
        /// The requirement: a line, for people, programs and Codex.
        missing: String,
    },
    /// The fact is unknown.
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

/// The finding for one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectFinding {
    /// The subject in the syntax of `--until`; or `work`, or `answer`.
    #[serde(rename = "criterion")]
    pub subject: Subject,
    /// Whether the subject holds.
    #[serde(flatten)]
    pub finding: Finding,
}

/// The findings for all subjects. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Verdict(Vec<SubjectFinding>);

/// The summary of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictStatus {
    /// All subjects hold.
    Satisfied,
    /// A subject does not hold.
    Incomplete,
    /// All known subjects hold, and some are unknown.
    Unknown,
}

impl Verdict {
    /// Iterates over the findings.
    pub fn iter(&self) -> std::slice::Iter<'_, SubjectFinding> {
        self.0.iter()
    }

    /// The summary of the verdict.
    #[must_use]
    pub fn status(&self) -> VerdictStatus {
        let mut status = VerdictStatus::Satisfied;
        for judged in self.iter() {
            match judged.finding {
                Finding::Satisfied { .. } => {}
                Finding::NotYet { .. } | Finding::NotRun { .. } => {
                    return VerdictStatus::Incomplete;
                }
                Finding::Unknown { .. } => status = VerdictStatus::Unknown,
            }
        }
        status
    }

    /// Whether only commands, and the review after them, are missing, so that the commands
    /// should be run.
    #[must_use]
    pub fn is_worth_commands(&self) -> bool {
        self.lacks_only(|criterion| matches!(criterion, Criterion::Command(_) | Criterion::Review))
    }

    /// Whether only the review is missing, so that it should be made.
    #[must_use]
    pub fn is_worth_review(&self) -> bool {
        let wants_review =
            |judged: &SubjectFinding| judged.subject == Subject::Criterion(Criterion::Review);
        self.iter().any(wants_review)
            && self.lacks_only(|criterion| *criterion == Criterion::Review)
    }

    /// Whether a criterion was checked and does not hold, and only a change of the repository can
    /// meet it. The review does not count, as it may pass at a second attempt. Criteria of new work
    /// need no check here: runs with them do not begin in a sandbox in which nothing can be
    /// changed.
    #[must_use]
    pub fn needs_change(&self) -> bool {
        self.iter().any(|judged| {
            let Subject::Criterion(criterion) = &judged.subject else {
                return false;
            };
            let is_of_changes = match criterion {
                Criterion::Clean | Criterion::Command(_) | Criterion::DiffWithin(_) => true,
                Criterion::Files(_)
                | Criterion::Commits { .. }
                | Criterion::Branch(_)
                | Criterion::Pushed
                | Criterion::PullRequest
                | Criterion::IssueComment(_)
                | Criterion::Review => false,
            };
            is_of_changes && matches!(judged.finding, Finding::NotYet { .. })
        })
    }

    fn lacks_only(&self, expected: impl Fn(&Criterion) -> bool) -> bool {
        self.iter()
            .all(|judged| match (&judged.finding, &judged.subject) {
                (Finding::Satisfied { .. } | Finding::Unknown { .. }, _) => true,
                (_, Subject::Criterion(criterion)) => expected(criterion),
                (_, Subject::Work | Subject::Answer) => false,
            })
    }

    /// Whether the run has criteria that could be checked.
    #[must_use]
    pub fn has_criteria(&self) -> bool {
        let mut subjects = self.iter().map(|judged| &judged.subject);
        subjects.any(|subject| matches!(subject, Subject::Criterion(_)))
    }

    /// The missing and the unknown subjects: lines for people and programs.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.missing_lines(|missing, _| missing.to_owned())
    }

    /// The same lines for Codex, with instructions.
    #[must_use]
    pub fn instructions(&self) -> Vec<String> {
        self.missing_lines(|missing, instruction| match instruction {
            "" => missing.to_owned(),
            instruction => format!("{missing}: {instruction}"),
        })
    }

    fn missing_lines(&self, line: impl Fn(&str, &str) -> String) -> Vec<String> {
        let lines = self.iter().filter_map(|judged| match &judged.finding {
            Finding::Satisfied { .. } => None,
            Finding::NotYet {
                missing,
                instruction,
            } => Some(line(missing, instruction)),
            Finding::NotRun { missing } => Some(line(missing, "")),
            Finding::Unknown { why } => {
                Some(format!("{}: this cannot be checked: {why}", judged.subject))
            }
        });
        lines.collect()
    }
}

/// Judges the criteria of a run by its snapshots of `start` and `now`.
#[must_use]
pub fn judge(
    criteria: &Criteria,
    start: &Snapshot,
    now: &Snapshot,
    work: &Work,
    preexisting: Preexisting,
) -> Verdict {
    let comparison = criterion_finding::Comparison {
        start,
        now,
        preexisting,
    };
    let mut judged: Vec<SubjectFinding> = criteria
        .iter()
        .map(|criterion| SubjectFinding {
            finding: comparison.judge(criterion),
            subject: Subject::Criterion(criterion.clone()),
        })
        .collect();
    judged.extend(implied_findings(criteria, &comparison, work));
    Verdict(judged)
}

/// The findings for work and for an answer, where the criteria imply them.
fn implied_findings(
    criteria: &Criteria,
    comparison: &criterion_finding::Comparison<'_>,
    work: &Work,
) -> Vec<SubjectFinding> {
    let mut at_the_end = criteria.is_empty();
    let mut wants_new = false;
    for criterion in criteria.iter() {
        match criterion.basis() {
            Basis::EndState => at_the_end = true,
            Basis::NewWork => wants_new = true,
        }
    }
    let mut judged = Vec::new();
    if at_the_end {
        judged.push(SubjectFinding {
            subject: Subject::Work,
            finding: match criteria.is_empty() {
                true => succeeded(comparison, work),
                false => work_finding(comparison, work),
            },
        });
    }
    if !wants_new {
        judged.push(SubjectFinding {
            subject: Subject::Answer,
            finding: answer_finding(work),
        });
    }
    judged
}

/// The missing requirement where Codex has only written messages.
const NOTHING_EXECUTED: &str = "nothing was executed";

/// The instruction for [`NOTHING_EXECUTED`].
const USE_TOOLS: &str = "use your tools to do the work";

/// The instruction after a refusal.
const ANOTHER_WAY: &str = "reach the goal in another way";

fn work_finding(comparison: &criterion_finding::Comparison<'_>, work: &Work) -> Finding {
    let steps = work.evidence.executed();
    match steps {
        0 if comparison.has_something_new() => Finding::Satisfied {
            found: "something new is there".to_owned(),
        },
        0 => Finding::not_yet(NOTHING_EXECUTED, USE_TOOLS),
        steps => Finding::Satisfied {
            found: format!("Codex executed {}", counted(steps, "step")),
        },
    }
}

/// The finding for work without criteria, where only the steps show whether work was done.
fn succeeded(comparison: &criterion_finding::Comparison<'_>, work: &Work) -> Finding {
    let (missing, instruction) = match (work.succeeded, work.refusal) {
        (0, _) if work.evidence.executed() == 0 => (NOTHING_EXECUTED, USE_TOOLS),
        (0, _) => ("no step has succeeded", "find out why, and do the work"),
        (_, Refusal::Last) => ("the last step was refused", ANOTHER_WAY),
        (_, Refusal::Followed) if !comparison.has_something_new() => {
            ("a step was refused, and nothing has changed", ANOTHER_WAY)
        }
        (steps, Refusal::None | Refusal::Followed) => {
            return Finding::Satisfied {
                found: format!("{} succeeded", counted(steps, "step")),
            };
        }
    };
    Finding::not_yet(missing, instruction)
}

fn answer_finding(work: &Work) -> Finding {
    match work.answer {
        Answer::Present => Finding::Satisfied {
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
