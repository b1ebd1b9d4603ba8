//! The differences of the working tree from HEAD, and between commits.
//!
//! Source: git-status(1) (porcelain format 2), git-diff-tree(1).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use supervise::short_lived::Extent;

use super::invocation::answered;
use super::{Git, GitError};
use crate::logic::git_state::{ChangeKind, FileState, GitState};

const STATUS: &[&str] = &[
    "status",
    "--porcelain=v2",
    "--branch",
    "--no-ahead-behind",
    "-z",
    "--untracked-files=all",
    "--no-renames",
    "--ignore-submodules=dirty",
];

const DIFF: &[&str] = &[
    "diff-tree",
    "-r",
    "-z",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=none",
    "--name-status",
];

const LIST: &[&str] = &["ls-tree", "-r", "-z", "--name-only"];

/// The output of `git status`.
#[derive(Debug)]
pub struct Status {
    pub(super) words: Vec<u8>,
    /// Whether the output is complete.
    pub extent: Extent,
}

impl Status {
    /// Parses the state of the tree below `root`. A truncated record is left out. Blocks, as it
    /// stats each file.
    pub fn read(&self, root: &Path) -> GitState {
        let mut state = GitState::default();
        let end = self.words.iter().rposition(|byte| *byte == 0);
        let whole = self.words.get(..end.unwrap_or(0)).unwrap_or_default();
        for record in whole.split(|byte| *byte == 0) {
            if let Some(head) = record.strip_prefix(b"# branch.oid ") {
                state.head = (head != b"(initial)").then(|| written(head));
            } else if let Some((what, path)) = parts(record) {
                let what = written(what);
                let look = FileState {
                    kind: kind(what.split(' ').nth(1).unwrap_or(&what)),
                    stamp: format!("{what} {}", stamp(&root.join(OsStr::from_bytes(path)))),
                };
                state.dirty.insert(written(path), look);
            }
        }
        state
    }
}

impl Git {
    /// The state of the working tree.
    pub async fn status(&self) -> Result<Status, GitError> {
        let output = self.run(STATUS, &[]).await?;
        answered(&output)?;
        Ok(Status {
            words: output.stdout,
            extent: output.extent,
        })
    }

    /// The files that differ between two commits, which may be the same. `None` stands for the
    /// state before the first commit, which has no files.
    pub async fn committed(
        &self,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<BTreeMap<String, ChangeKind>, GitError> {
        let (Some(new), true) = (after, before != after) else {
            return Ok(BTreeMap::new());
        };
        let Some(old) = before else {
            let all = self.output(&[LIST, &[new]].concat(), &[]).await?;
            let names = records(&all);
            return Ok(names
                .map(|name| (written(name), ChangeKind::Added))
                .collect());
        };
        let differences = self.output(&[DIFF, &[old, new]].concat(), &[]).await?;
        let mut parts = records(&differences);
        let mut files = BTreeMap::new();
        while let (Some(status), Some(path)) = (parts.next(), parts.next()) {
            files.insert(written(path), kind(&written(status)));
        }
        Ok(files)
    }
}

/// The records, each of which a NUL ends.
fn records(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == 0)
        .map(|record| record.strip_suffix(b"\0").unwrap_or(record))
}

fn kind(status: &str) -> ChangeKind {
    match status {
        _ if status.contains('D') => ChangeKind::Deleted,
        _ if status.contains(['A', '?']) => ChangeKind::Added,
        _ => ChangeKind::Modified,
    }
}

/// Git's fields of a file, and its path, which may have spaces in it.
fn parts(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let fields = match record.first()? {
        b'?' => 1,
        b'1' => 8,
        b'u' => 10,
        _ => return None,
    };
    let mut spaces = (0..).zip(record).filter(|(_, byte)| **byte == b' ');
    let (end, _) = spaces.nth(fields - 1)?;
    Some((record.get(..end)?, record.get(end + 1..)?))
}

/// A fingerprint that changes when a file or its mode is changed. It contains the ctime, since any
/// process can reset the modification time. It does not contain the inode, since some FUSE file
/// systems renumber unchanged files.
fn stamp(path: &Path) -> String {
    let Ok(metadata) = path.symlink_metadata() else {
        return String::new();
    };
    format!(
        "{} {:o} {}.{:09} {}.{:09}",
        metadata.len(),
        metadata.mode(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec()
    )
}

/// A path as a text. Bytes that are not UTF-8 are written as `\xNN`, so that names which differ
/// only in such bytes stay distinct.
pub fn written(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[u8]) -> GitState {
        let status = Status {
            words: words.to_owned(),
            extent: Extent::Whole,
        };
        status.read(Path::new("/nowhere"))
    }

    #[test]
    fn status_output_is_parsed() {
        let state = read(
            b"# branch.oid abc\0# branch.head main\0\
            1 .M N... 100644 100644 100644 h1 h2 a file\0\
            1 .D N... 100644 100644 000000 h1 h2 gone\0\
            1 A. N... 000000 100644 100644 h1 h2 new\nline\0\
            u UU N... 100644 100644 100644 100644 h1 h2 h3 both\0\
            ? un tracked\0\
            ? no text\xff\0\
            ? cut o",
        );
        assert_eq!(state.head.as_deref(), Some("abc"));
        let kinds: Vec<(&str, ChangeKind)> = state
            .dirty
            .iter()
            .map(|(path, look)| (path.as_str(), look.kind))
            .collect();
        assert_eq!(
            kinds,
            [
                ("a file", ChangeKind::Modified),
                ("both", ChangeKind::Modified),
                ("gone", ChangeKind::Deleted),
                ("new\nline", ChangeKind::Added),
                ("no text\\xff", ChangeKind::Added),
                ("un tracked", ChangeKind::Added),
            ]
        );
        assert_eq!(read(b"# branch.oid (initial)\0"), GitState::default());
    }

    #[test]
    fn paths_that_are_not_utf8_stay_distinct() {
        assert_eq!(written("a b/ü\n".as_bytes()), "a b/ü\n");
        assert_eq!(written(b"a\xff\xfeb"), "a\\xff\\xfeb");
    }
}
