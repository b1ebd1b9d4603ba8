//! Plays a plan as the body of a response.

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::Bytes;
use futures::Stream;
use tokio::sync::watch;

use crate::plan::Action;
use crate::reply::{Pause, Text, Usage};
use crate::sse::EventWriter;

/// How much is collected before it is handed on. Deltas without a pace between
/// them share chunks, so that thousands of them cost few writes.
const CHUNK_BYTES: usize = 8 * 1024;

/// How long the last bytes before a hang-up get to leave: the HTTP server throws
/// away what it has not written when a body fails.
const LAST_WRITE: Duration = Duration::from_millis(10);

/// The connection is dropped on purpose.
#[derive(Debug, thiserror::Error)]
#[error("the scripted model hung up")]
pub(crate) struct HangUp;

pub(crate) struct Playback {
    actions: VecDeque<Action>,
    text: Option<Cursor>,
    pause: Option<Pause>,
    usage: Usage,
    writer: EventWriter,
    end: Option<End>,
}

/// A text and the number of deltas already sent of it.
struct Cursor {
    text: Text,
    sent: usize,
}

#[derive(Clone, Copy)]
enum End {
    Complete,
    Broken,
}

impl Playback {
    pub(crate) fn new(actions: Vec<Action>, response_id: String) -> Self {
        Self {
            actions: actions.into(),
            text: None,
            pause: None,
            usage: Usage::default(),
            writer: EventWriter::new(response_id),
            end: None,
        }
    }

    /// The body, which breaks off when `stop` turns true or loses its sender.
    pub(crate) fn into_body(
        self,
        stop: watch::Receiver<bool>,
    ) -> impl Stream<Item = Result<Bytes, HangUp>> {
        futures::stream::unfold((self, stop), |(mut playback, mut stop)| async move {
            let chunk = tokio::select! {
                biased;
                () = stopped(&mut stop) => Err(HangUp),
                chunk = playback.next_chunk() => chunk?,
            };
            Some((chunk, (playback, stop)))
        })
    }

    /// The next bytes to send. All that is written leaves before a pause begins
    /// and before the response ends.
    async fn next_chunk(&mut self) -> Option<Result<Bytes, HangUp>> {
        loop {
            let due =
                self.pause.is_some() || self.end.is_some() || self.writer.len() >= CHUNK_BYTES;
            if due && self.writer.len() > 0 {
                return Some(Ok(self.writer.take()));
            }
            if let Some(pause) = self.pause.take() {
                pause.pass().await;
                continue;
            }
            match self.end {
                None => self.step(),
                Some(End::Complete) => return None,
                Some(End::Broken) => {
                    tokio::time::sleep(LAST_WRITE).await;
                    return Some(Err(HangUp));
                }
            }
        }
    }

    fn step(&mut self) {
        if self.send_delta() {
            return;
        }
        match self.actions.pop_front() {
            Some(Action::Pause(pause)) => self.pause = Some(pause),
            Some(Action::Text(text)) => self.text = Some(Cursor { text, sent: 0 }),
            Some(Action::EndMessage) => self.writer.end_message(),
            Some(Action::CallId(id)) => self.writer.set_call_id(id),
            Some(Action::Call(call)) => self.writer.call(call),
            Some(Action::Usage(usage)) => self.usage = usage,
            Some(Action::Break { code, message }) => {
                self.writer.failed(&code, &message);
                self.end = Some(End::Complete);
            }
            Some(Action::HangUp) => self.end = Some(End::Broken),
            None => {
                self.writer.completed(self.usage);
                self.end = Some(End::Complete);
            }
        }
    }

    /// Sends the next delta of the current text, if there is one left.
    fn send_delta(&mut self) -> bool {
        let Some(cursor) = &mut self.text else {
            return false;
        };
        let Some(piece) = cursor.text.piece(cursor.sent) else {
            self.text = None;
            return false;
        };
        self.writer.delta(piece);
        cursor.sent += 1;
        if !cursor.text.pace.is_zero() {
            self.pause = Some(Pause::For(cursor.text.pace));
        }
        true
    }
}

/// Resolves when the model has been stopped.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the model's handle is gone, which is a stop too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
