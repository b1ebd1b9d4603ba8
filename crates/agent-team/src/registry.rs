//! The threads of an identity, on disk: `registry.IDENTITY.json` in the identity's directory, and
//! in journal mode also `registry.IDENTITY.jsonl`.
//!
//! A writer takes the lock, reads the files again if they have changed since it last read them, and
//! applies its change. A reader needs no lock: a document is replaced as a whole, a journal only
//! grows until it is removed, and a line that the document already contains is recognised by its
//! version. This requires that the journal is read first.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use safe_files::state_file::{self, FileError, about};

use super::identities;
use crate::logic::registry::{
    Change, ChangeOutcome, Document, Entry, JournalLine, Malformed, Status,
};
use crate::logic::{AgentName, ThreadName};

/// The longest document, in bytes; a usual entry has 500.
const LONGEST_DOCUMENT: u64 = 64 << 20;

/// The longest journal that is read, in bytes.
const LONGEST_JOURNAL: u64 = 16 << 20;

/// The size from which a journal is folded into the document, in bytes and lines: reading it should
/// take no longer than reading the document.
const JOURNAL_BYTES: usize = 256 << 10;
const JOURNAL_LINES: usize = 1000;

/// How changes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The document is rewritten.
    Document,
    /// A line is added to the journal, which writes less where there are many threads and many
    /// changes.
    Journal,
}

/// Why the registry can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A document is malformed.
    #[error("{}: {error}; the next server of this identity sets it aside", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: Malformed,
    },
    /// A change can't be written as JSON.
    #[error("the registry cannot be written: {0}")]
    Unwritable(#[from] Malformed),
}

/// The registry of an identity.
#[derive(Debug)]
pub struct Registry {
    paths: Paths,
    mode: Mode,
    /// The state that was read or written last.
    cache: Option<Cache>,
    /// Whether `cache` is kept after a change.
    keeps_cache: bool,
    /// The version of the state that was dropped last.
    dropped_version: u64,
}

#[derive(Debug, Clone)]
struct Paths {
    document: PathBuf,
    journal: PathBuf,
    lock: PathBuf,
}

/// The threads, and the files that hold them.
#[derive(Debug)]
struct Cache {
    threads: Document,
    document: Option<FileStamp>,
    journal: Option<FileStamp>,
    /// The state of the journal.
    state: JournalState,
    lines: usize,
}

/// The state of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JournalState {
    /// A line can be added.
    Intact,
    /// The last line is incomplete: its writer died, or the disk was full.
    Torn,
    /// Some lines can't be read.
    Unreadable,
}

/// A file and its state when it was read or written.
#[derive(Debug)]
struct FileStamp {
    /// Kept open, so that no other file gets its inode number.
    _file: File,
    about: (u64, u64, u64, i64, i64),
}

impl FileStamp {
    fn of(file: File) -> io::Result<Self> {
        let about = fingerprint(&file.metadata()?);
        Ok(Self { _file: file, about })
    }
}

fn fingerprint(about: &Metadata) -> (u64, u64, u64, i64, i64) {
    let (time, nanos) = (about.mtime(), about.mtime_nsec());
    (about.dev(), about.ino(), about.len(), time, nanos)
}

