//! The summaries of threads, which Codex writes when they end: `THREAD/summary.md` in the
//! identity's directory (FR-6.4).

use std::path::{Path, PathBuf};
use std::{fs, io};

use safe_files::state_file::{self, FileError, about};

use super::identities;
use crate::logic::{AgentName, ThreadName};

const FILE: &str = "summary.md";

/// The longest summary, in bytes. A longer one is cut, and marked so.
pub const LONGEST: usize = 64 << 10;

/// The end of a cut summary.
const CUT: &str = "\n[… cut here]\n";

/// The longest file that is read, in bytes: another program may have written it.
const LONGEST_FILE: u64 = 16 << 20;

/// The summaries of an identity.
#[derive(Debug, Clone)]
pub struct Summaries {
    directory: PathBuf,
}

impl Summaries {
    /// The summaries of an identity below the home directory of the agents.
    #[must_use]
    pub fn of(atm_home: &Path, identity: &AgentName) -> Self {
        Self {
            directory: identities::directory_of(atm_home, identity),
        }
    }

    /// Writes the summary of a thread, in place of an older one.
    ///
    /// # Errors
    ///
    /// When the summary can't be written; then the older one is kept.
    pub fn write(&self, thread: &ThreadName, text: &str) -> Result<(), FileError> {
        let directory = self.directory.join(thread.as_str());
        state_file::make_directory(&directory)?;
        check_not_a_link(&directory)?;
        state_file::replace(&directory.join(FILE), bounded(text).as_bytes())?;
        state_file::sync_directory(&directory)
    }

    /// The summary of a thread, if there is one.
    ///
    /// # Errors
    ///
    /// When the summary can't be read.
    pub fn read(&self, thread: &ThreadName) -> Result<Option<String>, FileError> {
        let directory = self.directory.join(thread.as_str());
        if fs::symlink_metadata(&directory).is_err() {
            return Ok(None);
        }
        check_not_a_link(&directory)?;
        let path = directory.join(FILE);
        let Some(file) = state_file::open(&path)? else {
            return Ok(None);
        };
        let bytes = state_file::read(&file, &path, LONGEST_FILE)?;
        Ok(Some(bounded(&String::from_utf8_lossy(&bytes))))
    }

    /// Removes the summary of a thread and its directory. A directory with other files in it stays.
    ///
    /// # Errors
    ///
    /// When the summary can't be removed.
    pub fn remove(&self, thread: &ThreadName) -> Result<(), FileError> {
        let directory = self.directory.join(thread.as_str());
        if !state_file::is_directory(&directory) {
            return Ok(());
        }
        let path = directory.join(FILE);
        state_file::remove(&path)?;
        state_file::remove(&state_file::with_suffix(&path, ".new"))?;
        match fs::remove_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(error) => Err(about(&directory)(error)),
            Ok(()) => state_file::sync_directory(&directory),
        }
    }

    /// The threads that have a summary, sorted.
    ///
    /// # Errors
    ///
    /// When the identity's directory can't be read.
    pub fn list(&self) -> Result<Vec<ThreadName>, FileError> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(about(&self.directory)(error)),
        };
        let mut threads = Vec::new();
        for entry in entries {
            let entry = entry.map_err(about(&self.directory))?;
            let name = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let path = entry.path();
            let has_one = state_file::is_directory(&path) && path.join(FILE).is_file();
            threads.extend(name.filter(|_| has_one));
        }
        threads.sort();
        Ok(threads)
    }
}

/// The summary of a thread of any identity; the latest of several.
///
/// # Errors
///
/// When the directory of the identities, or the summary, can't be read.
pub fn find(atm_home: &Path, thread: &ThreadName) -> Result<Option<String>, FileError> {
    let all = identities::identities(atm_home)?.into_iter();
    let all = all.map(|identity| Summaries::of(atm_home, &identity));
    let written = |summaries: &Summaries| {
        let path = summaries.directory.join(thread.as_str()).join(FILE);
        fs::symlink_metadata(path)
            .and_then(|about| about.modified())
            .ok()
    };
    let latest = all.filter_map(|one| Some((written(&one)?, one)));
    match latest.max_by_key(|(written, _)| *written) {
        Some((_, summaries)) => summaries.read(thread),
        None => Ok(None),
    }
}

/// A link could lead anywhere.
fn check_not_a_link(directory: &Path) -> Result<(), FileError> {
    match state_file::is_directory(directory) {
        true => Ok(()),
        false => Err(about(directory)(io::ErrorKind::NotADirectory.into())),
    }
}

fn bounded(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let room = LONGEST.saturating_sub(CUT.len());
    let fits = text.get(..text.floor_char_boundary(room));
    format!("{}{CUT}", fits.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn stage() -> (tempfile::TempDir, Summaries, ThreadName) {
        let home = tempfile::tempdir().unwrap();
        let summaries = Summaries::of(home.path(), &"codex".parse().unwrap());
        (home, summaries, "t-1".parse().unwrap())
    }

    #[test]
    fn summary_is_written_read_found_and_removed() {
        let (home, summaries, thread) = stage();
        assert_eq!(summaries.read(&thread).unwrap(), None);
        assert_eq!(summaries.list().unwrap(), []);
        assert_eq!(find(home.path(), &thread).unwrap(), None);
        summaries.write(&thread, "one").unwrap();
        summaries.write(&thread, "two\n").unwrap();
        assert_eq!(summaries.read(&thread).unwrap().as_deref(), Some("two\n"));
        assert_eq!(
            find(home.path(), &thread).unwrap().as_deref(),
            Some("two\n")
        );
        assert_eq!(summaries.list().unwrap(), std::slice::from_ref(&thread));
        let file = summaries.directory.join("t-1").join(FILE);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        summaries.remove(&thread).unwrap();
        summaries.remove(&thread).unwrap();
        assert!(!file.parent().unwrap().exists());
    }

    #[test]
    fn long_summary_is_cut_between_characters() {
        let (_home, summaries, thread) = stage();
        summaries.write(&thread, &"ß".repeat(LONGEST)).unwrap();
        let read = summaries.read(&thread).unwrap().unwrap();
        assert!(read.len() <= LONGEST && read.len() > LONGEST - 8);
        assert!(read.ends_with(CUT));
    }

    #[test]
    fn links_in_the_summary_directory_are_refused() {
        let (home, summaries, thread) = stage();
        let outside = home.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::create_dir_all(&summaries.directory).unwrap();
        symlink(&outside, summaries.directory.join("t-1")).unwrap();
        assert!(summaries.write(&thread, "x").is_err());
        assert!(summaries.read(&thread).is_err());
        assert_eq!(summaries.list().unwrap(), []);
        summaries.remove(&thread).unwrap();
        assert!(outside.exists() && !outside.join(FILE).exists());
        let victim = outside.join("victim");
        fs::write(&victim, "mine").unwrap();
        let other: ThreadName = "t-2".parse().unwrap();
        fs::create_dir(summaries.directory.join("t-2")).unwrap();
        symlink(&victim, summaries.directory.join("t-2").join(FILE)).unwrap();
        assert!(summaries.read(&other).is_err());
        // The link is replaced, not written through.
        summaries.write(&other, "x").unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "mine");
    }

    #[test]
    fn removal_keeps_files_of_others() {
        let (_home, summaries, thread) = stage();
        summaries.write(&thread, "x").unwrap();
        let note = summaries.directory.join("t-1").join("note");
        fs::write(&note, "mine").unwrap();
        summaries.remove(&thread).unwrap();
        assert_eq!(summaries.read(&thread).unwrap(), None);
        assert!(note.exists());
    }
}
