//! Polling sessions and waiting for changes.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use super::command::{Attention, Decider, PollResponse, SessionId};
use super::engine::Engine;
use super::entry::Entry;
use super::error::EngineError;
use crate::logic::events::Poll;
use crate::logic::session::State;

impl Engine {
    /// Waits until a session has a later revision than `seen`.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn changed(&self, session: &SessionId, seen: u64) -> Result<(), EngineError> {
        let mut revision = self.entry(session)?.watch();
        // Fails only if the entry is dropped, which is a change too.
        let _ = revision.wait_for(|revision| *revision > seen).await;
        Ok(())
    }

    /// The cursor at which a reader continues: `cursor`, or the first unread event if that is
    /// later.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`] and [`EngineError::CursorBeyondEnd`].
    pub fn read_position(
        &self,
        session: &SessionId,
        cursor: Option<u64>,
    ) -> Result<u64, EngineError> {
        let entry = self.entry(session)?;
        Ok(entry.access(|machine, _| machine.read_position(cursor))?)
    }

    /// Polls a session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`] and [`EngineError::CursorBeyondEnd`].
    pub fn poll(&self, session: &SessionId, poll: &Poll) -> Result<PollResponse, EngineError> {
        let entry = self.entry(session)?;
        entry.show_questions();
        let poll_interval = entry.poll_interval();
        entry.access(|machine, now| {
            let shown = machine.poll(poll, now)?;
            let state = machine.state();
            Ok(PollResponse {
                state,
                poll_interval,
                shown,
            })
        })
    }

    /// Waits until a [`poll`](Self::poll) would show something new, at most for `wait`.
    /// Returns at once for a session without a running turn, and for one with an open
    /// question that only the reader can answer or that the client's user has dismissed.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn wait_for_news(
        &self,
        session: &SessionId,
        poll: &Poll,
        wait: Duration,
        deciding: Decider,
    ) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        let deadline = Instant::now() + wait;
        let mut news = entry.watch_news();
        let before = state_and_questions(&entry);
        loop {
            news.mark_unchanged();
            let now = state_and_questions(&entry);
            let changed = match poll.options.include_events {
                true => has_news(&entry, poll.cursor),
                false => now != before,
            };
            // An open question is no news, but must not expire during the wait.
            let for_reader =
                deciding == Decider::Reader || entry.access(|machine, _| machine.has_dismissed());
            let awaits_reader =
                now.0 == State::WaitingApproval && poll.options.include_actions && for_reader;
            if changed || awaits_reader || !now.0.is_at_work() {
                return Ok(());
            }
            match timeout_at(deadline, news.changed()).await {
                Ok(Ok(())) => {}
                // The session is gone, or the time is up.
                Ok(Err(_)) | Err(_) => return Ok(()),
            }
        }
    }

    /// Waits for the first of several sessions that needs attention: one without a
    /// running turn, or one with an open question. `None` if there is none within `wait`.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`] if one of the sessions does not exist.
    pub async fn attention(
        &self,
        sessions: &[SessionId],
        wait: Duration,
    ) -> Result<Option<Attention>, EngineError> {
        let entries: Result<Vec<_>, _> = sessions.iter().map(|id| self.entry(id)).collect();
        let waiting = entries?.into_iter().map(|entry| async move {
            let mut revision = entry.watch();
            let state = loop {
                revision.mark_unchanged();
                let state = entry.state();
                // The watch ends only with the entry, which this function holds.
                if state != State::Running || revision.changed().await.is_err() {
                    break state;
                }
            };
            Attention {
                session: entry.id.clone(),
                state,
            }
        });
        let mut waiting: FuturesUnordered<_> = waiting.collect();
        let deadline = Instant::now() + wait;
        let first = timeout_at(deadline, waiting.next()).await.ok().flatten();
        let seen = first.as_ref().map(|first| &first.session);
        if let Some(entry) = seen.and_then(|session| self.codex.hub.sessions.by_id(session)) {
            entry.show_questions();
        }
        Ok(first)
    }
}

/// The state that a reader without events observes.
fn state_and_questions(entry: &Entry) -> (State, usize) {
    entry.access(|machine, _| (machine.state(), machine.actions().len()))
}

fn has_news(entry: &Entry, cursor: Option<u64>) -> bool {
    entry.access(|machine, _| {
        let log = machine.log();
        let cursor = cursor.unwrap_or(log.read_to());
        // A reader has to learn that its cursor is beyond the end.
        log.has_news(cursor) || cursor > log.next_id()
    })
}
