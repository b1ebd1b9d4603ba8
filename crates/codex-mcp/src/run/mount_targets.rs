//! Removes the mount targets that killed sandboxes of Codex leave in a directory.
//!
//! Where a path that its sandbox protects is missing, Codex makes an empty directory to
//! mount something on, and removes it when the command has ended. It notes who uses it in
//! `TMPDIR/codex-bwrap-synthetic-mount-targets-UID/…/PID` (0.153.4 and 0.169.0). A command
//! that is killed leaves the directory.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use rustix::process::geteuid;

use crate::engine::is_running;

/// The paths that Codex protects below a directory that commands may write to.
const PROTECTED: [&str; 4] = [".agents", ".aws", ".codex", ".git"];

/// The paths below a directory that may become mount targets.
#[derive(Debug, Clone, Default)]
pub(super) struct MountTargets(Vec<PathBuf>);

impl MountTargets {
    /// Those that are not there yet.
    pub(super) fn missing_in(directory: &Path) -> Self {
        let paths = PROTECTED.iter().map(|name| directory.join(name));
        let missing = paths.filter(|path| match fs::symlink_metadata(path) {
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        });
        Self(missing.collect())
    }

    /// Removes those that are there now and empty, unless a sandbox still runs.
    pub(super) fn remove(&self) {
        self.remove_unless_used(&register());
    }

    fn remove_unless_used(&self, register: &Path) {
        if users(register).into_iter().any(is_running) {
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

/// Codex's register of mount targets.
fn register() -> PathBuf {
    let name = format!("codex-bwrap-synthetic-mount-targets-{}", geteuid().as_raw());
    std::env::temp_dir().join(name)
}

/// The processes that are noted as users of mount targets.
fn users(register: &Path) -> Vec<Pid> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let targets = entries(register);
    let notes = targets.flat_map(|target| entries(&target.path()).collect::<Vec<_>>());
    let pids = notes.filter_map(|note| note.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory in which all mount targets but `.codex` were missing, and a register.
    fn stage() -> (tempfile::TempDir, MountTargets) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("work/.codex")).unwrap();
        let targets = MountTargets::missing_in(&root.path().join("work"));
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
    fn empty_targets_are_removed_and_nothing_else() {
        let (root, targets) = stage();
        let work = root.path().join("work");
        fs::create_dir(work.join(".agents")).unwrap();
        fs::create_dir_all(work.join(".git/objects")).unwrap();
        fs::write(work.join(".aws"), "").unwrap();
        fs::create_dir(work.join(".other")).unwrap();
        // No process has this number.
        targets.remove_unless_used(&note(root.path(), i32::MAX.unsigned_abs()));
        let left = |name: &str| fs::symlink_metadata(work.join(name)).is_ok();
        let names = [".agents", ".aws", ".codex", ".git", ".other"];
        assert_eq!(names.map(left), [false, false, true, true, true]);
    }

    #[test]
    fn file_with_text_and_link_are_kept() {
        let (root, targets) = stage();
        let work = root.path().join("work");
        fs::write(work.join(".aws"), "x").unwrap();
        std::os::unix::fs::symlink(".codex", work.join(".agents")).unwrap();
        targets.remove_unless_used(&root.path().join("register"));
        assert!(work.join(".aws").is_file());
        assert!(fs::symlink_metadata(work.join(".agents")).is_ok());
        assert!(work.join(".codex").is_dir());
    }

    #[test]
    fn targets_stay_while_a_sandbox_runs() {
        let (root, targets) = stage();
        fs::create_dir(root.path().join("work/.agents")).unwrap();
        targets.remove_unless_used(&note(root.path(), std::process::id()));
        assert!(root.path().join("work/.agents").is_dir());
    }
}
