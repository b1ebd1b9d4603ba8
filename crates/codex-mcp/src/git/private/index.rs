//! The index: what is staged in the private directory is staged in the repository.
//!
//! The file itself is not taken over, as it may have extensions of any kind. Its entries
//! are read and put into the repository's own index where they differ, which keeps what
//! git has noted there of all others.
//!
//! Source: git-ls-files(1), git-update-index(1) for `--index-info`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use super::INDEX_LIMIT;
use crate::git::{Git, GitError};
use crate::untrusted_file::{Links, read};

const LIST: &[&str] = &["ls-files", "-z", "--stage"];

const PUT: &[&str] = &["update-index", "-z", "--index-info"];

const REFRESH: &[&str] = &["update-index", "-q", "--refresh"];

/// The mode of a submodule, whose commit is not in this repository.
const SUBMODULE: &str = "160000";

/// How often the lock of the index is asked for, and the pause between.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// The entries by their paths: mode, object and stage of each.
type Entries = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// What differs when an index is written to.
pub(super) fn stamp(path: &Path) -> Option<String> {
    let about = fs::symlink_metadata(path).ok()?;
    Some(format!(
        "{} {} {}.{:09}",
        about.ino(),
        about.len(),
        about.mtime(),
        about.mtime_nsec()
    ))
}

/// What has to be changed in the repository's index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// The stamp of the repository's index that this was determined from.
    stamp: Option<String>,
    /// As `git update-index` reads it.
    lines: Vec<u8>,
    /// The objects of the new entries.
    pub(super) objects: BTreeSet<String>,
    /// The paths that have become submodules.
    pub(super) submodules: Vec<String>,
    /// How many paths somebody else has staged meanwhile in another way: theirs stay.
    conflicts: usize,
}

/// Whether the repository's index was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    /// It has all of the difference.
    Done,
    /// Another process has changed it first, so the difference holds no more.
    Changed,
}

/// All entries of the private index, as git lists them.
#[derive(Debug, Default)]
pub(super) struct Listed(pub(super) Vec<u8>);

/// The digits of an object's name.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdLength(pub(super) usize);

impl Listed {
    /// Those of the repository.
    pub(super) async fn of_repository(git: &Git) -> Result<Self, GitError> {
        Ok(Self(git.told(LIST, &[]).await?))
    }

    /// Those of the private index, which is copied to `copy` first. `quarantine` is git
    /// with the private directory's objects.
    pub(super) async fn of_private(
        quarantine: &Git,
        private: &Path,
        copy: &Path,
    ) -> Result<Self, GitError> {
        match read(&private.join("index"), INDEX_LIMIT, Links::Refused) {
            Ok(bytes) => fs::write(copy, bytes)?,
            Err(error) if error.is_not_found() => return Ok(Self::default()),
            Err(error) => return Err(io::Error::other(error).into()),
        }
        let mut quarantine = quarantine.clone();
        quarantine.set("GIT_INDEX_FILE", copy);
        Ok(Self(quarantine.told(LIST, &[]).await?))
    }
}

impl Difference {
    /// What the private index has changed since `base`, and the repository's has not.
    pub(super) async fn read(
        theirs: &Listed,
        base: &Listed,
        git: &Git,
        id: IdLength,
    ) -> Result<Self, GitError> {
        let stamp = stamp(&git.layout().git_dir.join("index"));
        let ours = git.told(LIST, &[]).await?;
        let (base, theirs) = (entries(&base.0), entries(&theirs.0));
        Ok(Self {
            stamp,
            ..Self::between(&base, &theirs, &entries(&ours), id)
        })
    }

    /// What the user has to know.
    pub(super) fn warning(&self) -> Option<String> {
        (self.conflicts > 0).then(|| {
            format!(
                "{} paths that Codex has staged are staged in another way by somebody else, \
                 and stay so",
                self.conflicts
            )
        })
    }

    fn between(base: &Entries, theirs: &Entries, ours: &Entries, id: IdLength) -> Self {
        let mut difference = Self::default();
        let paths: BTreeSet<&Vec<u8>> = theirs.keys().chain(base.keys()).collect();
        for path in paths {
            let (old, new, here) = (base.get(path), theirs.get(path), ours.get(path));
            if new == old || new == here {
                continue;
            }
            if is_submodule(new) && !is_submodule(old) {
                let path = String::from_utf8_lossy(path).into_owned();
                difference.submodules.push(path);
            }
            match here == old {
                true => difference.replace(path, new, id),
                false => difference.conflicts += 1,
            }
        }
        difference
    }

    /// All entries of a path are removed before the new ones are put in: there may have
    /// been others in stages of a conflict.
    fn replace(&mut self, path: &[u8], entries: Option<&Vec<Vec<u8>>>, id: IdLength) {
        let zeros = vec![b'0'; id.0];
        self.put(&[b"0 ", &zeros[..]].concat(), path);
        for entry in entries.into_iter().flatten() {
            self.put(entry, path);
            let text = String::from_utf8_lossy(entry);
            let mut parts = text.split(' ');
            if let (Some(mode), Some(id)) = (parts.next(), parts.next())
                && mode != SUBMODULE
            {
                self.objects.insert(id.to_owned());
            }
        }
    }

    fn put(&mut self, entry: &[u8], path: &[u8]) {
        self.lines.extend(entry);
        self.lines.push(b'\t');
        self.lines.extend(path);
        self.lines.push(0);
    }

