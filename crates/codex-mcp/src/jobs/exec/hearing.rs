//! What is heard from Codex.

use std::collections::VecDeque;

use anstream::adapter::strip_str;
use codex_mcp_core::exec::{Digest, asks_to_log_in};
use codex_mcp_protocol::codex::ThreadId;
use codex_mcp_protocol::codex::exec::ExecEvent;
use codex_mcp_protocol::lines::Frame;

use super::supervise::Stop;
use super::{KeepStream, News};

/// How much is kept of what Codex writes to stderr, in bytes: the last of it.
pub const STDERR_LIMIT: usize = 16 * 1024;

/// How much is kept of what Codex writes to stdout and that is no event, in bytes:
/// the first of it.
pub const GARBAGE_LIMIT: usize = 4 * 1024;

/// How much is kept of the stream where it is wanted, in bytes: the first of it.
pub const STREAM_LIMIT: usize = 4 * 1024 * 1024;

/// How much is told of a line that somebody is to log in by, in bytes.
const PROMPT_LIMIT: usize = 500;

/// What Codex wrote to stdout that is no event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Garbage {
    /// How many lines; empty ones don't count.
    pub lines: u64,
    /// The first of them, up to [`GARBAGE_LIMIT`].
    pub kept: Vec<String>,
    size: usize,
}

/// The lines that Codex printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The first of them, each an event as it came, up to [`STREAM_LIMIT`].
    pub lines: Vec<String>,
    /// How many more there were.
    pub dropped: u64,
    size: usize,
}

/// All that was heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) digest: Digest,
    pub(super) stderr: String,
    pub(super) garbage: Garbage,
    pub(super) stream: Stream,
}

/// Listens to a run.
pub(super) struct Hearing<'a> {
    /// The session that is to be resumed.
    wanted: Option<&'a ThreadId>,
    keep: KeepStream,
    tell: &'a mut dyn FnMut(News<'_>),
    heard: Heard,
    complaints: Tail,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(
        wanted: Option<&'a ThreadId>,
        keep: KeepStream,
        tell: &'a mut dyn FnMut(News<'_>),
    ) -> Self {
        Self {
            wanted,
            keep,
            tell,
            heard: Heard::default(),
            complaints: Tail::default(),
        }
    }

    pub(super) fn started(&mut self) {
        (self.tell)(News::Started);
    }

    /// Takes in a line of stdout; says whether the run is to be stopped for it.
    pub(super) fn stdout(&mut self, frame: &Frame<'_>) -> Option<Stop> {
        let line = match frame {
            Frame::Line(line) => String::from_utf8_lossy(line),
            Frame::TooLong { length, .. } => {
                self.heard
                    .garbage
                    .add(format!("[a line of {length} bytes]"));
                return None;
            }
        };
        let line = line.trim();
        if line.is_empty() {
            return None;
        }
        match serde_json::from_str::<ExecEvent>(line) {
            Ok(event) => self.event(&event, line),
            Err(_) => {
                self.heard.garbage.add(line.to_owned());
                login_prompt(line)
            }
        }
    }

    fn event(&mut self, event: &ExecEvent, line: &str) -> Option<Stop> {
        if let ExecEvent::ThreadStarted { thread_id } = event {
            match self.wanted {
                Some(wanted) if wanted != thread_id => {
                    return Some(Stop::OtherSession(wanted.clone()));
                }
                _ if self.heard.digest.session.is_none() => (self.tell)(News::Session(thread_id)),
                _ => {}
            }
        }
        self.heard.digest.take(event);
        if self.keep == KeepStream::Yes {
            self.heard.stream.add(line);
        }
        (self.tell)(News::Event(event, line));
        None
    }

    /// The same for a line of stderr.
    pub(super) fn stderr(&mut self, frame: &Frame<'_>) -> Option<Stop> {
        let line = match frame {
            Frame::Line(line) => strip_str(&String::from_utf8_lossy(line)).to_string(),
            Frame::TooLong { length, .. } => format!("[a line of {length} bytes]"),
        };
        tracing::debug!(target: "codex", "{line}");
        let stop = login_prompt(&line);
        self.complaints.add(line);
        stop
    }

    /// The first line of stderr that is kept and begins so.
    pub(super) fn complaint(&self, beginning: &str) -> Option<String> {
        let lines = self.complaints.lines.iter();
        lines
            .into_iter()
            .find(|line| line.starts_with(beginning))
            .cloned()
    }

    pub(super) fn heard(self) -> Heard {
        Heard {
            stderr: self.complaints.text(),
            ..self.heard
        }
    }
}

