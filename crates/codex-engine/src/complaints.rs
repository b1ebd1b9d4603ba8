//! What a Codex writes to its stderr: passed to the log, and the end of it kept
//! for error messages.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anstream::adapter::strip_str;
use codex_protocol::lines::{Frame, LineDecoder};
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How much is kept, in bytes.
const KEPT: usize = 2048;

/// The longest line that is looked at, in bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// How a line begins that is not the reason for an end.
const WARNING: &str = "warning:";

/// How long to wait for the rest, once Codex has failed. A command that it has
/// left running may hold its stderr open.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(200);

/// Listens to a Codex's stderr.
pub(super) struct Complaints {
    kept: Arc<Mutex<String>>,
    listening: JoinHandle<()>,
}

/// The last that a Codex has said; shown as what follows a sentence about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastWords(String);

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "" => Ok(()),
            said => write!(f, "; it said: {said}"),
        }
    }
}

impl Complaints {
    pub(super) fn listen(stderr: ChildStderr) -> Self {
        let kept = Arc::default();
        let listening = tokio::spawn(listen(stderr, Arc::clone(&kept)));
        Self { kept, listening }
    }

    /// The last of it, once Codex has failed.
    pub(super) async fn last_words(self) -> LastWords {
        // What it wrote last may still be under way.
        let _ = timeout(LAST_WORDS_PATIENCE, self.listening).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // A warning is no reason, and a reason is shown in the middle of a sentence.
        let reasons = kept.lines().filter(|line| !is_warning(line));
        let reasons: Vec<&str> = reasons
            .map(|line| line.trim().trim_end_matches('.'))
            .collect();
        LastWords(reasons.join("; "))
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

/// As Codex writes them, `WARNING: proceeding, even though…` for example (0.153.4).
fn is_warning(line: &str) -> bool {
    let word = line.get(..WARNING.len());
    word.is_some_and(|word| word.eq_ignore_ascii_case(WARNING))
}

fn keep(line: &str, kept: &Mutex<String>) {
    let line = strip_str(line).to_string();
    tracing::info!(target: "codex", "{line}");
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push_str(&line);
    kept.push('\n');
    let surplus = kept.len().saturating_sub(KEPT);
    let surplus = kept.ceil_char_boundary(surplus);
    kept.drain(..surplus);
}
