//! Commits of others that have come into the repository since the start.
//!
//! Commits from a `git pull` are not the run's work, but commits that the run has pushed are; both
//! show in the refs of remotes. Reflogs tell the two apart: each entry is a commit that became
//! known here at a certain time, with a note by git on how. A commit is foreign if an entry of a
//! fetch leads to it, and no earlier entry of a local or pushed commit does.
//!
//! Without reflogs (`core.logAllRefUpdates=false`), all commits count as local. So do commits that
//! a `git pull URL` merges without a fast-forward, which leaves no separate entry.
//!
//! In a run that commits, the reflogs are those of the private git directory. A tip of Codex's
//! without an entry is foreign, as its reflog was emptied. Changes that others make in the
//! repository meanwhile leave no entry there: a branch that they move counts as local, a remote
//! branch as fetched.
//!
//! Source: git-reflog(1), and the notes that git writes: `update by push`, `fetch …`, `pull …:
//! Fast-forward`, `pull … (pick): SUBJECT`, `commit (amend): SUBJECT`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use git_probe::{Git, GitError};

use super::initial::InitialRefs;
use super::refs::{BRANCHES, REMOTES, Refs};

/// The number of refs whose reflogs are read.
const REFS_LIMIT: usize = 1000;

/// The number of entries that are read, in all.
const ENTRIES_LIMIT: &str = "--max-count=10000";

/// The number of moments at which commits may have arrived.
const MOMENTS_LIMIT: usize = 50;

/// The format of an entry: commit, `ref@{time zone}`, note.
const FORMAT: &str = "--format=%H %gD %gs";

/// The actions in the notes of local commits, in addition to `commit (amend)` and the like. The
/// subject of the commit follows the action, and can look like the end of any other note.
const COMMITS: [&str; 4] = ["am", "cherry-pick", "commit", "revert"];

/// The steps of a rebase, or of a pull that rebases, that make commits.
const STEPS: [&str; 6] = [
    " (continue)",
    " (edit)",
    " (fixup)",
    " (pick)",
    " (reword)",
    " (squash)",
];

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

/// An entry of a reflog.
#[derive(Debug, PartialEq, Eq)]
struct ReflogEntry {
    commit: String,
    reference: String,
    /// Seconds since 1970, by this machine's clock.
    time: i64,
    /// How many entries of the same ref are later.
    later: usize,
    origin: Origin,
}

/// The origin of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The commit was made here, or was here already.
    Local,
    /// The commit was fetched.
    Foreign,
    /// The entry does not tell: something was checked out or reset.
    Unknown,
}

/// The commits that came from elsewhere.
pub(super) async fn foreign_commits(
    git: &Git,
    initial: &InitialRefs,
    refs: &Refs,
) -> Result<HashSet<String>, GitError> {
    let entries = entries(git, initial, refs).await?;
    let mut arrivals: BTreeMap<i64, Vec<&ReflogEntry>> = BTreeMap::new();
    let unknown_at_start = unknown_at_start(git, initial, &entries).await?;
    for entry in &entries {
        if entry.origin == Origin::Foreign && unknown_at_start.contains(&entry.commit) {
            arrivals.entry(entry.time).or_default().push(entry);
        }
    }
    if arrivals.len() > MOMENTS_LIMIT {
        return Err(GitError::TooMuch);
    }
    let mut foreign_commits = HashSet::new();
    for (time, arrived) in arrivals {
        let local_before = local_before(&entries, time, &arrived);
        let tips: Vec<&str> = arrived.iter().map(|entry| entry.commit.as_str()).collect();
        foreign_commits.extend(initial.since(git, &tips, &local_before).await?);
    }
    if let Some(private) = git.private_refs() {
        let is_of_codex = |(name, commit): &(&String, &String)| private.get(*name) == Some(*commit);
        let told: HashSet<&str> = entries.iter().map(|entry| entry.commit.as_str()).collect();
        let untold = moved(initial, refs).filter(|(_, commit)| !told.contains(commit.as_str()));
        let (of_codex, of_others): (Vec<_>, Vec<_>) = untold.partition(is_of_codex);
        // Every change of these was logged: the reflog was emptied.
        let emptied: Vec<&str> = of_codex.iter().map(|(_, commit)| commit.as_str()).collect();
        foreign_commits.extend(initial.since(git, &emptied, &[]).await?);
        // What was made here may come back with what others have made on top of it.
        let fetched = of_others
            .iter()
            .filter(|(name, _)| name.starts_with(REMOTES));
        let fetched: Vec<&str> = fetched.map(|(_, commit)| commit.as_str()).collect();
        let made_here = local(&entries, |_| true);
        foreign_commits.extend(initial.since(git, &fetched, &made_here).await?);
    }
    Ok(foreign_commits)
}

/// The branches and remote branches that have moved since the start.
fn moved<'a>(
    initial: &'a InitialRefs,
    refs: &'a Refs,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    refs.all.iter().filter(move |(name, commit)| {
        let is_branch = name.starts_with(BRANCHES) || name.starts_with(REMOTES);
        is_branch && initial.refs.all.get(*name) != Some(*commit)
    })
}

/// The commits that were here before `arrived`. Within a second only entries of one ref have
/// a known order.
fn local_before<'a>(
    entries: &'a [ReflogEntry],
    time: i64,
    arrived: &[&ReflogEntry],
) -> Vec<&'a str> {
    let before = |entry: &&ReflogEntry| {
        let in_one_ref = |one: &&ReflogEntry| {
            entry.time == time && entry.reference == one.reference && entry.later > one.later
        };
        entry.time < time || arrived.iter().any(in_one_ref)
    };
    local(entries, before)
}

