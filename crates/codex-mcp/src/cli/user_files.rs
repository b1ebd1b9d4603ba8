//! Files that a verb puts into the user's data directory, such as manual pages, and removes again.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::output;
use safe_files::untrusted_file::{self, Links, ReadError};

use super::stored::Failure;
use crate::environment::user_directory;

/// The longest such file, in bytes.
const LIMIT: u64 = 4 * 1024 * 1024;

/// A file and the text that it should contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UserFile {
    pub(super) path: PathBuf,
    pub(super) text: Vec<u8>,
    /// A text that the file contains in each version of this program, and that no file of another
    /// program contains.
    pub(super) mark: &'static str,
}

/// The change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Made,
    None,
}

/// A directory of the user by the XDG Base Directory Specification: a variable that names an
/// absolute path, or else a directory below the home directory.
///
/// # Errors
///
/// If there is no home directory either.
pub(super) fn xdg_directory(name: &str, below_home: &str) -> Result<PathBuf, Failure> {
    user_directory(name, below_home)
        .ok_or_else(|| Failure::Missing(format!("neither {name} nor HOME is set; set one of them")))
}

/// Writes the files whose text differs, and prints their paths. `what` names the kind of file in
/// the message.
///
/// # Errors
///
/// The first file that cannot be written, or was not written by this program. The files before it
/// stay written.
pub(super) fn install(files: &[UserFile], what: &str) -> Result<ExitCode, Failure> {
    report(files, what, ["installed", "up to date"], UserFile::write)
}

/// Removes the files, and prints their paths.
///
/// # Errors
///
/// The first file that cannot be removed, or was not written by this program.
pub(super) fn remove(files: &[UserFile], what: &str) -> Result<ExitCode, Failure> {
    report(files, what, ["removed", "not there"], UserFile::remove)
}

fn report(
    files: &[UserFile],
    what: &str,
    [done, nothing]: [&str; 2],
    act: impl Fn(&UserFile) -> Result<Change, Failure>,
) -> Result<ExitCode, Failure> {
    let mut out = output::stdout();
    let mut changed = 0;
    for file in files {
        if act(file)? == Change::Made {
            changed += 1;
            writeln!(out, "{done}: {}", file.path.display())?;
        }
    }
    if changed == 0 {
        let directory = files.first().and_then(|file| file.path.parent());
        let directory = directory.unwrap_or(Path::new("")).display();
        writeln!(out, "{nothing}: {} {what} in {directory}", files.len())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl UserFile {
    /// Whether a version of this program has written the file.
    pub(super) fn is_installed(&self) -> bool {
        self.old("read").is_ok_and(|old| old.is_some())
    }

    /// The present content of the file, if a version of this program has written it.
    fn old(&self, act: &str) -> Result<Option<Vec<u8>>, Failure> {
        match untrusted_file::read(&self.path, LIMIT, Links::Followed) {
            Ok(old) if String::from_utf8_lossy(&old).contains(self.mark) => Ok(Some(old)),
            Ok(_) => Err(Failure::Missing(format!(
                "cannot {act} {}: codex-mcp has not written it. Move it away if you do not need it",
                self.path.display()
            ))),
            // If nothing can be there, the attempt to write says why.
            Err(ReadError::Io { error, .. })
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(self.failure(act, &io::Error::other(error))),
        }
    }

    fn write(&self) -> Result<Change, Failure> {
        let old = self.old("write")?;
        if old.is_some_and(|old| old == self.text) {
            return Ok(Change::None);
        }
        let replaced = self.replace();
        replaced.map_err(|error| self.failure("write", &error))
    }

    /// Writes the text to a new file in the same directory, which then takes the place of the old
    /// one: nobody reads half a file, and a failure leaves the old one. If a link leads to the
    /// file, the link stays.
    fn replace(&self) -> io::Result<Change> {
        let path = self
            .path
            .canonicalize()
            .unwrap_or_else(|_| self.path.clone());
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory)?;
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(&self.text)?;
        file.as_file()
            .set_permissions(Permissions::from_mode(0o644))?;
        file.persist(&path).map_err(|failed| failed.error)?;
        Ok(Change::Made)
    }

    fn remove(&self) -> Result<Change, Failure> {
        self.old("remove")?;
        let removed = self.remove_own();
        removed.map_err(|error| self.failure("remove", &error))
    }

    /// Where a link leads to the file, both are removed.
    fn remove_own(&self) -> io::Result<Change> {
        let target = self.path.canonicalize();
        let change = remove_if_there(&self.path)?;
        if let Ok(target) = target {
            remove_if_there(&target)?;
        }
        Ok(change)
    }

    fn failure(&self, act: &str, error: &io::Error) -> Failure {
        let path = self.path.display();
        Failure::Missing(format!(
            "cannot {act} {path}: {error}. Give this user the right to write there, or choose \
             another directory with the variable that the help names"
        ))
    }
}

fn remove_if_there(path: &Path) -> io::Result<Change> {
    match fs::remove_file(path) {
        Ok(()) => Ok(Change::Made),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Change::None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn file_is_written_once_and_removed_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = UserFile {
            path: directory.path().join("share/man/a.1"),
            text: b"ours: text".to_vec(),
            mark: "ours",
        };
        assert_eq!(file.write().unwrap(), Change::Made);
        assert_eq!(file.write().unwrap(), Change::None);
        let changed = UserFile {
            text: b"ours: other".to_vec(),
            ..file.clone()
        };
        assert_eq!(changed.write().unwrap(), Change::Made);
        assert_eq!(fs::read(&file.path).unwrap(), b"ours: other");
        let mode = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        let left = fs::read_dir(file.path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1);
        assert_eq!(file.remove().unwrap(), Change::Made);
        assert_eq!(file.remove().unwrap(), Change::None);
    }

    #[test]
    fn link_stays_and_its_target_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        let link = directory.path().join("link");
        fs::write(&target, "ours: old").unwrap();
        symlink(&target, &link).unwrap();
        let file = UserFile {
            path: link.clone(),
            text: b"ours: new".to_vec(),
            mark: "ours",
        };
        assert_eq!(file.write().unwrap(), Change::Made);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"ours: new");
        assert_eq!(file.remove().unwrap(), Change::Made);
        assert!(!target.exists() && fs::symlink_metadata(&link).is_err());
    }
}
