//! The refs and commits that a repository had when the run started.
//!
//! Source: git-rev-list(1).

use std::collections::BTreeSet;

use git_probe::{Git, GitError};
use serde::{Deserialize, Serialize};

use super::refs::Refs;

/// The refs and commits at the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct InitialRefs {
    pub(super) refs: Refs,
    /// The number of commits that led to HEAD.
    total: u64,
    /// Lines for git that exclude every commit to which a ref led.
    exclusions: String,
}

impl InitialRefs {
    pub(super) async fn read(git: &Git) -> Result<Self, GitError> {
        let refs = Refs::read(git).await?;
        let total = match &refs.tip {
            Some(tip) => count(git, tip).await?,
            None => 0,
        };
        let tips: BTreeSet<&String> = refs.all.values().chain(&refs.tip).collect();
        let exclusions = tips.into_iter().map(|tip| format!("^{tip}\n")).collect();
        Ok(Self {
            refs,
            total,
            exclusions,
        })
    }

    /// The commits that lead to `tips` and that no ref led to at the start, newest first,
    /// without those that lead to `more`.
    pub(super) async fn since(
        &self,
        git: &Git,
        tips: &[&str],
        more: &[&str],
    ) -> Result<Vec<String>, GitError> {
        if tips.is_empty() {
            return Ok(Vec::new());
        }
        let tips = tips.iter().map(|tip| format!("{tip}\n"));
        let more = more.iter().map(|tip| format!("^{tip}\n"));
        let input: String = tips.chain(more).chain([self.exclusions.clone()]).collect();
        let question = ["rev-list", "--topo-order", "--ignore-missing", "--stdin"];
        let ids = git.text(&question, input.as_bytes()).await?;
        Ok(ids.lines().map(str::to_owned).collect())
    }

    /// The number of commits that lead to `tip`. Counted from the known total, as counting a
    /// long history takes long.
    pub(super) async fn total(&self, git: &Git, tip: &str) -> Result<u64, GitError> {
        let before = match self.refs.tip.as_deref() {
            Some(before) if before == tip => return Ok(self.total),
            Some(before) => before,
            None => return count(git, tip).await,
        };
        let question = ["rev-list", "--count", "--left-right", "--stdin"];
        let range = format!("{before}...{tip}\n");
        let Ok(counts) = git.text(&question, range.as_bytes()).await else {
            // The HEAD of the start was pruned.
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
