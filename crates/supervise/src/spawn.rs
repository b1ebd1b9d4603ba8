//! The one place where the program starts processes.
//!
//! What is started is not the program asked for but a [guard](super::guard):
//! this executable once more, which starts the program, passes its streams
//! through untouched, and takes the whole tree below it down when the program
//! ends, when it is told to, or when we are gone, whatever way we went.
//!
//! On Linux a parent-death signal comes when the *thread* that spawned ends.
//! The program runs on a single-threaded runtime, so the spawning thread lives
//! as long as the process.
//!
//! Only a worker stays when we go, see [`spawn_detached`]; what it starts has a guard.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the module that everything else has to go through"
)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::exit::Exit;
use super::search_path::{PATH, SearchPaths, without_relative};

/// Variables that hold a password, or name a file that does, for the store of jobs.
/// Nothing that is started here gets them but a worker. Source: libpq's environment
/// variables, PostgreSQL 18.
pub const STORE_SECRETS: [&str; 8] = [
    "CODEX_MCP_STORE",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLKEY",
    "PGSSLPASSWORD",
    "PGSYSCONFDIR",
];

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable, as a path.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables set on top of our own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of our own environment that it doesn't get.
    pub without: &'static [&'static str],
    /// Its working directory, if not ours.
    pub cwd: Option<PathBuf>,
    /// Where it looks up programs.
    pub lookup: Lookup,
}

/// The directories in which a program and what it starts are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// Those of PATH that Codex's commands cannot write, see
    /// `search_path`.
    Protected,
    /// Those of PATH, but for relative ones: what is run is the repository's in any case.
    AsTheUser,
}

impl Program {
    /// `path` with `args`, in our environment and working directory.
    pub fn new<A: AsRef<OsStr>>(path: &Path, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            path: path.to_owned(),
            args: args
                .into_iter()
                .map(|arg| arg.as_ref().to_owned())
                .collect(),
            env: Vec::new(),
            without: &[],
            cwd: None,
            lookup: Lookup::Protected,
        }
    }
}

/// A running program and all that it starts. Dropping it ends the whole tree.
#[derive(Debug)]
pub struct Process {
    guard: Child,
}

/// The streams of a program.
#[derive(Debug)]
pub struct Streams {
    /// Closing it tells the program that there is nothing more to come.
    pub stdin: ChildStdin,
    /// What the program answers.
    pub stdout: ChildStdout,
    /// What the program complains about.
    pub stderr: ChildStderr,
}

/// Starts a program under a guard.
///
/// # Errors
///
/// When this executable can't be started again. A program that can't be
/// started shows as exit code 127 (not found) or 126, with the reason on its
/// stderr, as in a shell.
pub fn spawn(program: &Program) -> io::Result<(Process, Streams)> {
    let mut guard = guarded(program, &[])?
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let missing = || io::Error::other("a piped stream of the child is missing");
    let streams = Streams {
        stdin: guard.stdin.take().ok_or_else(missing)?,
        stdout: guard.stdout.take().ok_or_else(missing)?,
        stderr: guard.stderr.take().ok_or_else(missing)?,
    };
    Ok((Process { guard }, streams))
}

/// Starts a program under a guard, in a terminal: the end of it that programs use. It
/// becomes the controlling terminal of a session of their own.
///
/// # Errors
///
/// As [`spawn`]; a program that can't be started says so in the terminal.
pub fn spawn_in_terminal(program: &Program, terminal: &impl AsFd) -> io::Result<Process> {
    let stream = || terminal.as_fd().try_clone_to_owned().map(Stdio::from);
    let guard = guarded(program, &["--terminal"])?
        .stdin(stream()?)
        .stdout(stream()?)
        .stderr(stream()?)
        .spawn()?;
    Ok(Process { guard })
}

/// The command of the guard of a program.
fn guarded(program: &Program, options: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(own_executable()?);
    command
        .arg("guard")
        .args(options)
        .arg(std::process::id().to_string())
        // What follows is the program's, also where it looks like an option of ours.
        .arg("--")
        .arg(&program.path)
        .args(&program.args)
        .envs(program.env.iter().map(|(name, value)| (name, value)));
    for name in STORE_SECRETS.iter().chain(program.without) {
        if !program.env.iter().any(|(set, _)| set == name) {
            command.env_remove(name);
        }
    }
    protect_search_paths(&mut command, program);
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
    Ok(command)
}

