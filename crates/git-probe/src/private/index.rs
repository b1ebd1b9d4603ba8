//! The index: changes that are staged in the private directory are staged in the repository.
//!
//! The index file itself is not taken over, as it may have extensions of any kind. Its entries are
//! read, and those that differ are put into the repository's own index. This keeps git's cached
//! data about all other entries.
//!
//! The new index is written to a separate file of the run in the git directory, and then linked to
//! `index.lock`. Its stamp is noted before the lock exists, so that the lock of a killed run can be
//! told from the lock of a live git.
//!
//! Source: git-ls-files(1), git-update-index(1) for `--index-info`, api-lockfile of git.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use safe_files::untrusted_file::{Links, read};
use supervise::short_lived::Extent;
use tokio::time::sleep;

use super::{INDEX_LIMIT, remove_file};
use crate::invocation::answered;
use crate::{Git, GitError};

const LIST: &[&str] = &["ls-files", "-z", "--stage"];

const PUT: &[&str] = &["update-index", "-z", "--index-info"];

const REFRESH: &[&str] = &["update-index", "-q", "--refresh"];

/// The same for the paths on stdin.
const REFRESH_SOME: &[&str] = &[
    "--literal-pathspecs",
    "add",
    "--refresh",
    "--pathspec-from-file=-",
    "--pathspec-file-nul",
];

/// Lists the filter of each path on stdin.
const FILTERS: &[&str] = &["check-attr", "-z", "--stdin", "filter"];

/// How long git may take to compare the working tree with a new index (5 s). The comparison only
/// saves work for the next git.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);

/// The paths whose files differ from an index. Git is not run in submodules.
const DIFFERING: &[&str] = &[
    "diff-files",
    "--name-only",
    "-z",
    "--ignore-submodules=dirty",
];

/// The mode of a submodule, whose commit is not in this repository.
const SUBMODULE: &str = "160000";

/// How often the lock of the index is asked for, and the pause between.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// The entries by their paths: mode, object and stage of each.
type Entries = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// A fingerprint that changes when an index is written.
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

/// The changes to make in the repository's index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// The stamp of the repository's index that this was determined from.
    stamp: Option<String>,
    /// The changes, in the format that `git update-index` reads.
    lines: Vec<u8>,
    /// The objects of the new entries.
    pub(super) objects: BTreeSet<String>,
    /// The paths that have become submodules.
    pub(super) submodules: Vec<PathBuf>,
    /// The number of paths that somebody else has staged differently in the meantime. Their entries
    /// stay.
    conflicts: usize,
}

/// The index that the repository is to get, in a separate file. The file is removed when this is
/// dropped.
pub(super) struct NewIndex {
    path: PathBuf,
    index: PathBuf,
    /// The stamp of the index that it was made from.
    base: Option<String>,
}

/// Git's lock on the index; the lock file contains the new index. Released when this is dropped.
pub(super) struct IndexLock {
    /// `None` once it has become the index.
    path: Option<PathBuf>,
    index: PathBuf,
}

/// All entries of the private index, as git lists them.
#[derive(Debug, Default)]
pub(super) struct IndexListing(pub(super) Vec<u8>);

/// The length of an object ID, in hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdLength(pub(super) usize);

impl IndexListing {
    /// The entries of the repository's index.
    pub(super) async fn of_repository(git: &Git) -> Result<Self, GitError> {
        Ok(Self(git.output(LIST, &[]).await?))
    }

    /// The entries of the private index, which is first copied to `copy`. `git` has no objects: it
    /// would read the trees of a sparse index, which can lead to any number of paths.
    pub(super) async fn of_private(
        mut git: Git,
        private: &Path,
        copy: &Path,
    ) -> Result<Self, GitError> {
        match read(&private.join("index"), INDEX_LIMIT, Links::Refused) {
            Ok(bytes) => fs::write(copy, bytes)?,
            Err(error) if error.is_not_found() => return Ok(Self::default()),
            Err(error) => return Err(io::Error::other(error).into()),
        }
        git.set("GIT_INDEX_FILE", copy);
        let output = git.run(LIST, &[]).await?;
        answered(&output)?;
        if output.extent == Extent::Cut {
            return Err(GitError::TooMuch);
        }
        // Git omits what is below a tree that it cannot read, and exits with 0.
        let words = String::from_utf8_lossy(&output.stderr);
        match words.lines().find(|line| line.starts_with("error: ")) {
            Some(line) => {
                let why = format!("git cannot read Codex's index, which may be sparse: {line}");
                Err(io::Error::other(why).into())
            }
            None => Ok(Self(output.stdout)),
        }
    }
}

