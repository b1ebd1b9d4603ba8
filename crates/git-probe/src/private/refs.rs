//! The refs of a git directory, read without git, since the contents of the directory cannot be
//! trusted.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use safe_files::untrusted_file::{Links, ReadError, read_text};
use serde::{Deserialize, Serialize};

use crate::logic::ref_name::is_ref_name;
use crate::{Git, GitError};

/// The file of HEAD in a git directory.
const HEAD: &str = "HEAD";

/// The longest file of one ref, in bytes.
const REF_LIMIT: u64 = 4096;

/// The longest file of packed refs, in bytes.
const PACKED_LIMIT: u64 = 64 * 1024 * 1024;

/// The most loose refs, and directories of them, that are read.
const LOOSE_LIMIT: usize = 100_000;

/// How deep directories of refs may be nested.
const DEPTH_LIMIT: usize = 32;

/// The prefix of remote-tracking refs.
pub(super) const TRACKING: &str = "refs/remotes/";

/// The prefixes of the refs that are taken over.
const TAKEN: [&str; 4] = ["refs/heads/", "refs/tags/", TRACKING, "refs/notes/"];

/// HEAD and the targets of refs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refs {
    /// The text of `HEAD`, with one newline.
    pub(super) head: String,
    /// The target object of each ref, by the ref's whole name.
    pub(super) all: BTreeMap<String, String>,
    /// The number of other refs, which are not taken over.
    #[serde(default)]
    pub(super) others: usize,
}

/// The content of `HEAD`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Head<'a> {
    Branch(&'a str),
    Commit(&'a str),
}

impl Refs {
    /// The refs of a repository.
    pub(super) async fn of_repository(git: &Git) -> Result<Self, GitError> {
        let question = ["for-each-ref", "--format=%(objectname) %(refname)"];
        let output = git.text(&question, &[]).await?;
        let head = git.layout().head().map_err(io::Error::other)?;
        Ok(Self {
            head: one_line(&head),
            all: output
                .lines()
                .filter_map(entry)
                .filter(|(name, _)| is_taken(name))
                .collect(),
            others: 0,
        })
    }

    /// The refs of a git directory that another process writes to.
    pub(super) fn of_directory(path: &Path) -> io::Result<Self> {
        let head = read_text(&path.join(HEAD), REF_LIMIT, Links::Refused);
        let head = one_line(&head.map_err(io::Error::other)?);
        Ok(Self {
            head,
            ..Self::read(path, is_taken)?
        })
    }

    /// All refs of such a git directory, including those that are not taken over. Also works if
    /// `HEAD` cannot be read.
    pub(super) fn all_of_directory(path: &Path) -> io::Result<Self> {
        let head = read_text(&path.join(HEAD), REF_LIMIT, Links::Refused);
        Ok(Self {
            head: one_line(&head.unwrap_or_default()),
            ..Self::read(path, |name| name.starts_with("refs/"))?
        })
    }

    /// The refs without `HEAD`.
    fn read(path: &Path, is_wanted: fn(&str) -> bool) -> io::Result<Self> {
        let wanted = |line| entry(line).filter(|(name, _)| is_wanted(name));
        let mut all = BTreeMap::new();
        // The file existed at the beginning, and git never removes it.
        match read_text(&path.join("packed-refs"), PACKED_LIMIT, Links::Refused) {
            Ok(text) => all.extend(text.lines().filter_map(wanted)),
            Err(error) => return Err(io::Error::other(error)),
        }
        if path.join("refs").is_symlink() {
            return Err(io::Error::other("refs is a symbolic link"));
        }
        let mut loose = LooseRefs {
            is_wanted,
            left: LOOSE_LIMIT,
            all,
            others: 0,
        };
        loose.read(path, "refs", DEPTH_LIMIT)?;
        Ok(Self {
            head: String::new(),
            all: loose.all,
            others: loose.others,
        })
    }

    /// The refs in git's format of packed refs.
    pub(super) fn packed(&self) -> String {
        let lines = self.all.iter().map(|(name, id)| format!("{id} {name}\n"));
        format!("# pack-refs with: sorted \n{}", lines.collect::<String>())
    }

    /// Whether both have the same refs, except for remote-tracking refs, which the repository may
    /// lack.
    pub(super) fn are_same_locally(&self, other: &Self) -> bool {
        let own = |refs: &'_ Self| -> Vec<(String, String)> {
            let own = refs.all.iter();
            let own = own.filter(|(name, _)| !name.starts_with(TRACKING));
            own.map(|(name, id)| (name.clone(), id.clone())).collect()
        };
        self.head == other.head && self.others == other.others && own(self) == own(other)
    }

    /// The commit that is checked out, if there is one.
    pub(super) fn tip(&self) -> Option<&str> {
        match self.head()? {
            Head::Branch(name) => self.all.get(name).map(String::as_str),
            Head::Commit(id) => Some(id),
        }
    }

    /// The checked-out branch or commit; `None` if `HEAD` is malformed.
    pub(super) fn head(&self) -> Option<Head<'_>> {
        let head = self.head.trim_end();
        match head.strip_prefix("ref:") {
            Some(name) => {
                let name = name.trim_start();
                (name.starts_with("refs/heads/") && is_ref_name(name)).then_some(Head::Branch(name))
            }
            None => is_id(head).then_some(Head::Commit(head)),
        }
    }
}

