//! The summary that each thread is asked for before the server ends, so that others can continue
//! the thread (FR-7).

use std::sync::Weak;
use std::time::Duration;

use codex_engine::command::{Prompt, Purpose, SessionId, SessionInfo, TurnRef, TurnView};
use codex_engine::logic::action::{DecidedBy, Decision};
use codex_engine::logic::session::{IDLE_LIMIT, State, TurnEnding};
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::{Persistence, ThreadId};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// The longest time for all summaries together (FR-7.2).
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The interval between two searches for unused threads.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// The time without use after which a thread is asked: well before its session is ended.
const UNUSED_LIMIT: Duration = Duration::from_secs(IDLE_LIMIT.as_secs() - 90);

/// The prompt that asks for a summary.
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

/// The summary of a thread that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSummary {
    /// The thread.
    pub thread: ThreadId,
    /// Its summary, or why there is none.
    pub summary: Result<String, String>,
}

/// Asks all threads in use for a summary at the same time, and gives each to `on_summary`. A
/// running turn is interrupted first. Returns after [`TIMEOUT`] at the latest, or when `hurry` is
/// cancelled; threads that have not answered by then have no summary.
pub async fn ask_all(
    engine: &Engine,
    hurry: &CancellationToken,
    mut on_summary: impl FnMut(ThreadSummary),
) {
    let deadline = Instant::now() + TIMEOUT;
    let threads = engine.list_own().into_iter().filter(is_in_use);
    let mut asked: FuturesUnordered<_> = threads
        .map(|info| summarise(engine, info, deadline))
        .collect();
    loop {
        tokio::select! {
            biased;
            () = hurry.cancelled() => return,
            words = asked.next() => match words {
                Some(words) => on_summary(words),
                None => return,
            },
        }
    }
}

/// For as long as the engine lives, asks each unused thread for a summary just before its session
/// would be ended for lack of use, and then ends the session.
pub async fn ask_unused(engine: Weak<Engine>, mut on_summary: impl FnMut(ThreadSummary)) {
    loop {
        sleep(CHECK_INTERVAL).await;
        let Some(engine) = engine.upgrade() else {
            return;
        };
        for info in unused(&engine) {
            // The thread may have been used while others were asked.
            let is_unused = unused(&engine)
                .iter()
                .any(|one| one.session == info.session);
            if is_unused && let Some(summary) = end_unused(&engine, info).await {
                on_summary(summary);
            }
        }
    }
}

fn unused(engine: &Engine) -> Vec<SessionInfo> {
    let mut unused = engine.unused_for(UNUSED_LIMIT);
    unused.retain(is_in_use);
    unused
}

/// Asks an unused thread for a summary, and ends its session. Returns `None`, and lets the session
/// continue, if somebody prompts it meanwhile.
async fn end_unused(engine: &Engine, info: SessionInfo) -> Option<ThreadSummary> {
    // Without a deadline: the number of a turn is known only once the prompt was sent or refused.
    let (number, summary) = match request(engine, &info.session).await {
        Ok(turn) => {
            let summary = before(Instant::now() + TIMEOUT, answer(engine, &turn)).await;
            (turn.number, summary)
        }
        Err(EngineError::Busy(_)) => return None,
        // The last turn is that of the failed prompt: another one cannot have begun yet.
        Err(error) => {
            let view = engine.inspect(&info.session).ok()?;
            (view.turn, Err(error.to_string()))
        }
    };
    let turn = TurnRef {
        session: info.session,
        number,
    };
    let is_over = engine.cancel_after(&turn, "not used for 30 minutes").ok()?;
    is_over.then_some(ThreadSummary {
        thread: info.thread,
        summary,
    })
}

async fn summarise(engine: &Engine, info: SessionInfo, deadline: Instant) -> ThreadSummary {
    ThreadSummary {
        summary: before(deadline, summary_of(engine, &info.session)).await,
        thread: info.thread,
    }
}

/// Waits for a summary until `deadline`.
async fn before(
    deadline: Instant,
    summary: impl Future<Output = Result<Result<String, String>, EngineError>>,
) -> Result<String, String> {
    match timeout_at(deadline, summary).await {
        Ok(Ok(summary)) => summary,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("Codex gave none in time".to_owned()),
    }
}

/// Whether the thread has turns to summarise, and a rollout to continue from. The thread of a Codex
/// that has died is resumed for it.
fn is_in_use(info: &SessionInfo) -> bool {
    let is_over = info.view.state == State::Cancelled;
    !is_over && info.view.turns > 0 && info.settings.persistence == Persistence::Persistent
}

async fn summary_of(
    engine: &Engine,
    session: &SessionId,
) -> Result<Result<String, String>, EngineError> {
    interrupt(engine, session).await?;
    let turn = request(engine, session).await?;
    answer(engine, &turn).await
}

async fn request(engine: &Engine, session: &SessionId) -> Result<TurnRef, EngineError> {
    let question = Prompt {
        purpose: Purpose::ShutdownSummary,
        ..Prompt::text(REQUEST)
    };
    engine.prompt(session, question).await
}

/// Waits for the summary from a turn. Declines the turn's questions.
async fn answer(engine: &Engine, turn: &TurnRef) -> Result<Result<String, String>, EngineError> {
    let session = &turn.session;
    loop {
        let view = engine.inspect(session)?;
        if let Some((number, outcome)) = &view.outcome
            && *number >= turn.number
        {
            return Ok(match (&outcome.ending, outcome.text.trim()) {
                (TurnEnding::Completed, "") => Err("Codex answered nothing".to_owned()),
                (TurnEnding::Completed, text) => Ok(text.to_owned()),
                (TurnEnding::Interrupted, _) => Err("it was interrupted".to_owned()),
                (TurnEnding::Failed(error), _) => Err(error.message.clone()),
                (TurnEnding::Lost(how), _) => Err(how.clone()),
            });
        }
        decline_all(engine, session, &view)?;
        engine.changed(session, view.revision).await?;
    }
}

/// Interrupts the running turn of a thread, and waits for its end.
async fn interrupt(engine: &Engine, session: &SessionId) -> Result<(), EngineError> {
    loop {
        let view = engine.inspect(session)?;
        if !view.state.is_at_work() {
            return Ok(());
        }
        match engine.interrupt_session(session).await {
            Ok(()) | Err(EngineError::NotRunning(_)) => {}
            Err(error) => return Err(error),
        }
        engine.changed(session, view.revision).await?;
    }
}

/// Declines all open questions, as nobody is left to ask.
fn decline_all(engine: &Engine, session: &SessionId, view: &TurnView) -> Result<(), EngineError> {
    let session = engine.handle(session)?;
    for open in &view.actions {
        let (by, no) = (DecidedBy::Settings, &Decision::Decline);
        match session.respond(by, &open.id, no, None) {
            Ok(()) | Err(EngineError::Decision(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