fn login_prompt(line: &str) -> Option<Stop> {
    let words = || cut(line.trim(), PROMPT_LIMIT).to_owned();
    asks_to_log_in(line).then(|| Stop::AskedToLogIn(words()))
}

fn cut(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit))
        .unwrap_or_default()
}

impl Garbage {
    fn add(&mut self, line: String) {
        self.lines += 1;
        let room = GARBAGE_LIMIT.saturating_sub(self.size);
        if room == 0 {
            return;
        }
        let kept = cut(&line, room);
        let mark = if kept.len() < line.len() {
            " [… cut here]"
        } else {
            ""
        };
        self.size += line.len();
        self.kept.push(format!("{kept}{mark}"));
    }
}

impl Stream {
    fn add(&mut self, line: &str) {
        let size = self.size + line.len();
        if size > STREAM_LIMIT || self.dropped > 0 {
            self.dropped += 1;
        } else {
            self.size = size;
            self.lines.push(line.to_owned());
        }
    }
}

/// The last lines of a stream.
#[derive(Default)]
struct Tail {
    lines: VecDeque<String>,
    size: usize,
    dropped: u64,
}

impl Tail {
    fn add(&mut self, mut line: String) {
        if line.len() > STDERR_LIMIT {
            line = format!("{} [… cut here]", cut(&line, STDERR_LIMIT / 2));
        }
        self.size += line.len() + 1;
        self.lines.push_back(line);
        while self.size > STDERR_LIMIT
            && let Some(oldest) = self.lines.pop_front()
        {
            self.size -= oldest.len() + 1;
            self.dropped += 1;
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if self.dropped > 0 {
            text = format!("[… {} lines before]\n", self.dropped);
        }
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let mut ignore = |_: News<'_>| {};
        let mut hearing = Hearing::new(None, KeepStream::Yes, &mut ignore);
        let event = format!(r#"{{"type":"new","x":"{}"}}"#, "ß".repeat(30_000));
        for _ in 0..100 {
            hearing.stdout(&Frame::Line(event.as_bytes()));
            hearing.stdout(&Frame::Line("ßßßßß".repeat(1000).as_bytes()));
            hearing.stderr(&Frame::Line("äöü".repeat(1000).as_bytes()));
            hearing.stderr(&Frame::Line("äöü".repeat(10_000).as_bytes()));
        }
        let heard = hearing.heard();
        assert_eq!(heard.garbage.lines, 100);
        assert!(heard.garbage.kept.concat().len() < GARBAGE_LIMIT + 100);
        assert!(heard.stderr.len() < STDERR_LIMIT + 100);
        assert!(
            heard.stderr.starts_with("[… 19"),
            "{}",
            cut(&heard.stderr, 50)
        );
        assert!(heard.stream.lines.concat().len() <= STREAM_LIMIT);
        assert_eq!(heard.stream.lines.len() as u64 + heard.stream.dropped, 100);
    }

    #[test]
    fn another_session_than_the_one_wanted_is_not_told_of() {
        let wanted = ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e4").unwrap();
        let mut told = 0;
        let mut count = |_: News<'_>| told += 1;
        let mut hearing = Hearing::new(Some(&wanted), KeepStream::No, &mut count);
        let line = br#"{"type":"thread.started","thread_id":"another"}"#;
        let stop = hearing.stdout(&Frame::Line(line));
        assert_eq!(stop, Some(Stop::OtherSession(wanted.clone())));
        assert_eq!(hearing.heard().digest.session, None);
        assert_eq!(told, 0);
    }
}
