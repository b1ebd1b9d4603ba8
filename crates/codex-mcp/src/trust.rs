//! Whether the user trusts a directory.
//!
//! The user says so by `codex-mcp trust DIR`, which keeps a list of its own
//! (`$XDG_CONFIG_HOME/codex-mcp/trust.toml`), or by `trust_level` in Codex's own
//! `config.toml`. Nothing else is trust: no sandbox that a call names, and no file of
//! the directory itself.
//!
//! A directory inherits the trust of the directories above it up to the top of its git
//! repository, and of the main working tree if that repository is a linked one. The
//! nearest of them that either list names decides.

pub mod brought;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::codex_config::UserConfig;
use crate::team::{FileError, Repository, ceilings, files};
use crate::untrusted_file::{self, Links, ReadError};

/// The longest list that is read, in bytes.
const LONGEST_LIST: u64 = 1024 * 1024;

/// Whether the user trusts a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The directory's settings and programs may be used.
    Trusted,
    /// They may not.
    Untrusted,
}

/// Why the user's trust cannot be determined or changed.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The directory cannot be resolved.
    #[error("cannot resolve {}: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A path that TOML cannot hold.
    #[error("{} is not UTF-8 and cannot be listed; rename it", path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// Neither XDG_CONFIG_HOME nor HOME is an absolute path.
    #[error("cannot keep a list of trusted directories: set HOME or XDG_CONFIG_HOME")]
    NoConfigHome,
    /// The list cannot be read.
    #[error("cannot read the list of trusted directories: {0}")]
    Unreadable(#[from] ReadError),
    /// The list is no TOML of the right form.
    #[error("the list of trusted directories, {}, is damaged: {why}; mend or remove it", path.display())]
    Damaged {
        /// The list.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Somebody else may have written the list.
    #[error(
        "others can write the list of trusted directories, {}; look at it, then run `chmod 600` \
         and make sure that you own it",
        path.display()
    )]
    Unsafe {
        /// The list.
        path: PathBuf,
    },
    /// The list cannot be written.
    #[error("cannot write the list of trusted directories: {0}")]
    Write(#[from] FileError),
}

/// The user's own list of trusted directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedDirectories(BTreeSet<PathBuf>);

/// The list as a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    directories: BTreeSet<PathBuf>,
}

/// The first lines of the file.
const HEADING: &str = "\
# Directories whose .atm.toml, .codex/config.toml, MCP servers, hooks and prompt files
# may be used. `codex-mcp trust DIR` adds one, `codex-mcp trust --revoke DIR` removes it.
";

impl TrustedDirectories {
    /// Where the user's list is: `$XDG_CONFIG_HOME/codex-mcp/trust.toml`, by default
    /// `~/.config/codex-mcp/trust.toml`. `None` without an absolute path to either.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        list_path(&|name| env::var_os(name))
    }

    /// Reads a list; one that is missing is empty.
    ///
    /// # Errors
    ///
    /// [`TrustError`] when it is unreadable, damaged, or writable by others.
    pub fn read(path: &Path) -> Result<Self, TrustError> {
        let text = match untrusted_file::read_text(path, LONGEST_LIST, Links::Refused) {
            Ok(text) => text,
            Err(error) if error.is_not_found() => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        if !is_the_users(path) {
            return Err(TrustError::Unsafe {
                path: path.to_owned(),
            });
        }
        let damaged = |why: String| TrustError::Damaged {
            path: path.to_owned(),
            why,
        };
        let document: Document =
            toml::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        let relative = document.directories.iter().find(|path| path.is_relative());
        match relative {
            Some(relative) => Err(damaged(format!(
                "{} is not an absolute path",
                relative.display()
            ))),
            None => Ok(Self(document.directories)),
        }
    }

    /// Adds a directory, an absolute path without links, to the list in this file.
    /// Returns whether the list has changed.
    ///
    /// # Errors
    ///
    /// [`TrustError`].
    pub fn add(path: &Path, directory: &Path) -> Result<bool, TrustError> {
        if directory.to_str().is_none() {
            return Err(TrustError::NotUtf8 {
                path: directory.to_owned(),
            });
        }
        change(path, |list| list.insert(directory.to_owned()))
    }

    /// Removes a directory from the list in this file. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// [`TrustError`].
    pub fn revoke(path: &Path, directory: &Path) -> Result<bool, TrustError> {
        change(path, |list| list.remove(directory))
    }

    /// The directories, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Whether this very directory is listed.
    #[must_use]
    pub fn lists(&self, directory: &Path) -> bool {
        self.0.contains(directory)
    }
}

