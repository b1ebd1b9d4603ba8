//! Directories that are noted now and used later. One that was replaced by a symbolic link is
//! detected, and those that were created for a while are removed again.
//!
//! Sessions, jobs and runs note their directories by resolved paths, in which no part is a
//! link, and check them again before each piece of work. A model that may write in the
//! directory above can put a link there, by which the same path leads out of every bound.
//!
//! The paths are compared, not the inodes: `git checkout` removes directories and makes
//! them again, and a real directory at a noted path lies where the bounds have allowed it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// A noted path that resolves to another one now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the directory {} was replaced by a symbolic link, or one above it was: the path leads to {} \
     now, so Codex is not given any work there; put the directory back, or begin a new session, \
     job or run in the directory that you mean", noted.display(), now.display()
)]
pub struct ReplacedDirectory {
    /// The path without links when it was noted.
    pub noted: PathBuf,
    /// The path without links now.
    pub now: PathBuf,
}

/// The absolute path without links, as far as it exists.
#[must_use]
pub fn resolved(path: &Path) -> PathBuf {
    let here = env::current_dir().unwrap_or_default();
    without_links(&here.join(path))
}

fn without_links(path: &Path) -> PathBuf {
    if let Ok(resolved) = path.canonicalize() {
        return resolved;
    }
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return path.to_owned();
    };
    let above = without_links(above);
    match fs::read_link(path) {
        // It leads to nothing, so there is no more to resolve.
        Ok(target) => above.join(target),
        Err(_) => above.join(name),
    }
}

/// Checks that a path which was noted by [`resolved`] leads to the same place still.
///
/// # Errors
///
/// [`ReplacedDirectory`].
pub fn check(noted: &Path) -> Result<(), ReplacedDirectory> {
    let now = resolved(noted);
    match now == noted {
        true => Ok(()),
        false => Err(ReplacedDirectory {
            noted: noted.to_owned(),
            now,
        }),
    }
}

/// Creates a directory and the missing ones above it, with this mode. Returns those that it has
/// created, as [`resolved`] notes them, the outermost first.
///
/// # Errors
///
/// Those of the file system. What was created before the error stays.
pub fn create_missing(path: &Path, mode: u32) -> io::Result<Vec<PathBuf>> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.is_dir();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    let mut created = Vec::new();
    for path in missing.into_iter().rev() {
        match DirBuilder::new().mode(mode).create(path) {
            Ok(()) => created.push(resolved(path)),
            // Another process has created it meanwhile.
            Err(_) if path.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(created)
}

/// Removes the empty ones of the directories that [`create_missing`] has returned. A path that leads
/// through a link by now is left alone.
pub fn remove_empty(created: &[PathBuf]) {
    for path in created.iter().rev() {
        if check(path).is_ok() {
            // This fails on a directory that is not empty, as intended.
            let _ = fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn replaced_directory_is_detected_and_a_recreated_one_is_accepted() {
        let all = tempfile::tempdir().unwrap();
        let all = all.path().canonicalize().unwrap();
        let (noted, elsewhere) = (all.join("a/b"), all.join("elsewhere"));
        fs::create_dir_all(&noted).unwrap();
        fs::create_dir_all(elsewhere.join("b")).unwrap();
        assert_eq!(check(&noted), Ok(()));
        fs::remove_dir(&noted).unwrap();
        assert_eq!(check(&noted), Ok(()), "nothing leads anywhere else");
        fs::create_dir(&noted).unwrap();
        assert_eq!(check(&noted), Ok(()));

        fs::rename(&noted, all.join("aside")).unwrap();
        symlink(&elsewhere, &noted).unwrap();
        let replaced = check(&noted).unwrap_err();
        assert_eq!((&replaced.noted, &replaced.now), (&noted, &elsewhere));
        fs::remove_file(&noted).unwrap();
        symlink(all.join("missing"), &noted).unwrap();
        assert_eq!(check(&noted).unwrap_err().now, all.join("missing"));

        fs::remove_dir_all(all.join("a")).unwrap();
        symlink(&elsewhere, all.join("a")).unwrap();
        assert_eq!(check(&noted).unwrap_err().now, elsewhere.join("b"));
        let missing = all.join("a/c");
        assert_eq!(check(&missing).unwrap_err().now, elsewhere.join("c"));
    }

    #[test]
    fn only_empty_directories_of_our_own_are_removed() {
        let all = tempfile::tempdir().unwrap();
        let all = all.path().canonicalize().unwrap();
        let (theirs, ours) = (all.join("theirs"), all.join("theirs/ours"));
        let (inner, file) = (ours.join("inner"), ours.join("file"));
        fs::create_dir(&theirs).unwrap();
        let created = create_missing(&inner, 0o700).unwrap();
        assert_eq!(created, [ours.clone(), inner.clone()]);
        assert!(create_missing(&inner, 0o700).unwrap().is_empty());

        fs::write(&file, "").unwrap();
        remove_empty(&created);
        assert!(!inner.exists() && file.exists());
        assert!(create_missing(&file, 0o700).is_err());
        fs::remove_file(&file).unwrap();
        remove_empty(&created);
        assert!(!ours.exists() && theirs.exists());

        fs::create_dir_all(all.join("elsewhere/inner")).unwrap();
        symlink(all.join("elsewhere"), &ours).unwrap();
        remove_empty(&created);
        assert!(inner.exists());
    }

    #[test]
    fn link_that_leads_to_itself_is_detected() {
        let all = tempfile::tempdir().unwrap();
        let all = all.path().canonicalize().unwrap();
        let noted = all.join("a");
        symlink("b", &noted).unwrap();
        symlink("a", all.join("b")).unwrap();
        assert_eq!(check(&noted).unwrap_err().now, all.join("b"));
    }
}
