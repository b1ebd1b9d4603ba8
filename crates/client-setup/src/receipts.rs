//! Receipts of the changes that `setup` has made, so that they can be undone exactly.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use common::text::hex;
use safe_files::directory;
use safe_files::state_file::{self, FileError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files;
use crate::logic::document::Servers;

/// The longest file of receipts, in bytes.
const LIMIT: u64 = 1 << 20;

/// Their directory in the state directory.
const DIRECTORY: &str = "setup";

/// The name of their file.
const RECEIPTS: &str = "receipts.json";

/// A changed configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The file.
    pub file: PathBuf,
    /// The client's name.
    pub client: String,
    /// The file before the change.
    pub before: Before,
    /// The servers that were replaced, and the entries of the user's own that were changed, by their
    /// names.
    pub replaced: Servers,
    /// The SHA-256 digests of the texts for which `before` holds: the one after the change and,
    /// until that is written, the one before.
    pub texts: Vec<String>,
    /// The directories that were made for the file; also those of files whose receipts were forgotten
    /// while something was in the directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<PathBuf>,
}

impl Receipt {
    /// Adds directories that were made, so that one follows those above it.
    fn add_directories(&mut self, made: Vec<PathBuf>) {
        self.directories.extend(made);
        self.directories.sort();
        self.directories.dedup();
    }
}

/// The state of a configuration file before the first change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// There was no such file.
    Absent,
    /// The contents of its copy, which has this name in the directory of the receipts.
    Copy(String),
    /// It had an entry that an earlier change has added, and was edited since: its copy is not what
    /// the user had without that entry.
    SetUp(String),
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

/// The receipts, in a file of the state directory, with the copies beside it. If they can be changed,
/// they are locked until this is dropped.
#[derive(Debug)]
pub struct Receipts {
    directory: PathBuf,
    all: Vec<Receipt>,
    _lock: Option<File>,
}

impl Receipts {
    /// Reads the receipts in this state directory. A file of receipts that is broken is set aside:
    /// the entries can be removed without it.
    ///
    /// # Errors
    ///
    /// [`FileError`], also if another process has them for too long.
    pub fn lock(state: &Path) -> Result<Self, FileError> {
        let directory = state.join(DIRECTORY);
        state_file::make_directory(&directory)?;
        let lock = state_file::lock(&directory.join("lock"))?;
        let path = directory.join(RECEIPTS);
        let all = match read(&path)? {
            Some(all) => all,
            None => {
                state_file::set_aside(&path)?;
                Vec::new()
            }
        };
        Ok(Self {
            directory,
            all,
            _lock: Some(lock),
        })
    }

