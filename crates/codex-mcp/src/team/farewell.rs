//! What is asked of each thread before the server ends: a summary for whoever goes on
//! with it (FR-7).

use std::time::Duration;

use codex_mcp_core::action::Decision;
use codex_mcp_core::session::{Ending, State};
use codex_mcp_protocol::codex::{Keeping, ThreadId};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::engine::command::{Info, Prompt, Purpose, SessionId, View};
use crate::engine::{Engine, EngineError, Standing};

/// How long all summaries together may take (FR-7.2).
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What each thread is asked.
pub const REQUEST: &str = "The session ends now. Summarise this thread for whoever takes it up \
later: what was asked, what was done and found, in which files, what is open and what comes next. \
Answer from what you know: don't run anything and don't change anything. At most 300 words of \
Markdown, without a preamble.";

/// What came of asking a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastWords {
    /// The thread.
    pub thread: ThreadId,
    /// Its summary; `None` if there was none in time.
    pub summary: Option<String>,
}

/// Asks all threads that are in use for a summary at the same time, and tells `heard`
/// of each. What a thread is at is interrupted first. Comes back after
/// [`PATIENCE`] at the latest, or when `hurry` is cancelled; threads that have not
/// answered by then have no summary.
pub async fn ask_all(engine: &Engine, hurry: &CancellationToken, mut heard: impl FnMut(LastWords)) {
    // A Codex that has gone is not started again for this.
    if !matches!(engine.standing(), Standing::Ready(_)) {
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    let threads = engine.list().into_iter().filter(is_in_use);
    let mut asked: FuturesUnordered<_> = threads
        .map(|info| async move {
            let summary = timeout_at(deadline, summary_of(engine, &info.session)).await;
            let summary = match summary {
                Ok(Ok(summary)) => summary,
                Ok(Err(error)) => {
                    tracing::warn!("thread {} gave no summary: {error}", info.thread);
                    None
                }
                Err(_) => {
                    tracing::warn!("thread {} gave no summary in time", info.thread);
                    None
                }
            };
            let thread = info.thread;
            LastWords { thread, summary }
        })
        .collect();
    loop {
        tokio::select! {
            biased;
            () = hurry.cancelled() => return,
            words = asked.next() => match words {
                Some(words) => heard(words),
                None => return,
            },
        }
    }
}

/// Whether there is something to summarise, and a rollout to go on with.
fn is_in_use(info: &Info) -> bool {
    let dead = matches!(info.view.state, State::Cancelled | State::Error);
    !dead && info.view.turns > 0 && info.settings.keeping == Keeping::Kept
}

async fn summary_of(engine: &Engine, session: &SessionId) -> Result<Option<String>, EngineError> {
    interrupt(engine, session).await?;
    let question = Prompt {
        purpose: Purpose::Farewell,
        ..Prompt::text(REQUEST)
    };
    let turn = engine.prompt(session, question).await?;
    loop {
        let view = engine.inspect(session)?;
        if let Some((number, outcome)) = &view.outcome
            && *number >= turn.number
        {
            let completed = matches!(outcome.ending, Ending::Completed);
            let text = outcome.text.trim();
            return Ok((completed && !text.is_empty()).then(|| text.to_owned()));
        }
        decline_all(engine, session, &view)?;
        engine.changed(session, view.revision).await?;
    }
}

/// Ends what a thread is at, and waits for it.
async fn interrupt(engine: &Engine, session: &SessionId) -> Result<(), EngineError> {
    loop {
        let view = engine.inspect(session)?;
        if !view.state.is_at_work() {
            return Ok(());
        }
        match engine.interrupt_session(session) {
            Ok(()) | Err(EngineError::NotRunning(_)) => {}
            Err(error) => return Err(error),
        }
        engine.changed(session, view.revision).await?;
    }
}

/// There is nobody left to ask.
fn decline_all(engine: &Engine, session: &SessionId, view: &View) -> Result<(), EngineError> {
    for open in &view.actions {
        match engine.respond(session, &open.id, &Decision::Decline, None) {
            Ok(()) | Err(EngineError::Decision(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
