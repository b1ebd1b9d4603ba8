//! The directories that hold the state of identities.

use std::path::{Path, PathBuf};
use std::{fs, io};

use safe_files::state_file::{FileError, about, is_directory};

use crate::logic::AgentName;

/// The directory of the state of all identities, below the home directory (FR-6.4).
pub(super) const SESSIONS: &str = ".config/atm/codex-sessions";

/// The directory of an identity.
pub(super) fn directory_of(atm_home: &Path, identity: &AgentName) -> PathBuf {
    atm_home.join(SESSIONS).join(identity.as_str())
}

/// The identities that have a directory, sorted.
pub(super) fn identities(atm_home: &Path) -> Result<Vec<AgentName>, FileError> {
    let directory = atm_home.join(SESSIONS);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(about(&directory)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(about(&directory))?;
        let name = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        names.extend(name.filter(|_| is_directory(&entry.path())));
    }
    names.sort();
    Ok(names)
}
