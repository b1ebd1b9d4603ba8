//! The trees of new commits: their submodules and the number of their paths.
//!
//! Each distinct tree is read once. A tree can contain the same subtree many times, and so have
//! more paths than git could ever list. Such commits are refused.
//!
//! Source: git-cat-file(1), git-log(1), gitformat-pack(5).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use common::text::hex;

use super::index::IdLength;
use super::refs::Refs;
use crate::{Git, GitError};

/// New commits, and their known parents, which are marked with `-`.
const COMMITS: &[&str] = &[
    "log",
    "--boundary",
    "--no-show-signature",
    "--format=%m %H %T %P",
    "--stdin",
];

const READ: &[&str] = &["cat-file", "--batch"];

/// Only the given commits, in the same format.
const KNOWN: &[&str] = &[
    "log",
    "--no-walk=unsorted",
    "--no-show-signature",
    "--format=- %H %T %P",
    "--ignore-missing",
    "--stdin",
];

/// How many more paths a commit may have than the largest commit from before the run. Commits of
/// the run are not compared with each other, or each could add as many paths as the limit.
const ADDED_LIMIT: u64 = 1_000_000;

/// How many distinct trees are read.
const TREES_LIMIT: usize = 2_000_000;

/// How deep trees may be.
const DEPTH_LIMIT: usize = 512;

/// How many submodules a commit may have.
const SUBMODULES_LIMIT: usize = 10_000;

/// The modes of entries.
const DIRECTORY: &[u8] = b"40000";
const SUBMODULE: &[u8] = b"160000";

/// A commit, by its root tree and its parents.
struct Commit {
    is_new: bool,
    tree: String,
    parents: Vec<String>,
}

#[derive(Default)]
struct Tree {
    directories: Vec<(PathBuf, String)>,
    submodules: Vec<PathBuf>,
    others: u64,
    /// The size of the tree; `None` until it was computed.
    size: Option<Size>,
}

/// The size of a tree, including all trees below it.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    paths: u64,
    has_submodules: bool,
}

/// Trees by their ids.
struct Trees<'a> {
    git: &'a Git,
    id: IdLength,
    all: HashMap<String, Tree>,
}

/// The commits of a run that are examined before they are taken over.
pub(super) struct NewCommits<'a> {
    /// The commits at the ends of branches, whose ancestors are examined too.
    pub(super) tips: BTreeSet<&'a str>,
    /// The refs that the repository has already.
    pub(super) known: &'a Refs,
    /// The refs of the repository before the run.
    pub(super) before: &'a Refs,
}

/// The paths that are submodules in a new commit, but not in at least one of its parents. A commit
/// without parents adds all of its submodules.
///
/// # Errors
///
/// [`GitError`], also for commits with more paths than can be listed.
pub(super) async fn added_submodules(
    git: &Git,
    id: IdLength,
    new: &NewCommits<'_>,
) -> Result<BTreeSet<PathBuf>, GitError> {
    let output = git.text(COMMITS, new.since(new.known).as_bytes()).await?;
    let commits: BTreeMap<&str, Commit> = output.lines().filter_map(commit).collect();
    let before = commits_before(git, new).await?;
    let mut trees = Trees {
        git,
        id,
        all: HashMap::new(),
    };
    trees.read(commits.values().chain(&before)).await?;
    let limit = trees.largest(&before)?.saturating_add(ADDED_LIMIT);
    let mut added = BTreeSet::new();
    for (name, commit) in commits.iter().filter(|(_, commit)| commit.is_new) {
        let parents = commit.parents.iter();
        let parents: Vec<&Commit> = parents.filter_map(|id| commits.get(id.as_str())).collect();
        trees.check_size(name, commit, limit)?;
        let here = trees.submodules(&commit.tree)?;
        if here.is_empty() {
            continue;
        }
        if parents.is_empty() {
            added.extend(here.clone());
        }
        for parent in parents {
            let there = trees.submodules(&parent.tree)?;
            added.extend(here.difference(&there).cloned());
        }
    }
    Ok(added)
}

impl NewCommits<'_> {
    /// The commits that `refs` do not lead to, in the format that git reads.
    fn since(&self, refs: &Refs) -> String {
        let tips = self.tips.iter().map(|tip| format!("{tip}\n"));
        let known = refs.all.values().map(|tip| format!("^{tip}\n"));
        tips.chain(known).collect()
    }
}

