//! Continues a call of a process that was killed, whose app-server this process has taken over.

use std::time::{Duration, Instant, SystemTime};

use codex_engine::command::{OpenThread, SessionId, TurnRef};
use codex_engine::logic::work::WorkEnding;
use codex_engine::{Engine, EngineError};

use super::control::{Control, Directives};
use super::events::EventQueue;
use super::git::TreeComparison;
use super::record::CallRecord;
use super::{Call, CallOutcome, CallRequest, CallUpdate, ONLY_TURN, thread};

/// Runs a call that another process has begun to its end, as [`run`](super::run) does. No prompt is
/// sent: if the process was killed before Codex had accepted the prompt, the turn counts as lost.
pub(crate) async fn resume(
    engine: &Engine,
    request: &CallRequest,
    record: CallRecord,
    mut on_update: impl FnMut(CallUpdate<'_>),
    control: impl Into<Control<'_>>,
) -> CallOutcome {
    let Control { cancel, directives } = control.into();
    let mut call = Call::new(engine, request, &cancel, &mut on_update);
    let session = record.session.clone();
    call.restore(record);
    let ended = Box::pin(call.resume(session, directives)).await;
    call.finish(ended).await
}

impl Call<'_> {
    /// Reports the state with which another process can continue the call.
    pub(super) fn note_record(&mut self, session: &SessionId) {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let at = |moment: Instant| match moment.checked_duration_since(now) {
            Some(later) => wall.checked_add(later),
            None => wall.checked_sub(now.duration_since(moment)),
        };
        let record = CallRecord {
            session: session.clone(),
            begun: self.begun,
            limit: self.limit.and_then(at),
            waiting_since: self.waiting_since.and_then(at),
            mark: self.mark.clone(),
            sandbox: self.sandbox.clone(),
            provider: self.provider.clone(),
            before: self.kept_before.clone(),
        };
        self.sink.note_record(&record);
    }

    /// Sets the state that another process had. The time in which a question was open does not count;
    /// a question that is still open is repeated.
    fn restore(&mut self, record: CallRecord) {
        let wall = SystemTime::now();
        let waited = record.waiting_since.map_or(Duration::ZERO, |since| {
            wall.duration_since(since).unwrap_or_default()
        });
        let left = record.limit.map(|limit| limit.duration_since(wall));
        // The process may have been killed after the limit, and the clock may have been set since.
        let left = left.map(|left| left.unwrap_or_default().saturating_add(waited));
        let left = left.map(|left| left.min(self.request.timeout));
        self.limit = left.and_then(|left| Instant::now().checked_add(left));
        self.begun = record.begun;
        self.mark = record.mark;
        self.sandbox = record.sandbox;
        self.provider = record.provider;
        self.kept_before = record.before.clone();
        self.before = record.before;
        self.is_continued = true;
    }

    /// Continues the turn, up to the last inspection by git.
    async fn resume(
        &mut self,
        session: SessionId,
        directives: Directives<'_>,
    ) -> (TreeComparison, WorkEnding) {
        let (opened, mut events) = match self.reopen(session) {
            Ok(opened) => opened,
            // The process was killed after it had closed the session, and before it had stored the result.
            Err(error) => {
                tracing::warn!("cannot continue the turn: {error}");
                self.kill_marked().await;
                return (TreeComparison::none(), not_continued());
            }
        };
        self.sink.session(&opened.thread, self.sandbox.as_deref());
        let turn = self.continued_turn(&opened, &mut events).await;
        let ending = match turn {
            Ok(turn) => {
                self.follow_turn(&opened, turn, &mut events, directives)
                    .await
            }
            Err(ending) => ending,
        };
        self.end_turn(&opened, events, ending).await
    }

    /// The thread of a session that was taken over. Its events are queued before it is continued, as
    /// the steps of its turn come then.
    fn reopen(&self, session: SessionId) -> Result<(OpenThread, EventQueue), EngineError> {
        let opened = OpenThread {
            thread: self.engine.get(&session)?.thread,
            session,
            sandbox: None,
            missing_tools: Vec::new(),
        };
        let events = EventQueue::continuing(self.engine, &opened, self.sink.digest())?;
        Ok((opened, events))
    }

    /// Continues the session, and reports the questions that are open now, even if there are none: the
    /// other process has reported its own.
    async fn continued_turn(
        &mut self,
        opened: &OpenThread,
        events: &mut EventQueue,
    ) -> Result<TurnRef, WorkEnding> {
        let session = &opened.session;
        let continuing = self.engine.continue_session(session);
        match self.until_cancelled(continuing).await {
            Ok(continued) => continued.map_err(thread::ending)?,
            Err(ending) => {
                self.interrupt_turn(opened, events).await;
                return Err(ending);
            }
        }
        let view = self.engine.inspect(session).map_err(thread::ending)?;
        if view.turn < ONLY_TURN {
            return Err(not_continued());
        }
        self.update_questions(session, &view.actions);
        Ok(TurnRef {
            session: session.clone(),
            number: ONLY_TURN,
        })
    }
}

/// The ending of a turn that cannot be continued.
fn not_continued() -> WorkEnding {
    thread::lost("was left by a worker that was killed".to_owned(), None)
}
