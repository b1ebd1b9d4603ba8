//! How submodules stood at the beginning of a run, and what is to be done where they
//! stand otherwise.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The parts of a git directory by which git runs programs, or reads the settings of
/// another one, in the order in which they are looked at.
pub(super) const PARTS: [(Option<&str>, &str); 6] = [
    (None, "commondir"),
    (None, "config"),
    (None, "config.worktree"),
    (None, "hooks"),
    (None, "info"),
    (Some("info"), "attributes"),
];

/// The part of which all that lies below counts.
pub(super) const HOOKS: &str = "hooks";

/// What lies under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// Nothing.
    Missing,
    /// A file of these contents.
    File {
        /// All of it.
        bytes: Vec<u8>,
        /// Its permissions.
        mode: u32,
    },
    /// A directory, whatever is in it.
    Directory,
    /// A directory with these files, or `None` where there are too many to compare.
    Tree(Option<BTreeMap<PathBuf, Stamp>>),
    /// A link, a pipe, or a file that is too long to be kept or cannot be read.
    Other {
        /// Tells it from another one.
        stamp: Stamp,
        /// Where a link leads.
        target: OsString,
    },
}

/// What differs when a file is another one, or was written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) inode: u64,
    pub(super) size: i64,
    pub(super) mode: u32,
    /// Seconds and nanoseconds.
    pub(super) changed: (i64, i128),
}

/// Whether a `.git` file leads into the git directory of the repository itself, which
/// Codex cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// It does: the settings there are the user's.
    IntoRepository,
    /// It does not, or there is no such file.
    Elsewhere,
}

/// What is to be done about an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remedy<'a> {
    /// Nothing.
    Leave,
    /// It is moved aside.
    MoveAside,
    /// A file is written with these contents and permissions, after what is there has
    /// been moved aside.
    WriteBack(&'a [u8], u32),
}

/// Compares an entry with what it was.
pub(super) fn remedy<'a>(before: &'a Entry, now: &Entry, leads: Leads) -> Remedy<'a> {
    match (before, now) {
        (Entry::Tree(None), Entry::Tree(None)) => Remedy::MoveAside,
        (before, now) if before == now => Remedy::Leave,
        // Git runs nothing because of what is not there.
        (_, Entry::Missing) => Remedy::Leave,
        (Entry::File { bytes, mode }, _) => Remedy::WriteBack(bytes, *mode),
        (_, Entry::File { .. }) if leads == Leads::IntoRepository => Remedy::Leave,
        _ => Remedy::MoveAside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Entry {
        Entry::File {
            bytes: text.into(),
            mode: 0o644,
        }
    }

    fn stamp(inode: u64) -> Stamp {
        Stamp {
            inode,
            size: 1,
            mode: 0o100_644,
            changed: (1, 0),
        }
    }

    fn link(target: &str) -> Entry {
        Entry::Other {
            stamp: stamp(1),
            target: target.into(),
        }
    }

    fn tree(inode: u64) -> Entry {
        Entry::Tree(Some(BTreeMap::from([("x".into(), stamp(inode))])))
    }

    #[test]
    fn changed_entry_is_moved_aside_and_file_is_written_back() {
        use Entry::{Directory, Missing};
        let aside = || Remedy::MoveAside;
        for (before, now, expected) in [
            (Missing, Missing, Remedy::Leave),
            (Missing, Directory, aside()),
            (Missing, file("gitdir: x"), aside()),
            (Missing, link("x"), aside()),
            (Directory, Directory, Remedy::Leave),
            (Directory, Missing, Remedy::Leave),
            (Directory, file("gitdir: x"), aside()),
            (Directory, link("x"), aside()),
            (link("x"), link("x"), Remedy::Leave),
            (link("x"), link("y"), aside()),
            (link("x"), Directory, aside()),
            (tree(1), tree(1), Remedy::Leave),
            (tree(1), tree(2), aside()),
            (tree(1), Missing, Remedy::Leave),
            (Entry::Tree(None), Entry::Tree(None), aside()),
            (file("a"), file("a"), Remedy::Leave),
            (file("a"), file("b"), Remedy::WriteBack(b"a", 0o644)),
            (file("a"), Directory, Remedy::WriteBack(b"a", 0o644)),
            (file("a"), Missing, Remedy::Leave),
            (file("a"), link("x"), Remedy::WriteBack(b"a", 0o644)),
        ] {
            let told = format!("{before:?} {now:?}");
            assert_eq!(remedy(&before, &now, Leads::Elsewhere), expected, "{told}");
        }
    }

    /// The user may have checked out a submodule meanwhile.
    #[test]
    fn file_that_leads_into_the_repository_stays_where_there_was_none() {
        let now = file("gitdir: ../.git/modules/sub");
        for before in [Entry::Missing, Entry::Directory] {
            let remedy = remedy(&before, &now, Leads::IntoRepository);
            assert_eq!(remedy, Remedy::Leave);
        }
        let before = file("gitdir: ../.git/modules/other");
        let written = Remedy::WriteBack(b"gitdir: ../.git/modules/other", 0o644);
        assert_eq!(remedy(&before, &now, Leads::IntoRepository), written);
    }
}
