//! Detects a directory that was replaced by a symbolic link.
//!
//! Sessions, jobs and runs note their directories by resolved paths, in which no part is a
//! link, and check them again before each piece of work. A model that may write in the
//! directory above can put a link there, by which the same path leads out of every bound.
//!
//! The paths are compared, not the inodes: `git checkout` removes directories and makes
//! them again, and a real directory at a noted path lies where the bounds have allowed it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Where overrides of Codex's configuration have further writable directories.
const TABLE: &str = "sandbox_workspace_write";
const ROOTS: &str = "writable_roots";
const DOTTED_ROOTS: &str = "sandbox_workspace_write.writable_roots";

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
pub(crate) fn resolved(path: &Path) -> PathBuf {
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
pub(crate) fn check(noted: &Path) -> Result<(), ReplacedDirectory> {
    let now = resolved(noted);
    match now == noted {
        true => Ok(()),
        false => Err(ReplacedDirectory {
            noted: noted.to_owned(),
            now,
        }),
    }
}

/// Resolves the further writable directories that overrides of Codex's configuration name.
/// Relative ones count from the working directory `cwd`: Codex's own reading depends on where
/// its server was started.
pub(crate) fn resolve_roots(config: &mut Map<String, Value>, cwd: &Path) {
    for (key, value) in config {
        let roots = match key.as_str() {
            TABLE => value.get_mut(ROOTS),
            DOTTED_ROOTS => Some(value),
            _ => None,
        };
        for root in roots.and_then(Value::as_array_mut).into_iter().flatten() {
            let path = root.as_str().map(|path| resolved(&cwd.join(path)));
            if let Some(path) = path.as_deref().and_then(Path::to_str) {
                *root = path.into();
            }
        }
    }
}

/// Checks the directories that [`resolve_roots`] has resolved.
///
/// # Errors
///
/// [`ReplacedDirectory`].
pub(crate) fn check_roots(config: &Map<String, Value>) -> Result<(), ReplacedDirectory> {
    let nested = config.get(TABLE).and_then(|table| table.get(ROOTS));
    let lists = nested.into_iter().chain(config.get(DOTTED_ROOTS));
    let roots = lists.filter_map(Value::as_array).flatten();
    let mut paths = roots.filter_map(Value::as_str).map(Path::new);
    paths.try_for_each(|path| match path.is_absolute() {
        true => check(path),
        false => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn directory_that_became_a_link_is_detected_and_one_that_was_made_again_is_not() {
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

    #[test]
    fn writable_roots_are_resolved_and_checked_in_both_forms() {
        let all = tempfile::tempdir().unwrap();
        let all = all.path().canonicalize().unwrap();
        let (real, link) = (all.join("real"), all.join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        for form in [
            json!({ "sandbox_workspace_write": { "writable_roots": [link, "link"] }, "model": "m" }),
            json!({ "sandbox_workspace_write.writable_roots": [link, "link"] }),
        ] {
            let Value::Object(mut config) = form else {
                unreachable!()
            };
            assert_eq!(check_roots(&config).unwrap_err().noted, link);
            resolve_roots(&mut config, &all);
            assert_eq!(check_roots(&config), Ok(()));
            let both = json!([real, real]);
            let nested = config.get(TABLE).and_then(|table| table.get(ROOTS));
            assert_eq!(nested.or(config.get(DOTTED_ROOTS)), Some(&both));
            fs::rename(&real, all.join("aside")).unwrap();
            symlink("/", &real).unwrap();
            assert_eq!(check_roots(&config).unwrap_err().now, Path::new("/"));
            fs::remove_file(&real).unwrap();
            fs::rename(all.join("aside"), &real).unwrap();
        }
    }
}
