//! Commits that others have made, and that came here since the start.
//!
//! What a `git pull` brings is not the run's work, but what it has pushed is, though
//! both show in the refs of remotes. Reflogs tell the two apart: each entry is a
//! commit that came to be known here at its time, and git notes how. What an entry
//! of a fetch leads to, and no entry before it of something made here or pushed, came
//! from elsewhere.
//!
//! Where there is no reflog (`core.logAllRefUpdates=false`) all counts as made here,
//! and so does what a `git pull URL` merges that is no fast-forward: it leaves no
//! entry of its own.
//!
//! Source: git-reflog(1), and what git writes there: `update by push`, `fetch …`,
//! `pull …: Fast-forward`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use git_probe::{Git, GitError};

use super::known::Known;
use super::refs::{BRANCHES, REMOTES, Refs};

/// Of how many refs the reflogs are read.
const REFS_LIMIT: usize = 1000;

/// How many entries are read, in all.
const ENTRIES_LIMIT: &str = "--max-count=10000";

/// At how many moments something may have come.
const MOMENTS_LIMIT: usize = 50;

/// What is told of each: commit, `ref@{time zone}`, note.
const FORMAT: &str = "--format=%H %gD %gs";

const REFLOG: &[&str] = &[
    "log",
    "-z",
    "--walk-reflogs",
    "--ignore-missing",
    "--no-show-signature",
    "--no-notes",
    "--no-decorate",
    "--date=raw",
    "--stdin",
    ENTRIES_LIMIT,
    FORMAT,
];

/// A line of a reflog.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    commit: String,
    reference: String,
    /// Seconds since 1970, by this machine's clock.
    time: i64,
    /// How many entries of the same ref are later.
    later: usize,
    came: Came,
}

/// Where the commit came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// It was made here, or was here already.
    FromHere,
    /// Somebody else had it.
    FromElsewhere,
    /// The entry doesn't tell: somebody went there.
    Untold,
}

/// The commits that came from elsewhere.
pub(super) async fn brought(
    git: &Git,
    known: &Known,
    refs: &Refs,
) -> Result<HashSet<String>, GitError> {
    let entries = entries(git, known, refs).await?;
    let mut arrivals: BTreeMap<i64, Vec<&Entry>> = BTreeMap::new();
    let unknown = unknown(git, known, &entries).await?;
    for entry in &entries {
        if entry.came == Came::FromElsewhere && unknown.contains(&entry.commit) {
            arrivals.entry(entry.time).or_default().push(entry);
        }
    }
    if arrivals.len() > MOMENTS_LIMIT {
        return Err(GitError::TooMuch);
    }
    let mut brought = HashSet::new();
    for (time, arrived) in arrivals {
        let earlier = earlier(&entries, time, &arrived);
        let tips: Vec<&str> = arrived.iter().map(|entry| entry.commit.as_str()).collect();
        brought.extend(known.since(git, &tips, &earlier).await?);
    }
    if git.has_all_reflogs() {
        let untold = untold(known, refs, &entries);
        brought.extend(known.since(git, &untold, &[]).await?);
    }
    Ok(brought)
}

/// The tips that no reflog leads to, where all of them are written down: somebody has
/// emptied it.
fn untold<'a>(known: &Known, refs: &'a Refs, entries: &[Entry]) -> Vec<&'a str> {
    let told: HashSet<&str> = entries.iter().map(|entry| entry.commit.as_str()).collect();
    let moved = refs.all.iter().filter(|(name, commit)| {
        let is_branch = name.starts_with(BRANCHES) || name.starts_with(REMOTES);
        is_branch && known.refs.all.get(*name) != Some(*commit)
    });
    let moved = moved.map(|(_, commit)| commit.as_str());
    moved.filter(|commit| !told.contains(commit)).collect()
}

/// What was here before these came. Within a second only the entries of one ref can
/// be told in their order.
fn earlier<'a>(entries: &'a [Entry], time: i64, arrived: &[&Entry]) -> Vec<&'a str> {
    let before = |entry: &&Entry| {
        let in_one_ref = |one: &&Entry| {
            entry.time == time && entry.reference == one.reference && entry.later > one.later
        };
        entry.time < time || arrived.iter().any(in_one_ref)
    };
    let commits: BTreeSet<&str> = entries
        .iter()
        .filter(|entry| entry.came == Came::FromHere)
        .filter(before)
        .map(|entry| entry.commit.as_str())
        .collect();
    commits.into_iter().collect()
}

