//! Short-lived programs: run to their end, their words kept.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::exit::Exit;
use super::spawn::{Program, Streams, spawn};

/// How much is kept of what a program says, in bytes for each stream.
const OUTPUT_LIMIT: u64 = 256 * 1024;

/// What came of a program.
#[derive(Debug, Clone)]
pub struct Finished {
    /// How it ended.
    pub exit: Exit,
    /// The beginning of what it wrote to stdout.
    pub stdout: String,
    /// The beginning of what it wrote to stderr.
    pub stderr: String,
}

impl Finished {
    /// Whether it exited with code 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// Runs a program with nothing on its stdin. After `patience` it is ended with
/// all that it started.
///
/// # Errors
///
/// When it can't be started (see [`spawn`]), or with
/// [`io::ErrorKind::TimedOut`].
pub async fn run(program: &Program, patience: Duration) -> io::Result<Finished> {
    run_until(program, tokio::time::sleep(patience)).await
}

/// The same, ended when `end` is done. What was ended is gone on return.
///
/// # Errors
///
/// As [`run`].
pub async fn run_until(program: &Program, end: impl Future<Output = ()>) -> io::Result<Finished> {
    let (mut process, streams) = spawn(program)?;
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    drop(stdin);
    let finished = async {
        let (stdout, stderr) = tokio::try_join!(words(stdout), words(stderr))?;
        let exit = process.wait().await?;
        Ok(Finished {
            exit,
            stdout,
            stderr,
        })
    };
    let finished = tokio::select! {
        finished = finished => Some(finished),
        () = end => None,
    };
    if let Some(finished) = finished {
        return finished;
    }
    process.terminate();
    process.wait().await?;
    Err(io::ErrorKind::TimedOut.into())
}

async fn words(mut stream: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut kept = Vec::new();
    (&mut stream)
        .take(OUTPUT_LIMIT)
        .read_to_end(&mut kept)
        .await?;
    // The rest is read too, or the program would wait for ever to write it.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&kept).into_owned())
}
