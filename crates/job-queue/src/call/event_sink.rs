//! Collects the events of a job's turn: for the caller, the digest and the stream.

use std::mem;
use std::sync::{Arc, Mutex};

use codex_engine::command::OpenQuestion;
use codex_engine::logic::work::Digest;
use codex_engine::logic::work::event::WorkEvent;
use codex_protocol::codex::ThreadId;
use common::sync::lock;
use serde::Deserialize;
use serde_json::{Value, json};

use super::CallUpdate;
use super::record::CallRecord;
use crate::directive::Directive;

/// The limit of a kept stream, in bytes. Later events are counted only.
pub const STREAM_LIMIT: usize = 4 * 1024 * 1024;

/// The events of a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    /// The first of them, each as JSON, up to [`STREAM_LIMIT`].
    pub lines: Vec<String>,
    /// How many events more there were.
    pub dropped: u64,
    size: usize,
}

/// An event, parsed and as JSON.
pub(super) struct EventLine {
    pub(super) event: WorkEvent,
    pub(super) json: String,
}

/// The sink of a turn's events.
pub(super) struct EventSink<'a> {
    keep_stream: bool,
    on_update: &'a mut dyn FnMut(CallUpdate<'_>),
    digest: Arc<Mutex<Digest>>,
    stream: Stream,
}

impl<'a> EventSink<'a> {
    pub(super) fn new(keep_stream: bool, on_update: &'a mut dyn FnMut(CallUpdate<'_>)) -> Self {
        Self {
            keep_stream,
            on_update,
            digest: Arc::default(),
            stream: Stream::default(),
        }
    }

    /// Adds a warning of our own to the digest.
    pub(super) fn warn(&mut self, warning: Option<String>) {
        lock(&self.digest).warnings.extend(warning);
    }

    /// Reports the ID of the thread, and its sandbox.
    pub(super) fn session(&mut self, thread: &ThreadId, sandbox: Option<&str>) {
        (self.on_update)(CallUpdate::Session(thread));
        self.record(&json!({ "type": "thread.started", "thread_id": thread, "sandbox": sandbox }));
    }

    /// The digest, for the reader of events to fill.
    pub(super) fn digest(&self) -> Arc<Mutex<Digest>> {
        Arc::clone(&self.digest)
    }

    /// Records an event that has not come through Codex's reader.
    pub(super) fn record(&mut self, event: &Value) {
        let line = EventLine::of(event);
        lock(&self.digest).take(&line.event);
        self.emit(&line);
    }

    /// Passes an event on that is in the digest already.
    pub(super) fn emit(&mut self, line: &EventLine) {
        if self.keep_stream {
            self.stream.add(&line.json);
        }
        (self.on_update)(CallUpdate::Event(&line.event, &line.json));
    }

    /// Reports the questions that are open now.
    pub(super) fn questions(&mut self, open: &[OpenQuestion]) {
        (self.on_update)(CallUpdate::Questions(open));
    }

    /// Reports a directive that was followed.
    pub(super) fn followed(&mut self, directive: &Directive) {
        (self.on_update)(CallUpdate::Followed(directive));
    }

    /// Reports the state with which another process can continue the call.
    pub(super) fn note_record(&mut self, record: &CallRecord) {
        (self.on_update)(CallUpdate::Record(record));
    }

    /// Reports lost events.
    pub(super) fn lost(&mut self, number: u64) {
        if self.keep_stream {
            self.stream.dropped += number;
        }
        (self.on_update)(CallUpdate::Lost(number));
    }

    /// The digest and the stream of the turn.
    pub(super) fn finish(self) -> (Digest, Stream) {
        (mem::take(&mut lock(&self.digest)), self.stream)
    }
}

impl EventLine {
    pub(super) fn of(event: &Value) -> Self {
        Self {
            json: event.to_string(),
            // The recorder writes only events that parse.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_bounded() {
        let mut ignore = |_: CallUpdate<'_>| {};
        let mut sink = EventSink::new(true, &mut ignore);
        let event = json!({ "type": "new", "x": "ß".repeat(30_000) });
        for _ in 0..100 {
            sink.record(&event);
        }
        let (_, stream) = sink.finish();
        assert!(stream.lines.concat().len() <= STREAM_LIMIT);
        assert_eq!(stream.lines.len() as u64 + stream.dropped, 100);
    }
}
