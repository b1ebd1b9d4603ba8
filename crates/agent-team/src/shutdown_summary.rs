//! The summary that each thread is asked for before the server ends, for those who continue
//! it (FR-7).

use std::sync::Weak;
use std::time::Duration;

use codex_engine::command::{Info, Prompt, Purpose, SessionId, View};
use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::session::{Ending, IDLE_LIMIT, State};
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::{Keeping, ThreadId};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long all summaries together may take (FR-7.2).
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How often threads are looked for that nobody has used.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// After how long without use a thread is asked: well before its session is ended.
const ASK_AFTER: Duration = Duration::from_secs(IDLE_LIMIT.as_secs() - 90);

/// What each thread is asked.
pub const REQUEST: &str = "The session ends now. Summarise this thread for whoever takes it up \
later: what was asked, what was done and found, in which files, what is open and what comes next. \
Answer from what you know: don't run anything and don't change anything. At most 300 words of \
Markdown, without a preamble.";

/// Whether threads are asked for a summary when the server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownSummary {
    /// They are asked.
    Ask,
    /// They are not asked.
    Skip,
}

/// The last words of a thread that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastWords {
    /// The thread.
    pub thread: ThreadId,
    /// Its summary, or why there is none.
    pub summary: Result<String, String>,
}

/// Asks all threads that are in use for a summary at the same time, and tells `heard`
/// of each. What a thread is at is interrupted first. Comes back after
/// [`PATIENCE`] at the latest, or when `hurry` is cancelled; threads that have not
/// answered by then have no summary.
pub async fn ask_all(engine: &Engine, hurry: &CancellationToken, mut heard: impl FnMut(LastWords)) {
    let deadline = Instant::now() + PATIENCE;
    let threads = engine.list().into_iter().filter(is_in_use);
    let mut asked: FuturesUnordered<_> = threads
        .map(|info| last_words(engine, info, deadline))
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

/// For as long as the engine lives, asks each thread for a summary before its session is
/// ended because nobody has used it, and ends the session then.
pub async fn ask_unused(engine: Weak<Engine>, mut heard: impl FnMut(LastWords)) {
    loop {
        sleep(LOOK_EVERY).await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let unused = engine.unused_for(ASK_AFTER).into_iter().filter(is_in_use);
        for info in unused {
            let session = info.session.clone();
            heard(last_words(&engine, info, Instant::now() + PATIENCE).await);
            // It is forgotten already, or used again, if that fails.
            let _ = engine.cancel(&session, "not used for 30 minutes");
        }
    }
}

async fn last_words(engine: &Engine, info: Info, deadline: Instant) -> LastWords {
    let summary = match timeout_at(deadline, summary_of(engine, &info.session)).await {
        Ok(Ok(summary)) => summary,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("Codex gave none in time".to_owned()),
    };
    LastWords {
        thread: info.thread,
        summary,
    }
}

/// Whether there is something to summarise, and a rollout to go on with. The thread of a
/// Codex that has died is resumed for it.
fn is_in_use(info: &Info) -> bool {
    let is_over = info.view.state == State::Cancelled;
    !is_over && info.view.turns > 0 && info.settings.keeping == Keeping::Kept
}

async fn summary_of(
    engine: &Engine,
    session: &SessionId,
) -> Result<Result<String, String>, EngineError> {
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
            return Ok(match (&outcome.ending, outcome.text.trim()) {
                (Ending::Completed, "") => Err("Codex answered nothing".to_owned()),
                (Ending::Completed, text) => Ok(text.to_owned()),
                (Ending::Interrupted, _) => Err("it was interrupted".to_owned()),
                (Ending::Failed(error), _) => Err(error.message.clone()),
                (Ending::Lost(how), _) => Err(how.clone()),
            });
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
        let (by, no) = (DecidedBy::Settings, &Decision::Decline);
        match engine.respond_as(by, session, &open.id, no, None) {
            Ok(()) | Err(EngineError::Decision(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
