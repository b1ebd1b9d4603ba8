//! The parsers of git's outputs and files, for the fuzz targets.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use supervise::short_lived::Extent;

use crate::logic::git_state::GitState;
use crate::setting::{self, Scope};
use crate::tree::Status;
use crate::{private, submodules};

/// A setting as git lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Whether it comes from the repository.
    pub is_of_repository: bool,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value, if it has one.
    pub value: Option<Vec<u8>>,
}

/// The settings in the output of `git config --list`.
#[must_use]
pub fn settings(output: &[u8]) -> Vec<Setting> {
    let settings = setting::read(output).into_iter();
    let settings = settings.map(|setting| Setting {
        is_of_repository: setting.scope == Scope::Repository,
        key: setting.key.into_vec(),
        value: setting.value.map(OsString::into_vec),
    });
    settings.collect()
}

/// The state in the output of `git status`, of a tree without files.
#[must_use]
pub fn status(output: &[u8]) -> GitState {
    let status = Status {
        words: output.to_owned(),
        extent: Extent::Whole,
    };
    status.read(Path::new("/dev/null"))
}

/// The IDs of the trees in the output of `git cat-file --batch`, and the numbers of their entries.
#[must_use]
pub fn trees(output: &[u8], id_bytes: usize) -> Option<Vec<(String, usize)>> {
    private::trees(output, id_bytes)
}

/// The entries in the output of `git ls-files --stage`, by their paths.
#[must_use]
pub fn index_entries(output: &[u8]) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    private::index_entries(output)
}

/// The name and the ID in a line of `git for-each-ref`, or of packed refs.
#[must_use]
pub fn reference(line: &str) -> Option<(String, String)> {
    private::reference(line)
}

/// The ID of the commit in a line of `git rev-list`, and the number of its parents.
#[must_use]
pub fn commit(line: &str) -> Option<(&str, usize)> {
    private::commit(line)
}

/// The ref that a fetch by this refspec stores as `name`.
#[must_use]
pub fn tracked_ref(refspec: &str, name: &str) -> Option<String> {
    private::tracked_ref(refspec, name)
}

/// The submodules in the output of `git ls-files --stage`.
#[must_use]
pub fn submodules(output: &[u8]) -> Vec<PathBuf> {
    submodules::submodules_in(output)
}

/// The directories above the paths in the output of `git ls-files`.
#[must_use]
pub fn directories(output: &[u8]) -> BTreeSet<PathBuf> {
    submodules::directories_in(output)
}
