//! Commands that criteria name.

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

/// How much is kept of what a command wrote last, on each of its streams, in bytes.
const TAIL_LIMIT: usize = 2048;

/// How much is read at once.
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

/// What comes of a program that has nothing on its stdin. At the limit, and when
/// `halt` is cancelled, it is ended with all that it has started, and gone on return.
pub(super) async fn end_of(
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
            tails.listen(stdout, stderr).await;
            process.wait().await
        } => Some(exit),
        () = tokio::time::sleep(limit) => None,
        () = halt.cancelled() => {
            process.terminate();
            // Whatever it says now, nobody wants to know.
            let _ = process.wait().await;
            return given_up();
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

/// What is told of a command that isn't wanted any more.
pub(super) fn given_up() -> Probe<CommandEnd> {
    Probe::Failed("it was given up".to_owned())
}

/// What is told of a command that could not be begun in time.
pub(super) fn too_late() -> Probe<CommandEnd> {
    Probe::Failed("there was no time left to run it".to_owned())
}

/// The end of what a command writes: a flood on one stream leaves the other its part.
#[derive(Debug, Default)]
struct Tails {
    out: Tail,
    err: Tail,
}

/// The end of what it writes to one of its streams.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

impl Tails {
    /// Takes in both streams as they come, until both have ended.
    async fn listen(
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

    /// What it complained comes last.
    fn text(&self) -> String {
        self.out.text() + &self.err.text()
    }
}

impl Tail {
    /// Whether that was the end.
    fn take(&mut self, chunk: &[u8], count: usize) -> bool {
        self.0.extend(chunk.get(..count).unwrap_or_default());
        let over = self.0.len().saturating_sub(TAIL_LIMIT);
        self.0.drain(..over);
        count == 0
    }

    /// As a text, without what moves a terminal's cursor.
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

/// What is read; 0 at the end. Of what has ended nothing more comes.
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
    async fn the_end_is_kept_and_no_character_is_cut() {
        let mut tail = Tails::default();
        let long = "ü".repeat(TAIL_LIMIT) + "x\x1b[0m\u{7}";
        tail.listen(long.as_bytes(), &b""[..]).await;
        let text = tail.text();
        assert!(text.starts_with('ü') && text.ends_with("üx[0m"), "{text}");
        assert!(text.len() < TAIL_LIMIT);
    }
}