/// Whether a file is still as it was.
fn is_still(stamp: Option<&FileStamp>, path: &Path) -> bool {
    let now = fs::symlink_metadata(path).map(|about| fingerprint(&about));
    match (stamp, now) {
        (Some(stamp), Ok(now)) => stamp.about == now,
        (None, Err(error)) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

impl Paths {
    fn new(atm_home: &Path, identity: &AgentName) -> Self {
        let file = |extension| {
            let name = format!("registry.{identity}.{extension}");
            identities::directory_of(atm_home, identity).join(name)
        };
        Self {
            document: file("json"),
            journal: file("jsonl"),
            lock: file("lock"),
        }
    }

    /// Reads both files; `broken` handles a malformed document.
    fn read(
        &self,
        broken: impl FnOnce(&Path, Malformed) -> Result<Document, RegistryError>,
    ) -> Result<Cache, RegistryError> {
        let (journal, lines) = load(&self.journal, LONGEST_JOURNAL)?;
        let (document, text) = load(&self.document, LONGEST_DOCUMENT)?;
        let mut threads = match (&document, Document::parse(&text)) {
            (None, _) => Document::default(),
            (Some(_), Ok(threads)) => threads,
            (Some(_), Err(error)) => broken(&self.document, error)?,
        };
        let state = fold(&mut threads, &lines);
        Ok(Cache {
            threads,
            // A document that was set aside is gone.
            document: document.filter(|stamp| is_still(Some(stamp), &self.document)),
            journal,
            state,
            lines: lines.lines().count(),
        })
    }
}

/// The text of a file. Text that is not UTF-8 is not JSON either.
fn load(path: &Path, limit: u64) -> Result<(Option<FileStamp>, String), FileError> {
    let Some(file) = state_file::open(path)? else {
        return Ok((None, String::new()));
    };
    // Taken before the file is read, so lines that are added meanwhile make the stamp outdated and
    // are read again.
    let about = fingerprint(&file.metadata().map_err(about(path))?);
    let bytes = state_file::read(&file, path, limit)?;
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok((Some(FileStamp { _file: file, about }), text))
}

/// Applies the changes of a journal to the document.
fn fold(threads: &mut Document, lines: &str) -> JournalState {
    let mut state = JournalState::Intact;
    for line in lines.split_inclusive('\n') {
        match (
            line.ends_with('\n'),
            serde_json::from_str::<JournalLine>(line),
        ) {
            (true, Ok(line)) => threads.fold(&line),
            (true, Err(_)) => state = JournalState::Unreadable,
            (false, _) if state == JournalState::Intact => state = JournalState::Torn,
            (false, _) => {}
        }
    }
    state
}

impl Registry {
    /// Opens the registry of an identity below the home directory of the agents, and creates the
    /// identity's directory.
    ///
    /// # Errors
    ///
    /// When the directory can't be created.
    pub fn open(atm_home: &Path, identity: &AgentName, mode: Mode) -> Result<Self, RegistryError> {
        state_file::make_directory(&identities::directory_of(atm_home, identity))?;
        Ok(Self {
            paths: Paths::new(atm_home, identity),
            mode,
            cache: None,
            keeps_cache: true,
            dropped_version: 0,
        })
    }

    /// Applies a change: when this returns, it is on the disk.
    ///
    /// # Errors
    ///
    /// [`RegistryError`]. The change may then be found in the registry or not.
    pub fn apply(&mut self, change: &Change) -> Result<ChangeOutcome, RegistryError> {
        let (outcome, ()) = self.apply_after(|_| (), change)?;
        Ok(outcome)
    }

    /// Applies a change like [`apply`](Self::apply), after `look` has read the threads under the
    /// same lock.
    fn apply_after<T>(
        &mut self,
        look: impl FnOnce(&Document) -> T,
        change: &Change,
    ) -> Result<(ChangeOutcome, T), RegistryError> {
        let _lock = state_file::lock(&self.paths.lock)?;
        let mut cache = self.current_locked()?;
        let looked = look(&cache.threads);
        let outcome = cache.threads.apply(change);
        if outcome == ChangeOutcome::Changed {
            cache = match self.mode {
                Mode::Journal if cache.has_room() => self.append(cache, change)?,
                _ => self.write(cache)?,
            };
        }
        self.cache = Some(cache);
        if !self.keeps_cache {
            self.drop_cache();
        }
        Ok((outcome, looked))
    }

    /// Closes the files and drops the cached threads, now and after each further change, to save
    /// memory: a host has the registries of many clients that have gone.
    pub fn release(&mut self) {
        self.keeps_cache = false;
        self.drop_cache();
    }

    /// Closes the files and forgets the threads until they are needed again.
    pub fn drop_cache(&mut self) {
        if let Some(cache) = self.cache.take() {
            self.dropped_version = cache.threads.version;
        }
    }

    /// Marks the threads that an earlier process of this identity left active as interrupted, and
    /// returns them. Only for the holder of the [`Claim`](super::Claim).
    ///
    /// # Errors
    ///
    /// As [`Registry::apply`].
    pub fn take_over(&mut self) -> Result<Vec<ThreadName>, RegistryError> {
        let active = |threads: &Document| {
            let active = threads
                .entries()
                .filter(|entry| entry.status == Status::Active);
            active.map(|entry| entry.thread_id.clone()).collect()
        };
        let (_, threads) = self.apply_after(active, &Change::InterruptActive)?;
        Ok(threads)
    }

    /// The threads, as they are now, in the order in which they were begun.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub fn load(&mut self) -> Result<Vec<Entry>, RegistryError> {
        Ok(self.current()?.entries().cloned().collect())
    }

    /// Finds a thread.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub fn find(&mut self, thread: &ThreadName) -> Result<Option<Entry>, RegistryError> {
        Ok(self.current()?.find(thread).cloned())
    }

    /// The thread that was used last.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub fn latest(&mut self) -> Result<Option<Entry>, RegistryError> {
        Ok(self.current()?.latest(SystemTime::now()).cloned())
    }

    /// The current threads, read without a lock.
    fn current(&mut self) -> Result<&Document, RegistryError> {
        let cache = match self.cached() {
            Some(cache) => cache,
            None => self.paths.read(malformed)?,
        };
        Ok(&self.cache.insert(cache).threads)
    }

    /// The current threads, for a caller that has the lock and is about to change them.
    fn current_locked(&mut self) -> Result<Cache, RegistryError> {
        let cached = self.cache.as_ref().map(|cache| cache.threads.version);
        let before = cached.unwrap_or(self.dropped_version);
        if let Some(cache) = self.cached() {
            return Ok(cache);
        }
        let mut cache = self.paths.read(set_aside_malformed)?;
        if cache.threads.version < before {
            // An older file was put back. A version must never be used twice.
            cache.threads.version = before;
            cache.state = JournalState::Torn;
        }
        Ok(cache)
    }

    /// The cached state, if the files have not changed.
    fn cached(&mut self) -> Option<Cache> {
        let cache = self.cache.take()?;
        let same = is_still(cache.document.as_ref(), &self.paths.document)
            && is_still(cache.journal.as_ref(), &self.paths.journal);
        same.then_some(cache)
    }

    fn write(&self, cache: Cache) -> Result<Cache, RegistryError> {
        let text = cache.threads.to_json()?;
        let path = &self.paths.document;
        if text.len() as u64 > LONGEST_DOCUMENT {
            let path = path.to_owned();
            let limit = LONGEST_DOCUMENT;
            return Err(FileError::TooLong { path, limit }.into());
        }
        let file = state_file::replace(path, text.as_bytes())?;
        let document = FileStamp::of(file).map_err(about(path))?;
        if cache.state == JournalState::Unreadable {
            let aside = state_file::set_aside(&self.paths.journal)?;
            tracing::warn!(
                "the journal of threads has lines that cannot be read; moved it to {}",
                aside.display()
            );
        }
        // The changes of the journal are in the document now.
        state_file::remove(&self.paths.journal)?;
        Ok(Cache {
            threads: cache.threads,
            document: Some(document),
            journal: None,
            state: JournalState::Intact,
            lines: 0,
        })
    }

    fn append(&self, cache: Cache, change: &Change) -> Result<Cache, RegistryError> {
        let line = JournalLine {
            version: cache.threads.version,
            change: change.clone(),
        };
        let mut text = serde_json::to_string(&line).map_err(Malformed::from)?;
        text.push('\n');
        let path = &self.paths.journal;
        let mut file = state_file::open_to_append(path)?;
        let written = file
            .write(text.as_bytes())
            .and_then(|written| match written == text.len() {
                true => file.sync_data(),
                false => Err(io::ErrorKind::StorageFull.into()),
            });
        written.map_err(about(path))?;
        if cache.journal.is_none() {
            state_file::sync_directory(path)?;
        }
        let journal = FileStamp::of(file).map_err(about(path))?;
        Ok(Cache {
            journal: Some(journal),
            lines: cache.lines + 1,
            ..cache
        })
    }
}

