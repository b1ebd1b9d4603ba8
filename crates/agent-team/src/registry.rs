//! The threads of an identity, on disk: `registry.IDENTITY.json` in the identity's
//! directory, and in the journal's mode `registry.IDENTITY.jsonl` beside it.
//!
//! Whoever changes something has the lock, looks whether the files are those that
//! it knows, reads them if they aren't, and applies the change to what there is
//! now. Whoever only reads needs no lock: a document is replaced as a whole, a
//! journal only grows until it is removed, and lines that the document has already
//! are known by their version. So the journal has to be read first.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use safe_files::state_file::{self, FileError, about};

use super::identities;
use crate::logic::registry::{Change, Document, Entry, Line, Malformed, Outcome, Status};
use crate::logic::{AgentName, ThreadName};

/// The longest document, in bytes; a usual entry has 500.
const LONGEST_DOCUMENT: u64 = 64 << 20;

/// The longest journal that is read, in bytes.
const LONGEST_JOURNAL: u64 = 16 << 20;

/// From which size on a journal becomes a part of the document, in bytes and lines:
/// reading it should take no longer than reading the document.
const JOURNAL_BYTES: usize = 256 << 10;
const JOURNAL_LINES: usize = 1000;

/// How changes are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The document is written anew.
    Document,
    /// A line is added to the journal: less to write where there are many threads
    /// and many changes.
    Journal,
}

/// Why the registry can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file can't.
    #[error(transparent)]
    File(#[from] FileError),
    /// A document is none.
    #[error("{}: {error}; the next server of this identity sets it aside", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Why.
        error: Malformed,
    },
    /// A change has no JSON.
    #[error("the registry can't be written: {0}")]
    Unwritable(#[from] Malformed),
}

/// The registry of an identity.
#[derive(Debug)]
pub struct Registry {
    paths: Paths,
    mode: Mode,
    /// What was read or written last.
    seen: Option<Seen>,
}

#[derive(Debug, Clone)]
struct Paths {
    document: PathBuf,
    journal: PathBuf,
    lock: PathBuf,
}

/// The threads, and the files that they were in.
#[derive(Debug)]
struct Seen {
    threads: Document,
    document: Option<Stamp>,
    journal: Option<Stamp>,
    /// What the journal is like.
    state: Journal,
    lines: usize,
}

/// What a journal is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Journal {
    /// A line can be added.
    Whole,
    /// Somebody has died, or the disk was full, while a line was written.
    Torn,
    /// There are lines that nobody here can read.
    Strange,
}

/// A file as it was.
#[derive(Debug)]
struct Stamp {
    /// Its number is not given to another file as long as this is open.
    _file: File,
    about: (u64, u64, u64, i64, i64),
}

impl Stamp {
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
fn is_still(stamp: Option<&Stamp>, path: &Path) -> bool {
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

    /// Reads what there is; `broken` says what becomes of a document that is none.
    fn read(
        &self,
        broken: impl FnOnce(&Path, Malformed) -> Result<Document, RegistryError>,
    ) -> Result<Seen, RegistryError> {
        let (journal, lines) = load(&self.journal, LONGEST_JOURNAL)?;
        let (document, text) = load(&self.document, LONGEST_DOCUMENT)?;
        let mut threads = match (&document, Document::parse(&text)) {
            (None, _) => Document::default(),
            (Some(_), Ok(threads)) => threads,
            (Some(_), Err(error)) => broken(&self.document, error)?,
        };
        let state = fold(&mut threads, &lines);
        Ok(Seen {
            threads,
            // One that was set aside is not there any more.
            document: document.filter(|stamp| is_still(Some(stamp), &self.document)),
            journal,
            state,
            lines: lines.lines().count(),
        })
    }
}

/// A file's text; what isn't UTF-8 is not JSON either.
fn load(path: &Path, limit: u64) -> Result<(Option<Stamp>, String), FileError> {
    let Some(file) = state_file::open(path)? else {
        return Ok((None, String::new()));
    };
    // Taken before reading: what is added meanwhile is read once more.
    let about = fingerprint(&file.metadata().map_err(about(path))?);
    let bytes = state_file::read(&file, path, limit)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((Some(Stamp { _file: file, about }), text))
}

/// Brings the changes of a journal into the document.
fn fold(threads: &mut Document, lines: &str) -> Journal {
    let mut state = Journal::Whole;
    for line in lines.split_inclusive('\n') {
        match (line.ends_with('\n'), serde_json::from_str::<Line>(line)) {
            (true, Ok(line)) => threads.fold(&line),
            (true, Err(_)) => state = Journal::Strange,
            (false, _) if state == Journal::Whole => state = Journal::Torn,
            (false, _) => {}
        }
    }
    state
}

impl Registry {
    /// The registry of an identity below the home directory of the agents. Makes the
    /// identity's directory.
    ///
    /// # Errors
    ///
    /// When that can't be.
    pub fn open(atm_home: &Path, identity: &AgentName, mode: Mode) -> Result<Self, RegistryError> {
        state_file::make_directory(&identities::directory_of(atm_home, identity))?;
        Ok(Self {
            paths: Paths::new(atm_home, identity),
            mode,
            seen: None,
        })
    }

