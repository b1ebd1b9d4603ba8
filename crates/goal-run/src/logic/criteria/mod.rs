//! What must hold for a run to have done its work.
//!
//! Written as `--until` takes it:
//!
//! | text | holds when |
//! | --- | --- |
//! | `files=GLOB` | a file that fits is new or was changed |
//! | `commits=N`, `commits=N@BRANCH` | what is checked out, or the branch, has N new commits |
//! | `branch=NAME` | the branch is new, or has new commits |
//! | `pushed` | a branch of the remote has become what is checked out |
//! | `pr` | there is a new pull request from the branch that is checked out |
//! | `issue_comment=OWNER/REPO#N` | we have commented there |
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

/// How many commits can be asked for.
pub const COMMITS_LIMIT: u32 = 1000;

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Criterion {
    /// A file that fits is there, new or changed.
    Files(Glob),
    /// There are commits.
    Commits {
        /// At least this many.
        count: u32,
        /// On this branch, or else on what is checked out.
        branch: Option<BranchName>,
    },
    /// There is a branch.
    Branch(BranchName),
    /// The remote has what is checked out.
    Pushed,
    /// There is a pull request.
    PullRequest,
    /// We have commented on an issue.
    IssueComment(Issue),
    /// Nothing is uncommitted.
    Clean,
    /// The command exits with 0.
    Command(CommandLine),
    /// A reviewer, who is another thread of Codex's, wants nothing changed.
    Review,
    /// Nothing outside of these files and directories was changed.
    DiffWithin(Vec<Glob>),
}

/// When a criterion is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judging {
    /// By something that has come to be since the run began.
    BySomethingNew,
    /// By how things stand at the end, whoever has brought that about.
    AtTheEnd,
}

/// What Codex must be allowed for a criterion, beyond writing in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// To write in git's own directory, so that it can commit.
    GitDirectory,
    /// To reach the network.
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
    /// It wants a value.
    #[error("{kind} wants a value; write {kind}={example}")]
    WantsValue {
        /// The criterion.
        kind: &'static str,
        /// What can stand there.
        example: &'static str,
    },
    /// It has no value.
    #[error("{0} takes no value; write {0} alone")]
    TakesNoValue(&'static str),
    /// It is not a number of commits.
    #[error(
        "{0:?} is not a number of commits; write one from 1 to {COMMITS_LIMIT}, perhaps with a branch behind it: commits=2@main"
    )]
    Commits(String),
    /// A path of `files` or `diff_within`.
    #[error(transparent)]
    Path(#[from] BadGlob),
    /// A branch.
    #[error(transparent)]
    Branch(#[from] BadBranch),
    /// A branch that no run brings into the repository.
    #[error(
        "git would take {0} for the id of a commit, and a run imports no new branch of that name; \
         choose another name, or write commits=1@{0} for a branch that exists"
    )]
    CommitId(BranchName),
    /// An issue.
    #[error(transparent)]
    Issue(#[from] BadIssue),
    /// A command.
    #[error(transparent)]
    Command(#[from] BadCommand),
}

impl Criterion {
    /// Whether it has us run a program.
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

    /// The place of its kind among the others.
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

    /// When it is met.
    #[must_use]
    pub fn judging(&self) -> Judging {
        match self {
            Self::Files(_)
            | Self::Commits { .. }
            | Self::Branch(_)
            | Self::Pushed
            | Self::PullRequest
            | Self::IssueComment(_) => Judging::BySomethingNew,
            Self::Clean | Self::Command(_) | Self::Review | Self::DiffWithin(_) => {
                Judging::AtTheEnd
            }
        }
    }

    /// What Codex must be allowed for it.
    #[must_use]
    pub fn grants(&self) -> &'static [Grant] {
        match self {
            // What is uncommitted has to be committed.
            Self::Commits { .. } | Self::Branch(_) | Self::Clean => &[Grant::GitDirectory],
            Self::Pushed | Self::PullRequest => &[Grant::GitDirectory, Grant::Network],
            Self::IssueComment(_) => &[Grant::Network],
            Self::Files(_) | Self::Command(_) | Self::Review | Self::DiffWithin(_) => &[],
        }
    }

    /// What is wanted, for Codex to read: a line.
    #[must_use]
    pub fn wanted(&self) -> String {
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
    /// As `--until` takes it.
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

/// Paths between commas. A comma in braces or brackets, or behind a backslash, is
/// of the path.
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

/// Of a directory, the slash behind it says nothing.
fn path(text: Option<&str>) -> Result<Glob, BadGlob> {
    let text = text.unwrap_or_default();
    text.strip_suffix('/').unwrap_or(text).parse()
}

/// Why criteria can't be had together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {0} criteria, and at most {CRITERIA_LIMIT} can be checked; write fewer")]
pub struct TooManyCriteria(pub usize);

/// All that must hold. May be empty: then evidence of work and an answer are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(into = "object::Object")]
pub struct Criteria(Vec<Criterion>);

impl Criteria {
    /// These, each once: by their kinds, and those of a kind in the given order, in which
    /// commands are run. Several `diff_within` are one, as nothing could lie within each of
    /// them.
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

    /// They in turn.
    pub fn iter(&self) -> std::slice::Iter<'_, Criterion> {
        self.0.iter()
    }

    /// Whether nothing particular is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What Codex must be allowed for them.
    #[must_use]
    pub fn grants(&self) -> BTreeSet<Grant> {
        let grants = self.iter().flat_map(Criterion::grants);
        grants.copied().collect()
    }
}

#[cfg(test)]
mod tests;
