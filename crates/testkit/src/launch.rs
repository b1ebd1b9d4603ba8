//! Starts the programs of tests. Each runs in a process group of its own that does not outlive
//! its handle.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use nix::sys::signal::Signal;

/// How long the end of stdout waits for that of stderr, which a process left behind
/// may hold open.
const STDERR_GRACE: Duration = Duration::from_millis(200);

/// A program to start, with exactly the arguments and environment given here:
/// nothing is inherited from the test's own environment.
#[derive(Clone, Debug)]
pub struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
}

impl Launch {
    /// A program without arguments and with an empty environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            directory: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds one environment variable. The last one given under a name wins.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Adds environment variables, for example those of a [`Home`](crate::Home).
    #[must_use]
    pub fn envs(
        mut self,
        variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> Self {
        for (name, value) in variables {
            self = self.env(name, value);
        }
        self
    }

    /// The directory that the program starts in; without it, the test's own.
    #[must_use]
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }
}

/// A running program. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct RunningProgram {
    child: Child,
    pid: u32,
    stderr: Arc<Mutex<Vec<u8>>>,
    reading: Option<StdoutReader>,
    /// Held open and never read.
    unread: Option<BufReader<ChildStdout>>,
}

/// The task that reads stdout; when told to stop, it gives stdout back.
#[derive(Debug)]
struct StdoutReader {
    stop: Arc<Notify>,
    task: JoinHandle<Option<BufReader<ChildStdout>>>,
}

/// A part of the program's stdout.
#[derive(Debug)]
pub(crate) enum Output {
    /// A line, without its newline.
    Line(Vec<u8>),
    /// The bytes after the last newline, when stdout ended without one.
    Rest(Vec<u8>),
}

/// An operation on the program's stdin.
#[derive(Debug)]
enum Input {
    Bytes(Vec<u8>),
    Close,
}

/// The sending half of a program's stdin. Sending never waits, so that a program
/// that reads nothing can't hang the test in a place without a time limit.
#[derive(Clone, Debug)]
pub(crate) struct Stdin(mpsc::UnboundedSender<Input>);

impl Stdin {
    pub(crate) fn send(&self, bytes: Vec<u8>) {
        // A program that is gone reads nothing; the wait for its answer reports it.
        let _ = self.0.send(Input::Bytes(bytes));
    }

    pub(crate) fn close(&self) {
        let _ = self.0.send(Input::Close);
    }
}

impl RunningProgram {
    /// Starts the program, with its stdin and output as channels. The output channel ends when
    /// its stdout does.
    pub(crate) fn start(launch: &Launch) -> (Self, Stdin, mpsc::UnboundedReceiver<Output>) {
        let mut child = launch
            .command()
            .spawn()
            .unwrap_or_else(|error| panic!("can't start {}: {error}", launch.program.display()));
        let stdin = write_stdin(child.stdin.take().unwrap());
        let (stderr, collecting) = collect_stderr(child.stderr.take().unwrap());
        let (output, reading) = read_stdout(child.stdout.take().unwrap(), collecting);
        let running = Self {
            pid: child.id().unwrap(),
            child,
            stderr,
            reading: Some(reading),
            unread: None,
        };
        (running, stdin, output)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(process_id(self.pid), signal).unwrap();
    }

    /// Stops reading the program's stdout but keeps it open. The output channel ends.
    pub(crate) async fn stop_reading(&mut self) {
        let StdoutReader { stop, task } = self.reading.take().unwrap();
        stop.notify_one();
        self.unread = task.await.unwrap();
    }

    /// Closes our end of the program's stdout: it can write no more.
    pub(crate) async fn close_stdout(&mut self) {
        self.stop_reading().await;
        self.unread = None;
    }

    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Once the leader is reaped, its number may belong to someone else.
        if self.child.id().is_some() {
            let _ = killpg(process_id(self.pid), Signal::SIGKILL);
        }
    }
}

fn process_id(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().unwrap())
}

fn write_stdin(mut stdin: ChildStdin) -> Stdin {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Input::Bytes(bytes)) = receiver.recv().await {
            if stdin.write_all(&bytes).await.is_err() {
                break;
            }
        }
    });
    Stdin(sender)
}

fn read_stdout(
    stdout: ChildStdout,
    stderr: JoinHandle<()>,
) -> (mpsc::UnboundedReceiver<Output>, StdoutReader) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let task = tokio::spawn(async move {
        let mut stdout = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            tokio::select! {
                // An error leaves what was read so far, and then nothing.
                _ = stdout.read_until(b'\n', &mut line) => {}
                () = stopped.notified() => return Some(stdout),
            }
            let output = match line.pop() {
                Some(b'\n') => Output::Line(line),
                Some(byte) => {
                    line.push(byte);
                    Output::Rest(line)
                }
                None => break,
            };
            if sender.send(output).is_err() {
                break;
            }
        }
        // The failure should contain the stderr of a dying program, if possible.
        let _ = timeout(STDERR_GRACE, stderr).await;
        None
    });
    (receiver, StdoutReader { stop, task })
}

fn collect_stderr(mut stderr: ChildStderr) -> (Arc<Mutex<Vec<u8>>>, JoinHandle<()>) {
    let collected = Arc::new(Mutex::new(Vec::new()));
    let buffer = Arc::clone(&collected);
    let collecting = tokio::spawn(async move {
        let mut chunk = [0; 8192];
        while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
            buffer.lock().unwrap().extend_from_slice(&chunk[..read]);
        }
    });
    (collected, collecting)
}