/// Takes from the program's search paths what Codex's commands can write.
fn protect_search_paths(command: &mut Command, program: &Program) {
    let variable = |name: &str| {
        let mut set = program.env.iter().rev();
        let own = set.find(|(known, _)| known == name);
        let own = own.map(|(_, value)| value.clone());
        own.or_else(|| std::env::var_os(name).filter(|_| !program.without.contains(&name)))
    };
    if program.lookup == Lookup::AsTheUser {
        if let Some(path) = variable(PATH).and_then(|path| without_relative(&path)) {
            command.env(PATH, path);
        }
        return;
    }
    let paths = SearchPaths::of_process(program.cwd.as_deref(), variable);
    if let Some(path) = variable(PATH).and_then(|path| paths.without_writable(&path)) {
        command.env(PATH, path);
    }
    for (name, value) in paths.code(variable) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Starts this executable once more, with these arguments, as a process that stays
/// when we go. It has nothing on its stdin, and complains into a file. Returns its
/// stdout.
///
/// It is in our process group and session until it makes its own.
///
/// # Errors
///
/// When it can't be started.
pub fn spawn_detached(program: &Detached, complaints: File) -> io::Result<ChildStdout> {
    let mut child = Command::new(own_executable()?)
        .arg0("codex-mcp")
        .args(&program.args)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .spawn()?;
    let stdout = child.stdout.take();
    // Dropped, it is still waited for when it ends.
    stdout.ok_or_else(|| io::Error::other("a piped stream of the child is missing"))
}

/// A process that stays when we go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detached {
    /// The arguments of this executable.
    pub args: Vec<OsString>,
    /// Variables set on top of our own environment.
    pub env: Vec<(OsString, OsString)>,
}

/// What is started as the guard, where that isn't this executable.
static GUARD: OnceLock<PathBuf> = OnceLock::new();

/// Has another executable start the guards of this process, from now on: for
/// programs that use the library and know no `guard`, such as tests. Only the first
/// one named counts.
pub fn guards_are(executable: &Path) {
    let _ = GUARD.set(executable.to_owned());
}

/// On Linux by a name that stays right when the file is replaced while we run,
/// as an upgrade does.
fn own_executable() -> io::Result<PathBuf> {
    if let Some(executable) = GUARD.get() {
        return Ok(executable.clone());
    }
    if cfg!(target_os = "linux") {
        Ok("/proc/self/exe".into())
    } else {
        std::env::current_exe()
    }
}

impl Process {
    /// Waits for the program to end.
    ///
    /// # Errors
    ///
    /// When the system can't tell.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        Ok(Exit::from_status(self.guard.wait().await?))
    }

    /// Waits for the program to end by itself, and ends it after `patience`.
    ///
    /// # Errors
    ///
    /// When the system can't tell.
    pub async fn end_after(&mut self, patience: Duration) -> io::Result<Exit> {
        match tokio::time::timeout(patience, self.wait()).await {
            Ok(exit) => exit,
            Err(_) => {
                self.terminate();
                self.wait().await
            }
        }
    }

    /// Tells the guard to take everything down: politely first, with force a
    /// second later.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        // One that has stopped doesn't hear.
        self.signal(Signal::SIGCONT);
    }

    /// Whether a program in a terminal has stopped since this was asked last. SIGCHLD
    /// says when to ask.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let Some(guard) = self.pid() else {
            return false;
        };
        let guard = rustix::process::Pid::from_raw(guard.as_raw());
        // Who has ended is left to be waited for.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let told = guard.map(|guard| waitid(WaitId::Pid(guard), options));
        matches!(told, Some(Ok(Some(status))) if status.stopped())
    }

    /// Lets a program that has stopped go on.
    pub fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(guard) = self.pid() {
            // The guard isn't reaped yet, so the id is still its own; that it
            // has ended in the meantime is no error.
            let _ = kill(guard, signal);
        }
    }

    /// The guard, while it has not been waited for.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        let id = self.guard.id()?;
        i32::try_from(id).ok().map(Pid::from_raw)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.terminate();
    }
}
