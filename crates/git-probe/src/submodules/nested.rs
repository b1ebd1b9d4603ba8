//! Repositories that Codex creates in directories with files of the repository.
//!
//! At the top, git takes such files for the repository's. It never looks into the new `.git`, and
//! does not report it. But git that is run in that directory uses the new repository, with the
//! settings that Codex has written, and the prompts of many shells run `git status` in each
//! directory that the user enters. So a `.git` that did not exist before is moved aside.
//!
//! Even without a `.git`, git takes a directory with a `HEAD`, `objects` and `refs` for a
//! repository. If one of these directories has become such a repository, its `HEAD` is moved aside.
//!
//! A new directory with a repository in it is left alone, and named at the end.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::context::RepoContext;
use super::directory::{Directory, DirectoryError, MovedAside};
use super::search::is_bare;
use super::{DOT_GIT, shown};

/// The most directories that are watched.
const LIMIT: usize = 100_000;

/// The file that makes a directory without `.git` a repository.
const HEAD: &str = "HEAD";

/// The most directories that a warning names.
const NAMED: usize = 10;

/// Directories with files of the repository that were not repositories before Codex began, as paths
/// from the top.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PlainDirectories {
    #[serde(with = "crate::bytes::paths")]
    without_git: Vec<PathBuf>,
    #[serde(with = "crate::bytes::paths")]
    not_bare: Vec<PathBuf>,
}

impl PlainDirectories {
    /// The directories of the files that the index lists in `files`.
    pub(super) fn of(context: &RepoContext, files: &[u8]) -> Self {
        let listed: Vec<PathBuf> = directories_in(files).into_iter().take(LIMIT).collect();
        let not_bare = listed
            .iter()
            .filter(|path| !is_bare(&context.top().join(path)));
        Self {
            not_bare: not_bare.cloned().collect(),
            without_git: listed
                .into_iter()
                .filter(|path| !has_git(context, path))
                .collect(),
        }
    }

    /// Moves aside the entries that make one of these directories a repository now, and returns
    /// warnings for the user.
    pub(super) fn restore(&self, context: &RepoContext) -> Vec<String> {
        let top = context.top();
        let planted = self
            .without_git
            .iter()
            .filter(|path| has_git(context, path));
        let moved = planted.filter_map(|path| move_aside(top, path));
        let bare = self.not_bare.iter().filter(|path| is_bare(&top.join(path)));
        let disarmed = bare.filter_map(|path| move_entry_aside(top, path, HEAD));
        let mut warnings: Vec<String> = moved.chain(disarmed).collect();
        if warnings.len() > NAMED {
            let more = warnings.len() - NAMED;
            warnings.truncate(NAMED);
            warnings.push(format!("{more} more directories like this"));
        }
        warnings
    }
}

fn has_git(context: &RepoContext, path: &Path) -> bool {
    let git = context.top().join(path).join(DOT_GIT);
    git.symlink_metadata().is_ok()
}

/// Moves aside the `.git` in a directory below the top, if there is one, and returns a warning for
/// the user.
pub(crate) fn move_aside(top: &Path, path: &Path) -> Option<String> {
    move_entry_aside(top, path, DOT_GIT)
}

fn move_entry_aside(top: &Path, path: &Path, entry: &str) -> Option<String> {
    top.join(path).join(entry).symlink_metadata().ok()?;
    let directory = Directory::open(top).and_then(|top| top.below(path));
    let aside = match directory {
        Ok(directory) => directory.move_aside(OsStr::new(entry), &directory),
        // The target of a link is not a directory of the repository.
        Err(DirectoryError::Gone | DirectoryError::Link(_)) => return None,
        Err(DirectoryError::Refused(error)) => Err(error),
    };
    let name = shown(path);
    Some(match aside {
        Ok(MovedAside { path, failure, .. }) => {
            let failure = failure.map_or_else(String::new, |error| {
                format!(" (it may still be a repository to git: {error})")
            });
            format!(
                "a git repository was made in \"{name}\" during the run, and your git would have \
                 used its settings there: its {entry} is now {}{failure}. Do not run git with it \
                 before you have looked through it. If you want it, rename it back",
                shown(&path)
            )
        }
        Err(error) => format!(
            "a git repository was made in \"{name}\" during the run, and cannot be moved aside \
             ({error}): do not run git in that directory before you have looked at its {entry}"
        ),
    })
}

/// The directories above paths that each end with a NUL, but for the top.
pub(crate) fn directories_in(output: &[u8]) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    for path in output.split(|byte| *byte == 0) {
        let path = PathBuf::from(OsString::from_vec(path.to_owned()));
        let above = path.ancestors().skip(1);
        for directory in above.filter(|above| !above.as_os_str().is_empty()) {
            if !directories.insert(directory.to_owned()) {
                break;
            }
        }
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_those_above_the_files_of_an_index() {
        let output = b"a\0b/c/d\0b/e\0f/g\0";
        let listed: Vec<PathBuf> = directories_in(output).into_iter().collect();
        assert_eq!(listed, ["b", "b/c", "f"].map(PathBuf::from));
    }
}