fn one_line(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

/// Reads `ID NAME`.
pub(crate) fn entry(line: &str) -> Option<(String, String)> {
    let (id, name) = line.split_once(' ')?;
    (is_id(id) && is_ref_name(name)).then(|| (name.to_owned(), id.to_owned()))
}

fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64)
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The loose refs, one file each, which override packed ones.
struct LooseRefs {
    is_wanted: fn(&str) -> bool,
    left: usize,
    all: BTreeMap<String, String>,
    others: usize,
}

impl LooseRefs {
    fn read(&mut self, path: &Path, name: &str, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(path.join(name))? {
            let entry = entry?;
            self.left = self
                .left
                .checked_sub(1)
                .ok_or_else(|| io::Error::other("there are too many refs"))?;
            let file_name = entry.file_name();
            let Some(own) = file_name.to_str() else {
                self.others += 1;
                continue;
            };
            let name = format!("{name}/{own}");
            let kind = entry.file_type()?;
            if kind.is_dir() && depth > 0 {
                self.read(path, &name, depth - 1)?;
            } else if kind.is_file() {
                match (self.is_wanted)(&name) {
                    true => self.all.extend(loose_entry(path, &name)?),
                    false => self.others += 1,
                }
            }
        }
        Ok(())
    }
}

fn is_taken(name: &str) -> bool {
    TAKEN.iter().any(|taken| name.starts_with(taken))
}

fn loose_entry(path: &Path, name: &str) -> io::Result<Option<(String, String)>> {
    match read_text(&path.join(name), REF_LIMIT, Links::Refused) {
        Ok(text) => Ok(entry(&format!("{} {name}", text.trim_end()))),
        // The lock of a ref that is gone, or a file that git would not accept as a ref either.
        Err(error) if error.is_not_found() => Ok(None),
        Err(ReadError::NotText { .. } | ReadError::TooLong { .. }) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";
    const OTHER: &str = "abcdefabcdefabcdefabcdefabcdefabcdefabcd";

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn loose_refs_count_more_than_packed_ones() {
        let packed =
            format!("# pack-refs with: sorted \n{ID} refs/heads/a\n{ID} refs/tags/t\n^{ID}\n");
        let directory = directory(&[
            ("HEAD", "ref: refs/heads/a\n"),
            ("packed-refs", &packed),
            ("refs/heads/a", &format!("{OTHER}\n")),
            ("refs/heads/x/y", &format!("{ID}\n")),
            ("refs/stash", &format!("{ID}\n")),
            ("refs/heads/bad", "garbage"),
            ("refs/heads/bad name", &format!("{ID}\n")),
            ("refs/heads/a.lock", &format!("{ID}\n")),
        ]);
        let refs = Refs::of_directory(directory.path()).unwrap();
        let all: Vec<_> = refs
            .all
            .iter()
            .map(|(name, id)| (name.as_str(), id.as_str()))
            .collect();
        assert_eq!(
            all,
            [
                ("refs/heads/a", OTHER),
                ("refs/heads/x/y", ID),
                ("refs/tags/t", ID)
            ]
        );
        assert_eq!(refs.head(), Some(Head::Branch("refs/heads/a")));
        assert_eq!(refs.others, 1, "the stash");
        let all = Refs::all_of_directory(directory.path()).unwrap().all;
        assert_eq!(all.len(), 4);
        assert_eq!(all["refs/stash"], ID);
        fs::remove_file(directory.path().join("packed-refs")).unwrap();
        assert!(Refs::of_directory(directory.path()).is_err());
    }

    #[test]
    fn malformed_head_is_not_read() {
        for (text, expected) in [
            (ID, Some(Head::Commit(ID))),
            ("ref: refs/heads/x", Some(Head::Branch("refs/heads/x"))),
            ("ref: refs/tags/x", None),
            ("ref: /etc/passwd", None),
            ("ref: refs/heads/a\nb", None),
            ("ref: refs/heads/../../x", None),
            ("ref: refs/heads/a.lock", None),
            ("", None),
        ] {
            let refs = Refs {
                head: text.to_owned(),
                ..Refs::default()
            };
            assert_eq!(refs.head(), expected, "{text}");
        }
    }

    #[test]
    fn pipes_and_links_are_no_refs() {
        let directory = directory(&[
            ("HEAD", "ref: refs/heads/a\n"),
            ("packed-refs", ""),
            ("secret", ID),
        ]);
        let heads = directory.path().join("refs/heads");
        fs::create_dir_all(&heads).unwrap();
        mkfifo(&heads.join("pipe"), Mode::S_IRWXU).unwrap();
        symlink(directory.path().join("secret"), heads.join("link")).unwrap();
        let refs = Refs::of_directory(directory.path()).unwrap();
        assert_eq!(refs.all, BTreeMap::new());
        fs::remove_file(directory.path().join("HEAD")).unwrap();
        mkfifo(&directory.path().join("HEAD"), Mode::S_IRWXU).unwrap();
        assert!(Refs::of_directory(directory.path()).is_err());
    }
}
