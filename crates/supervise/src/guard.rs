//! A small process between us and Codex that ends Codex's whole process tree.
//!
//! Killing Codex is not enough: each command that it runs has its own session, and outlives both
//! Codex and Codex's process group. The guard is the subreaper of all processes below it, so none
//! can escape by losing its parent. It ends the tree
//!
//! - when Codex has ended,
//! - on SIGTERM, SIGINT or SIGHUP,
//! - when its owner has died for any reason: the system sends SIGTERM then.
//!
//! To end the tree, the guard sends SIGTERM to every descendant, and every second from then on
//! SIGKILL to those that are left, until none is. On Linux it also chases chains of processes, in
//! which each process starts the next one and ends sooner than a scan can find and kill it. If the
//! guard itself is killed, the system sends SIGKILL to Codex, and the owner kills the rest of the
//! tree (`tree_mark`). The guard exits as Codex did.
//!
//! ```text
//!   Watching ── Codex ended, told to, owner gone ──► Ending ── nothing left ──► exit
//!                                          SIGTERM to all │ ▲
//!                                                         └─┘ every second: SIGKILL to all
//! ```
//!
//! If the program's streams are a terminal, the guard is the leader of its session, like a shell,
//! and the program is a foreground job. Without a session leader above it, the program could not be
//! stopped (Ctrl-Z), as the system does not stop processes of an orphaned process group. When the
//! program is stopped, the guard stops too, so that its owner notices. When the guard is continued,
//! it continues the program.
//!
//! On systems without subreapers (outside Linux), the guard instead ends Codex's process group and
//! the processes that are listed below it, and checks every second whether the owner lives.
//!
//! The guard of an [adoptable](super::adoptable) program ([`run_adoptable`]) does not end the tree
//! when its owner has died, but waits for another owner.

#[cfg(all(target_os = "linux", not(portable)))]
mod adoptable;
mod tree;
#[cfg(not(all(target_os = "linux", not(portable))))]
mod unsupported;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use common::output;
use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, alarm, dup2_stdin, dup2_stdout, getppid, setsid};

use super::exit::Exit;
use super::{platform, private_socket};
use tree::Tree;
#[cfg(not(all(target_os = "linux", not(portable))))]
use unsupported as adoptable;

/// Seconds between SIGTERM and SIGKILL.
const GRACE: u32 = 1;

/// How long chains are chased after each SIGKILL. The time suffices for eight chains at once on a
/// busy machine.
const CHASE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Watching,
    Ending,
}

/// The kind of the program's streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Pipes or files.
    Pipes,
    /// One terminal, which no other process uses.
    Terminal,
}

/// The process for which the program runs.
#[derive(Debug)]
enum Owner {
    /// The parent of the guard.
    Parent(Pid),
    /// The process at the other end of the control stream.
    #[cfg_attr(
        not(all(target_os = "linux", not(portable))),
        expect(dead_code, reason = "no program is adoptable there")
    )]
    OnStream {
        /// Where the next owner connects.
        adoption: PathBuf,
    },
}

struct Guard {
    owner: Owner,
    streams: Streams,
    codex: Pid,
    codex_exit: Option<Exit>,
    phase: Phase,
    tree: Tree,
}

/// Runs `program` with `args` under guard for the process `owner`.
#[must_use]
pub fn run(owner: i32, streams: Streams, program: &OsString, args: &[OsString]) -> ExitCode {
    let exit = watch(Pid::from_raw(owner), streams, program, args);
    exit_code(exit, program)
}

/// Runs `program` with `args` under guard. The first owner is the process at the other end of
/// stdin, the control stream. Other processes can take the program over through the socket
/// `adoption`, each up to `wait` after the end of its predecessor.
#[must_use]
pub fn run_adoptable(
    adoption: &Path,
    wait: Duration,
    program: &OsString,
    args: &[OsString],
) -> ExitCode {
    exit_code(adoptable::watch(adoption, wait, program, args), program)
}

fn exit_code(exit: io::Result<Exit>, program: &OsString) -> ExitCode {
    match exit {
        Ok(exit) => exit_like(exit),
        Err(error) => {
            // Our stderr is the program's. A failed write changes nothing: the exit code
            // also reports the error.
            let _ = writeln!(
                output::stderr(),
                "cannot start {}: {error}",
                program.display()
            );
            ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
                127
            } else {
                126
            })
        }
    }
}

fn watch(owner: Pid, streams: Streams, program: &OsString, args: &[OsString]) -> io::Result<Exit> {
    let signals = block_signals()?;
    platform::tie_to_owner()?;
    if streams == Streams::Terminal {
        setsid()?;
        rustix::process::ioctl_tiocsctty(io::stdin())?;
    }
    let mut command = command(program, args);
    command.stderr(Stdio::inherit());
    let child = start(streams, &mut command)?;
    let mut guard = Guard::new(Owner::Parent(owner), streams, &child)?;
    guard.check_owner();
    guard.until_ended(&signals)
}

/// Blocks the signals that the guard waits for.
fn block_signals() -> io::Result<SigSet> {
    let signals = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGCHLD,
        Signal::SIGALRM,
    ];
    let signals: SigSet = signals.into_iter().collect();
    signals.thread_block()?;
    Ok(signals)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the second half of spawn: the guard starts what it guards"
)]
fn command(program: &OsString, args: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// Starts the program, and closes our own stdin and stdout, so that only the program holds them.
#[expect(
    clippy::disallowed_methods,
    reason = "the second half of spawn: the guard starts what it guards"
)]
fn start(streams: Streams, command: &mut Command) -> io::Result<Child> {
    command.process_group(0);
    // SAFETY: the closure runs in the child between fork and exec, where only
    // async-signal-safe calls are allowed. It makes system calls alone
    // (`rt_sigprocmask`, `prctl`, `getpid`, and `ioctl` for the terminal), and
    // neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || before_exec(streams));
    }
    let child = command.spawn()?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    Ok(child)
}

