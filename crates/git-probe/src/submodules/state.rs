//! Recorded submodule state, and the action for each difference.

use std::collections::BTreeMap;

use rustix::fs::RawMode;
use serde::{Deserialize, Serialize};

pub(super) use crate::bytes::Bytes;

/// The entries of a git directory because of which git runs programs, or reads the settings of
/// another directory, in the order in which they are restored. The entries in `hooks` follow.
pub(super) const SENSITIVE_ENTRIES: [(Option<&str>, &str); 6] = [
    (None, "commondir"),
    (None, "config"),
    (None, "config.worktree"),
    (None, HOOKS),
    (None, "info"),
    (Some("info"), "attributes"),
];

/// The directory of a git directory whose entries are recorded one by one.
pub(super) const HOOKS: &str = "hooks";

/// One submodule before Codex began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SubmoduleState {
    /// The state could not be recorded, so the submodule stays unchanged.
    Unknown,
    /// The submodule's path leads through a symbolic link, which git does not follow.
    BehindLink,
    /// The submodule's directory could be opened, or did not exist.
    Reached {
        /// `.git` in the submodule.
        dot_git: Entry,
        /// Its git directory, and the one that `commondir` in it names, without links.
        git_dirs: Vec<Bytes>,
        /// The directories that are not below the repository's own common directory.
        exposed: Vec<GitDirState>,
    },
}

impl SubmoduleState {
    /// A submodule that is not checked out.
    pub(super) const ABSENT: Self = Self::Reached {
        dot_git: Entry::Missing,
        git_dirs: Vec::new(),
        exposed: Vec::new(),
    };
}

/// A git directory that Codex may be able to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GitDirState {
    /// Absolute and without links.
    pub(super) path: Bytes,
    /// One for each of [`SENSITIVE_ENTRIES`].
    pub(super) entries: Vec<Entry>,
    /// All entries below `hooks`, by their paths from there. `None` if they are too many to record,
    /// or cannot be read.
    pub(super) hooks: Option<BTreeMap<Bytes, Entry>>,
}

/// The entry of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Entry {
    /// Nothing.
    Missing,
    /// A file of these contents.
    File {
        /// The whole contents.
        bytes: Bytes,
        /// Its permissions.
        mode: RawMode,
    },
    /// A directory. Its contents are not compared.
    Directory,
    /// A link, a pipe, or a file that is too long to be kept or cannot be read.
    Other {
        /// The stamp that distinguishes it from other entries.
        stamp: FileStamp,
        /// The target of a link; empty for other kinds of entries.
        target: Bytes,
    },
}

/// A fingerprint that changes when a file is replaced or written. A program cannot choose the
/// time of the last change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStamp {
    pub(super) inode: u64,
    pub(super) size: i64,
    pub(super) mode: RawMode,
    /// Seconds and nanoseconds.
    pub(super) changed: (i64, i128),
}

/// The target of a `.git` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitdirTarget {
    /// A git directory of this submodule that Codex cannot write to: it lies in `modules` of the
    /// repository, and its `core.worktree` names the submodule. The settings there are the user's.
    IntoRepository,
    /// Any other directory, or there is no such file.
    Elsewhere,
}

/// The action for an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RestoreAction<'a> {
    /// Nothing.
    Leave,
    /// The entry is moved aside.
    MoveAside,
    /// The entry is moved aside, and a file with these contents and permissions takes its place.
    WriteBack(&'a [u8], RawMode),
}

/// Compares an entry with the recorded one. `is_unwritten` is set if an entry was moved aside and
/// the earlier file could not be written yet.
pub(super) fn restore_action<'a>(
    before: &'a Entry,
    now: &Entry,
    target: GitdirTarget,
    is_unwritten: bool,
) -> RestoreAction<'a> {
    match (before, now) {
        (before, now) if before == now => RestoreAction::Leave,
        (Entry::File { bytes, mode }, Entry::Missing) if is_unwritten => {
            RestoreAction::WriteBack(&bytes.0, *mode)
        }
        // Git runs nothing because of a missing entry.
        (_, Entry::Missing) => RestoreAction::Leave,
        // The user has checked out the submodule, or another branch.
        (_, Entry::File { .. }) if target == GitdirTarget::IntoRepository => RestoreAction::Leave,
        (Entry::File { bytes, mode }, _) => RestoreAction::WriteBack(&bytes.0, *mode),
        _ => RestoreAction::MoveAside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Entry {
        Entry::File {
            bytes: Bytes(text.into()),
            mode: 0o644,
        }
    }

    fn link(target: &str) -> Entry {
        Entry::Other {
            stamp: FileStamp {
                inode: 1,
                size: 1,
                mode: 0o100_644,
                changed: (1, 0),
            },
            target: Bytes(target.into()),
        }
    }

    #[test]
    fn changed_entry_is_moved_aside_and_file_is_written_back() {
        use Entry::{Directory, Missing};
        let aside = || RestoreAction::MoveAside;
        let leave = || RestoreAction::Leave;
        let written = || RestoreAction::WriteBack(b"a", 0o644);
        for (before, now, expected) in [
            (Missing, Missing, leave()),
            (Missing, Directory, aside()),
            (Missing, file("gitdir: x"), aside()),
            (Missing, link("x"), aside()),
            (Directory, Directory, leave()),
            (Directory, Missing, leave()),
            (Directory, file("gitdir: x"), aside()),
            (Directory, link("x"), aside()),
            (link("x"), link("x"), leave()),
            (link("x"), link("y"), aside()),
            (link("x"), Directory, aside()),
            (file("a"), file("a"), leave()),
            (file("a"), file("b"), written()),
            (file("a"), Directory, written()),
            (file("a"), Missing, leave()),
            (file("a"), link("x"), written()),
        ] {
            let output = format!("{before:?} {now:?}");
            let action = restore_action(&before, &now, GitdirTarget::Elsewhere, false);
            assert_eq!(action, expected, "{output}");
        }
    }

    /// The user may have checked out a submodule meanwhile, or another branch.
    #[test]
    fn file_that_leads_into_the_repository_stays() {
        let now = file("gitdir: ../.git/modules/sub");
        let other = file("gitdir: ../.git/modules/other");
        for before in [Entry::Missing, Entry::Directory, other] {
            let action = restore_action(&before, &now, GitdirTarget::IntoRepository, false);
            assert_eq!(action, RestoreAction::Leave);
        }
    }

    #[test]
    fn file_that_could_not_be_written_is_written_later() {
        let before = file("a");
        let action = restore_action(&before, &Entry::Missing, GitdirTarget::Elsewhere, true);
        assert_eq!(action, RestoreAction::WriteBack(b"a", 0o644));
        let missing = Entry::Missing;
        let action = restore_action(&missing, &missing, GitdirTarget::Elsewhere, true);
        assert_eq!(action, RestoreAction::Leave);
    }

    #[test]
    fn bytes_survive_json() {
        let map = BTreeMap::from([(Bytes(b"a\xff/b".to_vec()), file("\0\n"))]);
        let text = serde_json::to_string(&map).unwrap();
        let read: BTreeMap<Bytes, Entry> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, map);
    }
}