impl Cache {
    /// Whether a line may be added to the journal.
    fn has_room(&self) -> bool {
        let bytes = self.journal.as_ref().map_or(0, |stamp| stamp.about.2);
        self.state == JournalState::Intact
            && self.lines < JOURNAL_LINES
            && bytes < JOURNAL_BYTES as u64
    }
}

fn malformed(path: &Path, error: Malformed) -> Result<Document, RegistryError> {
    let path = path.to_owned();
    Err(RegistryError::Malformed { path, error })
}

/// Sets a malformed document aside.
fn set_aside_malformed(path: &Path, error: Malformed) -> Result<Document, RegistryError> {
    let aside = state_file::set_aside(path)?;
    tracing::error!(
        "{}: {error}; moved it to {}; a new registry is started",
        path.display(),
        aside.display()
    );
    Ok(Document::default())
}

/// The threads of an identity, for reading only. An unknown identity has none.
///
/// # Errors
///
/// [`RegistryError`].
pub fn read(atm_home: &Path, identity: &AgentName) -> Result<Document, RegistryError> {
    let cache = Paths::new(atm_home, identity).read(malformed)?;
    Ok(cache.threads)
}

/// The threads of all identities, in the order of their names.
///
/// # Errors
///
/// When the directory of the identities can't be read.
pub fn all(
    atm_home: &Path,
) -> Result<impl Iterator<Item = (AgentName, Result<Document, RegistryError>)>, FileError> {
    let identities = identities::identities(atm_home)?;
    Ok(identities.into_iter().map(move |identity| {
        let threads = read(atm_home, &identity);
        (identity, threads)
    }))
}

#[cfg(test)]
mod tests;
