//! A real `codex-mcp run`: what it says is shown as it comes.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use supervise::exit::Exit;
use supervise::spawn::{Program, Streams, spawn};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::cast::Cast;
use super::script;
use super::show::Show;
use super::stage::Stage;

/// How long the run may take. It takes a second.
const PATIENCE: Duration = Duration::from_mins(3);

/// How much is shown of the result, in bytes.
const LONGEST_RESULT: u64 = 64 * 1024;

/// A user who says yes, more often than there are turns with a question.
const YES: &[u8] = b"y\ny\ny\ny\ny\ny\ny\ny\ny\ny\n";

/// How a run's question ends. There is one where Codex's sandbox doesn't work.
const QUESTION: &str = "Allow it?";

/// What the reader sees of the command line, line by line. In a terminal nothing
/// more is needed; the demo also names the Codex, and says that there is a user.
const FLAGS: [&[&str]; 2] = [
    &["--sandbox", "workspace-write"],
    &["--until", "files=bonjour.txt", "--until", "commits=1"],
];

/// The same for a Codex with which no run can commit.
const FLAGS_WITHOUT_COMMITS: [&[&str]; 2] = [
    &["--sandbox", "workspace-write"],
    &["--until", "files=bonjour.txt"],
];
const UNSEEN: &[&str] = &["--approve", "ask", "--codex-bin"];

/// Why the run did not go as it should.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// It can't be started, or watched.
    #[error("codex-mcp run can't be started: {0}")]
    Start(io::Error),
    /// It has not come to its end.
    #[error("codex-mcp run has not ended for {} s", PATIENCE.as_secs())]
    Silent,
    /// What was asked for is not there.
    #[error("codex-mcp run {0}; what it told stands above")]
    NotDone(Exit),
    /// What it says can't be shown.
    #[error("the output can't be written: {0}")]
    Output(#[from] io::Error),
    /// The user has had enough.
    #[error("interrupted")]
    Interrupted,
}

/// Runs the task on the stage, to its end.
///
/// # Errors
///
/// [`WorkError`].
pub(super) async fn work<W: Write>(
    stage: &Stage,
    cast: &Cast,
    show: &mut Show<W>,
    stop: &CancellationToken,
) -> Result<(), WorkError> {
    let flags = match cast.can_commit(stage).await {
        true => FLAGS,
        false => FLAGS_WITHOUT_COMMITS,
    };
    show.prompt(&command_line(flags))?;
    let program = program(stage, cast, flags).map_err(WorkError::Start)?;
    let (mut process, streams) = spawn(&program).map_err(WorkError::Start)?;
    let shown = tokio::select! {
        biased;
        () = stop.cancelled() => Err(WorkError::Interrupted),
        shown = listen(streams, show) => shown,
        () = sleep(PATIENCE) => Err(WorkError::Silent),
    };
    if shown.is_err() {
        process.terminate();
    }
    // A guard is gone when all that it guards is.
    let exit = process.wait().await.map_err(WorkError::Start);
    shown?;
    match exit? {
        Exit::Code(0) => Ok(()),
        exit => Err(WorkError::NotDone(exit)),
    }
}

/// What the reader could type.
fn command_line(flags: [&[&str]; 2]) -> String {
    let lines: Vec<String> = flags.iter().map(|flags| flags.join(" ")).collect();
    format!(
        "codex-mcp run \"{}\" \\\n    {}",
        script::TASK,
        lines.join(" \\\n    ")
    )
}

fn program(stage: &Stage, cast: &Cast, flags: [&[&str]; 2]) -> io::Result<Program> {
    let words = ["run", script::TASK].into_iter();
    let args = words
        .chain(flags.concat())
        .chain(UNSEEN.iter().copied())
        .map(OsString::from)
        .chain([cast.path().into()]);
    Ok(stage.program(&std::env::current_exe()?, args))
}

/// Shows what the run tells, and then its result, which is on another stream.
async fn listen<W: Write>(streams: Streams, show: &mut Show<W>) -> Result<(), WorkError> {
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    let told = told(BufReader::new(stderr).lines(), show);
    let (result, (), ()) = tokio::try_join!(result(stdout), told, say_yes(stdin))?;
    for line in result.lines() {
        show.told(line)?;
    }
    Ok(())
}

async fn told<W: Write>(
    mut lines: Lines<BufReader<ChildStderr>>,
    show: &mut Show<W>,
) -> io::Result<()> {
    while let Some(line) = lines.next_line().await? {
        show.told(&line)?;
        if line.trim_start().starts_with(QUESTION) {
            show.note("  y (the demo stands in for you)")?;
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

/// A run that asks nothing doesn't listen, which is no error.
async fn say_yes(mut stdin: ChildStdin) -> io::Result<()> {
    let _ = stdin.write_all(YES).await;
    Ok(())
}
