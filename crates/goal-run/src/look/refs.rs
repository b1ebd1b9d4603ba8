//! What is checked out, and where refs lead.
//!
//! Source: git-for-each-ref(1), git-symbolic-ref(1), git-rev-parse(1).

use std::collections::BTreeMap;

use git_probe::{Git, GitError};
use supervise::exit::Exit;

use crate::logic::names::BranchName;

/// What is before a branch's name.
pub(super) const BRANCHES: &str = "refs/heads/";

/// What is before the names of branches of remotes.
pub(super) const REMOTES: &str = "refs/remotes/";

/// All refs of a repository: more than git tells in what is read of it (about
/// 200,000) is a refusal.
#[derive(Debug, Clone, Default)]
pub(super) struct Refs {
    /// The branch that is checked out; `None` if it is a mere commit.
    pub(super) branch: Option<String>,
    /// The commit that is; `None` before the first.
    pub(super) tip: Option<String>,
    /// What each leads to, by its whole name.
    pub(super) all: BTreeMap<String, String>,
}

impl Refs {
    pub(super) async fn read(git: &Git) -> Result<Self, GitError> {
        let (head, tip, all) = futures::join!(
            maybe(git, &["symbolic-ref", "--quiet", "HEAD"]),
            maybe(git, &["rev-parse", "--quiet", "--verify", "HEAD"]),
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

    /// The last commit of a branch; `None` where there is none of that name.
    pub(super) fn branch_tip(&self, branch: &BranchName) -> Option<&String> {
        self.all.get(&format!("{BRANCHES}{branch}"))
    }
}

/// A line that git tells, or nothing if there is none.
async fn maybe(git: &Git, question: &[&str]) -> Result<Option<String>, GitError> {
    match git.text(question, &[]).await {
        Ok(text) => Ok(Some(text.trim_end_matches('\n').to_owned())),
        Err(GitError::Failed {
            exit: Exit::Code(1),
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}
