//! By a program: the line is its last argument, and the result as JSON on its stdin.
//!
//! No shell reads any of it. When the program has ended, so does what it has started.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anstream::adapter::strip_str;
use common::text::one_line;
use serde_json::Value;
use supervise::exit::Exit;
use supervise::spawn::{Program, Streams, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use super::{Teller, Telling};
use crate::logic::names::CommandLine;

/// How much of the end of stderr is shown, in bytes.
const SHOWN: usize = 400;

/// How long to wait for the end of stderr when the program has ended: it may be in the
/// hands of a process elsewhere.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(200);

/// Why a program has not done its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It can't be started.
    #[error("{program} can't be started: {error}")]
    Start {
        /// Which.
        program: String,
        /// Why.
        error: io::Error,
    },
    /// It has failed.
    #[error("{program} {exit}{said}")]
    Failed {
        /// Which.
        program: String,
        /// How it has ended.
        exit: Exit,
        /// The end of what it has complained.
        said: String,
    },
    /// It took too long.
    #[error("{program} took longer than {} s and was ended{said}", after.as_secs_f64())]
    TimedOut {
        /// Which.
        program: String,
        /// How long it was given.
        after: Duration,
        /// The end of what it has complained.
        said: String,
    },
}

pub(super) async fn tell(
    command: &CommandLine,
    telling: Telling<'_>,
    teller: &Teller,
) -> Result<(), CommandError> {
    let words = command.words();
    let program = words.first().cloned().unwrap_or_default();
    let arguments = words.iter().skip(1).map(String::as_str);
    let started = Program {
        env: teller.env.clone(),
        cwd: Some(teller.directory.clone()),
        ..Program::new(Path::new(&program), arguments.chain([telling.line]))
    };
    let after = teller.patience.command;
    let ended = run(&started, telling.result, after).await;
    let (exit, said) = match ended {
        Ok(ended) => ended,
        Err(error) => return Err(CommandError::Start { program, error }),
    };
    match exit {
        Some(Exit::Code(0)) => Ok(()),
        Some(exit) => Err(CommandError::Failed {
            program,
            exit,
            said,
        }),
        None => Err(CommandError::TimedOut {
            program,
            after,
            said,
        }),
    }
}

/// Runs it, and says how it ended, or nothing if it had to be ended, and the last of
/// its complaints.
async fn run(
    program: &Program,
    result: &Value,
    limit: Duration,
) -> io::Result<(Option<Exit>, String)> {
    let (mut process, streams) = spawn(program)?;
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    let mut tail = Tail::default();
    let exit = {
        let talk = async {
            tokio::join!(feed(stdin, result), drain(stdout), tail.listen(stderr));
        };
        let mut talk = pin!(talk);
        let mut limit = pin!(sleep(limit));
        let mut has_talked = false;
        let exit = loop {
            tokio::select! {
                () = &mut talk, if !has_talked => has_talked = true,
                exit = process.wait() => break Some(exit?),
                () = &mut limit => break None,
            }
        };
        if exit.is_none() {
            process.terminate();
            process.wait().await?;
        }
        if !has_talked {
            // What is missing then was said by nobody who was asked.
            let _ = timeout(LAST_WORDS_PATIENCE, talk).await;
        }
        exit
    };
    Ok((exit, tail.shown()))
}

/// Writes the result. It need not be read.
async fn feed(mut stdin: ChildStdin, result: &Value) {
    let text = format!("{result}\n");
    if let Err(error) = stdin.write_all(text.as_bytes()).await {
        tracing::debug!("the result was not read: {error}");
    }
}

/// What it has to say is of no interest, but it must get rid of it.
async fn drain(mut stdout: ChildStdout) {
    let _ = copy(&mut stdout, &mut sink()).await;
}

/// The last of what a program writes.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    async fn listen(&mut self, mut stream: ChildStderr) {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            self.0
                .extend_from_slice(piece.get(..count).unwrap_or_default());
            let surplus = self.0.len().saturating_sub(SHOWN);
            self.0.drain(..surplus);
        }
    }

    /// It in one line, as what follows a sentence.
    fn shown(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        // The first character may be cut.
        let text = text.trim_start_matches(char::REPLACEMENT_CHARACTER);
        let line = one_line(&strip_str(text).to_string(), 2 * SHOWN);
        match line.as_str() {
            "" => String::new(),
            line => format!("; it said: {line}"),
        }
    }
}
