//! What is heard of a job's turn.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use codex_engine::command::Open;
use codex_engine::logic::work::Digest;
use codex_engine::logic::work::event::WorkEvent;
use codex_protocol::codex::ThreadId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{KeepStream, News};
use crate::directive::Directive;

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

/// An event, and the same as JSON.
pub(super) struct Line {
    pub(super) event: WorkEvent,
    pub(super) json: String,
}

/// Listens to a turn.
pub(super) struct Hearing<'a> {
    keep: KeepStream,
    on_news: &'a mut dyn FnMut(News<'_>),
    digest: Arc<Mutex<Digest>>,
    stream: Stream,
}

impl<'a> Hearing<'a> {
    pub(super) fn new(keep: KeepStream, on_news: &'a mut dyn FnMut(News<'_>)) -> Self {
        Self {
            keep,
            on_news,
            digest: Arc::default(),
            stream: Stream::default(),
        }
    }

    /// Takes in a warning of our own.
    pub(super) fn warn(&mut self, warning: Option<String>) {
        lock(&self.digest).warnings.extend(warning);
    }

    /// Takes in Codex's name for the conversation.
    pub(super) fn session(&mut self, thread: &ThreadId) {
        (self.on_news)(News::Session(thread));
        self.hear(&json!({ "type": "thread.started", "thread_id": thread }));
    }

    /// The digest, for the reader of events to fill.
    pub(super) fn digest(&self) -> Arc<Mutex<Digest>> {
        Arc::clone(&self.digest)
    }

    /// Takes in an event that is not Codex's reader's.
    pub(super) fn hear(&mut self, event: &Value) {
        let line = Line::of(event);
        lock(&self.digest).take(&line.event);
        self.tell(&line);
    }

    /// Tells of an event that is in the digest.
    pub(super) fn tell(&mut self, line: &Line) {
        if self.keep == KeepStream::Yes {
            self.stream.add(&line.json);
        }
        (self.on_news)(News::Event(&line.event, &line.json));
    }

    /// Takes in the questions that are open now.
    pub(super) fn questions(&mut self, open: &[Open]) {
        (self.on_news)(News::Questions(open));
    }

    /// Takes in what the worker was told and has done.
    pub(super) fn followed(&mut self, directive: &Directive) {
        (self.on_news)(News::Followed(directive));
    }

    /// So many events were lost.
    pub(super) fn lost(&mut self, number: u64) {
        if self.keep == KeepStream::Yes {
            self.stream.dropped += number;
        }
        (self.on_news)(News::Lost(number));
    }

    pub(super) fn heard(self) -> (Digest, Stream) {
        (mem::take(&mut lock(&self.digest)), self.stream)
    }
}

impl Line {
    pub(super) fn of(event: &Value) -> Self {
        Self {
            json: event.to_string(),
            // All of ours can be read.
            event: WorkEvent::deserialize(event).unwrap_or(WorkEvent::Other),
        }
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

/// Locks what no panic leaves half changed.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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