/// The commits of fetches to which nothing led at the start.
async fn unknown(git: &Git, known: &Known, entries: &[Entry]) -> Result<HashSet<String>, GitError> {
    let fetched = entries
        .iter()
        .filter(|entry| entry.came == Came::FromElsewhere);
    let fetched: BTreeSet<&str> = fetched.map(|entry| entry.commit.as_str()).collect();
    let fetched: Vec<&str> = fetched.into_iter().collect();
    match fetched.is_empty() {
        true => Ok(HashSet::new()),
        false => Ok(known.since(git, &fetched, &[]).await?.into_iter().collect()),
    }
}

/// The reflogs of what is checked out and of what leads elsewhere than at the start.
async fn entries(git: &Git, known: &Known, refs: &Refs) -> Result<Vec<Entry>, GitError> {
    let moved = refs.all.iter().filter(|(name, commit)| {
        let is_branch = name.starts_with(BRANCHES) || name.starts_with(REMOTES);
        is_branch && known.refs.all.get(*name) != Some(*commit)
    });
    let moved = moved.map(|(name, _)| name.as_str()).take(REFS_LIMIT);
    let names = ["HEAD"].into_iter().chain(moved);
    let input: String = names.map(|name| format!("{name}\n")).collect();
    let told = git.text(REFLOG, input.as_bytes()).await?;
    let mut later: BTreeMap<&str, usize> = BTreeMap::new();
    let read = told.split_terminator('\0').filter_map(|record| {
        let (commit, reference, time, note) = parts(record)?;
        let later = later.entry(reference).or_default();
        *later += 1;
        Some(Entry {
            commit: commit.to_owned(),
            reference: reference.to_owned(),
            time,
            later: *later,
            came: came(reference, note),
        })
    });
    Ok(read.collect())
}

/// Reads `COMMIT REF@{TIME ZONE} NOTE`.
fn parts(record: &str) -> Option<(&str, &str, i64, &str)> {
    let (commit, rest) = record.split_once(' ')?;
    let (reference, rest) = rest.split_once("@{")?;
    let (time, note) = rest.split_once('}')?;
    let (time, _) = time.split_once(' ')?;
    Some((commit, reference, time.parse().ok()?, note.trim_start()))
}

fn came(reference: &str, note: &str) -> Came {
    let is_remote = reference.starts_with(REMOTES);
    let is_fetch = note.starts_with("fetch ")
        || note.starts_with("pull") && note.ends_with(": Fast-forward")
        || note.ends_with("FETCH_HEAD")
        || note == "merge FETCH_HEAD: Fast-forward";
    let is_way = ["checkout: ", "reset: ", "branch: ", "remote: "]
        .iter()
        .any(|way| note.starts_with(way))
        || note.ends_with(": Fast-forward");
    match (is_remote, note) {
        (true, "update by push") => Came::FromHere,
        _ if is_fetch => Came::FromElsewhere,
        _ if is_way => Came::Untold,
        (true, _) => Came::FromElsewhere,
        (false, _) => Came::FromHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_tell_where_commits_came_from() {
        for (record, expected) in [
            (
                "c1 refs/remotes/o/main@{7 +0000} update by push",
                Came::FromHere,
            ),
            (
                "c1 refs/remotes/o/main@{7 -0130} fetch o: fast-forward",
                Came::FromElsewhere,
            ),
            ("c1 refs/remotes/o/main@{7 +0000} ", Came::FromElsewhere),
            (
                "c1 HEAD@{7 +0000} commit: fetch } the @{x} ",
                Came::FromHere,
            ),
            (
                "c1 HEAD@{7 +0000} pull o main: Fast-forward",
                Came::FromElsewhere,
            ),
            (
                "c1 HEAD@{7 +0000} pull: Merge made by the 'ort' strategy.",
                Came::FromHere,
            ),
            (
                "c1 HEAD@{7 +0000} checkout: moving from main to FETCH_HEAD",
                Came::FromElsewhere,
            ),
            (
                "c1 refs/heads/x@{7 +0000} fetch o refs/pull/1/head:x: storing head",
                Came::FromElsewhere,
            ),
            ("c1 HEAD@{7 +0000} merge x: Fast-forward", Came::Untold),
        ] {
            let (commit, reference, time, note) = parts(record).unwrap();
            assert_eq!((commit, time), ("c1", 7), "{record}");
            assert_eq!(came(reference, note), expected, "{record}");
        }
        let ways = [
            "checkout: moving from a to b",
            "remote: renamed refs/remotes/a/b to refs/remotes/c/b",
        ];
        for way in ways {
            assert_eq!(came("refs/remotes/c/b", way), Came::Untold);
        }
        assert_eq!(parts("garbage"), None);
    }
}
