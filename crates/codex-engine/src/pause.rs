//! Stops and kills processes that Codex's commands left running, while the repository of a run is
//! inspected.
//!
//! A command may leave a background process that changes files between two steps of an inspection.
//! Every process below Codex is stopped until the inspection is over; Codex itself continues.
//! Processes that keep starting others cannot be stopped one by one, so in that case the commands
//! are killed instead.
//!
//! Codex starts each command in a separate process session. Codex's MCP servers are in Codex's own
//! process session, which no process of a command can join. A sandboxed command has a PID
//! namespace, and all processes in it end with the first one.
//!
//! A process that starts a successor and exits at once has usually exited before it can be read. If
//! its parent is stopped, it remains as a zombie: a new zombie counts as running, and its group is
//! signalled.
//!
//! Stopping is no barrier against a hostile process, which can have a timer continue it. Steps that
//! must not be disturbed run after the commands were killed.
//!
//! If several threads share an app-server, the commands of each get a distinct variable, a
//! [`CommandMark`]. A process belongs to a thread if it has the mark, is a descendant of a process
//! with the mark, or is in the process session of one. A process that has shed all three is killed
//! when no thread is working any more.
//!
//! On systems without `/proc`, nothing is stopped or killed.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use safe_files::off_runtime::{self, OffRuntimeError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use supervise::descendants::{Process, Processes};

use super::confinement::MARK;
use super::engine::Engine;
use super::overrides;

/// How long the processes have to stop before the commands are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How long killed commands may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(8);

/// The pause before processes are listed again if no new ones were found: signalled
/// processes take a moment. New ones are signalled without a pause, as a pause would let
/// them start more.
const SCAN_PAUSE: Duration = Duration::from_millis(2);

/// Why Codex's background processes may still run.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    /// Some processes start others faster than they are killed, or hang in the kernel.
    #[error(
        "background processes of Codex's commands still run {} s after they were first killed \
         ({count} of them)",
        KILL_TIMEOUT.as_secs()
    )]
    StillRunning {
        /// How many were found last.
        count: usize,
    },
    /// The processes could not be listed and stopped.
    #[error("background processes of Codex's commands cannot be stopped: {0}")]
    NotDone(#[from] OffRuntimeError),
}

/// Marks the processes of the commands of one thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandMark(String);

impl CommandMark {
    /// Creates a mark that no other thread has.
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    /// Makes Codex pass the mark to the commands of the thread with these overrides.
    pub fn set_in(&self, config: &mut Map<String, Value>) {
        let path = ["shell_environment_policy", "set", MARK];
        overrides::set(config, &path, self.0.as_str().into());
    }

    /// The processes of commands that belong to this mark.
    fn among(&self, below: &BelowCodex) -> Vec<Process> {
        let variable = format!("{MARK}={}", self.0);
        let has_mark = |process: &&Process| process.has_variable(&variable);
        let marked: Vec<Process> = below.commands.iter().filter(has_mark).copied().collect();
        let sessions: BTreeSet<Pid> = marked.iter().map(|process| process.session).collect();
        let mut pids: BTreeSet<Pid> = marked.iter().map(|process| process.pid).collect();
        for process in &marked {
            let children = below.processes.below(process.pid);
            pids.extend(children.iter().map(|child| child.pid));
        }
        let is_its =
            |process: &&Process| pids.contains(&process.pid) || sessions.contains(&process.session);
        below.commands.iter().filter(is_its).copied().collect()
    }
}

/// The stopped processes. Dropping this continues them.
#[derive(Debug, Default)]
pub struct Paused {
    /// The guard of Codex, if Codex runs.
    guard: Option<Pid>,
    stopped: BTreeSet<Pid>,
}

impl Engine {
    /// Stops all processes below Codex. Only for an engine whose threads all belong to
    /// the caller.
    ///
    /// # Errors
    ///
    /// [`PauseError`]; nothing is stopped then.
    pub async fn pause_commands(&self) -> Result<Paused, PauseError> {
        let running = self.codex.backend.running();
        match running.and_then(|(server, _)| server.guard()) {
            Some(guard) => off_runtime::run(move || Paused::below(guard)).await?,
            None => Ok(Paused::default()),
        }
    }

    /// Whether any process runs below Codex, a command or an MCP server of any thread.
    /// `true` if that cannot be determined.
    pub async fn has_processes(&self) -> bool {
        let running = self.codex.backend.running();
        let Some(guard) = running.and_then(|(server, _)| server.guard()) else {
            return true;
        };
        let has_some = move || {
            let below = BelowCodex::scan(guard);
            let is_known = below.processes.first_child(guard).is_some();
            !is_known || !below.commands.is_empty() || !below.others.is_empty()
        };
        off_runtime::run(has_some).await.unwrap_or(true)
    }

