//! What setting up has changed, so that it can be taken back exactly.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use common::text::hex;
use safe_files::state_file::{self, FileError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files;

/// The longest file of receipts, in bytes.
const LIMIT: u64 = 1 << 20;

/// A changed configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The file.
    pub file: PathBuf,
    /// The copy of it from before; `None` if there was no such file.
    pub backup: Option<PathBuf>,
    /// The SHA-256 digest of its text after the change.
    pub after: String,
}

/// The receipts, in a file of the state directory, with the backups beside it.
#[derive(Debug)]
pub struct Receipts {
    directory: PathBuf,
}

impl Receipts {
    /// The receipts in this state directory.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self {
            directory: state.join("setup"),
        }
    }

    /// Copies the text of a file before it is changed. Returns the copy's path; `None` if there is
    /// no text.
    ///
    /// If the text is what an earlier change has left, the copy of that change is kept: it is what
    /// the user had.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn back_up(&self, file: &Path, text: Option<&str>) -> Result<Option<PathBuf>, FileError> {
        let Some(text) = text else {
            return Ok(None);
        };
        if let Some(earlier) = self.exact(file, text)? {
            return Ok(earlier.backup);
        }
        state_file::make_directory(&self.directory)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let backup = format!("{name}.{}", since.unwrap_or_default().as_nanos());
        let backup = self.directory.join(backup);
        state_file::replace(&backup, text.as_bytes())?;
        Ok(Some(backup))
    }

    /// Notes a change.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn note(&self, file: &Path, backup: Option<PathBuf>, after: &str) -> Result<(), FileError> {
        let mut all = self.all()?;
        all.retain(|receipt| receipt.file != file);
        all.push(Receipt {
            file: file.to_owned(),
            backup,
            after: digest(after),
        });
        self.write(&all)
    }

    /// Forgets the change of a file, which was taken back.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn forget(&self, file: &Path) -> Result<(), FileError> {
        let mut all = self.all()?;
        all.retain(|receipt| receipt.file != file);
        self.write(&all)
    }

    /// The receipt of a file with this text, if nobody has edited it since.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn exact(&self, file: &Path, text: &str) -> Result<Option<Receipt>, FileError> {
        let mut all = self.all()?.into_iter();
        Ok(all.find(|receipt| receipt.file == file && receipt.after == digest(text)))
    }

    /// The text of a backup.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn backed_up(&self, backup: &Path) -> Result<String, FileError> {
        let missing = || state_file::about(backup)(io::ErrorKind::NotFound.into());
        let file = state_file::open(backup)?.ok_or_else(missing)?;
        let bytes = state_file::read(&file, backup, files::LIMIT)?;
        let text = String::from_utf8(bytes).map_err(io::Error::other);
        text.map_err(state_file::about(backup))
    }

    fn all(&self) -> Result<Vec<Receipt>, FileError> {
        let path = self.path();
        let Some(file) = state_file::open(&path)? else {
            return Ok(Vec::new());
        };
        let bytes = state_file::read(&file, &path, LIMIT)?;
        let broken = |error: serde_json::Error| state_file::about(&path)(io::Error::other(error));
        serde_json::from_slice(&bytes).map_err(broken)
    }

    fn write(&self, all: &[Receipt]) -> Result<(), FileError> {
        state_file::make_directory(&self.directory)?;
        let bytes = serde_json::to_vec_pretty(all).unwrap_or_default();
        state_file::replace(&self.path(), &bytes).map(drop)
    }

    fn path(&self) -> PathBuf {
        self.directory.join("receipts.json")
    }
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backup_is_what_the_user_had_before_all_changes() {
        let directory = tempfile::tempdir().unwrap();
        let receipts = Receipts::of(directory.path());
        let file = Path::new("/home/me/.cursor/mcp.json");
        let backup = receipts.back_up(file, Some("mine")).unwrap();
        receipts.note(file, backup, "first").unwrap();
        assert_eq!(receipts.exact(file, "edited").unwrap(), None);
        let backup = receipts.back_up(file, Some("first")).unwrap();
        receipts.note(file, backup, "second").unwrap();
        let receipt = receipts.exact(file, "second").unwrap().unwrap();
        assert_eq!(
            receipts.backed_up(&receipt.backup.unwrap()).unwrap(),
            "mine"
        );
        receipts.forget(file).unwrap();
        assert_eq!(receipts.exact(file, "second").unwrap(), None);
    }

    #[test]
    fn file_that_was_not_there_has_no_backup() {
        let directory = tempfile::tempdir().unwrap();
        let receipts = Receipts::of(directory.path());
        let file = Path::new("/home/me/new.json");
        let backup = receipts.back_up(file, None).unwrap();
        receipts.note(file, backup, "ours").unwrap();
        let receipt = receipts.exact(file, "ours").unwrap().unwrap();
        assert_eq!(receipt.backup, None);
    }
}