    /// Changes the repository's index. The new one is prepared at `new`, so that git's
    /// lock is held for one write only: a process that is killed then leaves it behind.
    pub(super) async fn apply(&self, git: &Git, new: &Path) -> Result<Applied, GitError> {
        if self.lines.is_empty() {
            return Ok(Applied::Done);
        }
        let index = git.layout().git_dir.join("index");
        let bytes = self.prepare(git, &index, new).await?;
        let lock = Lock::take(index.with_file_name("index.lock")).await?;
        if stamp(&index) != self.stamp {
            return Ok(Applied::Changed);
        }
        lock.replace(&index, &bytes)?;
        Ok(Applied::Done)
    }

    async fn prepare(&self, git: &Git, index: &Path, new: &Path) -> Result<Vec<u8>, GitError> {
        match read(index, INDEX_LIMIT, Links::Refused) {
            Ok(bytes) => fs::write(new, bytes)?,
            Err(error) if error.is_not_found() => remove_file(new)?,
            Err(error) => return Err(io::Error::other(error).into()),
        }
        // Git leaves it behind when it is killed.
        remove_file(&new.with_extension("new.lock"))?;
        let mut preparing = git.clone();
        preparing.set("GIT_INDEX_FILE", new);
        preparing.told(PUT, &self.lines).await?;
        // So that git need not read the new files once more. The user's own filters are
        // used for that, as with their next `git status`; files that differ are no error.
        preparing.invocation.overrides.clear();
        preparing.hear(REFRESH, &[]).await?;
        Ok(fs::read(new)?)
    }
}

/// Removes a file, if it is there.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn is_submodule(entries: Option<&Vec<Vec<u8>>>) -> bool {
    let mut entries = entries.into_iter().flatten();
    entries.any(|entry| entry.starts_with(SUBMODULE.as_bytes()))
}

/// Reads `MODE ID STAGE TAB PATH NUL`.
fn entries(told: &[u8]) -> Entries {
    let mut entries = Entries::new();
    for record in told.split(|byte| *byte == 0) {
        let Some(tab) = record.iter().position(|byte| *byte == b'\t') else {
            continue;
        };
        if let (Some(entry), Some(path)) = (record.get(..tab), record.get(tab + 1..)) {
            entries
                .entry(path.to_owned())
                .or_default()
                .push(entry.to_owned());
        }
    }
    entries
}

/// The lock by which git's own programs keep each other from the index.
struct Lock {
    path: PathBuf,
    file: fs::File,
}

impl Lock {
    async fn take(path: PathBuf) -> io::Result<Self> {
        let mut attempts = 1;
        loop {
            let made = OpenOptions::new().write(true).create_new(true).open(&path);
            match made {
                Ok(file) => return Ok(Self { path, file }),
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && attempts < ATTEMPTS =>
                {
                    attempts += 1;
                    sleep(PAUSE).await;
                }
                Err(error) => {
                    let what_to_do = match error.kind() {
                        io::ErrorKind::AlreadyExists => {
                            "; if no git works in the repository, one was killed there: remove \
                             the file"
                        }
                        _ => "",
                    };
                    let path = path.display();
                    return Err(io::Error::other(format!(
                        "cannot make {path}: {error}{what_to_do}"
                    )));
                }
            }
        }
    }

    fn replace(mut self, index: &Path, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_all()?;
        fs::rename(&self.path, index)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is not there any more when it has become the index.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: IdLength = IdLength(40);

    fn id(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    fn between(base: &str, theirs: &str, ours: &str) -> Difference {
        let [base, theirs, ours] = [base, theirs, ours].map(|text| entries(text.as_bytes()));
        Difference::between(&base, &theirs, &ours, ID)
    }

    #[test]
    fn only_paths_that_codex_has_changed_are_replaced() {
        let (a, b, c) = (id('a'), id('b'), id('c'));
        let base = format!("100644 {a} 0\tsame\0100644 {a} 0\tgone\0100644 {a} 0\tx y\n\0");
        let theirs = format!(
            "100644 {a} 0\tsame\0100644 {a} 1\tx y\n\0100644 {b} 2\tx y\n\0160000 {c} 0\tsub\0"
        );
        let difference = between(&base, &theirs, &base);
        let zeros = id('0');
        let expected = format!(
            "0 {zeros}\tgone\0\
             0 {zeros}\tsub\0160000 {c} 0\tsub\0\
             0 {zeros}\tx y\n\0100644 {a} 1\tx y\n\0100644 {b} 2\tx y\n\0"
        );
        assert_eq!(String::from_utf8(difference.lines).unwrap(), expected);
        assert_eq!(difference.objects, BTreeSet::from([a, b]));
        assert_eq!(difference.conflicts, 0);
    }

    #[test]
    fn entries_that_the_user_has_staged_stay() {
        let (a, b, c) = (id('a'), id('b'), id('c'));
        let entry = |id: &str, path: &str| format!("100644 {id} 0\t{path}\0");
        let base = entry(&a, "both") + &entry(&a, "mine");
        let theirs = entry(&b, "both") + &entry(&a, "mine") + &entry(&b, "same");
        let ours = entry(&c, "both") + &entry(&c, "mine") + &entry(&c, "new") + &entry(&b, "same");
        let difference = between(&base, &theirs, &ours);
        assert_eq!(difference.lines, b"");
        assert_eq!(difference.conflicts, 1);
    }
}
