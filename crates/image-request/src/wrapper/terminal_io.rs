//! Bytes between the user's terminal and Codex's.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Wrapper;
use crate::logic::machine::{Effect, Input, Signal};

/// How many reads of Codex's output are passed on before other events are checked.
const BURST: usize = 8;

/// Ctrl-C, as terminals send it, and as they do when a program has asked for
/// unambiguous keys (kitty's protocol).
const CTRL_C: [&[u8]; 2] = [b"\x03", b"\x1b[99;5u"];

/// The pause in the output before it is parsed (4 ms): passing on output has priority.
const STILL: Duration = Duration::from_millis(4);

/// The delay between a change and the inspection of the screen (50 ms): short enough for a
/// marker that must be there for 400 ms, and long enough to cost little.
const LOOK_AFTER: Duration = Duration::from_millis(50);

impl Wrapper {
    /// Passes on keys. While no Codex runs, Ctrl-C ends the wrapper.
    pub(super) fn typed(&mut self, read: usize) -> Option<Effect> {
        let keys = self.keys.get(..read).unwrap_or_default();
        let Some(running) = self.running.as_ref().filter(|_| !self.streams.ending) else {
            let is_in = |key: &&[u8]| keys.windows(key.len()).any(|at| at == *key);
            let called_off = CTRL_C.iter().any(is_in);
            let told = called_off.then_some(Input::Signalled(Signal::Interrupt));
            return told.and_then(|told| self.apply(told));
        };
        let passed = running.tty.write_now(keys).unwrap_or(0);
        self.typed.extend(keys.get(passed..).unwrap_or_default());
        None
    }

    pub(super) fn user_gone(&mut self) -> Option<Effect> {
        self.streams.user_gone = true;
        self.shown.clear();
        self.apply(Input::Signalled(Signal::HangUp))
    }

    pub(super) fn drawn(&mut self, read: usize) {
        let drawn = self.drawn.get(..read).unwrap_or_default();
        self.screen.take(drawn);
        if self.config.terminal.is_ours() {
            let written = self.config.terminal.tty().write_now(drawn).unwrap_or(0);
            self.shown.extend(drawn.get(written..).unwrap_or_default());
        }
        let now = Instant::now();
        self.read_at = now + STILL;
        self.look_at.get_or_insert(now + LOOK_AFTER);
    }

    /// Passes on further output, as long as the terminal takes it.
    pub(super) fn pass_on(&mut self) {
        for _ in 0..BURST {
            let Some(running) = self.running.as_ref().filter(|_| self.shown.is_empty()) else {
                return;
            };
            match running.tty.read_now(&mut self.drawn) {
                Ok(read) if read > 0 => self.drawn(read),
                // An end is reported again by the next wait.
                _ => return,
            }
        }
    }

    /// Shows a text between two runs of Codex.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.screen.take(bytes);
        if self.config.terminal.is_ours() {
            self.shown.extend(bytes);
        }
    }

    /// Shows Codex's pending output until the deadline.
    pub(super) async fn drain(&mut self, until: Instant) {
        while let Some(running) = &self.running {
            match running.tty.read_now(&mut self.drawn) {
                Ok(read) if read > 0 && Instant::now() < until => self.drawn(read),
                _ => return,
            }
            self.flush(until).await;
        }
    }

    pub(super) async fn flush(&mut self, until: Instant) {
        while !self.shown.is_empty() && !self.streams.user_gone {
            let writes = self.config.terminal.tty().write(&self.shown);
            match timeout_at(until, writes).await {
                Ok(Ok(written)) => {
                    self.shown.drain(..written);
                }
                Ok(Err(_)) | Err(_) => self.shown.clear(),
            }
        }
    }
}
