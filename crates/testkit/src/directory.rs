//! Directories that are slow to make: made once, and copied by each test.

use std::fs;
use std::path::{Path, PathBuf};

/// A directory that `make` fills, unless that was done before. Several processes may do so at once.
pub(crate) fn made_once(directory: PathBuf, make: impl FnOnce(&Path)) -> PathBuf {
    if directory.is_dir() {
        return directory;
    }
    let parent = directory.parent().unwrap();
    fs::create_dir_all(parent).unwrap();
    let draft = tempfile::Builder::new()
        .prefix("draft.")
        .tempdir_in(parent)
        .unwrap();
    make(draft.path());
    // Another process may have been quicker, and its directory is as good.
    if fs::rename(draft.path(), &directory).is_err() {
        assert!(directory.is_dir(), "{} cannot be made", directory.display());
    }
    directory
}

/// Copies the files and directories of a directory into another one, but no links.
///
/// # Panics
/// If that fails.
pub fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let copy = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy_directory(&entry.path(), &copy);
        } else if kind.is_file() {
            fs::copy(entry.path(), copy).unwrap();
        }
    }
}
