//! Copies of pictures for Codex. Codex opens a picture by its name, and by then the file of that
//! name in the repository may have changed.
//!
//! Each wrapper has a directory for copies in the state directory, and removes it at the end. A
//! temporary directory would not do: Codex's commands could put links in place of the copies there.
//! A killed wrapper leaves its directory behind, and the next wrapper removes it; to tell the two
//! apart, each wrapper locks its directory while it runs.
#![expect(
    clippy::disallowed_methods,
    reason = "new files in a directory that is ours alone, and directories opened as such"
)]

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::logic::arguments::Attachment;
use crate::logic::path::PicturePath;
use crate::logic::picture::{BadPicture, BadPictureReason};

/// The prefix of the names of directories.
const PREFIX: &str = "codex-mcp-eyes-";

/// How often a new directory is created if another process removes it at once.
const ATTEMPTS: u32 = 10;

/// The copies of the last pictures for Codex.
#[derive(Debug)]
pub struct Copies {
    /// The directory that contains the directories of all wrappers.
    all: PathBuf,
    directory: LockedDirectory,
    last: Vec<PathBuf>,
    count: u32,
}

/// A private directory and its lock.
#[derive(Debug)]
struct LockedDirectory {
    made: TempDir,
    /// The lock is held while this is open.
    _lock: File,
}

impl Copies {
    /// An empty directory for copies, removed on drop. Removes the directories of killed
    /// wrappers.
    ///
    /// # Errors
    ///
    /// If no directory can be created in `all`, or its path cannot be given to Codex.
    pub fn new(all: PathBuf) -> io::Result<Self> {
        remove_left_behind(&all);
        Ok(Self {
            directory: LockedDirectory::new(&all)?,
            all,
            last: Vec::new(),
            count: 0,
        })
    }

    /// Writes the copy of a picture under its own name, without characters that Codex does
    /// not take.
    ///
    /// # Errors
    ///
    /// [`BadPicture`] if the copy cannot be written.
    pub fn keep(&mut self, path: &PicturePath, bytes: &[u8]) -> Result<Attachment, BadPicture> {
        let unfit = |reason: String| BadPicture {
            path: path.clone(),
            why: BadPictureReason::Unfit(reason),
        };
        self.count += 1;
        let directory = self.directory.path().join(self.count.to_string());
        let name = Path::new(path.as_str()).file_name().unwrap_or_default();
        // Codex takes a name with commas for several files.
        let copy = directory.join(name.to_string_lossy().replace(',', "_"));
        self.last.push(directory.clone());
        write(&directory, &copy, bytes).map_err(|error| unfit(error.to_string()))?;
        Attachment::new(copy.as_os_str()).map_err(|error| unfit(error.to_string()))
    }

