//! Removes the mount targets that killed sandboxes of Codex leave in directories.
//!
//! Where a path that the sandbox protects is missing, Codex creates an empty directory as a mount
//! target, and removes it when the command has ended. Codex notes each user of such a directory in
//! `TMPDIR/codex-bwrap-synthetic-mount-targets-UID/…/PID`, even of a directory that existed before.
//! While it does so, it holds the lock file `lock` in the same register (0.153.4 and 0.169.0). A
//! killed command leaves both the directory and the note behind.
//!
//! Removing the mount target of a running sandbox would remove the protection of the path. So
//! nothing is removed while any noted sandbox runs, and the lock keeps new ones from starting
//! meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Pid;
use rustix::process::geteuid;
use safe_files::untrusted_file::{self, Links};
use supervise::descendants::is_any_running;

/// The number of attempts to get the lock that Codex holds while it notes a sandbox, and
/// the pause between them.
const ATTEMPTS: u32 = 20;
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// The most paths that are noted.
const NOTED: usize = 10_000;

/// The paths that Codex protects below a directory that commands may write to.
const PROTECTED: [&str; 4] = [".agents", ".aws", ".codex", ".git"];

/// The paths below directories that may become mount targets.
#[derive(Debug, Clone, Default)]
pub(super) struct MountTargets(BTreeSet<PathBuf>);

impl MountTargets {
    /// Notes the missing mount targets in a directory.
    pub(super) fn note_missing_in(&mut self, directory: &Path) {
        let paths = PROTECTED.iter().map(|name| directory.join(name));
        let missing = paths.filter(|path| match fs::symlink_metadata(path) {
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        });
        let free = NOTED.saturating_sub(self.0.len());
        self.0.extend(missing.take(free));
    }

    /// Removes the noted paths that now exist and are empty, unless a sandbox runs. If there is no
    /// register, no sandbox has created any mount target.
    pub(super) fn remove(&self, register: &Path) {
        let Some(_lock) = lock(register) else {
            return;
        };
        if is_any_running(&users(register)) {
            return;
        }
        for path in &self.0 {
            let removed = match fs::symlink_metadata(path) {
                // Only an empty directory can be removed.
                Ok(about) if about.is_dir() => fs::remove_dir(path),
                Ok(about) if about.is_file() && about.len() == 0 => fs::remove_file(path),
                _ => continue,
            };
            if let Err(error) = removed {
                tracing::debug!("{} stays: {error}", path.display());
            }
        }
    }
}

/// The path of Codex's register of mount targets in its directory for temporary files.
pub(super) fn register_in(temporary: &Path) -> PathBuf {
    let name = format!("codex-bwrap-synthetic-mount-targets-{}", geteuid().as_raw());
    temporary.join(name)
}

/// Keeps Codex from noting a sandbox.
fn lock(register: &Path) -> Option<Flock<File>> {
    let mut file = untrusted_file::open(&register.join("lock"), Links::Refused).ok()?;
    for _ in 0..ATTEMPTS {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((same, Errno::EWOULDBLOCK)) => file = same,
            Err(_) => return None,
        }
        thread::sleep(AGAIN_AFTER);
    }
    None
}

/// The processes that are noted as users of mount targets.
fn users(register: &Path) -> BTreeSet<Pid> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let targets = entries(register);
    let notes = targets.flat_map(|target| entries(&target.path()).collect::<Vec<_>>());
    let pids = notes.filter_map(|note| note.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has this number.
    const NO_PROCESS: u32 = i32::MAX.unsigned_abs();

    /// A directory in which all mount targets but `.codex` were missing, and a register.
    fn fixture() -> (tempfile::TempDir, MountTargets) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("work/.codex")).unwrap();
        let mut targets = MountTargets::default();
        targets.note_missing_in(&root.path().join("work"));
        (root, targets)
    }

    fn note(root: &Path, pid: u32) -> PathBuf {
        let register = root.join("register");
        fs::create_dir_all(register.join("04a1")).unwrap();
        fs::write(register.join("04a1").join(pid.to_string()), "synthetic\n").unwrap();
        fs::write(register.join("lock"), "").unwrap();
        register
    }

    #[test]
    fn only_empty_mount_targets_are_removed() {
        let (root, targets) = fixture();
        let work = root.path().join("work");
        fs::create_dir(work.join(".agents")).unwrap();
        fs::create_dir_all(work.join(".git/objects")).unwrap();
        fs::write(work.join(".aws"), "").unwrap();
        fs::create_dir(work.join(".other")).unwrap();
        targets.remove(&note(root.path(), NO_PROCESS));
        let left = |name: &str| fs::symlink_metadata(work.join(name)).is_ok();
        let names = [".agents", ".aws", ".codex", ".git", ".other"];
        assert_eq!(names.map(left), [false, false, true, true, true]);
    }

    #[test]
    fn file_with_text_and_link_are_kept() {
        let (root, targets) = fixture();
        let work = root.path().join("work");
        fs::write(work.join(".aws"), "x").unwrap();
        std::os::unix::fs::symlink(".codex", work.join(".agents")).unwrap();
        targets.remove(&note(root.path(), NO_PROCESS));
        assert!(work.join(".aws").is_file());
        assert!(fs::symlink_metadata(work.join(".agents")).is_ok());
        assert!(work.join(".codex").is_dir());
    }

    #[test]
    fn mount_targets_stay_while_a_sandbox_runs() {
        let (root, targets) = fixture();
        fs::create_dir(root.path().join("work/.agents")).unwrap();
        targets.remove(&note(root.path(), std::process::id()));
        assert!(root.path().join("work/.agents").is_dir());
        fs::remove_dir_all(root.path().join("register")).unwrap();
        targets.remove(&root.path().join("register"));
        assert!(root.path().join("work/.agents").is_dir(), "no register");
    }

    #[test]
    fn mount_targets_stay_while_codex_holds_the_lock() {
        let (root, targets) = fixture();
        fs::create_dir(root.path().join("work/.agents")).unwrap();
        let register = note(root.path(), NO_PROCESS);
        let held = lock(&register).unwrap();
        targets.remove(&register);
        assert!(root.path().join("work/.agents").is_dir());
        drop(held);
        targets.remove(&register);
        assert!(!root.path().join("work/.agents").exists());
    }
}