/// The commit that was checked out before the run, and the commits from before the run that are
/// parents of new ones.
async fn commits_before(git: &Git, new: &NewCommits<'_>) -> Result<Vec<Commit>, GitError> {
    // Commits from before the run may have been pruned since.
    let question = [COMMITS, &["--ignore-missing"]].concat();
    let output = git
        .text(&question, new.since(new.before).as_bytes())
        .await?;
    let commits = output.lines().filter_map(commit).map(|(_, commit)| commit);
    let mut before: Vec<Commit> = commits.filter(|commit| !commit.is_new).collect();
    if let Some(tip) = new.before.tip() {
        let output = git.text(KNOWN, format!("{tip}\n").as_bytes()).await?;
        before.extend(output.lines().filter_map(commit).map(|(_, commit)| commit));
    }
    Ok(before)
}

/// Reads `MARK COMMIT TREE PARENT…`.
fn commit(line: &str) -> Option<(&str, Commit)> {
    let mut words = line.split(' ');
    let (mark, name, tree) = (words.next()?, words.next()?, words.next()?);
    let commit = Commit {
        is_new: mark != "-",
        tree: tree.to_owned(),
        parents: words
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .collect(),
    };
    Some((name, commit))
}

impl Trees<'_> {
    /// Reads the trees of commits and all trees below them, one level at a time.
    async fn read(&mut self, commits: impl Iterator<Item = &Commit>) -> Result<(), GitError> {
        let mut wanted: BTreeSet<String> = commits.map(|one| one.tree.clone()).collect();
        for _ in 0..DEPTH_LIMIT {
            if wanted.is_empty() {
                return Ok(());
            }
            if self.all.len() + wanted.len() > TREES_LIMIT {
                return Err(refused("the commits have too many directories").into());
            }
            let input: String = wanted.iter().map(|id| format!("{id}\n")).collect();
            let output = self.git.output(READ, input.as_bytes()).await?;
            let found = parse_batch(&output, self.id.0 / 2);
            let found = found.ok_or_else(|| refused("git cannot read the trees of the commits"))?;
            let mut next = BTreeSet::new();
            for (id, tree) in found {
                next.extend(tree.directories.iter().map(|(_, id)| id.clone()));
                self.all.insert(id, tree);
            }
            if wanted.iter().any(|id| !self.all.contains_key(id)) {
                return Err(refused("a tree of the commits is missing").into());
            }
            next.retain(|id| !self.all.contains_key(id));
            wanted = next;
        }
        Err(too_deep().into())
    }

    /// The number of paths in the largest of these commits.
    fn largest(&mut self, commits: &[Commit]) -> io::Result<u64> {
        let mut sizes = commits.iter().map(|one| Ok(self.size(&one.tree, 0)?.paths));
        sizes.try_fold(0, |largest, paths: io::Result<u64>| Ok(largest.max(paths?)))
    }

    fn check_size(&mut self, name: &str, commit: &Commit, limit: u64) -> io::Result<()> {
        match self.size(&commit.tree, 0)?.paths > limit {
            true => Err(refused(&format!(
                "the commit {name} has over {ADDED_LIMIT} more paths than any commit from before \
                 the run, which git cannot list in reasonable time"
            ))),
            false => Ok(()),
        }
    }

    fn size(&mut self, id: &str, depth: usize) -> io::Result<Size> {
        if depth > DEPTH_LIMIT {
            return Err(too_deep());
        }
        let Some(tree) = self.all.get(id) else {
            return Ok(Size::default());
        };
        if let Some(size) = tree.size {
            return Ok(size);
        }
        let mut size = Size {
            paths: tree.others,
            has_submodules: !tree.submodules.is_empty(),
        };
        let below: Vec<String> = tree.directories.iter().map(|(_, id)| id.clone()).collect();
        for id in below {
            let one = self.size(&id, depth + 1)?;
            size.paths = size.paths.saturating_add(one.paths).saturating_add(1);
            size.has_submodules |= one.has_submodules;
        }
        if let Some(tree) = self.all.get_mut(id) {
            tree.size = Some(size);
        }
        Ok(size)
    }

    /// The paths of the submodules in a root tree. Its size must have been computed or requested.
    fn submodules(&mut self, root: &str) -> io::Result<BTreeSet<PathBuf>> {
        self.size(root, 0)?;
        let mut found = BTreeSet::new();
        let mut left = vec![(PathBuf::new(), root)];
        while let Some((path, id)) = left.pop() {
            let Some(tree) = self.all.get(id) else {
                continue;
            };
            found.extend(tree.submodules.iter().map(|name| path.join(name)));
            if found.len() > SUBMODULES_LIMIT {
                let why = format!("the commits have more than {SUBMODULES_LIMIT} submodules");
                return Err(refused(&why));
            }
            let has_some = |id: &String| {
                let size = self.all.get(id).and_then(|tree| tree.size);
                size.is_some_and(|size| size.has_submodules)
            };
            let below = tree.directories.iter().filter(|(_, id)| has_some(id));
            left.extend(below.map(|(name, id)| (path.join(name), id.as_str())));
        }
        Ok(found)
    }
}