    /// Removes all copies, as the Codex that read them has ended. If the directory was removed
    /// meanwhile, a new one is created, as anyone may have put something in its place.
    ///
    /// # Errors
    ///
    /// If they cannot be removed, or no new directory can be created.
    pub fn clear(&mut self) -> io::Result<()> {
        let last = std::mem::take(&mut self.last);
        if !is_ours(self.directory.path()) {
            let gone = std::mem::replace(&mut self.directory, LockedDirectory::new(&self.all)?);
            // The entry that is now at that path is not ours, so it must not be removed.
            let _ = gone.made.keep();
            return Ok(());
        }
        for directory in last {
            match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl LockedDirectory {
    /// A new directory in `all`.
    fn new(all: &Path) -> io::Result<Self> {
        let unfit = |why: &dyn fmt::Display| {
            let all = all.display();
            io::Error::other(format!(
                "no copies of pictures can be kept in {all}: {why}; set XDG_STATE_HOME to \
                 another directory"
            ))
        };
        for _ in 0..ATTEMPTS {
            let made = tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(all)
                // Only the kind is kept: the rest of the error is a random name.
                .map_err(|error| unfit(&error.kind()))?;
            Attachment::new(made.path().as_os_str()).map_err(|error| unfit(&error))?;
            // Until the directory is locked, another wrapper may mistake it for that of a killed
            // wrapper.
            if let Some(lock) = locked(made.path()) {
                return Ok(Self { made, _lock: lock });
            }
        }
        Err(unfit(&"each new directory in it is removed at once"))
    }

    fn path(&self) -> &Path {
        self.made.path()
    }
}

/// Removes the directories of killed wrappers. Failures do no harm.
fn remove_left_behind(all: &Path) {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    for entry in entries {
        let is_one = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes());
        let path = entry.path();
        // The lock is held until the directory is removed.
        if let Some(_lock) = is_one.then(|| locked(&path)).flatten() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Locks a directory of ours that no wrapper holds and that still exists. No link is
/// followed.
fn locked(path: &Path) -> Option<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .ok()?;
    let about = directory.metadata().ok().filter(belongs_to_us)?;
    directory.try_lock().ok()?;
    let now = fs::symlink_metadata(path).ok()?;
    let is_the_same = (now.dev(), now.ino()) == (about.dev(), about.ino());
    is_the_same.then_some(directory)
}

fn is_ours(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|about| belongs_to_us(&about))
}

/// Whether it is a directory in which only we can write.
fn belongs_to_us(about: &Metadata) -> bool {
    about.is_dir() && about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0
}

fn write(directory: &Path, copy: &Path, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(copy)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// In the system's temporary directory.
    fn copies() -> Copies {
        Copies::new(std::env::temp_dir()).unwrap()
    }

    #[test]
    fn copies_keep_the_names_of_pictures_without_commas() {
        let mut copies = copies();
        let root = copies.directory.path().to_owned();
        for (path, copy) in [("a/b c.png", "1/b c.png"), ("a/b,c.png", "2/b_c.png")] {
            let kept = copies.keep(&path.parse().unwrap(), b"bytes").unwrap();
            let copy = root.join(copy);
            assert_eq!(kept, Attachment::new(copy.as_os_str()).unwrap());
            assert_eq!(std::fs::read(copy).unwrap(), b"bytes");
        }
        assert!(root.join("1").exists());
        copies.clear().unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        drop(copies);
        assert!(!root.exists());
    }

    #[test]
    fn copies_are_kept_although_their_directory_is_removed() {
        let mut copies = copies();
        let path = "a.png".parse().unwrap();
        copies.keep(&path, b"one").unwrap();
        fs::remove_dir_all(copies.directory.path().join("1")).unwrap();
        copies.clear().unwrap();
        copies.keep(&path, b"two").unwrap();
        let old = copies.directory.path().to_owned();
        fs::remove_dir_all(&old).unwrap();
        copies.clear().unwrap();
        copies.keep(&path, b"three").unwrap();
        let new = copies.directory.path().to_owned();
        assert_eq!(fs::read(new.join("3/a.png")).unwrap(), b"three");
        assert!(is_ours(&new));
        drop(copies);
        assert!(!old.exists() && !new.exists());
    }

    #[test]
    fn replacement_of_the_directory_is_not_changed() {
        let theirs = tempfile::tempdir().unwrap();
        let open = theirs.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        type Replacement = fn(&Path, &Path);
        let puts: [Replacement; 2] = [
            |open, place| symlink(open, place).unwrap(),
            |open, place| fs::rename(open, place).unwrap(),
        ];
        for put in puts {
            let mut copies = copies();
            let place = copies.directory.path().to_owned();
            fs::remove_dir(&place).unwrap();
            put(&open, &place);
            copies.clear().unwrap();
            copies.keep(&"a.png".parse().unwrap(), b"bytes").unwrap();
            assert_ne!(copies.directory.path(), place);
            drop(copies);
            assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
            fs::remove_file(&place)
                .or_else(|_| fs::remove_dir(&place))
                .unwrap();
        }
    }

    #[test]
    fn unusable_directory_is_named_with_its_variable() {
        let all = tempfile::tempdir().unwrap();
        let gone = all.path().join("gone");
        let comma = all.path().join("a,b");
        fs::create_dir(&comma).unwrap();
        for (unfit, why) in [(gone, "not found"), (comma, "because of its comma")] {
            let told = LockedDirectory::new(&unfit).unwrap_err().to_string();
            let begins = format!("no copies of pictures can be kept in {}: ", unfit.display());
            assert!(told.starts_with(&begins), "{told}");
            assert!(told.contains(why), "{told}");
            assert!(
                told.ends_with("; set XDG_STATE_HOME to another directory"),
                "{told}"
            );
            assert!(!told.contains("at path"), "{told}");
        }
    }

    #[test]
    fn copy_that_cannot_be_written_is_reported() {
        let mut copies = copies();
        std::fs::write(copies.directory.path().join("1"), "").unwrap();
        let error = copies.keep(&"a.png".parse().unwrap(), b"").unwrap_err();
        assert!(matches!(error.why, BadPictureReason::Unfit(_)), "{error}");
    }

    #[test]
    fn directories_of_killed_wrappers_are_removed() {
        let all = tempfile::tempdir().unwrap();
        let place = |name: &str| all.path().join(name);
        let make = |name: &str, mode| DirBuilder::new().mode(mode).create(place(name)).unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();

        make("codex-mcp-eyes-killed", 0o700);
        make("codex-mcp-eyes-killed/1", 0o700);
        fs::write(place("codex-mcp-eyes-killed/1/a.png"), "").unwrap();
        symlink(outside.path(), place("codex-mcp-eyes-killed/link")).unwrap();
        let runs = LockedDirectory::new(all.path()).unwrap();
        symlink(outside.path(), place("codex-mcp-eyes-link")).unwrap();
        fs::write(place("codex-mcp-eyes-file"), "").unwrap();
        make("codex-mcp-eyes-open", 0o755);
        make("another", 0o700);
        nix::unistd::mkfifo(&place("codex-mcp-eyes-pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();

        remove_left_behind(all.path());

        assert!(!place("codex-mcp-eyes-killed").exists());
        for stays in ["link", "file", "open", "pipe"] {
            let path = place(&format!("codex-mcp-eyes-{stays}"));
            assert!(fs::symlink_metadata(path).is_ok(), "{stays}");
        }
        assert!(runs.path().exists() && place("another").exists());
        assert!(outside.path().join("kept").exists());
    }
}
