//! The files that fit patterns, whatever git thinks of them.
//!
//! Only directories are walked in which something can fit, never git's own, and none
//! through a link. A link counts as a file if it leads to one in the repository; a
//! path without wildcards may go through links as long as it stays there. Directories
//! that can't be read are passed over.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use git_probe::written;
use supervise::io_thread::IoThread;
use tokio_util::sync::CancellationToken;

use super::InspectOptions;
use super::stamp::Stamps;
use crate::logic::glob::Glob;
use crate::logic::snapshot::Probe;

/// How many files may fit.
const FILES_LIMIT: usize = 100_000;

/// How many names are looked at.
const NAMES_LIMIT: usize = 5_000_000;

/// How deep directories may be nested.
const DEPTH_LIMIT: usize = 500;

/// Git's own directory, or the file in its place.
const GIT: &str = ".git";

/// Looks for files that fit. What was read stays known.
#[derive(Debug)]
pub(super) struct Files {
    io_thread: IoThread,
    top: PathBuf,
    globs: Arc<[Glob]>,
    stamps: Arc<Mutex<Stamps>>,
    patience: Duration,
    halt: CancellationToken,
}

impl Files {
    pub(super) fn new(
        io_thread: IoThread,
        top: &Path,
        globs: &[Glob],
        means: &InspectOptions,
    ) -> Self {
        Self {
            io_thread,
            top: top.to_owned(),
            globs: globs.into(),
            stamps: Arc::default(),
            patience: means.patience,
            halt: means.halt.clone(),
        }
    }

    pub(super) async fn look(&self) -> Probe<BTreeMap<String, String>> {
        if self.globs.is_empty() {
            return Probe::Found(BTreeMap::new());
        }
        let (top, globs) = (self.top.clone(), Arc::clone(&self.globs));
        let stamps = Arc::clone(&self.stamps);
        let bounds = Bounds {
            deadline: Instant::now() + self.patience,
            halt: self.halt.clone(),
        };
        let task = move || {
            let mut stamps = stamps.lock().unwrap_or_else(PoisonError::into_inner);
            stamps.begin();
            Walk::new(&top, &globs, &mut stamps, bounds).whole()
        };
        // A disk that hangs is not waited for.
        let walked = self
            .halt
            .run_until_cancelled(self.io_thread.ask(task))
            .await;
        match walked {
            Some(Ok(Ok(found))) => Probe::Found(found),
            Some(Ok(Err(refusal))) => Probe::Failed(refusal.to_string()),
            Some(Err(ended)) => Probe::Failed(ended.to_string()),
            None => Probe::Failed(GivenUp::Halted.to_string()),
        }
    }
}

/// Why a walk was given up.
#[derive(Debug, thiserror::Error)]
enum GivenUp {
    #[error("more than {FILES_LIMIT} files match; write narrower patterns")]
    Matches,
    #[error("there are too many files to look through; write narrower patterns")]
    Names,
    #[error("looking through the files took too long; write narrower patterns")]
    Time,
    #[error("looking through the files was given up")]
    Halted,
}

/// What a walk may take.
struct Bounds {
    deadline: Instant,
    pub halt: CancellationToken,
}

struct Walk<'a> {
    top: &'a Path,
    /// Those with wildcards.
    globs: Vec<&'a Glob>,
    plain: Vec<String>,
    stamps: &'a mut Stamps,
    bounds: Bounds,
    names: usize,
    found: BTreeMap<String, String>,
}

/// A directory below the top, as it is and as a text.
struct Directory {
    path: PathBuf,
    text: String,
    depth: usize,
}

impl<'a> Walk<'a> {
    fn new(top: &'a Path, globs: &'a [Glob], stamps: &'a mut Stamps, bounds: Bounds) -> Self {
        Self {
            top,
            globs: globs.iter().filter(|glob| glob.plain().is_none()).collect(),
            plain: globs.iter().filter_map(Glob::plain).collect(),
            stamps,
            bounds,
            names: 0,
            found: BTreeMap::new(),
        }
    }

    fn whole(mut self) -> Result<BTreeMap<String, String>, GivenUp> {
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
    ) -> Result<(), GivenUp> {
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
            } else if self.globs.iter().any(|glob| glob.fits(&text)) {
                self.take(&entry.path(), text)?;
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), GivenUp> {
        self.names += 1;
        match self.names {
            NAMES_LIMIT.. => Err(GivenUp::Names),
            _ => self.look_at_the_clock(),
        }
    }

    fn look_at_the_clock(&self) -> Result<(), GivenUp> {
        match Instant::now() >= self.bounds.deadline {
            _ if self.bounds.halt.is_cancelled() => Err(GivenUp::Halted),
            true => Err(GivenUp::Time),
            false => Ok(()),
        }
    }

    /// Takes in what fits, if it is a file here.
    fn take(&mut self, path: &Path, text: String) -> Result<(), GivenUp> {
        self.look_at_the_clock()?;
        let Some(file) = self.within(path) else {
            return Ok(());
        };
        let Ok(metadata) = file.symlink_metadata() else {
            return Ok(());
        };
        if metadata.is_file() {
            let stamp = self.stamps.of(&file, &metadata);
            self.found.insert(text, stamp);
        }
        match self.found.len() {
            count if count > FILES_LIMIT => Err(GivenUp::Matches),
            _ => Ok(()),
        }
    }

    /// Where a path leads to, if that is in the repository.
    fn within(&self, path: &Path) -> Option<PathBuf> {
        let parent = path.parent()?;
        let is_link = path.is_symlink();
        // Directories of a walk are no links; those of a plain path may be.
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
