//! Starts processes. All other crates start processes through this crate.
//!
//! A program is not started directly but by a [guard](super::guard): this executable again, which
//! starts the program, passes its streams through untouched, and ends the whole process tree below
//! it when the program ends, on a signal, or when we are gone, for whatever reason.
//!
//! On Linux the parent-death signal is sent when the *thread* that spawned ends. Our runtime is
//! single-threaded, so the spawning thread lives as long as the process.
//!
//! Only workers and hosts outlive us, see [`spawn_detached`]; the programs that they start have
//! guards.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the module that everything else has to go through"
)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::exit::Exit;
use super::platform;
use super::search_path::{PATH, SearchPaths, without_relative};
use super::starter::STARTER;
use super::tree_mark::{TREE, TreeMark};

/// Variables that hold a password, or name a file that does, for the store of jobs. Of
/// all programs started here, only workers and hosts get them. Source: libpq's environment
/// variables, PostgreSQL 18.
const STORE_SECRETS: [&str; 8] = [
    "CODEX_MCP_STORE",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLKEY",
    "PGSSLPASSWORD",
    "PGSYSCONFDIR",
];

/// The access token for ntfy, which only workers and hosts get.
pub const NTFY_TOKEN: &str = "CODEX_MCP_NTFY_TOKEN";

/// The variables with secrets that only workers and hosts get, as far as this process has them.
/// They are for a guarded program of ours that starts workers and hosts, too.
#[must_use]
pub fn own_secrets() -> Vec<(OsString, OsString)> {
    let names = STORE_SECRETS.iter().chain([&NTFY_TOKEN]);
    let set = names.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    set.collect()
}

/// Variables that an MCP client sets for the processes of one of its sessions. No program started
/// here gets them: a host serves several clients, and some of the variables would let a command of
/// Codex talk to the client. Source: the environment of an MCP server of Claude Code 2.1.330, and
/// of one of a plugin.
const CLIENT_VARIABLES: [&str; 14] = [
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_NOTES_DIR",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_LAUNCHED_BY_SESSION_IDS",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_PLUGIN_DATA",
    "CLAUDE_PLUGIN_ROOT",
    "CLAUDE_PROJECT_DIR",
    "COREPACK_ENABLE_AUTO_PIN",
    "NoDefaultCurrentDirectoryInExePath",
];

/// Variables that name the socket of one window of an editor: Neovim's, and those of VS Code for
/// git's askpass and for `code`. Workers and hosts do not get them: they serve all windows, and
/// outlive each. Without a host, Codex's commands keep them, and so git can ask for a password.
const WINDOW_VARIABLES: [&str; 3] = ["NVIM", "VSCODE_GIT_IPC_HANDLE", "VSCODE_IPC_HOOK_CLI"];

/// The variables that workers and hosts do not get: they belong to a client's session or a window,
/// mark a process tree, or name the starter of a process.
fn unknown_to_detached() -> impl Iterator<Item = &'static str> {
    let of_others = CLIENT_VARIABLES.into_iter().chain(WINDOW_VARIABLES);
    of_others.chain([TREE, STARTER])
}

/// Whether hosts do not get this variable.
#[must_use]
pub fn is_unknown_to_hosts(name: &OsStr) -> bool {
    unknown_to_detached().any(|known| name == known)
}

/// The umask in octal digits, which all started processes inherit. Empty if it cannot be
/// determined.
#[must_use]
pub fn umask() -> String {
    platform::umask()
}

/// A program to start, with its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable, as a path.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables set on top of our own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of our own environment that are removed.
    pub without: &'static [&'static str],
    /// Its working directory; `None` for ours.
    pub cwd: Option<PathBuf>,
    /// The directories in which it looks up programs.
    pub lookup: Lookup,
}

/// The directories in which a program and its child processes look up programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The directories of PATH that Codex's commands cannot write to, see `search_path`.
    Protected,
    /// All absolute directories of PATH, since the command itself comes from the repository anyway.
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
    mark: TreeMark,
}

/// The streams of a program.
#[derive(Debug)]
pub struct Streams {
    /// The program's input; closing it signals its end.
    pub stdin: ChildStdin,
    /// The program's output.
    pub stdout: ChildStdout,
    /// The program's error messages.
    pub stderr: ChildStderr,
}

/// Starts a program under a guard.
///
/// # Errors
///
/// If this executable cannot be started again. A program that cannot be started shows as
/// exit code 127 (not found) or 126, with the reason on its stderr, as in a shell.
pub fn spawn(program: &Program) -> io::Result<(Process, Streams)> {
    let mark = TreeMark::random()?;
    let mut guard = guarded(program, &mark, &[])?
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
    Ok((Process { guard, mark }, streams))
}

/// Starts a program under a guard in a terminal, which is given by the end that programs use. It
/// becomes the controlling terminal of a new session.
///
/// # Errors
///
/// As for [`spawn`]; a program that cannot be started is reported in the terminal.
pub fn spawn_in_terminal(program: &Program, terminal: &impl AsFd) -> io::Result<Process> {
    let stream = || terminal.as_fd().try_clone_to_owned().map(Stdio::from);
    let mark = TreeMark::random()?;
    let guard = guarded(program, &mark, &[OsStr::new("--terminal")])?
        .stdin(stream()?)
        .stdout(stream()?)
        .stderr(stream()?)
        .spawn()?;
    Ok(Process { guard, mark })
}

