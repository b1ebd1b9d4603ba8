//! Detects a directory that was replaced by a symbolic link.
//!
//! Sessions, jobs and runs note their directories by resolved paths, in which no part is a
//! link, and check them again before each piece of work. A model that may write in the
//! directory above can put a link there, by which the same path leads out of every bound.
//!
//! The paths are compared, not the inodes: `git checkout` removes directories and makes
//! them again, and a real directory at a noted path lies where the bounds have allowed it.

use std::path::{Path, PathBuf};
use std::{env, fs};

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
    fn link_that_leads_to_itself_is_detected() {
        let all = tempfile::tempdir().unwrap();
        let all = all.path().canonicalize().unwrap();
        let noted = all.join("a");
        symlink("b", &noted).unwrap();
        symlink("a", all.join("b")).unwrap();
        assert_eq!(check(&noted).unwrap_err().now, all.join("b"));
    }
}
