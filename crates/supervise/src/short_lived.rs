//! Runs short-lived programs to their end and keeps their output.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout;

use super::exit::Exit;
use super::spawn::{Program, Streams, spawn};

/// The most output that is kept, in bytes per stream.
const OUTPUT_LIMIT: u64 = 256 * 1024;

/// How long to wait for the processes of a program that is being ended. The guard ends them within
/// 2 s, but a process that the user may not kill is waited for until it exits.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The exit and the output of a program, as text.
#[derive(Debug, Clone)]
pub struct TextOutput {
    /// How it ended.
    pub exit: Exit,
    /// The beginning of its stdout.
    pub stdout: String,
    /// The beginning of its stderr.
    pub stderr: String,
}

impl TextOutput {
    /// Whether it exited with code 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// Runs a program with an empty stdin. After `timeout`, the program and all processes
/// that it started are ended.
///
/// # Errors
///
/// When it can't be started (see [`spawn`]), or with
/// [`io::ErrorKind::TimedOut`].
pub async fn run(program: &Program, timeout: Duration) -> io::Result<TextOutput> {
    run_until(program, tokio::time::sleep(timeout)).await
}

/// Like [`run`], but ends the program when `end` completes. On return, all its processes have
/// exited, as for [`run_with_input`].
///
/// # Errors
///
/// As for [`run`].
pub async fn run_until(program: &Program, end: impl Future<Output = ()>) -> io::Result<TextOutput> {
    let options = RunOptions {
        input: &[],
        limit: OUTPUT_LIMIT,
    };
    let output = run_with_input(program, &options, end).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(TextOutput {
        exit: output.exit,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

/// The input of a program, and the limit of its output.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions<'a> {
    /// The bytes written to its stdin, which is closed afterwards.
    pub input: &'a [u8],
    /// The most that is kept of its stdout, in bytes.
    pub limit: u64,
}

/// The exit and the output of a program.
#[derive(Debug, Clone)]
pub struct ProgramOutput {
    /// How it ended.
    pub exit: Exit,
    /// The beginning of its stdout.
    pub stdout: Vec<u8>,
    /// The beginning of its stderr.
    pub stderr: Vec<u8>,
    /// Whether `stdout` is the complete output.
    pub extent: Extent,
}

/// Whether an output was kept whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// The output is complete.
    Whole,
    /// The output was longer than the limit.
    Cut,
}

/// Runs a program with input on its stdin. When `end` completes, the program and all processes that
/// it started are ended. On return they have exited, except for those that take longer than 10 s.
///
/// # Errors
///
/// As for [`run`].
pub async fn run_with_input(
    program: &Program,
    options: &RunOptions<'_>,
    end: impl Future<Output = ()>,
) -> io::Result<ProgramOutput> {
    let (mut process, streams) = spawn(program)?;
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    let output = async {
        let reading = async {
            tokio::try_join!(
                read_output(stdout, options.limit),
                read_output(stderr, OUTPUT_LIMIT)
            )
        };
        let (outputs, ()) = tokio::join!(reading, write_input(stdin, options.input));
        let ((stdout, extent), (stderr, _)) = outputs?;
        let exit = process.wait().await?;
        Ok(ProgramOutput {
            exit,
            stdout,
            stderr,
            extent,
        })
    };
    let output = tokio::select! {
        output = output => Some(output),
        () = end => None,
    };
    if let Some(output) = output {
        return output;
    }
    process.terminate();
    await_end(process.wait(), &program.path).await?;
    Err(io::ErrorKind::TimedOut.into())
}

/// Waits for the processes of a program that is ended, for [`END_TIMEOUT`] at most.
async fn await_end(end: impl Future<Output = io::Result<Exit>>, program: &Path) -> io::Result<()> {
    match timeout(END_TIMEOUT, end).await {
        Ok(exit) => {
            exit?;
        }
        Err(_) => tracing::error!("processes of {} do not end", program.display()),
    }
    Ok(())
}

/// Writes the input. A failed write is not an error: the program's output shows why it does not
/// read.
async fn write_input(mut stdin: ChildStdin, input: &[u8]) {
    if !input.is_empty() && stdin.write_all(input).await.is_ok() {
        let _ = stdin.shutdown().await;
    }
}

/// Reads a stream to its end, and keeps its beginning: at most `limit` bytes.
///
/// # Errors
///
/// If it cannot be read.
pub async fn read_output(
    mut stream: impl AsyncRead + Unpin,
    limit: u64,
) -> io::Result<(Vec<u8>, Extent)> {
    let mut kept = Vec::new();
    (&mut stream).take(limit).read_to_end(&mut kept).await?;
    // The rest is read too: otherwise the program would block on a full pipe.
    let extent = match tokio::io::copy(&mut stream, &mut tokio::io::sink()).await? {
        0 => Extent::Whole,
        _ => Extent::Cut,
    };
    Ok((kept, extent))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn processes_that_do_not_end_are_left_after_the_limit() {
        let began = Instant::now();
        let program = Path::new("/bin/program");
        await_end(ready(Ok(Exit::Code(0))), program).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        await_end(pending(), program).await.unwrap();
        assert_eq!(began.elapsed().as_secs(), END_TIMEOUT.as_secs());
        let failed = ready(Err(io::Error::other("lost")));
        await_end(failed, program).await.unwrap_err();
    }
}