fn list_path(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // Relative ones do not count (XDG Base Directory Specification 0.8).
    let directory = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = || Some(directory("HOME")?.join(".config"));
    let base = directory("XDG_CONFIG_HOME").or_else(home)?;
    Some(base.join("codex-mcp/trust.toml"))
}

fn is_the_users(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| {
        let owner = about.uid();
        (owner == 0 || owner == geteuid().as_raw()) && about.mode() & 0o022 == 0
    })
}

fn change(
    path: &Path,
    edit: impl FnOnce(&mut BTreeSet<PathBuf>) -> bool,
) -> Result<bool, TrustError> {
    if let Some(directory) = path.parent() {
        files::make_folder(directory)?;
    }
    let _lock = files::lock(&files::with_suffix(path, ".lock"))?;
    let mut list = TrustedDirectories::read(path)?;
    if !edit(&mut list.0) {
        return Ok(false);
    }
    let document = Document {
        directories: list.0,
    };
    let body = toml::to_string_pretty(&document).map_err(|error| TrustError::Damaged {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    files::replace(path, format!("{HEADING}{body}").as_bytes())?;
    Ok(true)
}

/// The user's trust in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryTrust {
    /// Whether there is any.
    pub trust: Trust,
    /// The top of the git repository around the directory, or the directory itself;
    /// without links.
    pub top: PathBuf,
    /// The directory itself, without links.
    pub directory: PathBuf,
    /// The paths whose trust Codex must be told, in a thread's `projects`. Without trust
    /// these are the directory, each one above it up to the top, and the main working
    /// tree; with it, the directory of the user's own list, as Codex knows its own.
    pub told: Vec<PathBuf>,
}

/// Whether the user trusts a directory, by the list that the environment names and
/// Codex's own `config.toml`. Costs some reads of small files.
///
/// # Errors
///
/// [`TrustError`] when the directory cannot be resolved, or the user's list is unreadable
/// or damaged. Callers treat the directory as untrusted then, or refuse to go on.
pub fn directory_trust(directory: &Path, codex: &UserConfig) -> Result<DirectoryTrust, TrustError> {
    let variables = |name: &str| env::var_os(name);
    directory_trust_with(directory, codex, &variables)
}

/// The same with variables of the environment.
pub(crate) fn directory_trust_with(
    directory: &Path,
    codex: &UserConfig,
    variables: &dyn Fn(&str) -> Option<OsString>,
) -> Result<DirectoryTrust, TrustError> {
    let list = match list_path(variables) {
        Some(path) => TrustedDirectories::read(&path)?,
        None => TrustedDirectories::default(),
    };
    trust_by(directory, &list, codex)
}

/// What makes the user trust a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// This path in the user's own list.
    Listed(PathBuf),
    /// This path in Codex's `config.toml`.
    OfCodex(PathBuf),
}

/// The entry that makes the user trust a directory, if the user does.
///
/// # Errors
///
/// [`TrustError::Directory`].
pub fn trusting_entry(
    directory: &Path,
    list: &TrustedDirectories,
    codex: &UserConfig,
) -> Result<Option<Entry>, TrustError> {
    let resolved = resolve(directory)?;
    let (top, main) = around(&resolved);
    let decided = decided(&resolved, &top, main.as_deref(), list, codex);
    Ok(decided
        .filter(|(trust, _)| *trust == Trust::Trusted)
        .map(|(_, entry)| entry))
}

