//! The configuration files themselves: where they are, read, and replaced.
#![expect(
    clippy::disallowed_methods,
    reason = "a new file is opened beside the user's, which fails if there is anything of its name"
)]

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use safe_files::state_file::{sync_directory, with_suffix};
use safe_files::untrusted_file::{self, Links, ReadError};

/// The longest file that is edited, in bytes. Claude Code's grows with each project.
pub(crate) const LIMIT: u64 = 16 << 20;

/// The mode of a new file: clients keep credentials in the same files.
const NEW_FILE: u32 = 0o600;

/// Why a configuration file is not read or replaced.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The system refuses.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A link leads out of the repository, and whoever wrote the repository chose where to.
    #[error("{} leads out of the repository; remove the link", .0.display())]
    Outside(PathBuf),
    /// The user may not write to it.
    #[error("{} is read-only; make it writable, or add the entry by hand", .0.display())]
    ReadOnly(PathBuf),
    /// Another program has changed it since it was read.
    #[error("{} has changed since it was read; try again", .0.display())]
    Changed(PathBuf),
}

fn about(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError::Io { path, error }
}

/// Whose configuration file it is, and so whether links are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    User,
    /// The repository with this top.
    Repository(PathBuf),
}

/// A configuration file as it was read.
#[derive(Debug)]
pub struct ConfigFile {
    owner: Owner,
    path: PathBuf,
    /// Where links lead: they stay, and their target is replaced.
    target: PathBuf,
    /// `None` if there is no such file.
    text: Option<String>,
}

impl ConfigFile {
    /// Reads a file of the user's. Links are followed: users keep such files in a repository of
    /// their own.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn of_user(path: &Path) -> Result<Self, FileError> {
        Self::read(Owner::User, path)
    }

    /// Reads a file of a repository, whose top is given.
    ///
    /// # Errors
    ///
    /// [`FileError`], also if a link leads to the file.
    pub fn of_repository(top: &Path, file: &str) -> Result<Self, FileError> {
        let top = fs::canonicalize(top).map_err(about(top))?;
        let path = top.join(file);
        Self::read(Owner::Repository(top), &path)
    }

    /// Reads the file once more.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn again(&self) -> Result<Self, FileError> {
        Self::read(self.owner.clone(), &self.path)
    }

    fn read(owner: Owner, path: &Path) -> Result<Self, FileError> {
        let target = match &owner {
            Owner::User => target(path)?,
            Owner::Repository(top) => {
                refuse_links(top, path)?;
                path.to_owned()
            }
        };
        let text = match untrusted_file::read_text(&target, LIMIT, Links::Refused) {
            Ok(text) => Some(text),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            owner,
            path: path.to_owned(),
            target,
            text,
        })
    }

    /// The path by which the client knows it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its text; `None` if there is no such file.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Replaces the file atomically, and keeps its mode.
    ///
    /// # Errors
    ///
    /// [`FileError`], also if another program has changed the file since it was read. The file is
    /// as it was then.
    pub fn replace(&self, after: &str) -> Result<(), FileError> {
        self.check_unchanged()?;
        let mode = match fs::metadata(&self.target) {
            Ok(about) if about.permissions().readonly() => {
                return Err(FileError::ReadOnly(self.target.clone()));
            }
            Ok(about) => about.mode() & 0o777,
            Err(_) => NEW_FILE,
        };
        if let Some(directory) = self.target.parent() {
            fs::create_dir_all(directory).map_err(about(directory))?;
        }
        let new = with_suffix(&self.target, &format!(".codex-mcp-{}", std::process::id()));
        let written = write_new(&new, after, mode).and_then(|()| fs::rename(&new, &self.target));
        written.map_err(|error| {
            // On a full disk it takes up room.
            let _ = fs::remove_file(&new);
            about(&self.target)(error)
        })?;
        sync_directory(&self.target).map_err(|error| FileError::Io {
            path: self.target.clone(),
            error: io::Error::other(error),
        })
    }

    /// Removes the file, which did not exist before an entry was added.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn remove(&self) -> Result<(), FileError> {
        self.check_unchanged()?;
        fs::remove_file(&self.target).map_err(about(&self.target))
    }

    fn check_unchanged(&self) -> Result<(), FileError> {
        let now = self.again()?;
        match (&now.target, &now.text) == (&self.target, &self.text) {
            true => Ok(()),
            false => Err(FileError::Changed(self.path.clone())),
        }
    }
}

/// Where links lead; the path itself if there is no such file.
fn target(path: &Path) -> Result<PathBuf, FileError> {
    match fs::canonicalize(path) {
        Ok(target) => Ok(target),
        // A link without a target would be replaced by a file.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() =>
        {
            Ok(path.to_owned())
        }
        Err(error) => Err(about(path)(error)),
    }
}

fn refuse_links(top: &Path, path: &Path) -> Result<(), FileError> {
    let below = path.ancestors().take_while(|ancestor| *ancestor != top);
    for part in below {
        if fs::symlink_metadata(part).is_ok_and(|about| about.is_symlink()) {
            return Err(FileError::Outside(part.to_owned()));
        }
    }
    Ok(())
}

fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn file_is_replaced_and_keeps_its_mode_and_its_link() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (
            directory.path().join("real.json"),
            directory.path().join("link.json"),
        );
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &link).unwrap();
        let file = ConfigFile::of_user(&link).unwrap();
        assert_eq!(file.text(), Some("old"));
        file.replace("new").unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn new_file_is_for_the_user_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/new.json");
        let file = ConfigFile::of_user(&path).unwrap();
        assert_eq!(file.text(), None);
        file.replace("x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn change_by_another_program_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.json");
        fs::write(&path, "first").unwrap();
        let file = ConfigFile::of_user(&path).unwrap();
        fs::write(&path, "second").unwrap();
        assert!(matches!(file.replace("ours"), Err(FileError::Changed(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    }

    #[test]
    fn link_of_a_repository_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (top, secret) = (
            directory.path().join("repository"),
            directory.path().join("bashrc"),
        );
        fs::create_dir(&top).unwrap();
        fs::write(&secret, "mine").unwrap();
        symlink(&secret, top.join(".mcp.json")).unwrap();
        symlink(directory.path(), top.join(".cursor")).unwrap();
        for file in [".mcp.json", ".cursor/bashrc", ".cursor/mcp.json"] {
            let refused = ConfigFile::of_repository(&top, file);
            assert!(matches!(refused, Err(FileError::Outside(_))), "{refused:?}");
        }
        // As a control: the user's own links are followed.
        let followed = ConfigFile::of_user(&top.join(".mcp.json")).unwrap();
        assert_eq!(followed.text(), Some("mine"));
    }

    #[test]
    fn strange_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("bytes"), [0xff, 0xfe]).unwrap();
        symlink(path("nothing"), path("dangling")).unwrap();
        fs::write(path("read-only"), "x").unwrap();
        fs::set_permissions(path("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
        for name in ["directory", "bytes", "dangling"] {
            let refused = ConfigFile::of_user(&path(name));
            assert!(refused.is_err(), "{name}: {refused:?}");
        }
        let file = ConfigFile::of_user(&path("read-only")).unwrap();
        assert!(matches!(file.replace("y"), Err(FileError::ReadOnly(_))));
        assert_eq!(fs::read_to_string(path("read-only")).unwrap(), "x");
    }
}
