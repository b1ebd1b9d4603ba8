//! HEAD and the targets of all refs.
//!
//! Source: git-for-each-ref(1), git-symbolic-ref(1), git-rev-parse(1).

use std::collections::BTreeMap;

use git_probe::{Git, GitError};
use serde::{Deserialize, Serialize};
use supervise::exit::Exit;

use crate::logic::names::BranchName;
use crate::logic::snapshot::Snapshot;

/// The prefix of a branch's ref.
pub(super) const BRANCHES: &str = "refs/heads/";

/// The prefix of refs of remote branches.
pub(super) const REMOTES: &str = "refs/remotes/";

/// All refs of a repository. Reading fails for more than about 200,000, at the limit of git's
/// output.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Refs {
    /// The branch that is checked out; `None` for a detached HEAD.
    pub(super) branch: Option<String>,
    /// The commit of HEAD; `None` before the first commit.
    pub(super) tip: Option<String>,
    /// The target of each ref by its full name.
    pub(super) all: BTreeMap<String, String>,
}

impl Refs {
    pub(super) async fn read(git: &Git) -> Result<Self, GitError> {
        let (head, tip, all) = futures::join!(
            optional_line(git, &["symbolic-ref", "--quiet", "HEAD"]),
            optional_line(git, &["rev-parse", "--quiet", "--verify", "HEAD"]),
            git.text(&["for-each-ref", "--format=%(objectname) %(refname)"], &[]),
        );
        let all = all?;
        let pairs = all.lines().filter_map(|line| line.split_once(' '));
        let branch = |head: String| head.strip_prefix(BRANCHES).map(str::to_owned);
        Ok(Self {
            branch: head?.and_then(branch),
            tip: tip?,
            all: pairs
                .map(|(id, name)| (name.to_owned(), id.to_owned()))
                .collect(),
        })
    }

    /// Whether a snapshot has the same branch and commit checked out.
    pub(super) fn is_checked_out_in(&self, snapshot: &Snapshot) -> bool {
        let head = snapshot.head.found();
        head.is_some_and(|head| head.branch == self.branch && head.history.tip == self.tip)
    }

    /// The last commit of a branch; `None` if the branch does not exist.
    pub(super) fn branch_tip(&self, branch: &BranchName) -> Option<&String> {
        self.all.get(&format!("{BRANCHES}{branch}"))
    }
}

/// A line of git's output; `None` if git exits with 1.
pub(super) async fn optional_line(
    git: &Git,
    question: &[&str],
) -> Result<Option<String>, GitError> {
    match git.text(question, &[]).await {
        Ok(text) => Ok(Some(text.trim_end_matches('\n').to_owned())),
        Err(GitError::Failed {
            exit: Exit::Code(1),
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}