/// The commits that were made here, of the wanted entries.
fn local(entries: &[ReflogEntry], is_wanted: impl Fn(&&ReflogEntry) -> bool) -> Vec<&str> {
    let commits: BTreeSet<&str> = entries
        .iter()
        .filter(|entry| entry.origin == Origin::Local)
        .filter(is_wanted)
        .map(|entry| entry.commit.as_str())
        .collect();
    commits.into_iter().collect()
}

/// The fetched commits to which no ref led at the start.
async fn unknown_at_start(
    git: &Git,
    initial: &InitialRefs,
    entries: &[ReflogEntry],
) -> Result<HashSet<String>, GitError> {
    let fetched = entries
        .iter()
        .filter(|entry| entry.origin == Origin::Foreign);
    let fetched: BTreeSet<&str> = fetched.map(|entry| entry.commit.as_str()).collect();
    let fetched: Vec<&str> = fetched.into_iter().collect();
    let unknown = initial.since(git, &fetched, &[]).await?;
    Ok(unknown.into_iter().collect())
}

/// The reflogs of HEAD and of the refs that have moved since the start.
async fn entries(
    git: &Git,
    initial: &InitialRefs,
    refs: &Refs,
) -> Result<Vec<ReflogEntry>, GitError> {
    let moved = moved(initial, refs);
    let moved = moved.map(|(name, _)| name.as_str()).take(REFS_LIMIT);
    let names = ["HEAD"].into_iter().chain(moved);
    let input: String = names.map(|name| format!("{name}\n")).collect();
    let told = git.text(REFLOG, input.as_bytes()).await?;
    let mut later: BTreeMap<&str, usize> = BTreeMap::new();
    let read = told.split_terminator('\0').filter_map(|record| {
        let (commit, reference, time, note) = parts(record)?;
        let later = later.entry(reference).or_default();
        *later += 1;
        Some(ReflogEntry {
            commit: commit.to_owned(),
            reference: reference.to_owned(),
            time,
            later: *later,
            origin: origin(reference, note),
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

fn origin(reference: &str, note: &str) -> Origin {
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
        (true, "update by push") => Origin::Local,
        (false, _) if is_commit(note) => Origin::Local,
        _ if is_fetch => Origin::Foreign,
        _ if is_way => Origin::Unknown,
        (true, _) => Origin::Foreign,
        (false, _) => Origin::Local,
    }
}

/// Whether a note tells of a commit that was made here.
fn is_commit(note: &str) -> bool {
    let Some((action, subject)) = note.split_once(": ") else {
        return false;
    };
    let is_step = (action.starts_with("rebase") || action.starts_with("pull"))
        && STEPS.iter().any(|step| action.ends_with(step));
    COMMITS.contains(&action)
        || action.starts_with("commit (")
        || is_step && subject != "Fast-forward"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflog_entries_show_the_origin_of_commits() {
        for (record, expected) in [
            (
                "c1 refs/remotes/o/main@{7 +0000} update by push",
                Origin::Local,
            ),
            (
                "c1 refs/remotes/o/main@{7 -0130} fetch o: fast-forward",
                Origin::Foreign,
            ),
            ("c1 refs/remotes/o/main@{7 +0000} ", Origin::Foreign),
            ("c1 HEAD@{7 +0000} commit: fetch } the @{x} ", Origin::Local),
            ("c1 HEAD@{7 +0000} commit: Read FETCH_HEAD", Origin::Local),
            (
                "c1 HEAD@{7 +0000} commit (amend): Refuse: Fast-forward",
                Origin::Local,
            ),
            (
                "c1 HEAD@{7 +0000} rebase (pick): Read FETCH_HEAD",
                Origin::Local,
            ),
            (
                "c1 HEAD@{7 +0000} pull --rebase o main (pick): Read FETCH_HEAD",
                Origin::Local,
            ),
            (
                "c1 HEAD@{7 +0000} pull (pick): Refuse: Fast-forward",
                Origin::Local,
            ),
            (
                "c1 HEAD@{7 +0000} rebase (start): checkout FETCH_HEAD",
                Origin::Foreign,
            ),
            (
                "c1 HEAD@{7 +0000} pull o main: Fast-forward",
                Origin::Foreign,
            ),
            (
                "c1 HEAD@{7 +0000} pull: Merge made by the 'ort' strategy.",
                Origin::Local,
            ),
            (
                "c1 HEAD@{7 +0000} checkout: moving from main to FETCH_HEAD",
                Origin::Foreign,
            ),
            (
                "c1 refs/heads/x@{7 +0000} fetch o refs/pull/1/head:x: storing head",
                Origin::Foreign,
            ),
            ("c1 HEAD@{7 +0000} merge x: Fast-forward", Origin::Unknown),
        ] {
            let (commit, reference, time, note) = parts(record).unwrap();
            assert_eq!((commit, time), ("c1", 7), "{record}");
            assert_eq!(origin(reference, note), expected, "{record}");
        }
        let ways = [
            "checkout: moving from a to b",
            "remote: renamed refs/remotes/a/b to refs/remotes/c/b",
        ];
        for way in ways {
            assert_eq!(origin("refs/remotes/c/b", way), Origin::Unknown);
        }
        assert_eq!(parts("garbage"), None);
    }
}
