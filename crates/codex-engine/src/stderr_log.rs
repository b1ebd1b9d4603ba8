//! Passes the stderr of a Codex to the log, and keeps its end for error messages.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anstream::adapter::strip_str;
use codex_protocol::lines::{Frame, LineDecoder};
use common::sync::lock;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The most that is kept, in bytes.
const KEPT: usize = 2048;

/// The longest line that is read, in bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// The beginning of lines that state no reason for an exit.
const WARNING: &str = "warning:";

/// How long to wait for the rest, once Codex has failed. A command that it left running
/// may hold its stderr open.
const TAIL_TIMEOUT: Duration = Duration::from_millis(200);

/// Reads a Codex's stderr.
pub(super) struct StderrLog {
    kept: Arc<Mutex<String>>,
    listening: JoinHandle<()>,
}

/// The end of a Codex's stderr. It is displayed as a clause that continues a sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StderrTail(String);

impl fmt::Display for StderrTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "" => Ok(()),
            said => write!(f, "; it said: {said}"),
        }
    }
}

impl StderrLog {
    pub(super) fn listen(stderr: ChildStderr) -> Self {
        let kept = Arc::default();
        let listening = tokio::spawn(listen(stderr, Arc::clone(&kept)));
        Self { kept, listening }
    }

    /// The end of the stderr, once Codex has failed.
    pub(super) async fn stderr_tail(self) -> StderrTail {
        // The last lines may not have been read yet.
        let _ = timeout(TAIL_TIMEOUT, self.listening).await;
        let kept = lock(&self.kept);
        // A warning is not the cause of a failure, and the cause is displayed within a sentence.
        let reasons = kept.lines().filter(|line| !is_warning(line));
        let reasons: Vec<&str> = reasons
            .map(|line| line.trim().trim_end_matches('.'))
            .collect();
        StderrTail(reasons.join("; "))
    }
}

async fn listen(mut stderr: ChildStderr, kept: Arc<Mutex<String>>) {
    let mut decoder = LineDecoder::new(LONGEST_LINE);
    loop {
        let count = stderr.read(decoder.space()).await.unwrap_or(0);
        match count {
            0 => decoder.end_line(),
            count => decoder.filled(count),
        }
        while let Some(frame) = decoder.next_frame() {
            match frame {
                Frame::Line([]) => {}
                Frame::Line(line) => keep(&String::from_utf8_lossy(line), &kept),
                Frame::TooLong { length, .. } => {
                    keep(&format!("[a line of {length} bytes]"), &kept);
                }
            }
        }
        if count == 0 {
            return;
        }
    }
}

/// Codex's warnings look like `WARNING: proceeding, even though…` (0.153.4).
fn is_warning(line: &str) -> bool {
    let word = line.get(..WARNING.len());
    word.is_some_and(|word| word.eq_ignore_ascii_case(WARNING))
}

fn keep(line: &str, kept: &Mutex<String>) {
    let line = strip_str(line).to_string();
    tracing::info!(target: "codex", "{line}");
    let mut kept = lock(kept);
    kept.push_str(&line);
    kept.push('\n');
    let surplus = kept.len().saturating_sub(KEPT);
    let surplus = kept.ceil_char_boundary(surplus);
    kept.drain(..surplus);
}