    /// Reads the receipts without the lock. Nothing is written.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn read(state: &Path) -> Result<Self, FileError> {
        let directory = state.join(DIRECTORY);
        let all = read(&directory.join(RECEIPTS))?.unwrap_or_default();
        Ok(Self {
            directory,
            all,
            _lock: None,
        })
    }

    /// The receipts of changes that were not taken back.
    #[must_use]
    pub fn all(&self) -> &[Receipt] {
        &self.all
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
        &self,
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
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let name = format!("{name}.{}", since.unwrap_or_default().as_nanos());
        state_file::replace(&self.directory.join(&name), text.as_bytes())?;
        let was_changed = self.all.iter().any(|receipt| receipt.file == file);
        Ok(match has_ours && was_changed {
            true => Before::SetUp(name),
            false => Before::Copy(name),
        })
    }

    /// Notes a change, for these texts of the file. Of the entries that an earlier change has
    /// replaced, those stay noted whose name is `kept`.
    ///
    /// # Errors
    ///
    /// [`ReceiptError`].
    pub fn note(
        &mut self,
        mut receipt: Receipt,
        kept: impl Fn(&str) -> bool,
    ) -> Result<(), ReceiptError> {
        if let Some(earlier) = self.take(&receipt.file) {
            receipt.add_directories(earlier.directories);
            let replaced = earlier.replaced.into_iter();
            for (name, server) in replaced.filter(|(name, _)| kept(name)) {
                receipt.replaced.entry(name).or_insert(server);
            }
        }
        self.all.push(receipt);
        self.write()
    }

    /// Forgets the change of a file. Its copy is removed if the file is what it was before again, and
    /// so are the empty ones of the directories that were made for it.
    ///
    /// # Errors
    ///
    /// [`ReceiptError`].
    pub fn forget(&mut self, file: &Path, is_restored: bool) -> Result<(), ReceiptError> {
        let forgotten = self.take(file).map(|receipt| {
            self.remove_directories(receipt.directories);
            receipt.before
        });
        self.write()?;
        let Some(Before::Copy(name)) = forgotten.filter(|_| is_restored) else {
            return Ok(());
        };
        match self.copy(&name) {
            Some(path) => Ok(state_file::remove(&path)?),
            None => Ok(()),
        }
    }

    /// The entries of a file that were replaced or changed, as [`Receipt::replaced`] has them.
    #[must_use]
    pub fn replaced(&self, file: &Path) -> Servers {
        let receipt = self.all.iter().find(|receipt| receipt.file == file);
        receipt.map_or_else(Servers::new, |receipt| receipt.replaced.clone())
    }

    /// The receipt of a file with this text, if nobody has edited it since.
    #[must_use]
    pub fn exact(&self, file: &Path, text: &str) -> Option<&Receipt> {
        let text = digest(text);
        let mut all = self.all.iter();
        all.find(|receipt| receipt.file == file && receipt.texts.contains(&text))
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

    /// Removes the empty ones of these directories. Another file may be in the others: they are tried
    /// again when its change is forgotten.
    fn remove_directories(&mut self, mut made: Vec<PathBuf>) {
        directory::remove_empty(&made);
        made.retain(|path| path.exists());
        if let Some(other) = self.all.last_mut() {
            other.add_directories(made);
        }
    }

    fn take(&mut self, file: &Path) -> Option<Receipt> {
        let found = self.all.iter().position(|receipt| receipt.file == file)?;
        Some(self.all.remove(found))
    }

    fn write(&self) -> Result<(), ReceiptError> {
        let bytes = serde_json::to_vec_pretty(&self.all)?;
        state_file::replace(&self.directory.join(RECEIPTS), &bytes)?;
        Ok(())
    }
}

/// The receipts in this file; `None` if it is broken.
fn read(path: &Path) -> Result<Option<Vec<Receipt>>, FileError> {
    match state_file::open(path)? {
        None => Ok(Some(Vec::new())),
        Some(file) => {
            let bytes = state_file::read(&file, path, LIMIT)?;
            Ok(serde_json::from_slice(&bytes).ok())
        }
    }
}

