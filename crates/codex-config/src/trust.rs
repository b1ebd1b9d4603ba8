//! Determines whether the user trusts a directory.
//!
//! The user grants trust by `codex-mcp trust DIR`, which keeps its own list
//! (`$XDG_CONFIG_HOME/codex-mcp/trust.toml`), or by `trust_level` in Codex's own
//! `config.toml`. Nothing else grants trust, neither a sandbox that a call names nor a
//! file of the directory itself.
//!
//! A directory inherits the trust of the directories above it up to the top of its git
//! repository, and of the main working tree if that repository is a linked one. The
//! nearest of them that either list names decides.
//!
//! Our own list also records the content of the directory's files at the time when the
//! user trusted them (`record`). If a file differs, the directory counts as untrusted,
//! for Codex too, even if Codex's own list has it. Codex's list contains paths only.

pub mod covered_files;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use common::toml_error;
use git_probe::repository::{Repository, ceilings};
use rustix::process::geteuid;
use safe_files::home_directory::home_directory;
use safe_files::state_file::{self, FileError};
use safe_files::untrusted_file::{self, Links, ReadError};
use serde::{Deserialize, Serialize};

use crate::layers::UserConfig;

pub use crate::directory_trust::{DirectoryTrust, Trust, TrustChanges};
pub use record::Record;

/// The longest list that is read, in bytes.
const LONGEST_LIST: u64 = 1024 * 1024;

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
    /// XDG_CONFIG_HOME is no absolute path, and the user has no home directory.
    #[error("cannot keep a list of trusted directories: set HOME or XDG_CONFIG_HOME")]
    NoConfigHome,
    /// The list cannot be read.
    #[error("cannot read the list of trusted directories: {0}")]
    Unreadable(#[from] ReadError),
    /// The list is not TOML of the expected form.
    #[error("the list of trusted directories, {}, is damaged: {why}; fix or remove it", path.display())]
    Damaged {
        /// The list.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file of the directory cannot be recorded.
    #[error("not trusted, since not all of its files can be checked later: {0}")]
    Unrecordable(ReadError),
    /// Other users can write the list.
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

/// The user's own list of trusted directories, with the record of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedDirectories(BTreeMap<PathBuf, Record>);

/// The effect of adding a directory to the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddOutcome {
    /// The directory is new in the list.
    New,
    /// The directory was listed, and its files differed from the record, which is
    /// updated.
    Accepted,
    /// The directory was listed with these files.
    Unchanged,
}

/// The list as a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    directories: DocumentEntries,
}

/// The directories in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum DocumentEntries {
    Recorded(BTreeMap<PathBuf, Record>),
    /// Paths as releases without records listed them: none of their files is accepted
    /// yet.
    Paths(BTreeSet<PathBuf>),
}

/// The first lines of the file.
const HEADING: &str = "\
# Directories whose .atm.toml, .codex/config.toml, MCP servers, hooks and prompt files
# may be used, with a hash of each of these files. `codex-mcp trust DIR` adds one or accepts
# its files as they are, `codex-mcp trust --revoke DIR` removes it.
";

