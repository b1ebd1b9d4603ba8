//! What setting up has changed, so that it can be taken back exactly.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use common::text::hex;
use safe_files::state_file::{self, FileError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files;

/// The longest file of receipts, in bytes.
const LIMIT: u64 = 1 << 20;

/// The name of their file.
const RECEIPTS: &str = "receipts.json";

/// A changed configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The file.
    pub file: PathBuf,
    /// What it was before.
    pub before: Before,
    /// The SHA-256 digest of its text after the change.
    pub after: String,
}

/// What a configuration file was before the first change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// There was no such file.
    Absent,
    /// The name of its copy in the directory of the receipts.
    Copy(String),
    /// It had an entry of this program, so no copy is what the user had.
    Unknown,
}

/// Why the receipts cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// A file of ours cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// They cannot be written as JSON.
    #[error("the receipts cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

/// The receipts, in a file of the state directory, with the copies beside it. They are locked until
/// this is dropped.
#[derive(Debug)]
pub struct Receipts {
    directory: PathBuf,
    all: Vec<Receipt>,
    _lock: File,
}

impl Receipts {
    /// Reads the receipts in this state directory. A file of receipts that is broken is set aside:
    /// the entries can be removed without it.
    ///
    /// # Errors
    ///
    /// [`FileError`], also if another process has them for too long.
    pub fn lock(state: &Path) -> Result<Self, FileError> {
        let directory = state.join("setup");
        state_file::make_directory(&directory)?;
        let lock = state_file::lock(&directory.join("lock"))?;
        let path = directory.join(RECEIPTS);
        let all = match state_file::open(&path)? {
            None => Vec::new(),
            Some(file) => {
                let bytes = state_file::read(&file, &path, LIMIT)?;
                match serde_json::from_slice(&bytes) {
                    Ok(all) => all,
                    Err(_) => {
                        state_file::set_aside(&path)?;
                        Vec::new()
                    }
                }
            }
        };
        Ok(Self {
            directory,
            all,
            _lock: lock,
        })
    }