/// The digest of a text, as in [`Receipt::texts`].
#[must_use]
pub fn digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::files::ConfigFile;

    const FILE: &str = "/home/me/.cursor/mcp.json";

    fn receipt(before: Before, text: &str) -> Receipt {
        Receipt {
            file: FILE.into(),
            client: "cursor".to_owned(),
            before,
            replaced: Servers::new(),
            texts: vec![digest(text)],
            directories: Vec::new(),
        }
    }

    fn copy_of(before: &Before) -> &str {
        match before {
            Before::Copy(name) | Before::SetUp(name) => name,
            Before::Absent => "",
        }
    }

    #[test]
    fn copy_is_what_the_user_had_before_all_changes() {
        let directory = tempfile::tempdir().unwrap();
        let file = Path::new(FILE);
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        let before = receipts.back_up(file, Some("mine"), false).unwrap();
        receipts.note(receipt(before, "first"), |_| true).unwrap();
        assert_eq!(receipts.exact(file, "edited"), None);
        let before = receipts.back_up(file, Some("first"), true).unwrap();
        receipts.note(receipt(before, "second"), |_| true).unwrap();
        drop(receipts);
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        let before = receipts.exact(file, "second").unwrap().before.clone();
        assert_eq!(receipts.copied(copy_of(&before)).unwrap(), "mine");
        assert_eq!(receipts.all().len(), 1);
        receipts.forget(file, true).unwrap();
        assert_eq!(receipts.exact(file, "second"), None);
        assert_eq!(receipts.copied(copy_of(&before)), None);
    }

    #[test]
    fn copies_stay_until_the_file_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let file = Path::new(FILE);
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        let first = receipts.back_up(file, Some("mine"), false).unwrap();
        receipts
            .note(receipt(first.clone(), "first"), |_| true)
            .unwrap();
        let second = receipts.back_up(file, Some("first, edited"), true).unwrap();
        assert!(matches!(second, Before::SetUp(_)), "{second:?}");
        receipts
            .note(receipt(second.clone(), "second"), |_| true)
            .unwrap();
        receipts.forget(file, false).unwrap();
        assert_eq!(receipts.copied(copy_of(&first)).unwrap(), "mine");
        assert_eq!(receipts.copied(copy_of(&second)).unwrap(), "first, edited");
    }

    #[test]
    fn replaced_entries_are_known_after_further_changes() {
        let directory = tempfile::tempdir().unwrap();
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        let mut first = receipt(Before::Absent, "first");
        first.replaced.insert("codex".to_owned(), json!(1));
        receipts.note(first, |_| true).unwrap();
        receipts
            .note(receipt(Before::Absent, "second"), |_| true)
            .unwrap();
        assert_eq!(receipts.replaced(Path::new(FILE))["codex"], 1);
        // The user has removed the entry since.
        let third = receipt(Before::Absent, "third");
        receipts.note(third, |name| name != "codex").unwrap();
        assert_eq!(receipts.replaced(Path::new(FILE)), Servers::new());
    }

    #[test]
    fn directories_that_were_made_go_with_the_last_file_in_them() {
        let state = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let mut receipts = Receipts::lock(state.path()).unwrap();
        // The second change of a file makes no directory.
        for name in ["made/one", "made/below/two", "made/one"] {
            let file = ConfigFile::of_user(&path(name)).unwrap();
            let directories = file.make_directory().unwrap();
            file.replace("x").unwrap();
            let receipt = Receipt {
                file: path(name),
                directories,
                ..receipt(Before::Absent, "x")
            };
            receipts.note(receipt, |_| true).unwrap();
        }
        for (name, stays) in [("made/one", true), ("made/below/two", false)] {
            std::fs::remove_file(path(name)).unwrap();
            receipts.forget(&path(name), true).unwrap();
            assert_eq!(path("made").exists(), stays, "{name}");
        }
        assert!(home.path().exists());
    }

    #[test]
    fn directory_with_other_files_stays() {
        let state = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let mut receipts = Receipts::lock(state.path()).unwrap();
        let file = ConfigFile::of_user(&path("made/one")).unwrap();
        let mut noted = receipt(Before::Absent, "x");
        noted.directories = file.make_directory().unwrap();
        receipts.note(noted, |_| true).unwrap();
        std::fs::create_dir(path("made/theirs")).unwrap();
        receipts.forget(Path::new(FILE), true).unwrap();
        assert!(path("made/theirs").exists());
    }

    #[test]
    fn receipts_of_earlier_versions_are_read() {
        let directory = tempfile::tempdir().unwrap();
        drop(Receipts::lock(directory.path()).unwrap());
        let earlier = json!([{
            "file": FILE,
            "client": "cursor",
            "before": "absent",
            "replaced": {},
            "texts": [digest("x")],
        }]);
        let path = directory.path().join(DIRECTORY).join(RECEIPTS);
        state_file::replace(&path, earlier.to_string().as_bytes()).unwrap();
        let receipts = Receipts::read(directory.path()).unwrap();
        assert_eq!(receipts.all(), [receipt(Before::Absent, "x")]);
    }

    #[test]
    fn broken_receipts_are_set_aside_and_no_other_file_is_taken_for_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let file = Path::new(FILE);
        let mut receipts = Receipts::lock(directory.path()).unwrap();
        assert_eq!(receipts.back_up(file, None, false).unwrap(), Before::Absent);
        let outside = Before::Copy("../secret".to_owned());
        receipts.note(receipt(outside, "x"), |_| true).unwrap();
        state_file::replace(&directory.path().join("secret"), b"secret").unwrap();
        assert_eq!(receipts.copied("../secret"), None);
        receipts.forget(file, true).unwrap();
        assert!(
            state_file::open(&directory.path().join("secret"))
                .unwrap()
                .is_some()
        );
        drop(receipts);
        let path = directory.path().join(DIRECTORY).join(RECEIPTS);
        state_file::replace(&path, b"{").unwrap();
        assert_eq!(Receipts::read(directory.path()).unwrap().all(), []);
        assert!(state_file::open(&path).unwrap().is_some());
        let receipts = Receipts::lock(directory.path()).unwrap();
        assert_eq!(receipts.all(), []);
        assert!(state_file::open(&path).unwrap().is_none());
    }
}