impl TrustedDirectories {
    /// The path of the user's list: `$XDG_CONFIG_HOME/codex-mcp/trust.toml`, by default
    /// `~/.config/codex-mcp/trust.toml`. `None` if XDG_CONFIG_HOME is no absolute path and
    /// the user has no home directory.
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
            toml_error::parse(&text).map_err(|error| damaged(error.to_string()))?;
        let directories = match document.directories {
            DocumentEntries::Recorded(directories) => directories,
            DocumentEntries::Paths(paths) => paths
                .into_iter()
                .map(|path| (path, Record::default()))
                .collect(),
        };
        let relative = directories.keys().find(|path| path.is_relative());
        match relative {
            Some(relative) => Err(damaged(format!(
                "{} is not an absolute path",
                relative.display()
            ))),
            None => Ok(Self(directories)),
        }
    }

    /// Adds the repository with this top to the list in this file, with a record of the
    /// files for work in `directory`. Both are absolute paths without links.
    ///
    /// # Errors
    ///
    /// [`TrustError`].
    pub fn add(path: &Path, directory: &Path, top: &Path) -> Result<AddOutcome, TrustError> {
        if top.to_str().is_none() {
            return Err(TrustError::NotUtf8 {
                path: top.to_owned(),
            });
        }
        let mut was_listed = false;
        let has_changed = change(path, |list| {
            was_listed = list.contains_key(top);
            let record = list.entry(top.to_owned()).or_default();
            let recorded = record.update(directory, top);
            recorded.map_err(TrustError::Unrecordable)
        })?;
        Ok(match (was_listed, has_changed) {
            (false, _) => AddOutcome::New,
            (true, true) => AddOutcome::Accepted,
            (true, false) => AddOutcome::Unchanged,
        })
    }

    /// Removes a directory from the list in this file. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// [`TrustError`].
    pub fn revoke(path: &Path, directory: &Path) -> Result<bool, TrustError> {
        change(path, |list| {
            list.remove(directory);
            Ok(())
        })
    }

    /// The directories, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }
}

fn list_path(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // Relative paths do not count (XDG Base Directory Specification 0.8).
    let set = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    // Without HOME, Codex's own list is found all the same, and must not count alone.
    let default = || Some(home_directory(variable)?.join(".config"));
    let base = set.or_else(default)?;
    Some(base.join("codex-mcp/trust.toml"))
}

fn is_the_users(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| {
        let owner = about.uid();
        (owner == 0 || owner == geteuid().as_raw()) && about.mode() & 0o022 == 0
    })
}

