//! A small process between us and Codex that ends Codex's whole process tree.
//!
//! Killing Codex is not enough: each command that it runs has a session of its own, and
//! outlives both Codex and Codex's process group. The guard is the subreaper of
//! everything below it, so that no process can escape by losing its parent. It ends the
//! tree
//!
//! - when Codex has ended,
//! - on SIGTERM, SIGINT or SIGHUP,
//! - when its owner has died, however: the system sends SIGTERM then.
//!
//! To end the tree, the guard sends SIGTERM to every descendant, and SIGKILL a second
//! later to those that are left, until none is. If the guard itself is killed, the system
//! sends SIGKILL to Codex. The guard exits as Codex did.
//!
//! ```text
//!   Watching ── Codex ended, told to, owner gone ──► Ending ── nothing left ──► exit
//!                                          SIGTERM to all │ ▲
//!                                                         └─┘ every second: SIGKILL to all
//! ```
//!
//! Where the program's streams are a terminal, the guard is the leader of its session, as
//! a shell is, and the program a job in the foreground. Without a session leader above it
//! the program could not be stopped (Ctrl-Z): the system does not stop processes of an
//! orphaned process group. When the program is stopped, the guard stops too, so that its
//! owner notices, and continues the program when it is continued itself.
//!
//! On systems without subreapers (outside Linux), the guard ends Codex's process group
//! instead, and checks every second whether the owner lives.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use common::output;
use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, alarm, dup2_stdin, dup2_stdout, getppid, setsid};

use super::descendants::descendants;
use super::exit::Exit;

/// Seconds between SIGTERM and SIGKILL.
const GRACE: u32 = 1;

/// Whether the system signals the death of our owner.
const OWNER_DEATH_IS_SIGNALLED: bool = cfg!(target_os = "linux");

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

struct Guard {
    owner: Pid,
    streams: Streams,
    codex: Pid,
    codex_exit: Option<Exit>,
    phase: Phase,
}

/// Runs `program` with `args` under guard for the process `owner`.
#[must_use]
pub fn run(owner: i32, streams: Streams, program: &OsString, args: &[OsString]) -> ExitCode {
    match watch(Pid::from_raw(owner), streams, program, args) {
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
    let signals = [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGCHLD,
        Signal::SIGALRM,
    ];
    let signals: SigSet = signals.into_iter().collect();
    signals.thread_block()?;
    tie_to_owner()?;
    if streams == Streams::Terminal {
        setsid()?;
        rustix::process::ioctl_tiocsctty(io::stdin())?;
    }
    let codex = start(streams, program, args)?;
    let mut guard = Guard {
        owner,
        streams,
        codex,
        codex_exit: None,
        phase: Phase::Watching,
    };
    guard.check_owner();
    loop {
        match signals.wait()? {
            Signal::SIGCHLD => {
                if let Some(exit) = guard.reap() {
                    return Ok(exit);
                }
            }
            Signal::SIGALRM => guard.on_alarm(),
            _ => guard.end(),
        }
    }
}

#[cfg(target_os = "linux")]
fn tie_to_owner() -> io::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn tie_to_owner() -> io::Result<()> {
    Ok(())
}

/// Starts the program with our streams, and closes our own stdin and stdout, so that only
/// the program holds them.
#[expect(
    clippy::disallowed_methods,
    reason = "the second half of spawn: the guard starts what it guards"
)]
fn start(streams: Streams, program: &OsString, args: &[OsString]) -> io::Result<Pid> {
    let mut command = Command::new(program);
    command.args(args).process_group(0).stderr(Stdio::inherit());
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
    i32::try_from(child.id())
        .map(Pid::from_raw)
        .map_err(io::Error::other)
}

/// The program starts with no signal blocked, whatever is blocked here: with
/// SIGCHLD blocked Codex would not notice that a command of its has ended.
fn before_exec(streams: Streams) -> io::Result<()> {
    if streams == Streams::Terminal {
        // A process in the background is stopped for this call unless it blocks SIGTTOU.
        SigSet::from(Signal::SIGTTOU).thread_block()?;
        let this = rustix::process::getpid();
        rustix::termios::tcsetpgrp(rustix::stdio::stdin(), this)?;
    }
    SigSet::empty().thread_set_mask()?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}

impl Guard {
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
                    // Processes that Codex left are our children by now.
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

    /// Stops when Codex stops, and continues it when we are continued.
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
            self.signal_all(Signal::SIGTERM);
            alarm::set(GRACE);
        }
    }

    fn on_alarm(&mut self) {
        match self.phase {
            Phase::Watching => self.check_owner(),
            Phase::Ending => {
                self.signal_all(Signal::SIGKILL);
                alarm::set(GRACE);
            }
        }
    }

    /// The owner may have died before we asked the system to signal its death.
    fn check_owner(&mut self) {
        if getppid() != self.owner {
            self.end();
        } else if !OWNER_DEATH_IS_SIGNALLED {
            alarm::set(1);
        }
    }

    /// Processes start and end during the scan; a missed one is found a second later.
    fn signal_all(&self, signal: Signal) {
        // Once Codex has been reaped, its number may belong to another process.
        if self.codex_exit.is_none() {
            let _ = killpg(self.codex, signal);
        }
        for pid in descendants(Pid::this()) {
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
                let _ = SigSet::all().thread_unblock();
                let _ = kill(Pid::this(), signal);
            }
            ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
        }
    }
}
