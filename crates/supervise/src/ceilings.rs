//! The directories at which git stops looking for a repository.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

/// The variable with the directories at and above which git looks for no repository.
pub const CEILINGS: &str = "GIT_CEILING_DIRECTORIES";

/// The directories that a value of [`CEILINGS`] names, without links.
pub fn ceilings_in(value: &OsStr) -> Vec<PathBuf> {
    let directories = env::split_paths(value).filter(|directory| directory.is_absolute());
    directories
        .map(|directory| directory.canonicalize().unwrap_or(directory))
        .collect()
}