    /// The files that were changed, and not changed back.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(|receipt| receipt.file.as_path())
    }

    /// Copies the text of a file before it is changed. `has_ours` says whether it has an entry of
    /// this program.
    ///
    /// If the text is what an earlier change has left, what was before that change counts.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn back_up(
        &mut self,
        file: &Path,
        text: Option<&str>,
        has_ours: bool,
    ) -> Result<Before, FileError> {
        let Some(text) = text else {
            return Ok(Before::Absent);
        };
        if let Some(earlier) = self.exact(file, text) {
            return Ok(earlier.before.clone());
        }
        if has_ours {
            return Ok(Before::Unknown);
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let name = format!("{name}.{}", since.unwrap_or_default().as_nanos());
        state_file::replace(&self.directory.join(&name), text.as_bytes())?;
        Ok(Before::Copy(name))
    }

    /// Notes a change. The copy of an earlier change of the file is removed if it is not this one's.
    ///
    /// # Errors
    ///
    /// [`ReceiptError`].
    pub fn note(&mut self, file: &Path, before: Before, after: &str) -> Result<(), ReceiptError> {
        let superseded = self.take(file);
        self.all.push(Receipt {
            file: file.to_owned(),
            before,
            after: digest(after),
        });
        self.write()?;
        self.discard(superseded)
    }

    /// Forgets the change of a file, which was taken back, with its copy.
    ///
    /// # Errors
    ///
    /// [`ReceiptError`].
    pub fn forget(&mut self, file: &Path) -> Result<(), ReceiptError> {
        let forgotten = self.take(file);
        self.write()?;
        self.discard(forgotten)
    }

    /// The receipt of a file with this text, if nobody has edited it since.
    #[must_use]
    pub fn exact(&self, file: &Path, text: &str) -> Option<&Receipt> {
        let after = digest(text);
        self.all
            .iter()
            .find(|receipt| receipt.file == file && receipt.after == after)
    }

    /// The text of a copy; `None` if it is gone.
    #[must_use]
    pub fn copied(&self, name: &str) -> Option<String> {
        let path = self.copy(name)?;
        let file = state_file::open(&path).ok()??;
        let bytes = state_file::read(&file, &path, files::LIMIT).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// The path of a copy, which has no directory of its own.
    #[must_use]
    pub fn copy(&self, name: &str) -> Option<PathBuf> {
        let is_plain = Path::new(name).file_name() == Some(name.as_ref());
        is_plain.then(|| self.directory.join(name))
    }

    fn take(&mut self, file: &Path) -> Option<Receipt> {
        let found = self.all.iter().position(|receipt| receipt.file == file)?;
        Some(self.all.remove(found))
    }

    /// Removes the copy of a receipt, unless another one needs it.
    fn discard(&self, receipt: Option<Receipt>) -> Result<(), ReceiptError> {
        let Some(Receipt {
            before: Before::Copy(name),
            ..
        }) = receipt
        else {
            return Ok(());
        };
        let is_needed = self
            .all
            .iter()
            .any(|other| other.before == Before::Copy(name.clone()));
        match self.copy(&name).filter(|_| !is_needed) {
            Some(path) => Ok(state_file::remove(&path)?),
            None => Ok(()),
        }
    }

    fn write(&self) -> Result<(), ReceiptError> {
        let bytes = serde_json::to_vec_pretty(&self.all)?;
        state_file::replace(&self.directory.join(RECEIPTS), &bytes)?;
        Ok(())
    }
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "/home/me/.cursor/mcp.json";

    fn copy_of(before: &Before) -> &str {
        match before {
            Before::Copy(name) => name,
            Before::Absent | Before::Unknown => "",
        }
    }

    #[test]
    fn copy_is_what_the_user_had_before_all_changes() {
        let directory = tempfile::tempdir().unwrap();
        let file = Path::new(FILE);
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        let before = receipts.back_up(file, Some("mine"), false).unwrap();
        receipts.note(file, before, "first").unwrap();
        assert_eq!(receipts.exact(file, "edited"), None);
        let before = receipts.back_up(file, Some("first"), true).unwrap();
        receipts.note(file, before, "second").unwrap();
        drop(receipts);
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        let before = receipts.exact(file, "second").unwrap().before.clone();
        assert_eq!(receipts.copied(copy_of(&before)).unwrap(), "mine");
        assert_eq!(receipts.files().collect::<Vec<_>>(), [file]);
        receipts.forget(file).unwrap();
        assert_eq!(receipts.exact(file, "second"), None);
        assert_eq!(receipts.copied(copy_of(&before)), None);
    }

    #[test]
    fn edited_file_with_an_entry_of_ours_has_no_copy() {
        let directory = tempfile::tempdir().unwrap();
        let file = Path::new(FILE);
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        let before = receipts.back_up(file, Some("mine"), false).unwrap();
        let name = copy_of(&before).to_owned();
        receipts.note(file, before, "first").unwrap();
        let before = receipts.back_up(file, Some("first, edited"), true).unwrap();
        assert_eq!(before, Before::Unknown);
        receipts.note(file, before, "second").unwrap();
        assert_eq!(receipts.copied(&name), None);
    }

    #[test]
    fn broken_receipts_are_set_aside_and_no_other_file_is_taken_for_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let file = Path::new(FILE);
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        assert_eq!(receipts.back_up(file, None, false).unwrap(), Before::Absent);
        receipts
            .note(file, Before::Copy("../secret".to_owned()), "x")
            .unwrap();
        state_file::replace(&directory.path().join("secret"), b"secret").unwrap();
        assert_eq!(receipts.copied("../secret"), None);
        receipts.forget(file).unwrap();
        assert!(
            state_file::open(&directory.path().join("secret"))
                .unwrap()
                .is_some()
        );
        drop(receipts);
        state_file::replace(&directory.path().join("setup").join(RECEIPTS), b"{").unwrap();
        let receipts = Receipts::lock(directory.path()).unwrap();
        assert_eq!(receipts.files().count(), 0);
    }
}
