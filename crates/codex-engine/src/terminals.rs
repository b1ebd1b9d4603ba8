//! Background terminals of a session's thread: listing and ending them on request.
//!
//! The session machine ends them by itself when a turn is interrupted and when a session ends.

use std::sync::Arc;

use codex_protocol::codex::{
    BackgroundTerminal, Method, TerminalTerminateParams, TerminalTerminated, TerminalsListParams,
    TerminalsPage, ThreadParams,
};
use codex_protocol::rpc::code;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::app_server::AppServer;
use super::command::SessionId;
use super::engine::Engine;
use super::entry::Entry;
use super::error::EngineError;
use super::requests::call;
use crate::logic::session::State;

/// The most pages of a list that are read. Codex has a handful of terminals at a time.
const PAGES: usize = 10;

impl Engine {
    /// The background terminals of a session's thread.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; [`EngineError::UnknownMethod`] on 0.104.0.
    pub async fn terminals(
        &self,
        session: &SessionId,
    ) -> Result<Vec<BackgroundTerminal>, EngineError> {
        let entry = self.live(session)?;
        self.terminals_of(&entry).await
    }

    /// The background terminals of a session's thread, also if the session is cancelled.
    pub(super) async fn terminals_of(
        &self,
        entry: &Entry,
    ) -> Result<Vec<BackgroundTerminal>, EngineError> {
        let mut terminals = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let params = TerminalsListParams {
                thread_id: &entry.thread,
                cursor: cursor.as_deref(),
            };
            let method = Method::BackgroundTerminalsList;
            let page: Option<TerminalsPage> = self.ask_holder(entry, method, &params).await?;
            let Some(page) = page else { break };
            terminals.extend(page.data);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(terminals)
    }

    /// Ends all background terminals of a session's thread.
    ///
    /// # Errors
    ///
    /// [`EngineError`].
    pub async fn end_terminals(&self, session: &SessionId) -> Result<(), EngineError> {
        let entry = self.live(session)?;
        let params = ThreadParams {
            thread_id: &entry.thread,
        };
        let method = Method::BackgroundTerminalsClean;
        self.ask_holder::<Value>(&entry, method, &params).await?;
        Ok(())
    }

    /// Ends one background terminal of a session's thread, by Codex's ID of it.
    ///
    /// # Errors
    ///
    /// [`EngineError`]; [`EngineError::NoTerminal`] if there is none with this ID, and
    /// [`EngineError::UnknownMethod`] on 0.104.0.
    pub async fn end_terminal(
        &self,
        session: &SessionId,
        process: &str,
    ) -> Result<(), EngineError> {
        let entry = self.live(session)?;
        let params = TerminalTerminateParams {
            thread_id: &entry.thread,
            process_id: process,
        };
        let method = Method::BackgroundTerminalsTerminate;
        match self.ask_holder(&entry, method, &params).await? {
            Some(TerminalTerminated { terminated: true }) => Ok(()),
            _ => Err(EngineError::NoTerminal(process.to_owned())),
        }
    }

    fn live(&self, session: &SessionId) -> Result<Arc<Entry>, EngineError> {
        let entry = self.entry(session)?;
        match entry.state() {
            State::Cancelled => Err(entry.cancelled()),
            _ => Ok(entry),
        }
    }

    /// Makes a request to the app-server that has the thread loaded. `None` if no app-server has:
    /// then the thread has no terminals.
    async fn ask_holder<T: DeserializeOwned>(
        &self,
        entry: &Entry,
        method: Method,
        params: &impl Serialize,
    ) -> Result<Option<T>, EngineError> {
        let running = self.codex.backend.running();
        let Some((server, _)) = running.filter(|running| entry.is_loaded_in(running)) else {
            return Ok(None);
        };
        match ask(&server, method, params).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => match error.about(&entry.thread) {
                EngineError::NoThread(_) => Ok(None),
                error => Err(error),
            },
        }
    }
}

async fn ask<T: DeserializeOwned>(
    server: &AppServer,
    method: Method,
    params: &impl Serialize,
) -> Result<T, EngineError> {
    match call(server, method, params).await {
        Err(EngineError::Refused { refusal, .. })
            if refusal.code == code::INVALID_REQUEST
                && refusal.message.contains("unknown variant") =>
        {
            Err(EngineError::UnknownMethod(method))
        }
        answered => answered,
    }
}
