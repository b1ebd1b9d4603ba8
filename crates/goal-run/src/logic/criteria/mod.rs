//! The criteria of a run.
//!
//! The syntax of `--until`:
//!
//! | text | holds when |
//! | --- | --- |
//! | `files=GLOB` | a matching file is new or was changed |
//! | `commits=N`, `commits=N@BRANCH` | HEAD, or the branch, has N new commits |
//! | `branch=NAME` | the branch is new, or has new commits |
//! | `pushed` | a branch of the remote is now at the checked-out commit |
//! | `pr` | there is a new pull request from the checked-out branch |
//! | `issue_comment=OWNER/REPO#N` | there is a new comment of the user |
//! | `clean` | nothing is uncommitted |
//! | `command=CMD` | the command exits with 0 |
//! | `review` | another thread that has reviewed the changes wants none |
//! | `diff_within=PATH,PATH` | nothing outside of these files and directories was changed |
//!
//! The object `exit_criteria` has the same keys: `files`, `issue_comment`, `command`
//! and `diff_within` take one text or a list, `commits` and `branch` likewise
//! (`commits` also a number), `pushed`, `pr`, `clean` and `review` true or false.

mod object;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use git_probe::logic::commit_id::looks_like_commit_id;
use serde::Serialize;

use super::glob::{BadGlob, Glob};
use super::names::{BadBranch, BadCommand, BadIssue, BranchName, CommandLine, Issue};

/// How many criteria a run can have.
pub const CRITERIA_LIMIT: usize = 50;

/// The largest number of commits in a criterion.
pub const COMMITS_LIMIT: u32 = 1000;

/// A condition that a run must meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Criterion {
    /// A matching file is new or was changed.
    Files(Glob),
    /// There are new commits.
    Commits {
        /// At least this many.
        count: u32,
        /// On this branch, or on HEAD.
        branch: Option<BranchName>,
    },
    /// The branch is new or has new commits.
    Branch(BranchName),
    /// The remote has the checked-out commit.
    Pushed,
    /// There is a new pull request.
    #[strum(serialize = "pr")]
    PullRequest,
    /// There is a new comment of the user on the issue.
    IssueComment(Issue),
    /// Nothing is uncommitted.
    Clean,
    /// The command exits with 0.
    Command(CommandLine),
    /// A reviewer, another thread of Codex, wants no changes.
    Review,
    /// Nothing outside of these files and directories was changed.
    DiffWithin(Vec<Glob>),
}

/// The basis on which a criterion is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Something that was made during the run.
    NewWork,
    /// The state at the end, whatever has caused it.
    EndState,
}

/// A permission that Codex needs for a criterion, beyond writing in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// To write to a git directory, so that Codex can commit.
    GitDirectory,
    /// To use the network.
    Network,
}