impl Difference {
    /// The changes of the private index since `base` that the repository's index lacks.
    pub(super) async fn read(
        theirs: &IndexListing,
        base: &IndexListing,
        git: &Git,
        id: IdLength,
    ) -> Result<Self, GitError> {
        let stamp = stamp(&git.layout().git_dir.join("index"));
        let ours = git.output(LIST, &[]).await?;
        let (base, theirs) = (entries(&base.0), entries(&theirs.0));
        Ok(Self {
            stamp,
            ..Self::between(&base, &theirs, &entries(&ours), id)
        })
    }

    /// The warning for the user, if any.
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
                difference.submodules.push(OsStr::from_bytes(path).into());
            }
            match here == old {
                true => difference.replace(path, new, id),
                false => difference.conflicts += 1,
            }
        }
        difference
    }

    /// Removes all entries of a path before adding the new ones: an earlier conflict may have left
    /// entries in several stages.
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
        self.lines.extend(record(entry, path));
    }

    /// Creates the index that the repository is to get; `None` if nothing differs. It is prepared
    /// at `new`, and then written to [`own_index`] of the run.
    pub(super) async fn stage(
        &self,
        git: &Git,
        new: &Path,
        run: &OsStr,
    ) -> Result<Option<NewIndex>, GitError> {
        if self.lines.is_empty() {
            return Ok(None);
        }
        let git_dir = &git.layout().git_dir;
        let index = git_dir.join("index");
        let bytes = self.prepare(git, &index, new).await?;
        let path = own_index(git_dir, run);
        remove_file(&path)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        let staged = NewIndex {
            path,
            index,
            base: self.stamp.clone(),
        };
        file.write_all(&bytes)?;
        file.sync_all()?;
        Ok(Some(staged))
    }

    async fn prepare(&self, git: &Git, index: &Path, new: &Path) -> Result<Vec<u8>, GitError> {
        match read(index, INDEX_LIMIT, Links::Refused) {
            Ok(bytes) => fs::write(new, bytes)?,
            Err(error) if error.is_not_found() => remove_file(new)?,
            Err(error) => return Err(io::Error::other(error).into()),
        }
        remove_lock_of(new)?;
        let mut preparing = git.clone();
        preparing.set("GIT_INDEX_FILE", new);
        preparing.output(PUT, &self.lines).await?;
        // A failure only costs the next git some time.
        let _ = self.refresh(&preparing).await;
        Ok(fs::read(new)?)
    }

    /// Lets git note which of the new files equal their entries in the index, so that it need not
    /// read them again. Files with a filter are left to the user's next git: a filter may run code
    /// that Codex has written.
    async fn refresh(&self, git: &Git) -> Result<(), GitError> {
        let git = without_haste(git);
        // The first entry of each path removes the old ones.
        let entries = entries(&self.lines).into_iter();
        let put = entries.filter(|(_, entries)| entries.len() > 1);
        let put: Vec<Vec<u8>> = put.map(|(path, _)| path).collect();
        let filtered = filtered(&git, &put).await?;
        let plain = put.into_iter().filter(|path| !filtered.contains(path));
        let plain: Vec<Vec<u8>> = plain.collect();
        match plain.is_empty() {
            true => Ok(()),
            false => git.output(REFRESH_SOME, &joined(&plain)).await.map(drop),
        }
    }
}

/// Git for comparisons with the working tree, which may be slow.
fn without_haste(git: &Git) -> Git {
    let mut git = git.with_timeout(REFRESH_TIMEOUT);
    // A slow comparison is no reason to shorten other questions.
    git.invocation.has_timed_out = None;
    git
}