    /// Makes a change: when this returns, it is on the disk.
    ///
    /// # Errors
    ///
    /// [`RegistryError`]. The change may then be found in the registry or not.
    pub fn apply(&mut self, change: &Change) -> Result<Outcome, RegistryError> {
        let (outcome, ()) = self.apply_after(|_| (), change)?;
        Ok(outcome)
    }

    /// The same after a look at what there was, which nobody changes in between.
    fn apply_after<T>(
        &mut self,
        look: impl FnOnce(&Document) -> T,
        change: &Change,
    ) -> Result<(Outcome, T), RegistryError> {
        let _lock = state_file::lock(&self.paths.lock)?;
        let mut seen = self.now()?;
        let looked = look(&seen.threads);
        let outcome = seen.threads.apply(change);
        if outcome == Outcome::Changed {
            seen = match self.mode {
                Mode::Journal if seen.has_room() => self.append(seen, change)?,
                _ => self.write(seen)?,
            };
        }
        self.seen = Some(seen);
        Ok((outcome, looked))
    }

    /// What the process that had the identity before us has left active is
    /// interrupted. Only for whoever has the [`Claim`](super::Claim). Returns which.
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
        Ok(self.look()?.entries().cloned().collect())
    }

    /// A thread.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub fn find(&mut self, thread: &ThreadName) -> Result<Option<Entry>, RegistryError> {
        Ok(self.look()?.find(thread).cloned())
    }

    /// The thread that was worked on last.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub fn latest(&mut self) -> Result<Option<Entry>, RegistryError> {
        Ok(self.look()?.latest().cloned())
    }

    /// What there is now. Needs no lock.
    fn look(&mut self) -> Result<&Document, RegistryError> {
        let seen = match self.known() {
            Some(seen) => seen,
            None => self.paths.read(malformed)?,
        };
        Ok(&self.seen.insert(seen).threads)
    }

    /// What there is now, for whoever has the lock and is about to change it.
    fn now(&mut self) -> Result<Seen, RegistryError> {
        let before = self.seen.as_ref().map_or(0, |seen| seen.threads.version);
        if let Some(seen) = self.known() {
            return Ok(seen);
        }
        let mut seen = self.paths.read(begin_anew)?;
        if seen.threads.version < before {
            // Somebody has put an older file back. A version is never given twice.
            seen.threads.version = before;
            seen.state = Journal::Torn;
        }
        Ok(seen)
    }

    /// What was seen last, if the files are still as they were.
    fn known(&mut self) -> Option<Seen> {
        let seen = self.seen.take()?;
        let same = is_still(seen.document.as_ref(), &self.paths.document)
            && is_still(seen.journal.as_ref(), &self.paths.journal);
        same.then_some(seen)
    }

    fn write(&self, seen: Seen) -> Result<Seen, RegistryError> {
        let text = seen.threads.to_json()?;
        let path = &self.paths.document;
        if text.len() as u64 > LONGEST_DOCUMENT {
            let path = path.to_owned();
            let limit = LONGEST_DOCUMENT;
            return Err(FileError::TooLong { path, limit }.into());
        }
        let file = state_file::replace(path, text.as_bytes())?;
        let document = Stamp::of(file).map_err(about(path))?;
        if seen.state == Journal::Strange {
            let aside = state_file::set_aside(&self.paths.journal)?;
            tracing::warn!(
                "the journal of threads has lines that can't be read; it is now {}",
                aside.display()
            );
        }
        // Its changes are in the document.
        state_file::remove(&self.paths.journal)?;
        Ok(Seen {
            threads: seen.threads,
            document: Some(document),
            journal: None,
            state: Journal::Whole,
            lines: 0,
        })
    }

    fn append(&self, seen: Seen, change: &Change) -> Result<Seen, RegistryError> {
        let line = Line {
            version: seen.threads.version,
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
        if seen.journal.is_none() {
            state_file::sync_directory(path)?;
        }
        let journal = Stamp::of(file).map_err(about(path))?;
        Ok(Seen {
            journal: Some(journal),
            lines: seen.lines + 1,
            ..seen
        })
    }
}

impl Seen {
    /// Whether a line may be added to the journal.
    fn has_room(&self) -> bool {
        let bytes = self.journal.as_ref().map_or(0, |stamp| stamp.about.2);
        self.state == Journal::Whole && self.lines < JOURNAL_LINES && bytes < JOURNAL_BYTES as u64
    }
}

fn malformed(path: &Path, error: Malformed) -> Result<Document, RegistryError> {
    let path = path.to_owned();
    Err(RegistryError::Malformed { path, error })
}

/// Sets a document that is none aside.
fn begin_anew(path: &Path, error: Malformed) -> Result<Document, RegistryError> {
    let aside = state_file::set_aside(path)?;
    tracing::error!(
        "{}: {error}; it is now {}, and a new one is begun",
        path.display(),
        aside.display()
    );
    Ok(Document::default())
}

/// The threads of an identity, for whoever only reads. There are none where there
/// is no such identity.
///
/// # Errors
///
/// [`RegistryError`].
pub fn read(atm_home: &Path, identity: &AgentName) -> Result<Document, RegistryError> {
    let seen = Paths::new(atm_home, identity).read(malformed)?;
    Ok(seen.threads)
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