/// Why a text is not a criterion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCriterion {
    /// There is no criterion of that kind.
    #[error(
        "there is no criterion {0:?}; write files=GLOB, commits=N, commits=N@BRANCH, branch=NAME, pushed, pr, issue_comment=OWNER/REPO#N, clean, command=CMD, review or diff_within=PATH,PATH"
    )]
    Unknown(String),
    /// The criterion needs a value.
    #[error("{kind} wants a value; write {kind}={example}")]
    WantsValue {
        /// The criterion.
        kind: &'static str,
        /// An example of a value.
        example: &'static str,
    },
    /// The criterion takes no value.
    #[error("{0} takes no value; write {0} alone")]
    TakesNoValue(&'static str),
    /// The value is not a number of commits.
    #[error(
        "{0:?} is not a number of commits; write one from 1 to {COMMITS_LIMIT}, perhaps with a branch behind it: commits=2@main"
    )]
    Commits(String),
    /// A path of `files` or `diff_within` is invalid.
    #[error(transparent)]
    Path(#[from] BadGlob),
    /// The name of the branch is invalid.
    #[error(transparent)]
    Branch(#[from] BadBranch),
    /// A run would not import a branch of this name into the repository.
    #[error(
        "git would take {0} for the id of a commit, and a run imports no new branch of that name; \
         choose another name, or write commits=1@{0} for a branch that exists"
    )]
    CommitId(BranchName),
    /// The issue is invalid.
    #[error(transparent)]
    Issue(#[from] BadIssue),
    /// The command is invalid.
    #[error(transparent)]
    Command(#[from] BadCommand),
}

impl Criterion {
    /// Whether the criterion runs a program.
    #[must_use]
    pub fn runs_program(&self) -> bool {
        match self {
            Self::Command(_) => true,
            Self::Files(_)
            | Self::Commits { .. }
            | Self::Branch(_)
            | Self::Pushed
            | Self::PullRequest
            | Self::IssueComment(_)
            | Self::Clean
            | Self::Review
            | Self::DiffWithin(_) => false,
        }
    }

    /// The position of its kind among the others.
    fn kind(&self) -> u8 {
        match self {
            Self::Files(_) => 0,
            Self::Commits { .. } => 1,
            Self::Branch(_) => 2,
            Self::Pushed => 3,
            Self::PullRequest => 4,
            Self::IssueComment(_) => 5,
            Self::Clean => 6,
            Self::Command(_) => 7,
            Self::Review => 8,
            Self::DiffWithin(_) => 9,
        }
    }

    /// The basis on which the criterion is judged.
    #[must_use]
    pub fn basis(&self) -> Basis {
        match self {
            Self::Files(_)
            | Self::Commits { .. }
            | Self::Branch(_)
            | Self::Pushed
            | Self::PullRequest
            | Self::IssueComment(_) => Basis::NewWork,
            Self::Clean | Self::Command(_) | Self::Review | Self::DiffWithin(_) => Basis::EndState,
        }
    }

    /// The permissions that Codex needs for the criterion.
    #[must_use]
    pub fn grants(&self) -> &'static [Grant] {
        match self {
            // For `clean`, Codex has to commit its changes.
            Self::Commits { .. } | Self::Branch(_) | Self::Clean => &[Grant::GitDirectory],
            Self::Pushed | Self::PullRequest => &[Grant::GitDirectory, Grant::Network],
            Self::IssueComment(_) => &[Grant::Network],
            Self::Files(_) | Self::Command(_) | Self::Review | Self::DiffWithin(_) => &[],
        }
    }

    /// The requirement in words for Codex: a line.
    #[must_use]
    pub fn requirement(&self) -> String {
        match self {
            Self::Files(glob) if glob.plain().is_some() => {
                format!("the file {glob} must be created or changed")
            }
            Self::Files(glob) => format!("a file matching {glob} must be created or changed"),
            Self::Commits { count, branch } => {
                let place = match branch {
                    Some(branch) => format!("the branch {branch}"),
                    None => "the checked-out branch".to_owned(),
                };
                format!("new commits on {place}: at least {count}")
            }
            Self::Branch(branch) => format!("the branch {branch} must exist, with the new work"),
            Self::Pushed => "the checked-out commit must be pushed to the remote".to_owned(),
            Self::PullRequest => {
                "a pull request from the checked-out branch must be opened".to_owned()
            }
            Self::IssueComment(issue) => format!("there must be a new comment of yours on {issue}"),
            Self::Clean => "no change may be left uncommitted".to_owned(),
            Self::Command(command) => {
                format!("this command must exit with code 0: {}", spaced(command))
            }
            Self::Review => "an independent review of the changes must ask for none".to_owned(),
            Self::DiffWithin(paths) => {
                format!(
                    "only these files and directories may be changed: {}",
                    joined(paths)
                )
            }
        }
    }
}

/// A command on one line.
fn spaced(command: &CommandLine) -> String {
    command.as_str().replace(['\n', '\t'], " ")
}

fn joined(paths: &[Glob]) -> String {
    let paths: Vec<&str> = paths.iter().map(Glob::as_str).collect();
    paths.join(",")
}

impl fmt::Display for Criterion {
    /// The syntax of `--until`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(glob) => write!(f, "files={glob}"),
            Self::Commits {
                count,
                branch: None,
            } => write!(f, "commits={count}"),
            Self::Commits {
                count,
                branch: Some(branch),
            } => write!(f, "commits={count}@{branch}"),
            Self::Branch(branch) => write!(f, "branch={branch}"),
            Self::Pushed => f.write_str("pushed"),
            Self::PullRequest => f.write_str("pr"),
            Self::IssueComment(issue) => write!(f, "issue_comment={issue}"),
            Self::Clean => f.write_str("clean"),
            Self::Command(command) => write!(f, "command={command}"),
            Self::Review => f.write_str("review"),
            Self::DiffWithin(paths) => write!(f, "diff_within={}", joined(paths)),
        }
    }
}

impl FromStr for Criterion {
    type Err = BadCriterion;