/// Replaces this process by a program without a guard. Returns only on failure.
#[must_use]
pub fn become_program(program: &Program) -> io::Error {
    let mut command = Command::new(&program.path);
    command.args(&program.args);
    set_up(&mut command, program);
    command.as_std_mut().exec()
}

/// The command that starts a program under a guard. The mark is set for the whole tree.
pub(crate) fn guarded(
    program: &Program,
    mark: &TreeMark,
    options: &[&OsStr],
) -> io::Result<Command> {
    let mut command = Command::new(own_executable()?);
    command
        .arg("guard")
        .args(options)
        .arg(std::process::id().to_string())
        // The arguments after this belong to the program, even if they look like our
        // options.
        .arg("--")
        .arg(&program.path)
        .args(&program.args);
    set_up(&mut command, program);
    let (name, value) = mark.variable();
    command.env(name, value);
    Ok(command)
}

/// Gives a command the environment and the directory of a program.
fn set_up(command: &mut Command, program: &Program) {
    command.envs(program.env.iter().map(|(name, value)| (name, value)));
    let withheld = STORE_SECRETS.iter().chain(&CLIENT_VARIABLES);
    let withheld = withheld.chain([&STARTER, &NTFY_TOKEN]);
    for name in withheld.chain(program.without) {
        if !program.env.iter().any(|(set, _)| set == name) {
            command.env_remove(name);
        }
    }
    protect_search_paths(command, program);
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
}

/// Removes from the program's search paths the directories that Codex's commands can
/// write.
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

/// Starts this executable again, with these arguments, as a process that outlives us: through a
/// [launcher](super::detached), in another session, and as a child of none of our processes. Its
/// stdin is empty, and its stderr goes to the file `complaints`. Returns its stdout.
///
/// # Errors
///
/// If it cannot be started.
pub fn spawn_detached(program: &DetachedProgram, complaints: File) -> io::Result<ChildStdout> {
    let mut command = Command::new(own_executable()?);
    for name in unknown_to_detached() {
        command.env_remove(name);
    }
    let mut child = command
        .arg0("codex-mcp")
        .arg(LAUNCHER)
        .args(&program.args)
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .spawn()?;
    let stdout = child.stdout.take();
    // Tokio reaps the dropped launcher.
    stdout.ok_or_else(|| io::Error::other("a piped stream of the child is missing"))
}

/// The verb of the launcher. Its arguments are those of the process that it starts.
pub const LAUNCHER: &str = "launch";

/// A process of this executable that outlives us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DetachedProgram {
    /// The arguments of this executable.
    pub args: Vec<OsString>,
    /// Variables set on top of our own environment.
    pub env: Vec<(OsString, OsString)>,
}

/// The exit code of a Rust program that has panicked.
const PANICKED: i32 = 101;

/// Whether a guard with this exit may have left its tree running. A guard exits as its program did,
/// so this may also be the exit of the program.
fn may_be_of_guard(exit: Exit) -> bool {
    match exit {
        Exit::Code(code) => code == PANICKED,
        Exit::Signal(_) | Exit::Unknown => true,
    }
}

/// The executable started as the guard, if it is not this one.
static GUARD: OnceLock<PathBuf> = OnceLock::new();

/// Makes another executable the guard of all processes that are started from now on. For programs
/// that use this library without having the verb `guard`, such as tests. Only the first call has an
/// effect.
pub fn set_guard_executable(executable: &Path) {
    let _ = GUARD.set(executable.to_owned());
}

/// The path of this executable; on Linux one that stays valid when an upgrade replaces
/// the file while we run.
///
/// # Errors
///
/// If the system does not tell the path.
pub fn own_executable() -> io::Result<PathBuf> {
    if let Some(executable) = GUARD.get() {
        return Ok(executable.clone());
    }
    platform::own_executable()
}

impl Process {
    /// Waits for the program to end.
    ///
    /// # Errors
    ///
    /// If waiting fails.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        let exit = Exit::from_status(self.guard.wait().await?);
        if may_be_of_guard(exit) {
            self.mark.end().await;
        }
        Ok(exit)
    }

    /// Waits for the program to end by itself, and ends it after `timeout`.
    ///
    /// # Errors
    ///
    /// If waiting fails.
    pub async fn end_after(&mut self, timeout: Duration) -> io::Result<Exit> {
        match tokio::time::timeout(timeout, self.wait()).await {
            Ok(exit) => exit,
            Err(_) => {
                self.terminate();
                self.wait().await
            }
        }
    }

    /// Tells the guard to end the whole tree: with SIGTERM first, with SIGKILL a second
    /// later.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        // A stopped process handles no signal until it is continued.
        self.signal(Signal::SIGCONT);
    }

    /// Whether a program in a terminal has stopped since the last call. Call it on
    /// SIGCHLD.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let Some(guard) = self.pid() else {
            return false;
        };
        let guard = rustix::process::Pid::from_raw(guard.as_raw());
        // A program that has ended is not reaped here.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let result = guard.map(|guard| waitid(WaitId::Pid(guard), options));
        matches!(result, Some(Ok(Some(status))) if status.stopped())
    }

    /// Continues a stopped program.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(guard) = self.pid() {
            // The guard is not reaped yet, so the ID is still its own. A failure means that it has
            // ended meanwhile.
            let _ = kill(guard, signal);
        }
    }

    /// The guard's process ID, until it has been reaped.
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