/// Unblocks all signals for the program: with SIGCHLD blocked, Codex would not notice that one of
/// its commands has ended.
fn before_exec(streams: Streams) -> io::Result<()> {
    if streams == Streams::Terminal {
        // A process in the background is stopped for this call unless it blocks SIGTTOU.
        SigSet::from(Signal::SIGTTOU).thread_block()?;
        let this = rustix::process::getpid();
        rustix::termios::tcsetpgrp(rustix::stdio::stdin(), this)?;
    }
    SigSet::empty().thread_set_mask()?;
    platform::tie_to_guard()
}

impl Guard {
    fn new(owner: Owner, streams: Streams, codex: &Child) -> io::Result<Self> {
        let codex = i32::try_from(codex.id()).map_err(io::Error::other)?;
        Ok(Self {
            owner,
            streams,
            codex: Pid::from_raw(codex),
            codex_exit: None,
            phase: Phase::Watching,
            tree: Tree::new(),
        })
    }

    /// Handles signals until the tree has ended. Returns Codex's exit.
    fn until_ended(&mut self, signals: &SigSet) -> io::Result<Exit> {
        loop {
            let ended = match signals.wait()? {
                Signal::SIGCHLD => self.reap(),
                Signal::SIGALRM => self.on_alarm(),
                _ => {
                    self.end();
                    None
                }
            };
            if let Some(exit) = ended {
                self.tree.end_left(self.codex);
                return Ok(exit);
            }
        }
    }

    /// Reaps every child that has ended. Returns Codex's exit once no child is left.
    /// Children that remain when Codex has ended are ended too.
    fn reap(&mut self) -> Option<Exit> {
        loop {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
            let exit = match waitpid(None::<Pid>, Some(flags)) {
                Ok(WaitStatus::Stopped(pid, _)) => {
                    self.stopped(pid);
                    continue;
                }
                Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) => {
                    // Processes that Codex has left behind are our children by now.
                    if self.codex_exit.is_some() {
                        self.end();
                    }
                    return None;
                }
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => return Some(self.codex_exit.unwrap_or(Exit::Unknown)),
            };
            if exit.0 == self.codex {
                self.codex_exit = Some(exit.1);
            }
        }
    }

    /// Stops the guard when Codex has been stopped. Continues Codex when the guard is continued.
    fn stopped(&self, pid: Pid) {
        let with_it = self.streams == Streams::Terminal && self.phase == Phase::Watching;
        if with_it && pid == self.codex {
            // Neither call fails: both processes exist, as Codex has not been reaped.
            let _ = raise(Signal::SIGSTOP);
            let _ = killpg(self.codex, Signal::SIGCONT);
        }
    }

    fn end(&mut self) {
        if self.phase == Phase::Watching {
            self.phase = Phase::Ending;
            if let Owner::OnStream { adoption } = &self.owner {
                // If this fails, the socket is removed at the end.
                let _ = private_socket::remove(adoption);
            }
            self.signal_all(Signal::SIGTERM);
            alarm::set(GRACE);
        }
    }

    /// Returns Codex's exit once no child is left.
    fn on_alarm(&mut self) -> Option<Exit> {
        match self.phase {
            Phase::Watching => {
                self.check_owner();
                None
            }
            Phase::Ending => {
                self.signal_all(Signal::SIGKILL);
                alarm::set(GRACE);
                self.chase()
            }
        }
    }

    /// Kills our children again and again: a process of a chain becomes our child when its parent
    /// has ended, and listing children takes a fraction of the time of a scan. Only we reap them,
    /// so none of the listed numbers can belong to another process. Returns Codex's exit once no
    /// child is left.
    fn chase(&mut self) -> Option<Exit> {
        let end = Instant::now() + CHASE;
        let mut exit = None;
        while exit.is_none() && Instant::now() < end {
            let children = self.tree.children();
            if children.is_empty() {
                break;
            }
            for child in children {
                let _ = kill(child, Signal::SIGKILL);
            }
            exit = self.reap();
        }
        exit
    }

    /// The owner may have died before we asked the system to signal its death.
    fn check_owner(&mut self) {
        let Owner::Parent(owner) = self.owner else {
            return;
        };
        if getppid() != owner {
            self.end();
        } else if !platform::OWNER_DEATH_IS_SIGNALLED {
            alarm::set(1);
        }
    }

    /// Processes start and end during the scan; a missed one is found a second later.
    fn signal_all(&mut self, signal: Signal) {
        // Listed before Codex can end: outside Linux, Codex leads to the other processes.
        let processes = self.tree.processes();
        // Once Codex has been reaped, its number may belong to another process.
        if self.codex_exit.is_none() {
            let _ = killpg(self.codex, signal);
        }
        for pid in processes {
            let _ = kill(pid, signal);
        }
    }
}

/// Ends this process the way Codex ended, so that our owner sees it as if it
/// had started Codex itself.
fn exit_like(exit: Exit) -> ExitCode {
    match exit {
        Exit::Code(code) => ExitCode::from(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        Exit::Unknown => ExitCode::FAILURE,
        Exit::Signal(number) => {
            if let Ok(signal) = Signal::try_from(number) {
                // SAFETY: the default action is no function of ours that could run
                // at a bad moment. Without it the signals that Rust's runtime
                // handles (SIGSEGV, SIGBUS) or ignores (SIGPIPE) would not end us.
                let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
                // Another signal that is pending, such as our alarm, would end us as well.
                let _ = SigSet::from(signal).thread_unblock();
                let _ = kill(Pid::this(), signal);
            }
            ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
        }
    }
}
