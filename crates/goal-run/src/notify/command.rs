//! Delivery to a program, which gets the line as its last argument and the result as JSON on its
//! stdin.
//!
//! No shell reads any of it. When the program has ended, the processes that it started are ended
//! too.

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

use super::{Notification, NotifierContext};
use crate::logic::names::CommandLine;

/// How much of the end of stderr is shown, in bytes.
const SHOWN: usize = 400;

/// How long to wait for the end of stderr when the program has ended: another process may
/// still hold it open.
const STDERR_TIMEOUT: Duration = Duration::from_millis(200);

/// Why the delivery to a program failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The program cannot be started.
    #[error("{program} cannot be started: {error}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        error: io::Error,
    },
    /// The program failed.
    #[error("{program} {exit}{stderr}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        exit: Exit,
        /// The end of its stderr.
        stderr: String,
    },
    /// The program took too long.
    #[error("{program} took longer than {} s and was ended{stderr}", after.as_secs_f64())]
    TimedOut {
        /// The program.
        program: String,
        /// The time limit.
        after: Duration,
        /// The end of its stderr.
        stderr: String,
    },
}

pub(super) async fn send(
    command: &CommandLine,
    notification: Notification<'_>,
    context: &NotifierContext,
) -> Result<(), CommandError> {
    let words = command.words();
    let program = words.first().cloned().unwrap_or_default();
    let arguments = words.iter().skip(1).map(String::as_str);
    let started = Program::new(Path::new(&program), arguments.chain([notification.line]));
    deliver(started, notification.result, context).await
}

/// Runs a program in the surroundings of the notifiers, with the result on its stdin.
pub(super) async fn deliver(
    program: Program,
    result: &Value,
    context: &NotifierContext,
) -> Result<(), CommandError> {
    let started = Program {
        env: context.env.clone(),
        cwd: Some(context.directory.clone()),
        ..program
    };
    let program = started.path.display().to_string();
    let after = context.timeouts.command;
    let ended = run(&started, result, after).await;
    let (exit, stderr) = match ended {
        Ok(ended) => ended,
        Err(error) => return Err(CommandError::Start { program, error }),
    };
    match exit {
        Some(Exit::Code(0)) => Ok(()),
        Some(exit) => Err(CommandError::Failed {
            program,
            exit,
            stderr,
        }),
        None => Err(CommandError::TimedOut {
            program,
            after,
            stderr,
        }),
    }
}

/// Runs the program. Returns how it exited, or `None` if it had to be ended, and the end of
/// its stderr.
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
            // Later output would come from another process.
            let _ = timeout(STDERR_TIMEOUT, talk).await;
        }
        exit
    };
    Ok((exit, tail.shown()))
}

/// Writes the result. The program need not read it.
async fn feed(mut stdin: ChildStdin, result: &Value) {
    let text = format!("{result}\n");
    if let Err(error) = stdin.write_all(text.as_bytes()).await {
        tracing::debug!("the result was not read: {error}");
    }
}

/// Discards stdout, so that the program does not block on it.
async fn drain(mut stdout: ChildStdout) {
    let _ = copy(&mut stdout, &mut sink()).await;
}

/// The end of a program's stderr.
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

    /// The text in one line, to be appended to a sentence.
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
