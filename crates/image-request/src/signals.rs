//! The signals that the wrapper hears.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::logic::machine;

/// What a signal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// To end.
    End(machine::Signal),
    /// The terminal has another size (SIGWINCH).
    Resized,
    /// We were stopped, and go on (SIGCONT).
    Continued,
    /// Codex may have stopped (SIGCHLD).
    Child,
}

/// The signals, heard from when this is made on.
#[derive(Debug)]
pub struct Signals {
    hang_up: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    resized: Signal,
    continued: Signal,
    child: Signal,
}

impl Signals {
    /// Hears them.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn hear() -> io::Result<Self> {
        // As tokio doesn't name it.
        let continued = SignalKind::from_raw(nix::sys::signal::Signal::SIGCONT as i32);
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            resized: signal(SignalKind::window_change())?,
            continued: signal(continued)?,
            child: signal(SignalKind::child())?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Heard {
        tokio::select! {
            biased;
            _ = self.hang_up.recv() => Heard::End(machine::Signal::HangUp),
            _ = self.interrupt.recv() => Heard::End(machine::Signal::Interrupt),
            _ = self.quit.recv() => Heard::End(machine::Signal::Quit),
            _ = self.terminate.recv() => Heard::End(machine::Signal::Terminate),
            _ = self.resized.recv() => Heard::Resized,
            _ = self.continued.recv() => Heard::Continued,
            _ = self.child.recv() => Heard::Child,
        }
    }
}
