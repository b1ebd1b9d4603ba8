//! Transfers objects from a private git directory into the repository.
//!
//! Only files with the names of objects and packs are taken, into a quarantine that Codex cannot
//! write to. From there, git fetches into the repository's objects, and checks each object on the
//! way (`fetch.fsckObjects`). Neither side has a configuration that anybody else has written.
//!
//! Source: git-fetch(1), gitrepository-layout(5).

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use safe_files::state_directory::make_directory;
use safe_files::untrusted_file::{Links, read};
use supervise::io_thread::IoThread;

use super::refs::Refs;
use super::remove::remove_tree;
use super::{LOG_LIMIT, unfit};
use crate::setting::Setting;
use crate::view::in_file;
use crate::{Git, GitError, Layout};

/// The most object files that are taken at once.
const FILES_LIMIT: usize = 1_000_000;

/// The prefix of the quarantine's refs for wanted objects.
const WANTED: &str = "refs/wanted";

/// The reflog that has the stashes, in a git directory.
const STASH_LOG: &str = "logs/refs/stash";

const FETCH: &[&str] = &[
    "-c",
    "fetch.fsckObjects=true",
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
];

/// Settings that decide the form of objects.
const FORMAT: [&str; 4] = [
    "core.sharedrepository",
    "core.repositoryformatversion",
    "extensions.objectformat",
    "extensions.compatobjectformat",
];

/// The directories of one transfer: they are created for it, and removed after it.
pub(super) struct Transfer {
    git: Git,
    directory: PathBuf,
    /// Removes the directories.
    io_thread: IoThread,
}

impl Transfer {
    /// Creates a transfer below the directory of a run.
    pub(super) fn new(git: &Git, run: &Path, io_thread: &IoThread) -> io::Result<Self> {
        let directory = run.join("transfer");
        remove_tree(&directory)?;
        make_directory(&directory)?;
        Ok(Self {
            git: git.clone(),
            directory,
            io_thread: io_thread.clone(),
        })
    }

    /// Git in a directory without objects.
    pub(super) fn without_objects(&self) -> Result<Git, GitError> {
        let path = self.begin("empty").map_err(GitError::View)?;
        make_directory(&path.join("objects")).map_err(GitError::View)?;
        Ok(self.git_in("empty"))
    }

