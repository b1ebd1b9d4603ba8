//! A real `codex-mcp run`, with its output shown as it arrives.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use supervise::exit::Exit;
use supervise::spawn::{Program, Streams, spawn};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::demo_codex::DemoCodex;
use super::printer::Printer;
use super::script;
use super::workspace::Workspace;

/// How long the run may take. It takes a second.
const TIMEOUT: Duration = Duration::from_mins(3);

/// How much is shown of the result, in bytes.
const LONGEST_RESULT: u64 = 64 * 1024;

/// The input of a user who always accepts; more answers than the run has questions.
const YES: &[u8] = b"y\ny\ny\ny\ny\ny\ny\ny\ny\ny\n";

/// The end of a run's question. The run asks where Codex's sandbox does not work.
const QUESTION: &str = "Allow it?";

/// The part of the command line that the reader sees, line by line. In a terminal nothing more is
/// needed; the demo adds [`HIDDEN_FLAGS`], as its run has no terminal.
const FLAGS: [&[&str]; 2] = [
    &["--sandbox", "workspace-write"],
    &["--until", "files=bonjour.txt", "--until", "commits=1"],
];

/// The flags for a Codex with which no run can commit.
const FLAGS_WITHOUT_COMMITS: [&[&str]; 2] = [
    &["--sandbox", "workspace-write"],
    &["--until", "files=bonjour.txt"],
];
const HIDDEN_FLAGS: &[&str] = &["--approve", "ask", "--codex-bin"];

/// Why the run failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The run cannot be started or watched.
    #[error("cannot start codex-mcp run: {0}")]
    Start(io::Error),
    /// The run did not end in time.
    #[error("codex-mcp run has not ended for {} s", TIMEOUT.as_secs())]
    Silent,
    /// The run did not meet its criteria.
    #[error("codex-mcp run {0}; its output is shown above")]
    NotDone(Exit),
    /// The output of the run cannot be printed.
    #[error("cannot write to stdout: {0}")]
    Output(#[from] io::Error),
    /// The user interrupted the demo.
    #[error("interrupted")]
    Interrupted,
}

/// Runs the task in the workspace, to its end.
///
/// # Errors
///
/// [`WorkError`].
pub(super) async fn work<W: Write>(
    workspace: &Workspace,
    demo_codex: &DemoCodex,
    printer: &mut Printer<W>,
    stop: &CancellationToken,
) -> Result<(), WorkError> {
    let flags = match demo_codex.can_commit() {
        true => FLAGS,
        false => FLAGS_WITHOUT_COMMITS,
    };
    printer.prompt(&command_line(flags))?;
    let program = program(workspace, demo_codex, flags).map_err(WorkError::Start)?;
    let (mut process, streams) = spawn(&program).map_err(WorkError::Start)?;
    let shown = tokio::select! {
        biased;
        () = stop.cancelled() => Err(WorkError::Interrupted),
        shown = listen(streams, printer) => shown,
        () = sleep(TIMEOUT) => Err(WorkError::Silent),
    };
    if shown.is_err() {
        process.terminate();
    }
    // The guard ends after all the processes that it guards.
    let exit = process.wait().await.map_err(WorkError::Start);
    shown?;
    match exit? {
        Exit::Code(0) => Ok(()),
        exit => Err(WorkError::NotDone(exit)),
    }
}

/// The command line as the reader could type it.
fn command_line(flags: [&[&str]; 2]) -> String {
    let lines: Vec<String> = flags.iter().map(|flags| flags.join(" ")).collect();
    format!(
        "codex-mcp run \"{}\" \\\n    {}",
        script::TASK,
        lines.join(" \\\n    ")
    )
}

fn program(
    workspace: &Workspace,
    demo_codex: &DemoCodex,
    flags: [&[&str]; 2],
) -> io::Result<Program> {
    let words = ["run", script::TASK].into_iter();
    let args = words
        .chain(flags.concat())
        .chain(HIDDEN_FLAGS.iter().copied())
        .map(OsString::from)
        .chain([demo_codex.path().into()]);
    Ok(workspace.program(&std::env::current_exe()?, args))
}

/// Prints the progress of the run from stderr, then its result from stdout.
async fn listen<W: Write>(streams: Streams, printer: &mut Printer<W>) -> Result<(), WorkError> {
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    let run_line = run_line(BufReader::new(stderr).lines(), printer);
    let (result, (), ()) = tokio::try_join!(result(stdout), run_line, say_yes(stdin))?;
    for line in result.lines() {
        printer.run_line(line)?;
    }
    Ok(())
}

async fn run_line<W: Write>(
    mut lines: Lines<BufReader<ChildStderr>>,
    printer: &mut Printer<W>,
) -> io::Result<()> {
    while let Some(line) = lines.next_line().await? {
        printer.run_line(&line)?;
        if line.trim_start().starts_with(QUESTION) {
            printer.note("  y (the demo stands in for you)")?;
        }
    }
    Ok(())
}

async fn result(stdout: ChildStdout) -> io::Result<String> {
    let mut result = String::new();
    stdout
        .take(LONGEST_RESULT)
        .read_to_string(&mut result)
        .await?;
    Ok(result)
}

/// A run without questions does not read its stdin, which is no error.
async fn say_yes(mut stdin: ChildStdin) -> io::Result<()> {
    let _ = stdin.write_all(YES).await;
    Ok(())
}
