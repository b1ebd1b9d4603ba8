//! A running Codex, from its prompt to its end.

use std::future::pending;
use std::time::Duration;

use codex_mcp_protocol::codex::ThreadId;
use codex_mcp_protocol::lines::{DEFAULT_LINE_LIMIT, Frame, LineDecoder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::hearing::Hearing;
use crate::engine::Exit;
use crate::engine::spawn::Process;

/// The longest line of stderr that is looked at, in bytes.
const LONGEST_COMPLAINT: usize = 64 * 1024;

/// How long to wait for the end of the streams once nothing is left of Codex: what
/// was handed to a process elsewhere may stay open.
const LAST_WORDS_PATIENCE: Duration = Duration::from_secs(1);

/// Why a run is ended by us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    TimedOut,
    Cancelled,
    /// Codex waits for somebody to log in, and says this.
    AskedToLogIn(String),
    /// Codex has begun another session than the one that was to be resumed, this.
    OtherSession(ThreadId),
}

/// When a run is to end, at the latest.
pub(super) struct Limits<'a> {
    pub(super) timeout: Duration,
    pub(super) cancel: &'a CancellationToken,
    /// Cancelled here, when Codex needs nothing any more.
    pub(super) halt: &'a CancellationToken,
}

/// How a run ended.
pub(super) struct Ended<T> {
    pub(super) exit: Exit,
    pub(super) stop: Option<Stop>,
    /// What the feeding gave.
    pub(super) fed: T,
}

/// Gives Codex its prompt when `first` is done, and tells it that this is all. No
/// prompt is given any more once `halt` is cancelled.
pub(super) async fn feed<T>(
    mut stdin: ChildStdin,
    prompt: &str,
    first: impl Future<Output = T>,
    halt: &CancellationToken,
) -> T {
    let done = first.await;
    let written = halt.run_until_cancelled(stdin.write_all(prompt.as_bytes()));
    if let Some(Err(error)) = written.await {
        tracing::debug!("Codex did not read its prompt: {error}");
    }
    done
}

/// What Codex says.
pub(super) struct Voice {
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// Sees a run through: to the end of Codex, of all that it has started, and of the
/// feeding, which `halt` is to cut short.
pub(super) async fn supervise<T>(
    process: &mut Process,
    voice: Voice,
    feeding: impl Future<Output = T>,
    hearing: &mut Hearing<'_>,
    limits: &Limits<'_>,
) -> Ended<T> {
    let deadline = Instant::now().checked_add(limits.timeout);
    let mut stdout = Ear::new(voice.stdout, DEFAULT_LINE_LIMIT);
    let mut stderr = Ear::new(voice.stderr, LONGEST_COMPLAINT);
    let mut feeding = std::pin::pin!(feeding);
    let (mut fed, mut stop, mut exit, mut last_call) = (None, None, None, None);
    loop {
        let is_deaf = last_call.is_some() && stdout.is_deaf() && stderr.is_deaf();
        if let (Some(exit), true) = (exit, is_deaf)
            && let Some(fed) = fed.take()
        {
            return Ended { exit, stop, fed };
        }
        let may_stop = stop.is_none() && exit.is_none();
        let wanted = tokio::select! {
            () = stdout.listen() => stdout.hear(|frame| hearing.stdout(frame)),
            () = stderr.listen() => stderr.hear(|frame| hearing.stderr(frame)),
            done = &mut feeding, if fed.is_none() => {
                fed = Some(done);
                None
            }
            ended = process.wait(), if exit.is_none() => {
                exit = Some(ended.unwrap_or(Exit::Unknown));
                last_call = Some(Instant::now() + LAST_WORDS_PATIENCE);
                limits.halt.cancel();
                None
            }
            () = until(deadline), if may_stop => Some(Stop::TimedOut),
            () = limits.cancel.cancelled(), if may_stop => Some(Stop::Cancelled),
            () = until(last_call), if !is_deaf => {
                stdout.close();
                stderr.close();
                None
            }
        };
        if let Some(wanted) = wanted
            && may_stop
        {
            stop = Some(wanted);
            limits.halt.cancel();
            process.terminate();
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// A stream, cut into lines.
struct Ear<R> {
    stream: Option<R>,
    decoder: LineDecoder,
}

impl<R: AsyncRead + Unpin> Ear<R> {
    fn new(stream: R, limit: usize) -> Self {
        Self {
            stream: Some(stream),
            decoder: LineDecoder::new(limit),
        }
    }

    /// Whether there is nothing more to hear.
    fn is_deaf(&self) -> bool {
        self.stream.is_none()
    }

    fn close(&mut self) {
        self.stream = None;
    }

    /// Waits for more, or for the end.
    async fn listen(&mut self) {
        let Some(stream) = &mut self.stream else {
            return pending().await;
        };
        match stream.read(self.decoder.space()).await {
            Ok(count) if count > 0 => self.decoder.filled(count),
            _ => {
                self.stream = None;
                self.decoder.end_line();
            }
        }
    }

    /// Hears all that has come; the last reason to stop the run.
    fn hear(&mut self, mut take: impl FnMut(&Frame<'_>) -> Option<Stop>) -> Option<Stop> {
        let mut stop = None;
        while let Some(frame) = self.decoder.next_frame() {
            stop = take(&frame).or(stop);
        }
        stop
    }
}
