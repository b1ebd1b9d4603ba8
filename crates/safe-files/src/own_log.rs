//! The log of a background process: a file on its stderr, whose size is bounded while it runs.
#![expect(
    clippy::disallowed_methods,
    reason = "stderr is not written to here, but put into another file"
)]

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::dup2_stderr;

use crate::state_file::{FileError, about, open_to_append};

/// A file that is this process's log.
#[derive(Debug, Clone)]
pub struct OwnLog {
    path: PathBuf,
    limit: u64,
}

impl OwnLog {
    /// The log, if stderr is this file. It is set aside when it is longer than `limit` bytes.
    #[must_use]
    pub fn on_stderr(path: PathBuf, limit: u64) -> Option<Self> {
        let named = fs::symlink_metadata(&path).ok()?;
        is_stderr(&named).then_some(Self { path, limit })
    }

    /// Sets a log aside that is too long, in the place of an older one, and continues in a new file.
    /// So does a process whose log another one has set aside: workers of several stores share one.
    ///
    /// # Errors
    ///
    /// When the file cannot be renamed or opened; the log then continues where it was.
    pub fn bound(&self) -> Result<(), FileError> {
        match fs::symlink_metadata(&self.path) {
            Ok(named) if is_stderr(&named) && named.len() <= self.limit => return Ok(()),
            Ok(named) if is_stderr(&named) => {
                fs::rename(&self.path, older(&self.path)).map_err(about(&self.path))?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(about(&self.path)(error)),
        }
        let new = open_to_append(&self.path)?;
        dup2_stderr(&new).map_err(|error| about(&self.path)(error.into()))
    }
}

/// Whether stderr is a file, which has a name.
fn is_stderr(named: &Metadata) -> bool {
    let opened = io::stderr().as_fd().try_clone_to_owned();
    let Ok(opened) = opened.and_then(|stderr| File::from(stderr).metadata()) else {
        return false;
    };
    (opened.dev(), opened.ino()) == (named.dev(), named.ino())
}

/// `worker.log.1` beside `worker.log`.
fn older(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::Write;
    use std::process::Command;

    use super::*;

    /// Of 9 bytes each.
    const LINES: usize = 250;
    const LIMIT: u64 = 990;
    const VARIABLE: &str = "TEST_LOG";

    #[test]
    #[ignore = "a process of its own, whose log the test below reads"]
    fn process_with_a_log() {
        let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) else {
            return;
        };
        let other = OwnLog::on_stderr(path.with_extension("other"), LIMIT);
        assert!(other.is_none());
        let log = OwnLog::on_stderr(path, LIMIT).unwrap();
        for number in 0..LINES {
            writeln!(io::stderr(), "line {number:03}").unwrap();
            log.bound().unwrap();
        }
    }

    #[test]
    fn full_log_is_set_aside_while_its_process_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("worker.log");
        let child = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact", "own_log::tests::process_with_a_log"])
            .env(VARIABLE, &path)
            .stderr(File::create(&path).unwrap())
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");

        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let (older, newer) = (read(&older(&path)), read(&path));
        // The 111th line of a file is the one that is too much.
        assert_eq!((older.len(), newer.len()), (111 * 9, 28 * 9));
        assert!(older.ends_with("line 221\n") && newer.ends_with("line 249\n"));
    }
}
