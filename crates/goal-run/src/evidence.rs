//! The evidence of a run as a file: a line of JSON for each turn.
#![expect(
    clippy::disallowed_methods,
    reason = "a file of ours; no link is followed and no pipe waited for"
)]

use std::cmp::Ordering;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use common::text::escape_json;
use nix::fcntl::OFlag;
use safe_files::state_file;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::logic::outcome::TurnRecord;

/// How many evidence files are kept in the directory; older ones are removed.
const FILES_KEPT: usize = 500;

/// The prefix of the names of evidence files.
const PREFIX: &str = "run-";

/// An evidence file.
#[derive(Debug)]
pub struct EvidenceFile {
    path: PathBuf,
    file: File,
    state: State,
}

/// An evidence file at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EvidenceMark {
    path: PathBuf,
    /// In bytes.
    length: u64,
    is_complete: bool,
}

/// The content of an evidence file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing yet. If this does not change, the file is removed when this is dropped.
    New,
    /// Every turn that was recorded.
    Complete,
    /// Some turns are missing, as writing failed.
    Incomplete,
}

impl EvidenceFile {
    /// Creates a file in the directory of evidence, named after the time.
    ///
    /// # Errors
    ///
    /// The error of the operating system, if the file cannot be created.
    pub fn new_in(directory: &Path) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        tidy(directory);
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut tag = Uuid::new_v4().simple().to_string();
        tag.truncate(8);
        let name = format!("{PREFIX}{}-{tag}.jsonl", now.replace(':', ""));
        Self::open(&directory.join(name), State::New)
    }

    /// Appends to the file at `path`. A link is not followed, and a pipe is refused: it keeps nothing.
    ///
    /// # Errors
    ///
    /// The error of the operating system, if the file cannot be opened, and `InvalidInput` for a
    /// pipe.
    pub fn at(path: &Path) -> io::Result<Self> {
        Self::open(path, State::Complete)
    }

    fn open(path: &Path, state: State) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)?;
        if file.metadata()?.file_type().is_fifo() {
            let why = "it is a pipe, which keeps nothing; name a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Self {
            path: std::path::absolute(path)?,
            file,
            state,
        })
    }

    /// The file as it is now, for a process that continues the run.
    pub(super) fn mark(&self) -> io::Result<EvidenceMark> {
        Ok(EvidenceMark {
            path: self.path.clone(),
            length: self.file.metadata()?.len(),
            is_complete: self.state != State::Incomplete,
        })
    }

    /// The file that an earlier process of the run has written to, without the turn that it was about
    /// to record when it was killed.
    pub(super) fn continuing(mark: &EvidenceMark) -> io::Result<Self> {
        let state = match (mark.is_complete, mark.length) {
            (false, _) => State::Incomplete,
            (true, 0) => State::New,
            (true, _) => State::Complete,
        };
        let mut continued = Self::open(&mark.path, state)?;
        match continued.file.metadata()?.len().cmp(&mark.length) {
            Ordering::Greater => continued.file.set_len(mark.length)?,
            Ordering::Equal => {}
            Ordering::Less => continued.state = State::Incomplete,
        }
        Ok(continued)
    }

    /// Adds a turn. A failure is only logged: the result of the run has the evidence too.
    pub(super) fn write(&mut self, record: &TurnRecord) {
        let written = line_of(record)
            .map_err(io::Error::from)
            .and_then(|line| state_file::append_line(&self.file, line.as_bytes()));
        match (written, self.state) {
            (Ok(()), State::New) => self.state = State::Complete,
            (Ok(()), State::Complete | State::Incomplete) => {}
            (Err(error), _) => {
                self.state = State::Incomplete;
                tracing::warn!(
                    "cannot write a turn to the evidence file {}: {error}",
                    self.path.display()
                );
            }
        }
    }

    /// The path of the file, if it has every turn.
    pub(super) fn close(self) -> Option<PathBuf> {
        (self.state == State::Complete).then(|| self.path.clone())
    }
}

impl Drop for EvidenceFile {
    fn drop(&mut self) {
        if self.state == State::New {
            // An empty file does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the oldest files. A failure is only logged.
fn tidy(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    names.sort_unstable();
    let many = (names.len() + 1).saturating_sub(FILES_KEPT);
    for name in names.into_iter().take(many) {
        if let Err(error) = fs::remove_file(directory.join(&name)) {
            tracing::warn!("cannot remove the old evidence file {name}: {error}");
        }
    }
}

/// A line of JSON with hidden characters escaped, as a terminal may show it.
fn line_of(record: &impl Serialize) -> serde_json::Result<String> {
    Ok(format!(
        "{}\n",
        escape_json(&serde_json::to_string(record)?)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        let line = line_of(&"a\u{9b}31m\u{7f}\u{202e}").unwrap();
        assert_eq!(line, "\"a\\u009b31m\\u007f\\u202e\"\n");
    }

    #[test]
    fn pipe_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = EvidenceFile::at(&pipe).unwrap_err();
        assert!(error.to_string().contains("name a file"), "{error}");
    }

    #[test]
    fn oldest_evidence_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..FILES_KEPT + 5 {
            let name = format!("{PREFIX}2000-01-01T000000Z-{number:08}.jsonl");
            fs::write(directory.path().join(name), "").unwrap();
        }
        fs::write(directory.path().join("mine"), "").unwrap();
        let mut file = EvidenceFile::new_in(directory.path()).unwrap();
        file.state = State::Complete;
        let path = file.close().unwrap();
        assert!(path.is_file());
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            FILES_KEPT + 1
        );
        assert!(directory.path().join("mine").exists());
    }

    #[test]
    fn run_without_evidence_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        drop(EvidenceFile::new_in(directory.path()).unwrap());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn link_in_place_of_an_evidence_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        assert!(EvidenceFile::at(&link).is_err());
        assert!(!directory.path().join("target").exists());
    }
}