/// The paths among these that have a filter.
async fn filtered(git: &Git, paths: &[Vec<u8>]) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let output = git.output(FILTERS, &joined(paths)).await?;
    let fields: Vec<&[u8]> = output.split(|byte| *byte == 0).collect();
    // PATH NUL ATTRIBUTE NUL VALUE NUL
    let filtered = fields.chunks_exact(3).filter_map(|fields| match fields {
        [_, _, b"unspecified" | b"unset"] => None,
        [path, ..] => Some(path.to_vec()),
        [] => None,
    });
    Ok(filtered.collect())
}

/// Paths in the format in which git reads them from stdin.
fn joined(paths: &[Vec<u8>]) -> Vec<u8> {
    let terminated = paths.iter().flat_map(|path| [&path[..], b"\0"]);
    terminated.collect::<Vec<_>>().concat()
}

/// Whether the working tree still matches `theirs`, for the paths in which `theirs` differs from
/// `base`. A separate index for the comparison is created at `compared`: the private index may have
/// flags and times with which Codex hides changes from git. A file with a filter counts as
/// different, as the filter may run code that Codex has written.
pub(super) async fn has_working_tree(
    git: &Git,
    compared: &Path,
    base: &IndexListing,
    theirs: &IndexListing,
) -> Result<bool, GitError> {
    let (base, theirs) = (entries(&base.0), entries(&theirs.0));
    let paths = theirs.keys().chain(base.keys());
    let changed: BTreeSet<&Vec<u8>> = paths
        .filter(|path| base.get(*path) != theirs.get(*path))
        .collect();
    let records = changed.iter().flat_map(|path| {
        let entries = theirs.get(*path).into_iter().flatten();
        entries.flat_map(move |entry| record(entry, path))
    });
    let records: Vec<u8> = records.collect();
    remove_file(compared)?;
    remove_lock_of(compared)?;
    let mut git = git.clone();
    git.set("GIT_INDEX_FILE", compared);
    git.output(PUT, &records).await?;
    // Git treats each file as changed until it has read it.
    let _ = without_haste(&git).run(REFRESH, &[]).await;
    let output = git.output(DIFFERING, &[]).await?;
    let differing: BTreeSet<&[u8]> = output.split(|byte| *byte == 0).collect();
    let there = changed.iter().filter(|path| theirs.contains_key(**path));
    let there: Vec<Vec<u8>> = there.map(|path| path.to_vec()).collect();
    if !filtered(&git, &there).await?.is_empty() {
        return Ok(false);
    }
    let is_there = |path: &[u8]| {
        let path = git.root().join(OsStr::from_bytes(path));
        path.symlink_metadata().is_ok()
    };
    Ok(changed.into_iter().all(|path| match theirs.get(path) {
        Some(_) => !differing.contains(&path[..]),
        None => !is_there(path),
    }))
}

/// Removes the lock that a killed git has left next to one of our own indexes.
fn remove_lock_of(index: &Path) -> io::Result<()> {
    let mut lock = index.as_os_str().to_owned();
    lock.push(".lock");
    remove_file(Path::new(&lock))
}

/// The path for the new index of the repository.
fn own_index(git_dir: &Path, run: &OsStr) -> PathBuf {
    let mut name = OsStr::new("codex-mcp-index-").to_owned();
    name.push(run);
    git_dir.join(name)
}

/// Removes the files of a run of this name that was killed while it replaced the index. `of_lock`
/// is the stamp of its new index.
pub(super) fn remove_stale_lock(git_dir: &Path, run: &OsStr, of_lock: &str) -> io::Result<()> {
    remove_file(&own_index(git_dir, run))?;
    let lock = git_dir.join("index.lock");
    match stamp(&lock).as_deref() == Some(of_lock) {
        true => remove_file(&lock),
        false => Ok(()),
    }
}

fn is_submodule(entries: Option<&Vec<Vec<u8>>>) -> bool {
    let mut entries = entries.into_iter().flatten();
    entries.any(|entry| entry.starts_with(SUBMODULE.as_bytes()))
}

/// An entry as git lists and reads it: `MODE ID STAGE TAB PATH NUL`.
fn record(entry: &[u8], path: &[u8]) -> Vec<u8> {
    [entry, b"\t", path, b"\0"].concat()
}

