//! The signals that the wrapper handles.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::logic::machine;

/// The meaning of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalEvent {
    /// The wrapper is to end.
    End(machine::Signal),
    /// The terminal was resized (SIGWINCH).
    Resized,
    /// The wrapper was stopped and continues (SIGCONT).
    Continued,
    /// Codex may have stopped (SIGCHLD).
    Child,
}

/// The signals since the creation of this value.
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
    /// Installs the handlers.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn listen() -> io::Result<Self> {
        // Tokio has no name for it.
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

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            biased;
            _ = self.hang_up.recv() => SignalEvent::End(machine::Signal::HangUp),
            _ = self.interrupt.recv() => SignalEvent::End(machine::Signal::Interrupt),
            _ = self.quit.recv() => SignalEvent::End(machine::Signal::Quit),
            _ = self.terminate.recv() => SignalEvent::End(machine::Signal::Terminate),
            _ = self.resized.recv() => SignalEvent::Resized,
            _ = self.continued.recv() => SignalEvent::Continued,
            _ = self.child.recv() => SignalEvent::Child,
        }
    }
}