    /// Kills the processes of the commands that have this mark, and waits until they have
    /// ended.
    ///
    /// # Errors
    ///
    /// [`PauseError`].
    pub async fn kill_marked(&self, mark: &CommandMark) -> Result<(), PauseError> {
        let mark = mark.clone();
        self.kill_some(move |below| mark.among(&below)).await
    }

    /// Kills all processes of commands, and waits until they have ended. Only for an
    /// engine without a working thread.
    ///
    /// # Errors
    ///
    /// [`PauseError`].
    pub async fn kill_all_commands(&self) -> Result<(), PauseError> {
        self.kill_some(|below| below.commands).await
    }

    async fn kill_some(
        &self,
        which: impl Fn(BelowCodex) -> Vec<Process> + Send + 'static,
    ) -> Result<(), PauseError> {
        let running = self.codex.backend.running();
        match running.and_then(|(server, _)| server.guard()) {
            Some(guard) => off_runtime::run(move || kill_until_gone(guard, which)).await?,
            None => Ok(()),
        }
    }
}

impl Paused {
    /// Kills all processes of Codex's commands, stopped or not, and waits until they have
    /// ended. MCP servers stay.
    ///
    /// # Errors
    ///
    /// [`PauseError`].
    pub async fn kill_commands(&self) -> Result<(), PauseError> {
        match self.guard {
            Some(guard) => off_runtime::run(move || kill_commands(guard)).await?,
            None => Ok(()),
        }
    }

    fn below(guard: Pid) -> Result<Self, PauseError> {
        let mut paused = Self {
            guard: Some(guard),
            stopped: BTreeSet::new(),
        };
        let end = Instant::now() + STOP_TIMEOUT;
        loop {
            let below = BelowCodex::scan(guard);
            let is_new = |process: &&Process| !paused.stopped.contains(&process.pid);
            let running = |process: &&Process| process.is_running() || is_new(process);
            let commands: Vec<Process> = below.commands.iter().filter(running).copied().collect();
            let others: Vec<Process> = below.others.iter().filter(running).copied().collect();
            if commands.is_empty() && others.is_empty() {
                return Ok(paused);
            }
            if Instant::now() >= end {
                kill_commands(guard)?;
                return Ok(paused);
            }
            signal_commands(&commands, Signal::SIGSTOP);
            for process in &others {
                // A process that has exited meanwhile need not be stopped.
                let _ = kill(process.pid, Signal::SIGSTOP);
            }
            let before = paused.stopped.len();
            paused
                .stopped
                .extend(commands.iter().chain(&others).map(|process| process.pid));
            if paused.stopped.len() == before {
                thread::sleep(SCAN_PAUSE);
            }
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for pid in &self.stopped {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

/// The processes below Codex.
#[derive(Debug, Default)]
struct BelowCodex {
    /// The processes of its commands.
    commands: Vec<Process>,
    /// Its MCP servers, and the processes that they started.
    others: Vec<Process>,
    processes: Processes,
}

impl BelowCodex {
    /// Codex is a child of the guard; its commands and MCP servers are below Codex. A
    /// process that outlives its parent becomes a child of the guard.
    fn scan(guard: Pid) -> Self {
        let processes = Processes::scan();
        let Some(codex) = processes.first_child(guard) else {
            return Self::default();
        };
        let below = processes.below(guard).into_iter();
        let all = below.filter(|process| process.pid != codex.pid);
        let (others, commands) = all.partition(|process| process.session == codex.session);
        Self {
            commands,
            others,
            processes,
        }
    }
}

fn kill_commands(guard: Pid) -> Result<(), PauseError> {
    kill_until_gone(guard, |below| below.commands)
}

fn kill_until_gone(
    guard: Pid,
    which: impl Fn(BelowCodex) -> Vec<Process>,
) -> Result<(), PauseError> {
    let end = Instant::now() + KILL_TIMEOUT;
    let mut seen = BTreeSet::new();
    loop {
        let commands = which(BelowCodex::scan(guard));
        let count = commands
            .iter()
            .filter(|process| !process.has_ended())
            .count();
        let before = seen.len();
        seen.extend(commands.iter().map(|process| process.pid));
        if count == 0 && (commands.is_empty() || seen.len() == before) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(PauseError::StillRunning { count });
        }
        signal_commands(&commands, Signal::SIGKILL);
        if seen.len() == before {
            thread::sleep(SCAN_PAUSE);
        }
    }
}

/// Signals the processes and their groups. A signal to a group reaches all its processes at once,
/// including those that are just being started. Commands have their own process sessions, so their
/// groups contain no other processes.
fn signal_commands(commands: &[Process], signal: Signal) {
    let groups: BTreeSet<Pid> = commands.iter().map(|process| process.group).collect();
    for group in groups {
        let _ = killpg(group, signal);
    }
    for process in commands {
        let _ = kill(process.pid, signal);
    }
}