fn around(resolved: &Path) -> (PathBuf, Option<PathBuf>) {
    match Repository::around(resolved, &ceilings()) {
        Some(repository) => (repository.root, repository.main),
        None => (resolved.to_owned(), None),
    }
}

fn decided(
    resolved: &Path,
    top: &Path,
    main: Option<&Path>,
    list: &TrustedDirectories,
    codex: &UserConfig,
) -> Option<(Trust, Entry)> {
    candidates(resolved, top, main).find_map(|path| match list.lists(path) {
        true => Some((Trust::Trusted, Entry::Listed(path.to_owned()))),
        false => Some((codex.trust_in(path)?, Entry::OfCodex(path.to_owned()))),
    })
}

/// Whether Codex itself trusts a directory, by its own `config.toml` alone.
///
/// # Errors
///
/// [`TrustError::Directory`].
pub fn codex_trust(directory: &Path, codex: &UserConfig) -> Result<DirectoryTrust, TrustError> {
    trust_by(directory, &TrustedDirectories::default(), codex)
}

/// The trust by a list and the user's configuration of Codex.
fn trust_by(
    directory: &Path,
    list: &TrustedDirectories,
    codex: &UserConfig,
) -> Result<DirectoryTrust, TrustError> {
    let resolved = resolve(directory)?;
    let (top, main) = around(&resolved);
    let decided = decided(&resolved, &top, main.as_deref(), list, codex);
    let trust = decided
        .as_ref()
        .map_or(Trust::Untrusted, |(trust, _)| *trust);
    let told = match (trust, decided) {
        (Trust::Trusted, Some((_, Entry::Listed(path)))) => vec![path],
        (Trust::Trusted, _) => Vec::new(),
        (Trust::Untrusted, _) => untrusted_paths(directory, &resolved, &top, main),
    };
    Ok(DirectoryTrust {
        trust,
        top,
        directory: resolved,
        told,
    })
}

/// The top of the git repository around a directory, or the directory itself. The path
/// is without links.
pub(crate) fn top_of(resolved: &Path) -> PathBuf {
    let repository = Repository::around(resolved, &ceilings());
    repository.map_or_else(|| resolved.to_owned(), |repository| repository.root)
}

/// The top of the git repository around a directory, or the directory itself, without
/// links.
///
/// # Errors
///
/// [`TrustError::Directory`].
pub fn resolved_top(directory: &Path) -> Result<PathBuf, TrustError> {
    resolve(directory).map(|resolved| top_of(&resolved))
}

fn resolve(directory: &Path) -> Result<PathBuf, TrustError> {
    let resolved = directory.canonicalize();
    let is_directory = resolved.and_then(|path| match path.is_dir() {
        true => Ok(path),
        false => Err(io::ErrorKind::NotADirectory.into()),
    });
    is_directory.map_err(|error| TrustError::Directory {
        path: directory.to_owned(),
        error,
    })
}

/// The directories whose trust holds for this one too, the nearest first.
fn candidates<'a>(
    directory: &'a Path,
    top: &'a Path,
    main: Option<&'a Path>,
) -> impl Iterator<Item = &'a Path> {
    let within = move |above: &&Path| above.starts_with(top);
    directory.ancestors().take_while(within).chain(main)
}

/// Codex takes a `.git` of any kind for a repository's top, and may look up a directory
/// by a name with links.
fn untrusted_paths(
    given: &Path,
    resolved: &Path,
    top: &Path,
    main: Option<PathBuf>,
) -> Vec<PathBuf> {
    let has_git = |above: &&Path| fs::symlink_metadata(above.join(".git")).is_ok();
    let codex_top = resolved.ancestors().find(has_git).unwrap_or(resolved);
    let outer = match top.starts_with(codex_top) {
        true => codex_top,
        false => top,
    };
    let mut paths: Vec<PathBuf> = candidates(resolved, outer, None)
        .map(Path::to_owned)
        .collect();
    paths.extend(main);
    if given.is_absolute() {
        paths.push(given.to_owned());
    }
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests;
