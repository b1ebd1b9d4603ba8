//! Looking into sessions, and waiting for something to see.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use super::command::{Attention, Deciding, Polled, SessionId};
use super::sessions::Entry;
use super::{Engine, EngineError};
use crate::logic::events::Poll;
use crate::logic::session::State;

impl Engine {
    /// Waits until a session has changed since the revision `seen`.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn changed(&self, session: &SessionId, seen: u64) -> Result<(), EngineError> {
        let mut revision = self.entry(session)?.watch();
        // Fails only if the entry is dropped, which is a change as well.
        let _ = revision.wait_for(|revision| *revision > seen).await;
        Ok(())
    }

    /// Where somebody reads on who has been at `cursor`: not before the place up to
    /// which the session has been read.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`] and [`EngineError::BeyondTheEnd`].
    pub fn place(&self, session: &SessionId, cursor: Option<u64>) -> Result<u64, EngineError> {
        let entry = self.entry(session)?;
        Ok(entry.look(|machine, _| machine.place(cursor))?)
    }

    /// Looks into a session.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`] and [`EngineError::BeyondTheEnd`].
    pub fn poll(&self, session: &SessionId, poll: &Poll) -> Result<Polled, EngineError> {
        let entry = self.entry(session)?;
        entry.show_questions();
        let poll_interval = entry.poll_interval();
        entry.look(|machine, now| {
            let shown = machine.poll(poll, now)?;
            let state = machine.state();
            Ok(Polled {
                state,
                poll_interval,
                shown,
            })
        })
    }

    /// Waits until a [`poll`](Self::poll) would show something new, at most for
    /// `wait`. A session that is at nothing has nothing new to come; and one in
    /// which a question is open that only the reader can answer, or that the client's
    /// user has dismissed, is not waited for.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn news(
        &self,
        session: &SessionId,
        poll: &Poll,
        wait: Duration,
        deciding: Deciding,
    ) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        let deadline = Instant::now() + wait;
        let mut news = entry.watch_news();
        let before = standing(&entry);
        loop {
            news.mark_unchanged();
            let now = standing(&entry);
            let changed = match poll.options.include_events {
                true => has_news(&entry, poll.cursor),
                false => now != before,
            };
            // An open question is not new, but it must not be waited away.
            let for_reader =
                deciding == Deciding::Reader || entry.look(|machine, _| machine.has_dismissed());
            let asked =
                now.0 == State::WaitingApproval && poll.options.include_actions && for_reader;
            if changed || asked || !now.0.is_at_work() {
                return Ok(());
            }
            match timeout_at(deadline, news.changed()).await {
                Ok(Ok(())) => {}
                // The session is gone, or the time is up.
                Ok(Err(_)) | Err(_) => return Ok(()),
            }
        }
    }

    /// Waits for the first of several sessions that somebody has to see to: one
    /// in which no turn runs, or one that waits for an answer. `None` if there is
    /// none within `wait`.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`] if there is no session of one of the names.
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
                // Watching ends with the entry, which this holds.
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
        if let Some(entry) = seen.and_then(|session| self.hub.sessions.by_id(session)) {
            entry.show_questions();
        }
        Ok(first)
    }
}

/// What a reader who wants no events would notice a change of.
fn standing(entry: &Entry) -> (State, usize) {
    entry.look(|machine, _| (machine.state(), machine.actions().len()))
}

fn has_news(entry: &Entry, cursor: Option<u64>) -> bool {
    entry.look(|machine, _| {
        let log = machine.log();
        let cursor = cursor.unwrap_or(log.read_to());
        // That a cursor is beyond the end is news to its owner.
        log.has_news(cursor) || cursor > log.next_id()
    })
}
