//! The refs and commits that a repository had when the run started.
//!
//! Source: git-rev-list(1).

use std::collections::BTreeSet;

use git_probe::{Git, GitError};

use super::refs::Refs;

/// Which commits there were at the start.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) refs: Refs,
    /// How many led to what was checked out.
    total: u64,
    /// All that refs led to: for git to leave out what leads there.
    left_out: String,
}

impl Known {
    pub(super) async fn now(git: &Git) -> Result<Self, GitError> {
        let refs = Refs::read(git).await?;
        let total = match &refs.tip {
            Some(tip) => count(git, tip).await?,
            None => 0,
        };
        let tips: BTreeSet<&String> = refs.all.values().chain(&refs.tip).collect();
        let left_out = tips.into_iter().map(|tip| format!("^{tip}\n")).collect();
        Ok(Self {
            refs,
            total,
            left_out,
        })
    }

    /// Of what leads to `tips`, what led to nothing at the start, the last one first.
    /// `more` is left out too.
    pub(super) async fn since(
        &self,
        git: &Git,
        tips: &[&str],
        more: &[&str],
    ) -> Result<Vec<String>, GitError> {
        let tips = tips.iter().map(|tip| format!("{tip}\n"));
        let more = more.iter().map(|tip| format!("^{tip}\n"));
        let input: String = tips.chain(more).chain([self.left_out.clone()]).collect();
        let question = ["rev-list", "--topo-order", "--ignore-missing", "--stdin"];
        let ids = git.text(&question, input.as_bytes()).await?;
        Ok(ids.lines().map(str::to_owned).collect())
    }

    /// How many lead to `tip`: from what is known, as a long history takes long to
    /// count.
    pub(super) async fn total(&self, git: &Git, tip: &str) -> Result<u64, GitError> {
        let before = match self.refs.tip.as_deref() {
            Some(before) if before == tip => return Ok(self.total),
            Some(before) => before,
            None => return count(git, tip).await,
        };
        let question = ["rev-list", "--count", "--left-right", "--stdin"];
        let range = format!("{before}...{tip}\n");
        let Ok(counts) = git.text(&question, range.as_bytes()).await else {
            // What was there at the start has been thrown away.
            return count(git, tip).await;
        };
        let mut counts = counts.split_whitespace().map(str::parse::<u64>);
        match (counts.next(), counts.next()) {
            (Some(Ok(gone)), Some(Ok(come))) => Ok((self.total + come).saturating_sub(gone)),
            _ => count(git, tip).await,
        }
    }
}

async fn count(git: &Git, tip: &str) -> Result<u64, GitError> {
    let question = ["rev-list", "--count", "--stdin"];
    let count = git.text(&question, format!("{tip}\n").as_bytes()).await?;
    Ok(count.trim().parse().unwrap_or_default())
}
