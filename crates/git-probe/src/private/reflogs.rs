//! Copies the reflogs of the private directory.

use std::path::{Path, PathBuf};
use std::{fs, io};

use safe_files::untrusted_file::{Links, read};

use super::remove::remove_tree;
use super::{LOG_LIMIT, PrivateGit};

/// The most reflogs that are copied.
const LOGS_LIMIT: usize = 10_000;

/// The most bytes of reflogs that are copied, in total.
const LOGS_BYTES: u64 = 64 * 1024 * 1024;

impl PrivateGit {
    /// Copies the reflogs, which tell commits that were made here from fetched ones.
    pub(super) async fn copy_logs(&self) -> io::Result<()> {
        let (from, to) = (self.path().join("logs"), self.logs());
        let new = self.directory.join("logs.new");
        self.with_files(move || {
            let mut left = Budget {
                files: LOGS_LIMIT,
                bytes: LOGS_BYTES,
            };
            remove_tree(&new)?;
            copy_files(&from, &new, &mut left)?;
            remove_tree(&to)?;
            fs::rename(new, to)
        })
        .await
    }

    /// The directory for copies of reflogs.
    pub(super) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }
}

/// The number of files and bytes that may still be copied.
struct Budget {
    files: usize,
    bytes: u64,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> io::Result<()> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let left = (self.files.checked_sub(1), self.bytes.checked_sub(bytes));
        let (Some(files), Some(bytes)) = left else {
            return Err(io::Error::other("the reflogs are too many or too long"));
        };
        *self = Self { files, bytes };
        Ok(())
    }
}

/// Copies a directory of small files; a missing one counts as empty. Entries that are neither files
/// nor directories are left out.
fn copy_files(from: &Path, to: &Path, left: &mut Budget) -> io::Result<()> {
    fs::create_dir(to)?;
    if !from.symlink_metadata().is_ok_and(|about| about.is_dir()) {
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            left.take(0)?;
            copy_files(&entry.path(), &target, left)?;
        } else if kind.is_file() {
            let bytes = read(&entry.path(), LOG_LIMIT, Links::Refused);
            let bytes = bytes.map_err(io::Error::other)?;
            left.take(bytes.len())?;
            fs::write(target, bytes)?;
        }
    }
    Ok(())
}
