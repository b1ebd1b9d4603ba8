//! The files that match patterns, whether or not git tracks or ignores them.
//!
//! Only directories that can contain a match are walked. Git's own directories are skipped, and
//! links are not followed. A link counts as a file if it leads to a file in the repository. A path
//! without wildcards may go through links as long as it stays in the repository. Unreadable
//! directories are skipped.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::sync::lock;
use git_probe::written;
use supervise::io_thread::IoThread;
use tokio_util::sync::CancellationToken;

use super::InspectOptions;
use super::fingerprint::Fingerprints;
use crate::logic::glob::Glob;
use crate::logic::snapshot::Probe;

/// How many files may match.
const FILES_LIMIT: usize = 100_000;

/// How many names are examined.
const NAMES_LIMIT: usize = 5_000_000;

/// How deep directories may be nested.
const DEPTH_LIMIT: usize = 500;

/// Git's own directory, or the file in its place.
const GIT: &str = ".git";

/// Finds matching files. Fingerprints of unchanged files are reused.
#[derive(Debug)]
pub(super) struct FileScanner {
    io_thread: IoThread,
    top: PathBuf,
    globs: Arc<[Glob]>,
    fingerprints: Arc<Mutex<Fingerprints>>,
    timeout: Duration,
    halt: CancellationToken,
}

impl FileScanner {
    pub(super) fn new(
        io_thread: IoThread,
        top: &Path,
        globs: &[Glob],
        options: &InspectOptions,
    ) -> Self {
        Self {
            io_thread,
            top: top.to_owned(),
            globs: globs.into(),
            fingerprints: Arc::default(),
            timeout: options.timeout,
            halt: options.halt.clone(),
        }
    }

    pub(super) async fn scan(&self) -> Probe<BTreeMap<String, String>> {
        if self.globs.is_empty() {
            return Probe::Found(BTreeMap::new());
        }
        let (top, globs) = (self.top.clone(), Arc::clone(&self.globs));
        let fingerprints = Arc::clone(&self.fingerprints);
        let bounds = ScanBounds {
            deadline: Instant::now() + self.timeout,
            halt: self.halt.clone(),
        };
        let task = move || {
            let mut fingerprints = lock(&fingerprints);
            fingerprints.begin();
            Walk::new(&top, &globs, &mut fingerprints, bounds).whole()
        };
        // Cancelling does not wait for a disk that hangs.
        let walked = self
            .halt
            .run_until_cancelled(self.io_thread.run(task))
            .await;
        match walked {
            Some(Ok(Ok(found))) => Probe::Found(found),
            Some(Ok(Err(refusal))) => Probe::Failed(refusal.to_string()),
            Some(Err(ended)) => Probe::Failed(ended.to_string()),
            None => Probe::Failed(ScanError::Halted.to_string()),
        }
    }
}

/// Why a scan was ended early.
#[derive(Debug, thiserror::Error)]
enum ScanError {
    #[error("more than {FILES_LIMIT} files match; write narrower patterns")]
    Matches,
    #[error("there are too many files to look through; write narrower patterns")]
    Names,
    #[error("looking through the files took too long; write narrower patterns")]
    Time,
    #[error("the search of the files was cancelled")]
    Halted,
}

/// The bounds of a scan.
struct ScanBounds {
    deadline: Instant,
    halt: CancellationToken,
}

struct Walk<'a> {
    top: &'a Path,
    /// Patterns with wildcards.
    globs: Vec<&'a Glob>,
    plain: Vec<String>,
    fingerprints: &'a mut Fingerprints,
    bounds: ScanBounds,
    names: usize,
    found: BTreeMap<String, String>,
}

/// A directory below the top, as a path and as a text.
struct Directory {
    path: PathBuf,
    text: String,
    depth: usize,
}

impl<'a> Walk<'a> {
    fn new(
        top: &'a Path,
        globs: &'a [Glob],
        fingerprints: &'a mut Fingerprints,
        bounds: ScanBounds,
    ) -> Self {
        Self {
            top,
            globs: globs.iter().filter(|glob| glob.plain().is_none()).collect(),
            plain: globs.iter().filter_map(Glob::plain).collect(),
            fingerprints,
            bounds,
            names: 0,
            found: BTreeMap::new(),
        }
    }

    fn whole(mut self) -> Result<BTreeMap<String, String>, ScanError> {
        for path in std::mem::take(&mut self.plain) {
            self.take(&self.top.join(&path), path)?;
        }
        let mut directories = vec![Directory {
            path: self.top.to_owned(),
            text: String::new(),
            depth: 0,
        }];
        while let Some(directory) = directories.pop() {
            if !self.globs.is_empty() && directory.depth < DEPTH_LIMIT {
                self.directory(&directory, &mut directories)?;
            }
        }
        Ok(self.found)
    }

    fn directory(
        &mut self,
        directory: &Directory,
        directories: &mut Vec<Directory>,
    ) -> Result<(), ScanError> {
        let Ok(entries) = fs::read_dir(&directory.path) else {
            return Ok(());
        };
        for entry in entries.flatten() {
            self.count()?;
            let name = entry.file_name();
            let (Ok(kind), false) = (entry.file_type(), is_git(&name)) else {
                continue;
            };
            let text = below(&directory.text, &name);
            if kind.is_dir() {
                if self.globs.iter().any(|glob| glob.leads_into(&text)) {
                    directories.push(Directory {
                        path: entry.path(),
                        text,
                        depth: directory.depth + 1,
                    });
                }
            } else if self.globs.iter().any(|glob| glob.matches(&text)) {
                self.take(&entry.path(), text)?;
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), ScanError> {
        self.names += 1;
        match self.names {
            NAMES_LIMIT.. => Err(ScanError::Names),
            _ => self.check_deadline(),
        }
    }

    fn check_deadline(&self) -> Result<(), ScanError> {
        match Instant::now() >= self.bounds.deadline {
            _ if self.bounds.halt.is_cancelled() => Err(ScanError::Halted),
            true => Err(ScanError::Time),
            false => Ok(()),
        }
    }

    /// Adds a match, if it is a file in the repository.
    fn take(&mut self, path: &Path, text: String) -> Result<(), ScanError> {
        self.check_deadline()?;
        let Some(file) = self.within(path) else {
            return Ok(());
        };
        let Ok(metadata) = file.symlink_metadata() else {
            return Ok(());
        };
        if metadata.is_file() {
            let fingerprint = self.fingerprints.of(&file, &metadata);
            self.found.insert(text, fingerprint);
        }
        match self.found.len() {
            count if count > FILES_LIMIT => Err(ScanError::Matches),
            _ => Ok(()),
        }
    }

    /// The target of a path, if it is in the repository.
    fn within(&self, path: &Path) -> Option<PathBuf> {
        let parent = path.parent()?;
        let is_link = path.is_symlink();
        // A walk enters no links, but a plain path may go through some.
        if !is_link && (parent == self.top || !self.goes_through_links(parent)) {
            return Some(path.to_owned());
        }
        let real = path.canonicalize().ok()?;
        let inner = real.strip_prefix(self.top).ok()?;
        let is_ours = !inner.iter().any(is_git);
        is_ours.then_some(real)
    }

    fn goes_through_links(&self, directory: &Path) -> bool {
        let below = directory.ancestors().take_while(|above| *above != self.top);
        below.into_iter().any(Path::is_symlink)
    }
}

fn is_git(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(GIT)
}

fn below(directory: &str, name: &OsString) -> String {
    let name = written(name.as_bytes());
    match directory.is_empty() {
        true => name,
        false => format!("{directory}/{name}"),
    }
}