    fn from_str(text: &str) -> Result<Self, BadCriterion> {
        let (kind, value) = match text.split_once('=') {
            Some((kind, value)) => (kind, Some(value)),
            None => (text, None),
        };
        let given = |kind, example| value.ok_or(BadCriterion::WantsValue { kind, example });
        let alone = |kind, criterion| match value {
            None => Ok(criterion),
            Some(_) => Err(BadCriterion::TakesNoValue(kind)),
        };
        match kind {
            "files" => Ok(Self::Files(given("files", "src/*.rs")?.parse()?)),
            "commits" => commits(given("commits", "1")?),
            "branch" => branch(given("branch", "feature/x")?),
            "pushed" => alone("pushed", Self::Pushed),
            "pr" => alone("pr", Self::PullRequest),
            "issue_comment" => {
                let issue = given("issue_comment", "OWNER/REPO#1")?;
                Ok(Self::IssueComment(issue.parse()?))
            }
            "clean" => alone("clean", Self::Clean),
            "command" => Ok(Self::Command(given("command", "cargo test")?.parse()?)),
            "review" => alone("review", Self::Review),
            "diff_within" => Ok(Self::DiffWithin(paths(given("diff_within", "src,docs")?)?)),
            _ => Err(BadCriterion::Unknown(kind.chars().take(100).collect())),
        }
    }
}

fn branch(text: &str) -> Result<Criterion, BadCriterion> {
    let name: BranchName = text.parse()?;
    match looks_like_commit_id(name.as_str()) {
        true => Err(BadCriterion::CommitId(name)),
        false => Ok(Criterion::Branch(name)),
    }
}

fn commits(text: &str) -> Result<Criterion, BadCriterion> {
    let (number, branch) = match text.split_once('@') {
        Some((number, branch)) => (number, Some(branch.parse()?)),
        None => (text, None),
    };
    let bad = || BadCriterion::Commits(text.chars().take(100).collect());
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    let count: u32 = number.parse().map_err(|_| bad())?;
    match digits && (1..=COMMITS_LIMIT).contains(&count) {
        true => Ok(Criterion::Commits { count, branch }),
        false => Err(bad()),
    }
}

/// Splits paths at commas. A comma in braces or brackets, or after a backslash, belongs to the
/// path.
fn paths(text: &str) -> Result<Vec<Glob>, BadCriterion> {
    let mut paths = BTreeSet::new();
    let (mut depth, mut start) = (0_usize, 0);
    let (mut escaped, mut in_class) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                paths.insert(path(text.get(start..at))?);
                start = at + 1;
            }
            _ => {}
        }
    }
    paths.insert(path(text.get(start..))?);
    Ok(paths.into_iter().collect())
}

/// Reads a path. A slash at its end is ignored.
fn path(text: Option<&str>) -> Result<Glob, BadGlob> {
    let text = text.unwrap_or_default();
    text.strip_suffix('/').unwrap_or(text).parse()
}

/// There are too many criteria.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {0} criteria, and at most {CRITERIA_LIMIT} can be checked; write fewer")]
pub struct TooManyCriteria(pub usize);

/// The criteria of a run. If there are none, work and an answer are required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(into = "object::CriteriaObject")]
pub struct Criteria(Vec<Criterion>);

impl Criteria {
    /// The criteria without duplicates, sorted by kind. Criteria of the same kind keep the given
    /// order, which is the order in which commands run. Several `diff_within` are merged into one,
    /// as a change could not lie within each of them.
    ///
    /// # Errors
    ///
    /// [`TooManyCriteria`] if there are more than [`CRITERIA_LIMIT`].
    pub fn new(criteria: impl IntoIterator<Item = Criterion>) -> Result<Self, TooManyCriteria> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut within = BTreeSet::new();
        for criterion in criteria {
            match criterion {
                Criterion::DiffWithin(paths) => within.extend(paths),
                criterion => {
                    if seen.insert(criterion.clone()) {
                        found.push(criterion);
                    }
                }
            }
        }
        if !within.is_empty() {
            found.push(Criterion::DiffWithin(within.into_iter().collect()));
        }
        found.sort_by_key(Criterion::kind);
        match found.len() {
            count if count > CRITERIA_LIMIT => Err(TooManyCriteria(count)),
            _ => Ok(Self(found)),
        }
    }

    /// Iterates over the criteria.
    pub fn iter(&self) -> std::slice::Iter<'_, Criterion> {
        self.0.iter()
    }

    /// Whether there are no criteria.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The permissions that Codex needs for all criteria.
    #[must_use]
    pub fn grants(&self) -> BTreeSet<Grant> {
        let grants = self.iter().flat_map(Criterion::grants);
        grants.copied().collect()
    }
}

#[cfg(test)]
mod tests;
