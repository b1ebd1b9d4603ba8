//! File-content fingerprints.

use std::collections::HashMap;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use safe_files::untrusted_file::{self, Links};

use crate::logic::snapshot::{CHANGING, UNREADABLE};

/// Longer files are identified by length and modification time, in bytes (64 MiB).
const READ_LIMIT: u64 = 64 * 1024 * 1024;

/// How much is read at once, in bytes.
const CHUNK: usize = 128 * 1024;

/// The coarsest resolution of file times (FAT): a file written so shortly before it was read
/// may have been written again without a change of its times.
const COARSEST: Duration = Duration::from_secs(2);

/// Attributes that stay the same as long as the file is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileAttributes {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileAttributes {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the last write happened so long before `moment` that a later write would change the
    /// times.
    fn have_settled(&self, moment: SystemTime) -> bool {
        let latest = self.modified.max(self.changed).0;
        let latest = u64::try_from(latest).unwrap_or_default();
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        since.saturating_sub(Duration::from_secs(latest)) > COARSEST
    }
}

/// A cache of fingerprints, so that unchanged files are not read again.
#[derive(Debug, Default)]
pub(super) struct Fingerprints {
    /// From the scan before.
    before: HashMap<PathBuf, (FileAttributes, String)>,
    /// From this scan.
    known: HashMap<PathBuf, (FileAttributes, String)>,
    /// The read buffer.
    chunk: Vec<u8>,
}

impl Fingerprints {
    /// Begins another scan. Files that it does not find are forgotten.
    pub(super) fn begin(&mut self) {
        self.before = std::mem::take(&mut self.known);
    }

    /// The fingerprint of a file with this metadata. A file that cannot be read gets a fingerprint
    /// of its length and times.
    pub(super) fn of(&mut self, path: &Path, metadata: &Metadata) -> String {
        let attributes = FileAttributes::of(metadata);
        if let Some((path, known)) = self.before.remove_entry(path) {
            self.known.insert(path, known);
        }
        if let Some((known, fingerprint)) = self.known.get(path)
            && *known == attributes
        {
            return fingerprint.clone();
        }
        let begun = SystemTime::now();
        let fingerprint = match attributes.length {
            0..=READ_LIMIT => self.read(path, &attributes),
            _ => Ok(unread("long", &attributes)),
        };
        let fingerprint = fingerprint.unwrap_or_else(|_| unread(UNREADABLE, &attributes));
        match attributes.have_settled(begun) {
            true => self
                .known
                .insert(path.to_owned(), (attributes, fingerprint.clone())),
            false => self.known.remove(path),
        };
        fingerprint
    }

    fn read(&mut self, path: &Path, attributes: &FileAttributes) -> io::Result<String> {
        let opened = untrusted_file::open(path, Links::Refused);
        let mut file = opened.map_err(io::Error::other)?;
        // The path may lead to another file by now, even to an endless pipe.
        if FileAttributes::of(&file.metadata()?) != *attributes {
            return Ok(unread(CHANGING, attributes));
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

fn unread(why: &str, attributes: &FileAttributes) -> String {
    let (seconds, nanoseconds) = attributes.modified;
    format!("{why} {} {seconds}.{nanoseconds:09}", attributes.length)
}
