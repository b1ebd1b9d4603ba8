//! Finds the changed remote-tracking refs that match the remote.
//!
//! Codex can write any commit into `refs/remotes/` of its git directory, and the user's `git
//! status` would then show nothing to push. So such a ref is taken over only if the remote,
//! according to the settings from before the run, has the same commit.
//!
//! Source: git-fetch(1) for refspecs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::refs::{Refs, TRACKING};
use crate::{Git, GitError, remote};

/// How many remotes are asked, and how long each has to answer.
const REMOTES_LIMIT: usize = 5;
const REMOTE_TIMEOUT: Duration = Duration::from_secs(30);

/// The most that is read of an answer, in bytes.
const ANSWER_LIMIT: u64 = 64 * 1024 * 1024;

/// A ref of a remote, by the names that both sides have for it.
struct TrackingRef<'a> {
    source: String,
    name: &'a str,
    id: &'a str,
}

/// The tracking refs of `theirs` that `now` lacks and that match the remote. A ref that the remote
/// does not report is not confirmed.
pub(super) async fn confirmed(
    git: &Git,
    now: &Refs,
    theirs: &Refs,
) -> Result<BTreeSet<String>, GitError> {
    let mut git = git.with_timeout(REMOTE_TIMEOUT);
    git.invocation.bounds.limit = ANSWER_LIMIT;
    let mut confirmed = BTreeSet::new();
    let by_remote = by_remote(&git, now, theirs);
    for (remote, tracked) in by_remote.iter().take(REMOTES_LIMIT) {
        let mut sources: Vec<&str> = tracked.iter().map(|one| one.source.as_str()).collect();
        sources.sort_unstable();
        sources.dedup();
        let there = match remote::refs(&git, remote, &sources).await {
            Ok(there) => there,
            Err(GitError::Cancelled) => return Err(GitError::Cancelled),
            Err(_) => continue,
        };
        let is_there = |one: &&TrackingRef| there.get(&one.source).is_some_and(|id| id == one.id);
        let found = tracked.iter().filter(is_there);
        confirmed.extend(found.map(|one| one.name.to_owned()));
    }
    Ok(confirmed)
}

fn by_remote<'a>(
    git: &Git,
    now: &Refs,
    theirs: &'a Refs,
) -> BTreeMap<String, Vec<TrackingRef<'a>>> {
    let changed = theirs
        .all
        .iter()
        .filter(|(name, id)| name.starts_with(TRACKING) && now.all.get(*name) != Some(*id));
    let changed: Vec<(&String, &String)> = changed.collect();
    let mut remotes: BTreeMap<String, Vec<TrackingRef>> = BTreeMap::new();
    if changed.is_empty() {
        return remotes;
    }
    for setting in git.settings.iter() {
        let remote = setting.key.to_str().and_then(|key| {
            let key = key.strip_prefix("remote.")?;
            key.strip_suffix(".fetch")
        });
        let (Some(remote), Some(refspec)) = (remote, setting.value().to_str()) else {
            continue;
        };
        let tracked = changed.iter().filter_map(|(name, id)| {
            let source = source(refspec, name)?;
            Some(TrackingRef { source, name, id })
        });
        let tracked: Vec<TrackingRef> = tracked.collect();
        if !tracked.is_empty() {
            remotes
                .entry(remote.to_owned())
                .or_default()
                .extend(tracked);
        }
    }
    remotes
}

/// The ref of the remote that a fetch by this refspec stores as `name`.
pub(crate) fn source(refspec: &str, name: &str) -> Option<String> {
    let refspec = refspec.strip_prefix('+').unwrap_or(refspec);
    let (from, to) = refspec
        .split_once(':')
        .filter(|(from, _)| !from.starts_with('^'))?;
    match (from.split_once('*'), to.split_once('*')) {
        (None, None) => (to == name).then(|| from.to_owned()),
        (Some((from_begin, from_end)), Some((begin, end))) => {
            let star = name.strip_prefix(begin)?.strip_suffix(end)?;
            Some(format!("{from_begin}{star}{from_end}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_of_a_tracking_ref_is_found_by_the_refspec() {
        for (refspec, expected) in [
            ("+refs/heads/*:refs/remotes/o/*", Some("refs/heads/a/b")),
            ("refs/heads/a/b:refs/remotes/o/a/b", Some("refs/heads/a/b")),
            ("refs/x/*/head:refs/remotes/o/a*", Some("refs/x//b/head")),
            ("+refs/heads/*:refs/remotes/other/*", None),
            ("^refs/heads/a:refs/remotes/o/a/b", None),
            ("refs/heads/*", None),
            ("refs/heads/*:refs/remotes/o/a/b", None),
        ] {
            let found = source(refspec, "refs/remotes/o/a/b");
            assert_eq!(found.as_deref(), expected, "{refspec}");
        }
    }
}
