//! Short-lived programs: run to their end, their words kept.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;

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
    let talk = Talk {
        input: &[],
        limit: OUTPUT_LIMIT,
    };
    let heard = converse(program, &talk, end).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Finished {
        exit: heard.exit,
        stdout: text(&heard.stdout),
        stderr: text(&heard.stderr),
    })
}

/// What a program is told, and how much is kept of what it says.
#[derive(Debug, Clone, Copy)]
pub struct Talk<'a> {
    /// What is written to its stdin, which is closed then.
    pub input: &'a [u8],
    /// The most that is kept of its stdout, in bytes.
    pub limit: u64,
}

/// What a program said.
#[derive(Debug, Clone)]
pub struct Heard {
    /// How it ended.
    pub exit: Exit,
    /// The beginning of what it wrote to stdout.
    pub stdout: Vec<u8>,
    /// The beginning of what it wrote to stderr.
    pub stderr: Vec<u8>,
    /// Whether there was more on stdout.
    pub extent: Extent,
}

/// Whether something was kept whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// It was.
    Whole,
    /// There was more.
    Cut,
}

/// Runs a program that is told something. When `end` is done, it is ended with all
/// that it started, which is gone on return.
///
/// # Errors
///
/// As [`run`].
pub async fn converse(
    program: &Program,
    talk: &Talk<'_>,
    end: impl Future<Output = ()>,
) -> io::Result<Heard> {
    let (mut process, streams) = spawn(program)?;
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    let heard = async {
        let listening =
            async { tokio::try_join!(words(stdout, talk.limit), words(stderr, OUTPUT_LIMIT)) };
        let (said, ()) = tokio::join!(listening, tell(stdin, talk.input));
        let ((stdout, extent), (stderr, _)) = said?;
        let exit = process.wait().await?;
        Ok(Heard {
            exit,
            stdout,
            stderr,
            extent,
        })
    };
    let heard = tokio::select! {
        heard = heard => Some(heard),
        () = end => None,
    };
    if let Some(heard) = heard {
        return heard;
    }
    process.terminate();
    process.wait().await?;
    Err(io::ErrorKind::TimedOut.into())
}

/// Why a program doesn't listen shows in what it says.
async fn tell(mut stdin: ChildStdin, input: &[u8]) {
    if !input.is_empty() && stdin.write_all(input).await.is_ok() {
        let _ = stdin.shutdown().await;
    }
}

async fn words(mut stream: impl AsyncRead + Unpin, limit: u64) -> io::Result<(Vec<u8>, Extent)> {
    let mut kept = Vec::new();
    (&mut stream).take(limit).read_to_end(&mut kept).await?;
    // The rest is read too, or the program would wait for ever to write it.
    let extent = match tokio::io::copy(&mut stream, &mut tokio::io::sink()).await? {
        0 => Extent::Whole,
        _ => Extent::Cut,
    };
    Ok((kept, extent))
}
