//! What is heard of a job's turn.

use codex_engine::command::Open;
use codex_engine::logic::work::Digest;
use codex_engine::logic::work::event::WorkEvent;
use codex_protocol::codex::ThreadId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{KeepStream, News};
use crate::jobs::directive::Directive;

/// How much is kept of the events where they are wanted, in bytes: the first of them.
pub const STREAM_LIMIT: usize = 4 * 1024 * 1024;

/// The events of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The first of them, each as JSON, up to [`STREAM_LIMIT`].
    pub lines: Vec<String>,
    /// How many more there were.
    pub dropped: u64,
    size: usize,
}

/// Listens to a turn.
pub(super) struct Hearing<'a> {
    keep: KeepStream,
    tell: &'a mut dyn FnMut(News<'_>),
    digest: Digest,
    stream: Stream,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(keep: KeepStream, tell: &'a mut dyn FnMut(News<'_>)) -> Self {
        Self {
            keep,
            tell,
            digest: Digest::default(),
            stream: Stream::default(),
        }
    }

    /// Takes in a warning of our own.
    pub(super) fn warn(&mut self, warning: Option<String>) {
        self.digest.warnings.extend(warning);
    }

    /// Takes in Codex's name for the conversation.
    pub(super) fn session(&mut self, thread: &ThreadId) {
        (self.tell)(News::Session(thread));
        self.hear(&json!({ "type": "thread.started", "thread_id": thread }));
    }

    /// Takes in an event.
    pub(super) fn hear(&mut self, event: &Value) {
        let line = event.to_string();
        // All of ours can be read.
        let event = WorkEvent::deserialize(event).unwrap_or(WorkEvent::Other);
        self.digest.take(&event);
        if self.keep == KeepStream::Yes {
            self.stream.add(&line);
        }
        (self.tell)(News::Event(&event, &line));
    }

    /// Takes in the questions that are open now.
    pub(super) fn questions(&mut self, open: &[Open]) {
        (self.tell)(News::Questions(open));
    }

    /// Takes in what the worker was told and has done.
    pub(super) fn followed(&mut self, directive: &Directive) {
        (self.tell)(News::Followed(directive));
    }

    /// So many events were lost.
    pub(super) fn lost(&mut self, number: u64) {
        if self.keep == KeepStream::Yes {
            self.stream.dropped += number;
        }
        (self.tell)(News::Lost(number));
    }

    pub(super) fn heard(self) -> (Digest, Stream) {
        (self.digest, self.stream)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_bounded() {
        let mut ignore = |_: News<'_>| {};
        let mut hearing = Hearing::new(KeepStream::Yes, &mut ignore);
        let event = json!({ "type": "new", "x": "ß".repeat(30_000) });
        for _ in 0..100 {
            hearing.hear(&event);
        }
        let (_, stream) = hearing.heard();
        assert!(stream.lines.concat().len() <= STREAM_LIMIT);
        assert_eq!(stream.lines.len() as u64 + stream.dropped, 100);
    }
}
