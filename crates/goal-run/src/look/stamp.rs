//! What differs when what is in a file does.

use std::collections::HashMap;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use safe_files::untrusted_file::{self, Links};

/// A longer file is known by its length and the time at which it was written.
const READ_LIMIT: u64 = 64 * 1024 * 1024;

/// How much is read at once.
const CHUNK: usize = 128 * 1024;

/// The coarsest time of a file (FAT's): one that was written so shortly before it was
/// read may have been written again, and show the same.
const COARSEST: Duration = Duration::from_secs(2);

/// What is the same as long as nobody writes to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marks {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Marks {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether it was written to long enough before `moment` to show each write since.
    fn are_settled(&self, moment: SystemTime) -> bool {
        let latest = self.modified.max(self.changed).0;
        let latest = u64::try_from(latest).unwrap_or_default();
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        since.saturating_sub(Duration::from_secs(latest)) > COARSEST
    }
}

/// Files that were read, so that they needn't be again.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// In the look before.
    before: HashMap<PathBuf, (Marks, String)>,
    /// In this one.
    known: HashMap<PathBuf, (Marks, String)>,
    /// The buffer.
    chunk: Vec<u8>,
}

impl Stamps {
    /// Begins another look. What is not met in it is forgotten.
    pub(super) fn begin(&mut self) {
        self.before = std::mem::take(&mut self.known);
    }

    /// The stamp of a file that looks like this. One that can't be read has a stamp
    /// of its length and times.
    pub(super) fn of(&mut self, path: &Path, metadata: &Metadata) -> String {
        let marks = Marks::of(metadata);
        if let Some((path, known)) = self.before.remove_entry(path) {
            self.known.insert(path, known);
        }
        if let Some((known, stamp)) = self.known.get(path)
            && *known == marks
        {
            return stamp.clone();
        }
        let begun = SystemTime::now();
        let stamp = match marks.length {
            0..=READ_LIMIT => self.read(path, &marks),
            _ => Ok(unread("long", &marks)),
        };
        let stamp = stamp.unwrap_or_else(|_| unread("unreadable", &marks));
        match marks.are_settled(begun) {
            true => self.known.insert(path.to_owned(), (marks, stamp.clone())),
            false => self.known.remove(path),
        };
        stamp
    }

    fn read(&mut self, path: &Path, marks: &Marks) -> io::Result<String> {
        let opened = untrusted_file::open(path, Links::Refused);
        let mut file = opened.map_err(io::Error::other)?;
        // It may be another by now, even a pipe that never ends.
        if Marks::of(&file.metadata()?) != *marks {
            return Ok(unread("changing", marks));
        }
        self.chunk.resize(CHUNK, 0);
        let mut hasher = DefaultHasher::new();
        let mut length = 0_u64;
        while length <= READ_LIMIT {
            let count = file.read(&mut self.chunk)?;
            if count == 0 {
                break;
            }
            hasher.write(self.chunk.get(..count).unwrap_or_default());
            length += u64::try_from(count).unwrap_or_default();
        }
        Ok(format!("{length} {:016x}", hasher.finish()))
    }
}

fn unread(why: &str, marks: &Marks) -> String {
    let (seconds, nanoseconds) = marks.modified;
    format!("{why} {} {seconds}.{nanoseconds:09}", marks.length)
}