    /// Creates a git directory at `target` with the private directory's refs and objects, and
    /// without files that name programs. Replaces an older copy.
    pub(super) fn copy(&self, private: &Path, target: &Path) -> io::Result<PathBuf> {
        self.fill_quarantine(private)?;
        let copy = self.directory.join("quarantine");
        let refs = Refs::all_of_directory(private)?;
        fs::write(copy.join("packed-refs"), refs.packed())?;
        if refs.head().is_some() {
            fs::write(copy.join("HEAD"), &refs.head)?;
        }
        let mut config = fs::read(copy.join("config"))?;
        config.extend(b"[core]\n\tbare = true\n");
        fs::write(copy.join("config"), config)?;
        // Older stashes are entries of the reflog.
        match read(&private.join(STASH_LOG), LOG_LIMIT, Links::Refused) {
            Ok(log) => {
                make_directory(&copy.join("logs/refs"))?;
                fs::write(copy.join(STASH_LOG), log)?;
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(io::Error::other(error)),
        }
        remove_tree(target)?;
        fs::rename(&copy, target)?;
        Ok(target.to_owned())
    }

    /// Transfers objects, and all objects that they lead to, into the repository. `known` are refs
    /// of the repository.
    pub(super) async fn bring(
        &self,
        wanted: &BTreeSet<&str>,
        known: &Refs,
    ) -> Result<(), GitError> {
        if wanted.is_empty() {
            return Ok(());
        }
        self.fill_receiver(wanted, known).map_err(GitError::View)?;
        let mut git = self.git_in("receiver");
        // Even if git takes the path for an address, it can only read files.
        git.set("GIT_ALLOW_PROTOCOL", "file");
        let source = self.directory.join("quarantine").into_os_string();
        let refspec = format!("+{WANTED}/*:{WANTED}/*").into();
        let fetch = FETCH.iter().map(Into::into);
        let question: Vec<_> = fetch.chain([source, refspec]).collect();
        git.output(&question, &[]).await.map(drop)
    }

    /// Takes the private directory's objects into the quarantine.
    pub(super) fn fill_quarantine(&self, private: &Path) -> io::Result<()> {
        let path = self.begin("quarantine")?;
        let objects = path.join("objects");
        for name in ["info", "pack"] {
            make_directory(&objects.join(name))?;
        }
        fs::write(
            objects.join("info/alternates"),
            alternate(self.git.layout())?,
        )?;
        let mut left = FILES_LIMIT;
        let theirs = private.join("objects");
        if theirs.is_symlink() || theirs.join("pack").is_symlink() {
            return Err(io::Error::other("objects is a symbolic link"));
        }
        for entry in fs::read_dir(&theirs)? {
            let entry = entry?;
            let name = entry.file_name();
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let Some(name) = name.to_str().filter(|name| is_fan_out(name)) else {
                continue;
            };
            make_directory(&objects.join(name))?;
            take(
                &theirs.join(name),
                &objects.join(name),
                is_object,
                &mut left,
            )?;
        }
        take(
            &theirs.join("pack"),
            &objects.join("pack"),
            is_pack,
            &mut left,
        )
    }

    fn fill_receiver(&self, wanted: &BTreeSet<&str>, known: &Refs) -> io::Result<()> {
        let path = self.begin("receiver")?;
        let common = &self.git.layout().common_dir;
        symlink(common.join("objects"), path.join("objects"))?;
        fs::write(path.join("packed-refs"), known.packed())?;
        let names = (0..).zip(wanted);
        let names = names.map(|(number, id)| format!("{id} {WANTED}/{number:08}\n"));
        let packed = format!("# pack-refs with: sorted \n{}", names.collect::<String>());
        fs::write(self.directory.join("quarantine/packed-refs"), packed)
    }

    /// Creates a bare git directory without contents.
    fn begin(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.directory.join(name);
        make_directory(&path.join("refs"))?;
        fs::write(path.join("HEAD"), "ref: refs/heads/none\n")?;
        let format = |one: &&Setting| FORMAT.iter().any(|key| one.key == *key);
        fs::write(
            path.join("config"),
            in_file(self.git.settings.iter().filter(format)),
        )?;
        let shallow = self.git.layout().common_dir.join("shallow");
        if shallow.is_file() {
            symlink(shallow, path.join("shallow"))?;
        }
        Ok(path)
    }

    fn git_in(&self, name: &str) -> Git {
        let mut git = self.git.clone();
        git.invocation.forget_repository();
        git.invocation.cwd = self.directory.clone();
        git.set("GIT_DIR", self.directory.join(name));
        for name in ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"] {
            git.set(name, "/dev/null");
        }
        git
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let directory = self.directory.clone();
        self.io_thread.submit(move || {
            // A failure is ignored: the next transfer removes the remaining files.
            let _ = remove_tree(&directory);
        });
    }
}

/// The line that borrows a repository's objects.
pub(super) fn alternate(layout: &Layout) -> io::Result<Vec<u8>> {
    let objects = layout.common_dir.join("objects");
    let path = objects.as_os_str().as_bytes();
    match path.contains(&b'\n') || path.starts_with(b"\"") || path.starts_with(b"#") {
        true => Err(unfit(&objects)),
        false => Ok([path, b"\n"].concat()),
    }
}

/// Takes the regular files with wanted names, by hard links. Their contents may still change, but
/// git checks them when it reads them.
fn take(from: &Path, to: &Path, is_wanted: fn(&str) -> bool, left: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let wanted = name.to_str().is_some_and(is_wanted);
        if !wanted || !entry.file_type()?.is_file() {
            continue;
        }
        *left = left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("there are too many objects"))?;
        let target = to.join(&name);
        fs::hard_link(entry.path(), &target)?;
        // It may have been replaced by a link in between.
        if !fs::symlink_metadata(&target)?.is_file() {
            fs::remove_file(&target)?;
        }
    }
    Ok(())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_fan_out(name: &str) -> bool {
    name.len() == 2 && is_hex(name)
}

fn is_object(name: &str) -> bool {
    matches!(name.len(), 38 | 62) && is_hex(name)
}

fn is_pack(name: &str) -> bool {
    let Some((stem, ending)) = name.rsplit_once('.') else {
        return false;
    };
    let id = stem.strip_prefix("pack-").unwrap_or_default();
    matches!(ending, "pack" | "idx") && matches!(id.len(), 40 | 64) && is_hex(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_packs_are_copied_and_nothing_else() {
        let id = "0123456789012345678901234567890123456789";
        assert!(is_object(&id[2..]) && !is_object(id) && !is_object("../x"));
        assert!(is_fan_out("0a") && !is_fan_out("..") && !is_fan_out("info"));
        assert!(is_pack(&format!("pack-{id}.pack")) && is_pack(&format!("pack-{id}.idx")));
        for name in ["multi-pack-index", "pack-x.pack", "alternates"] {
            assert!(!is_pack(name), "{name}");
        }
        assert!(!is_pack(&format!("pack-{id}.promisor")));
    }
}