/// Reads what [`record`] writes.
pub(crate) fn entries(output: &[u8]) -> Entries {
    let mut entries = Entries::new();
    for record in output.split(|byte| *byte == 0) {
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

impl NewIndex {
    /// The stamp that the lock will have; it is known before the lock exists.
    pub(super) fn stamp(&self) -> Option<String> {
        stamp(&self.path)
    }

    /// Takes the lock by which git processes exclude each other from the index; `None` if one of
    /// them has changed the index first.
    ///
    /// # Errors
    ///
    /// Those of the file system. If another process has held the lock for 2 s, the error names the
    /// remedy.
    pub(super) async fn lock(self) -> io::Result<Option<IndexLock>> {
        let path = self.index.with_file_name("index.lock");
        let mut attempts = 1;
        while let Err(error) = self.link(&path) {
            let is_busy = error.kind() == ErrorKind::AlreadyExists;
            if !is_busy || attempts == ATTEMPTS {
                let what_to_do = match is_busy {
                    true => {
                        "; if no git works in the repository, one was killed there: remove the \
                         file"
                    }
                    false => "",
                };
                let path = path.display();
                let why = format!("cannot make {path}: {error}{what_to_do}");
                return Err(io::Error::other(why));
            }
            attempts += 1;
            sleep(PAUSE).await;
        }
        let lock = IndexLock {
            path: Some(path),
            index: self.index.clone(),
        };
        Ok((stamp(&self.index) == self.base).then_some(lock))
    }

    /// Makes the new index appear at `path`, where no file may exist yet.
    fn link(&self, path: &Path) -> io::Result<()> {
        match fs::hard_link(&self.path, path) {
            // The file system has no hard links.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::Unsupported
                ) =>
            {
                OpenOptions::new().write(true).create_new(true).open(path)?;
                fs::rename(&self.path, path)
            }
            linked => linked,
        }
    }
}

impl Drop for NewIndex {
    fn drop(&mut self) {
        // The next takeover of the run removes it.
        let _ = remove_file(&self.path);
    }
}

impl IndexLock {
    /// Puts the new index in place of the old one.
    pub(super) fn publish(mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            fs::rename(path, &self.index)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A failure is ignored: if the file is in the way, git names it.
            let _ = fs::remove_file(path);
        }
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

    fn new_index(git_dir: &Path) -> NewIndex {
        let new = NewIndex {
            path: own_index(git_dir, OsStr::new("run")),
            index: git_dir.join("index"),
            base: None,
        };
        fs::write(&new.path, "new").unwrap();
        new
    }

    #[tokio::test]
    async fn index_lock_of_a_killed_run_is_recognized() {
        let directory = tempfile::tempdir().unwrap();
        let git_dir = directory.path();
        let lock = git_dir.join("index.lock");
        let new = new_index(git_dir);
        let noted = new.stamp().unwrap();
        let held = new.lock().await.unwrap().unwrap();
        assert_eq!(stamp(&lock).as_deref(), Some(&noted[..]));
        std::mem::forget(held);
        remove_stale_lock(git_dir, OsStr::new("run"), &noted).unwrap();
        assert!(!lock.exists());
        fs::write(&lock, "of git").unwrap();
        remove_stale_lock(git_dir, OsStr::new("run"), &noted).unwrap();
        assert!(lock.exists(), "it is not that of the run");
    }

    #[tokio::test(start_paused = true)]
    async fn held_lock_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("index.lock");
        fs::write(&lock, "").unwrap();
        let Err(refused) = new_index(directory.path()).lock().await else {
            panic!("the lock was taken");
        };
        assert!(refused.to_string().contains("remove the file"), "{refused}");
        assert!(lock.exists());
        fs::remove_file(&lock).unwrap();
        let held = new_index(directory.path()).lock().await.unwrap().unwrap();
        held.publish().unwrap();
        assert!(!lock.exists());
        assert_eq!(fs::read(directory.path().join("index")).unwrap(), b"new");
        let changed = new_index(directory.path()).lock().await.unwrap();
        assert!(changed.is_none(), "the index is another one");
        assert!(!lock.exists());
    }
}