/// Reads `ID tree SIZE NEWLINE CONTENT NEWLINE` of each tree. `None` for anything else.
fn parse_batch(mut output: &[u8], id_bytes: usize) -> Option<Vec<(String, Tree)>> {
    let mut trees = Vec::new();
    while !output.is_empty() {
        let end = output.iter().position(|byte| *byte == b'\n')?;
        let (line, rest) = output.split_at(end);
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let (id, kind, size) = (words.next()?, words.next()?, words.next()?);
        let size: usize = size.parse().ok().filter(|_| kind == "tree")?;
        let content = rest.get(1..=size)?;
        trees.push((id.to_owned(), parse_tree(content, id_bytes)?));
        output = rest.get(size + 2..)?;
    }
    Some(trees)
}

/// Reads `MODE NAME NUL ID` of each entry.
fn parse_tree(mut content: &[u8], id_bytes: usize) -> Option<Tree> {
    let mut tree = Tree::default();
    while !content.is_empty() {
        let space = content.iter().position(|byte| *byte == b' ')?;
        let (mode, rest) = content.split_at(space);
        let end = rest.iter().position(|byte| *byte == 0)?;
        let name = Path::new(OsStr::from_bytes(rest.get(1..end)?)).to_owned();
        let id = rest.get(end + 1..end + 1 + id_bytes)?;
        match mode.strip_prefix(b"0").unwrap_or(mode) {
            DIRECTORY => tree.directories.push((name, hex(id))),
            SUBMODULE => tree.submodules.push(name),
            _ => tree.others += 1,
        }
        content = rest.get(end + 1 + id_bytes..)?;
    }
    Some(tree)
}

/// The IDs of trees and the numbers of their entries, for [`parsers`](crate::parsers).
pub(crate) fn counted(output: &[u8], id_bytes: usize) -> Option<Vec<(String, usize)>> {
    let count = |tree: Tree| {
        let others = usize::try_from(tree.others).unwrap_or(usize::MAX);
        tree.directories.len() + tree.submodules.len() + others
    };
    let trees = parse_batch(output, id_bytes)?.into_iter();
    Some(trees.map(|(id, tree)| (id, count(tree))).collect())
}

/// The ID of a commit and the number of its parents, for [`parsers`](crate::parsers).
pub(crate) fn parents(line: &str) -> Option<(&str, usize)> {
    let (id, commit) = commit(line)?;
    Some((id, commit.parents.len()))
}

fn too_deep() -> io::Error {
    refused(&format!(
        "the commits have directories of more than {DEPTH_LIMIT} levels"
    ))
}

fn refused(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_trees_are_read() {
        let id = [0xab; 20];
        let mut content = Vec::new();
        for entry in ["100644 a\n", "40000 d", "160000 sub"] {
            content.extend(entry.as_bytes());
            content.push(0);
            content.extend(id);
        }
        let name = hex(&id);
        let head = format!("{name} tree {}\n", content.len());
        let mut output = [head.as_bytes(), &content, b"\n"].concat();
        let trees = parse_batch(&output, 20).unwrap();
        let (read, tree) = &trees[0];
        assert_eq!((read, trees.len(), tree.others), (&name, 1, 1));
        assert_eq!(tree.directories, [("d".into(), name.clone())]);
        assert_eq!(tree.submodules, [PathBuf::from("sub")]);
        output.extend(format!("{name} missing\n").as_bytes());
        assert!(parse_batch(&output, 20).is_none());
    }
}
