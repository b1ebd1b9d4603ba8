//! The log of the fake Codex, for tests to read.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The number of the fake's process.
    pub pid: u32,
    /// What happened.
    pub event: Event,
}

/// An event in the fake's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// The process was started.
    Started {
        /// The arguments, without the program's name.
        args: Vec<String>,
        /// The working directory.
        directory: PathBuf,
    },
    /// The process received this message.
    Received(Value),
    /// The process received a line that is not JSON.
    ReceivedGarbage(String),
    /// Its stdin ended.
    Eof,
    /// It ignored a SIGTERM.
    Sigterm,
    /// It started a process of this number.
    Spawned(u32),
}

/// The writer of the log.
#[derive(Clone)]
pub(super) struct Log {
    path: Option<PathBuf>,
}

impl Log {
    /// Without a path, nothing is logged.
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path }
    }

    pub(super) fn add(&self, event: Event) {
        let Some(path) = &self.path else {
            return;
        };
        let pid = std::process::id();
        let mut line = serde_json::to_vec(&Entry { pid, event }).unwrap();
        line.push(b'\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        // One write: several processes append to the file.
        file.write_all(&line).unwrap();
    }

    /// The number of this process among those with this log, by the order of their starts, from
    /// 1. The start must be in the log already.
    pub(super) fn launch(&self) -> u32 {
        let Some(path) = &self.path else {
            return 1;
        };
        let starts = read(path)
            .into_iter()
            .filter(|entry| matches!(entry.event, Event::Started { .. }));
        let place = { starts }
            .position(|entry| entry.pid == std::process::id())
            .unwrap();
        u32::try_from(place).unwrap() + 1
    }
}

/// The lines of a log, oldest first; none if there is no log yet.
pub(super) fn read(path: &Path) -> Vec<Entry> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may still be on its way.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