/// Edits a list. Returns whether the edit changed it.
fn change(
    path: &Path,
    edit: impl FnOnce(&mut BTreeMap<PathBuf, Record>) -> Result<(), TrustError>,
) -> Result<bool, TrustError> {
    if let Some(directory) = path.parent() {
        state_file::make_directory(directory)?;
    }
    let _lock = state_file::lock(&state_file::with_suffix(path, ".lock"))?;
    let before = TrustedDirectories::read(path)?;
    let mut list = before.clone();
    edit(&mut list.0)?;
    if list == before {
        return Ok(false);
    }
    let document = Document {
        directories: DocumentEntries::Recorded(list.0),
    };
    let body = toml::to_string_pretty(&document).map_err(|error| TrustError::Damaged {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    state_file::replace(path, format!("{HEADING}{body}").as_bytes())?;
    Ok(true)
}

/// Whether the user trusts a directory, by the list that the environment names and
/// Codex's own `config.toml`. If the user's list has the directory, the covered files are
/// read and hashed, 16 MiB at most.
///
/// # Errors
///
/// [`TrustError`] when the directory cannot be resolved, or the user's list is unreadable
/// or damaged. Callers then treat the directory as untrusted, or refuse to continue.
pub fn directory_trust(directory: &Path, codex: &UserConfig) -> Result<DirectoryTrust, TrustError> {
    let variables = |name: &str| env::var_os(name);
    directory_trust_with(directory, codex, &variables)
}

/// Like [`directory_trust`], with the variables of the environment as a parameter.
pub fn directory_trust_with(
    directory: &Path,
    codex: &UserConfig,
    variables: &dyn Fn(&str) -> Option<OsString>,
) -> Result<DirectoryTrust, TrustError> {
    trust_by(directory, &listed(variables)?, codex)
}

/// Whether the user's list or Codex's names the directory, or another one whose trust it
/// inherits. If neither does, its trust and configuration are known without its files.
///
/// # Errors
///
/// [`TrustError`], as [`directory_trust`].
pub fn is_listed(directory: &Path, codex: &UserConfig) -> Result<bool, TrustError> {
    let list = listed(&|name| env::var_os(name))?;
    let resolved = resolve(directory)?;
    let (top, main) = around(&resolved);
    let mut paths = candidates(&resolved, &top, main.as_deref());
    Ok(paths.any(|path| list.0.contains_key(path) || codex.trust_in(path).is_some()))
}

fn listed(variables: &dyn Fn(&str) -> Option<OsString>) -> Result<TrustedDirectories, TrustError> {
    match list_path(variables) {
        Some(path) => TrustedDirectories::read(&path),
        None => Ok(TrustedDirectories::default()),
    }
}

/// The entry by which the user trusts a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustEntry {
    /// This path in the user's own list.
    Listed(PathBuf),
    /// This path in Codex's `config.toml`.
    InCodexConfig(PathBuf),
}

/// Finds the entry by which the user trusts a directory, if there is one.
///
/// # Errors
///
/// [`TrustError::Directory`].
pub fn trusting_entry(
    directory: &Path,
    list: &TrustedDirectories,
    codex: &UserConfig,
) -> Result<Option<TrustEntry>, TrustError> {
    let resolved = resolve(directory)?;
    let (top, main) = around(&resolved);
    Ok(
        match decide(&resolved, &top, main.as_deref(), list, codex) {
            TrustDecision::Trusted(entry) => Some(entry),
            TrustDecision::Untrusted(_) => None,
        },
    )
}

fn around(resolved: &Path) -> (PathBuf, Option<PathBuf>) {
    match Repository::around(resolved, &ceilings()) {
        Some(repository) => (repository.root, repository.main),
        None => (resolved.to_owned(), None),
    }
}

enum TrustDecision {
    Trusted(TrustEntry),
    /// The changed files are given if the user's list has the directory.
    Untrusted(Option<TrustChanges>),
}

fn decide(
    resolved: &Path,
    top: &Path,
    main: Option<&Path>,
    list: &TrustedDirectories,
    codex: &UserConfig,
) -> TrustDecision {
    let mut changes = None;
    for path in candidates(resolved, top, main) {
        match (list.0.get(path), codex.trust_in(path)) {
            (Some(record), _) => {
                let files = record.changes(resolved, top);
                if files.is_empty() {
                    return TrustDecision::Trusted(TrustEntry::Listed(path.to_owned()));
                }
                changes.get_or_insert(TrustChanges {
                    top: top.to_owned(),
                    directory: resolved.to_owned(),
                    files,
                });
            }
            (None, Some(trust)) if changes.is_none() => {
                return match trust {
                    Trust::Trusted => {
                        TrustDecision::Trusted(TrustEntry::InCodexConfig(path.to_owned()))
                    }
                    Trust::Untrusted => TrustDecision::Untrusted(None),
                };
            }
            _ => {}
        }
    }
    TrustDecision::Untrusted(changes)
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
    let (trust, codex_paths, changes) = match decide(&resolved, &top, main.as_deref(), list, codex)
    {
        TrustDecision::Trusted(TrustEntry::Listed(path)) => (Trust::Trusted, vec![path], None),
        TrustDecision::Trusted(TrustEntry::InCodexConfig(_)) => (Trust::Trusted, Vec::new(), None),
        TrustDecision::Untrusted(changes) => {
            let codex_paths = untrusted_paths(directory, &resolved, &top, main);
            (Trust::Untrusted, codex_paths, changes)
        }
    };
    Ok(DirectoryTrust {
        trust,
        top,
        directory: resolved,
        codex_paths,
        changes,
    })
}

/// The top of the git repository around a directory, or the directory itself. The path
/// is without links.
pub fn top_of(resolved: &Path) -> PathBuf {
    let repository = Repository::around(resolved, &ceilings());
    repository.map_or_else(|| resolved.to_owned(), |repository| repository.root)
}

/// Whether a directory lies in a git repository; its path is without links. Trust in one that does
/// not holds for itself alone.
pub fn is_in_repository(resolved: &Path) -> bool {
    Repository::around(resolved, &ceilings()).is_some()
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

/// The directories whose trust applies to this one too, the nearest first.
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
