//! The remote to which the current branch is pushed, and its branches.
//!
//! The settings of remotes count as they were when the run began.
//! [`git::remote`](git_probe::remote) asks the remote.
//!
//! Source: git-config(1), git-push(1).

use std::collections::{BTreeMap, BTreeSet};

use git_probe as git;
use git_probe::{Git, GitError};

use super::LookError;
use super::needs::Needs;
use super::refs::Refs;
use crate::logic::snapshot::Probe;

const REMOTES: &str =
    r"^(branch\..*\.(pushremote|remote)|remote\.(pushdefault|.*\.(url|pushurl)))$";

/// The remote that git uses by default.
const DEFAULT: &str = "origin";

/// The push target of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Remote {
    /// A remote or an address.
    Known(String),
    /// A remote that does not exist.
    Missing(String),
}

impl Remote {
    /// The push target of the current branch, if HEAD is on one.
    pub(super) async fn of(git: &Git, branch: Option<&str>) -> Result<Self, GitError> {
        let question = ["config", "--null", "--get-regexp", REMOTES];
        let output = git.run(&question, &[]).await?;
        let settings = settings(&output.stdout);
        Ok(remote(&settings, branch))
    }
}

/// Checks that the remote that criteria need exists.
pub(super) async fn check(git: &Git, needs: &Needs) -> Result<(), LookError> {
    let (criterion, remote) = match (&needs.pushed, &needs.pull_requests) {
        (Some(criterion), _) => (criterion, of_branch(git).await),
        // gh chooses among several remotes by itself.
        (None, Some(criterion)) => (criterion, any(git).await),
        (None, None) => return Ok(()),
    };
    let criterion = criterion.clone();
    match remote {
        Ok(Remote::Known(_)) => Ok(()),
        Ok(Remote::Missing(remote)) => Err(LookError::NoRemote { criterion, remote }),
        Err(error) => Err(LookError::Start {
            criterion,
            why: error.to_string(),
        }),
    }
}

async fn of_branch(git: &Git) -> Result<Remote, GitError> {
    let refs = Refs::read(git).await?;
    Remote::of(git, refs.branch.as_deref()).await
}

async fn any(git: &Git) -> Result<Remote, GitError> {
    let remotes = git.text(&["remote"], &[]).await?;
    let first = remotes.lines().next();
    Ok(match first {
        Some(name) => Remote::Known(name.to_owned()),
        None => Remote::Missing(DEFAULT.to_owned()),
    })
}

/// The branches of the remote.
pub(super) async fn look(git: &Git, branch: Option<&str>) -> Probe<BTreeMap<String, String>> {
    let remote = match Remote::of(git, branch).await {
        Ok(Remote::Known(remote)) => remote,
        Ok(Remote::Missing(name)) => {
            return Probe::Failed(format!("there is no remote {name:?}"));
        }
        Err(error) => return Probe::Failed(error.to_string()),
    };
    match git::remote::branches(git, &remote).await {
        Ok(branches) => Probe::Found(branches),
        Err(error) => Probe::Failed(format!("cannot list the branches of the remote: {error}")),
    }
}

/// Whether one of these commits leads to `commit`. Those that are not here do not count.
pub(super) async fn leads_to(
    git: &Git,
    tips: &BTreeSet<String>,
    commit: &str,
) -> Result<bool, GitError> {
    if tips.is_empty() || tips.contains(commit) {
        return Ok(!tips.is_empty());
    }
    let exclusions = tips.iter().map(|tip| format!("^{tip}\n"));
    let input = format!("{commit}\n{}", exclusions.collect::<String>());
    let question = ["rev-list", "--max-count=1", "--ignore-missing", "--stdin"];
    Ok(git.output(&question, input.as_bytes()).await?.is_empty())
}

/// Settings by their keys, the last of several values.
fn settings(told: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(told);
    let records = text.split_terminator('\0');
    let pairs = records.filter_map(|record| record.split_once('\n'));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Chooses the remote as `git push` does.
fn remote(settings: &BTreeMap<String, String>, branch: Option<&str>) -> Remote {
    let of_branch = |key: &str| settings.get(&format!("branch.{}.{key}", branch?));
    let chosen = of_branch("pushremote")
        .or_else(|| settings.get("remote.pushdefault"))
        .or_else(|| of_branch("remote"))
        // A dot means this repository.
        .filter(|name| *name != ".");
    let name = match chosen {
        Some(name) => name.clone(),
        None => only_one(settings).unwrap_or_else(|| DEFAULT.to_owned()),
    };
    if let Some(address) = settings.get(&format!("remote.{name}.pushurl")) {
        return Remote::Known(address.clone());
    }
    let is_address = name.contains(['/', ':']);
    match is_address || settings.contains_key(&format!("remote.{name}.url")) {
        true => Remote::Known(name),
        false => Remote::Missing(name),
    }
}

/// The only remote, if there is exactly one.
fn only_one(settings: &BTreeMap<String, String>) -> Option<String> {
    let mut remotes = settings
        .keys()
        .filter_map(|key| key.strip_prefix("remote.")?.strip_suffix(".url"));
    let only = remotes.next()?.to_owned();
    remotes.next().is_none().then_some(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_remote_is_chosen_as_git_chooses_it() {
        let both = ["remote.origin.url", "remote.fork.url"];
        for (keys, expected) in [
            (
                &[("remote.fork.url", "u")][..],
                Remote::Known("fork".into()),
            ),
            (&[], Remote::Missing("origin".into())),
            (&both.map(|key| (key, "u")), Remote::Known("origin".into())),
            (
                &[("branch.a.b.remote", "gone"), ("remote.origin.url", "u")],
                Remote::Missing("gone".into()),
            ),
            (
                &[("branch.a.b.remote", "."), ("remote.origin.url", "u")],
                Remote::Known("origin".into()),
            ),
            (
                &[
                    ("branch.a.b.pushremote", "fork"),
                    ("branch.a.b.remote", "origin"),
                    ("remote.fork.url", "u"),
                    ("remote.fork.pushurl", "/p"),
                ],
                Remote::Known("/p".into()),
            ),
            (
                &[("remote.pushdefault", "/srv/x.git")],
                Remote::Known("/srv/x.git".into()),
            ),
        ] {
            let keys = keys.iter();
            let settings = keys
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect();
            assert_eq!(remote(&settings, Some("a.b")), expected, "{settings:?}");
        }
    }
}
