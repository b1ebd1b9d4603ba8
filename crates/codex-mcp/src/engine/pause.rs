//! Stopping what Codex's commands have left running, while the repository is looked at.
//!
//! A command may leave a process in the background that changes files between two steps of
//! a look. Every process below Codex's own is stopped until the look is over; Codex itself
//! goes on. Nothing is stopped where the system has no `/proc`.

use std::collections::BTreeSet;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Engine;
use super::descendants::{descendants, first_child};

/// The most scans for processes that were started meanwhile. Each finds fewer, as those
/// that could start some are stopped.
const ROUNDS: u32 = 20;

/// Processes that are stopped until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Paused(BTreeSet<Pid>);

impl Engine {
    /// Stops what runs below Codex. Only for an engine all of whose threads are the
    /// caller's.
    pub(crate) fn pause_commands(&self) -> Paused {
        let running = self.backend.running();
        let guard = running.and_then(|(server, _)| server.guard());
        guard.map(Paused::below).unwrap_or_default()
    }
}

impl Paused {
    /// Below the guard is Codex, and below that are its commands and MCP servers. What
    /// outlives its parent is the guard's, too.
    fn below(guard: Pid) -> Self {
        let mut paused = Self::default();
        let codex = first_child(guard);
        for _ in 0..ROUNDS {
            let all = descendants(guard);
            let new: Vec<Pid> = all
                .into_iter()
                .filter(|pid| Some(*pid) != codex && !paused.0.contains(pid))
                .collect();
            if new.is_empty() {
                break;
            }
            for pid in new {
                // One that has ended meanwhile needs no stopping.
                let _ = kill(pid, Signal::SIGSTOP);
                paused.0.insert(pid);
            }
        }
        paused
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}
