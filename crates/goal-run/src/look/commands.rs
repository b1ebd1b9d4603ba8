//! Runs the commands of criteria.

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use git_probe::ELSEWHERE;
use supervise::exit::Exit;
use supervise::spawn::{Lookup, Program, Streams, spawn};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::sync::CancellationToken;

use crate::logic::names::CommandLine;
use crate::logic::snapshot::{CommandEnd, Probe};

/// How much of the end of each output stream is kept, in bytes.
const TAIL_LIMIT: usize = 2048;

/// How much is read at once, in bytes.
const CHUNK: usize = 8192;

/// The first word as the program and the rest as its arguments.
pub(super) fn program(command: &CommandLine, directory: &Path) -> Program {
    let mut words = command.words().iter();
    let first = words.next().map(Path::new).unwrap_or(Path::new(""));
    let mut program = Program::new(first, words);
    program.cwd = Some(directory.to_owned());
    program.without = ELSEWHERE;
    program.lookup = Lookup::AsTheUser;
    program
}

/// Runs a program with an empty stdin. At the limit, and when `halt` is cancelled, it is ended
/// with all that it has started, before this returns.
pub(super) async fn run_command(
    program: &Program,
    limit: Duration,
    halt: &CancellationToken,
) -> Probe<CommandEnd> {
    let (mut process, streams) = match spawn(program) {
        Ok(started) => started,
        Err(error) => return Probe::Failed(error.to_string()),
    };
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    drop(stdin);
    let mut tails = Tails::default();
    let ended = tokio::select! {
        exit = async {
            tails.collect(stdout, stderr).await;
            process.wait().await
        } => Some(exit),
        () = tokio::time::sleep(limit) => None,
        () = halt.cancelled() => {
            process.terminate();
            // Its exit is of no interest any more.
            let _ = process.wait().await;
            return cancelled();
        }
    };
    let Some(exit) = ended else {
        process.terminate();
        return match process.wait().await {
            Ok(_) => Probe::Found(CommandEnd::TimedOut(limit)),
            Err(error) => Probe::Failed(error.to_string()),
        };
    };
    match exit {
        Ok(Exit::Code(code)) => Probe::Found(CommandEnd::Exited {
            code,
            tail: tails.text(),
        }),
        Ok(Exit::Signal(number)) => Probe::Found(CommandEnd::Signalled(number)),
        Ok(Exit::Unknown) => Probe::Failed(Exit::Unknown.to_string()),
        Err(error) => Probe::Failed(error.to_string()),
    }
}

/// The result for a command that was cancelled.
pub(super) fn cancelled() -> Probe<CommandEnd> {
    Probe::Failed("it was cancelled".to_owned())
}

/// The result for a command that could not be started in time.
pub(super) fn no_time_left() -> Probe<CommandEnd> {
    Probe::Failed("there was no time left to run it".to_owned())
}

/// The ends of both output streams, each bounded by itself.
#[derive(Debug, Default)]
struct Tails {
    out: Tail,
    err: Tail,
}

/// The end of one output stream.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

impl Tails {
    /// Reads both streams until both have ended.
    async fn collect(
        &mut self,
        mut stdout: impl AsyncRead + Unpin,
        mut stderr: impl AsyncRead + Unpin,
    ) {
        let (mut out, mut err) = (vec![0; CHUNK], vec![0; CHUNK]);
        let (mut out_ended, mut err_ended) = (false, false);
        while !(out_ended && err_ended) {
            tokio::select! {
                count = read(&mut stdout, &mut out, out_ended) => {
                    out_ended = self.out.take(&out, count);
                }
                count = read(&mut stderr, &mut err, err_ended) => {
                    err_ended = self.err.take(&err, count);
                }
            }
        }
    }

    /// Both ends as a text, stderr last.
    fn text(&self) -> String {
        self.out.text() + &self.err.text()
    }
}

impl Tail {
    /// Adds a chunk, and returns whether the stream has ended.
    fn take(&mut self, chunk: &[u8], count: usize) -> bool {
        self.0.extend(chunk.get(..count).unwrap_or_default());
        let over = self.0.len().saturating_sub(TAIL_LIMIT);
        self.0.drain(..over);
        count == 0
    }

    /// The text without control characters, which could move a terminal's cursor.
    fn text(&self) -> String {
        let is_inner = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
        let from = match self.0.len() {
            TAIL_LIMIT => self.0.iter().take_while(|byte| is_inner(byte)).count(),
            _ => 0,
        };
        let text = String::from_utf8_lossy(self.0.get(from..).unwrap_or_default());
        text.replace(
            |one: char| one.is_control() && !matches!(one, '\n' | '\t'),
            "",
        )
    }
}

/// Reads a chunk; 0 at the end. Never returns for a stream that has ended.
async fn read(stream: &mut (impl AsyncRead + Unpin), chunk: &mut [u8], ended: bool) -> usize {
    match ended {
        true => pending().await,
        false => stream.read(chunk).await.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn end_of_output_is_kept_without_cutting_a_character() {
        let mut tail = Tails::default();
        let long = "ü".repeat(TAIL_LIMIT) + "x\x1b[0m\u{7}";
        tail.collect(long.as_bytes(), &b""[..]).await;
        let text = tail.text();
        assert!(text.starts_with('ü') && text.ends_with("üx[0m"), "{text}");
        assert!(text.len() < TAIL_LIMIT);
    }
}
