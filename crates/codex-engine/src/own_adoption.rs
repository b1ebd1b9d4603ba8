//! The app-server of a single engine that another process can take over.
//!
//! ```text
//!   engine ── keep ──► guard ─┐
//!     ✗ killed                │ LeftAppServer: the values of its owner
//!   next engine ◄─────────────┘
//!     └─ continue_session ──► the steps of the last turn, and the open questions again
//! ```
//!
//! This is for a process that itself decides what its turns are for, such as the worker of a queue of
//! jobs: it stores with the guard what the next process needs to know about each turn. A host has
//! clients that return, see [`AppServers`](crate::AppServers).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use supervise::adoptable::{self, Adopted};
use tokio::time::timeout;

use super::adoption::{AdoptionError, parse, restore, take_over, wait_for_repetition};
use super::command::SessionId;
use super::engine::Engine;
use super::error::EngineError;
use super::kept::{AGREEMENT, OF_OWNER, keep_as};
use super::shared::{Agreement, SharedCodex};

/// How long the guard may take to read what the next process needs. It takes less than a millisecond.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// An app-server whose owner was killed, and which this process now owns. Dropping this ends the
/// app-server.
#[derive(Debug)]
pub struct LeftAppServer {
    agreement: Agreement,
    adopted: Adopted,
}

impl LeftAppServer {
    /// Takes the app-server with this adoption socket; `None` if its guard has ended.
    ///
    /// # Errors
    ///
    /// [`LeftAppServerError`]. The app-server is ended then, by its guard if nobody else takes it.
    pub async fn take(socket: &Path) -> Result<Option<Self>, LeftAppServerError> {
        let Some(adopted) = adoptable::adopt(socket).await? else {
            return Ok(None);
        };
        let agreement = parse(adopted.kept.get(AGREEMENT))?;
        Ok(Some(Self { agreement, adopted }))
    }

    /// Stores a value for the next process, in place of an earlier one with this key, and waits until the
    /// guard has it.
    pub async fn keep(&self, key: &str, value: &impl Serialize) {
        let keeper = self.adopted.process.keeper();
        keep_as(&keeper, &format!("{OF_OWNER}{key}"), value);
        keeper.flush().await;
    }

    /// Ends the app-server, and waits until all processes that it has started have ended.
    pub async fn end(self) {
        let mut process = self.adopted.process;
        process.terminate();
        if let Err(error) = process.wait().await {
            tracing::warn!("cannot wait for the end of an app-server: {error}");
        }
    }

    /// The values that its owner has [kept](Engine::keep), with their keys.
    pub fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.adopted.kept.iter();
        all.filter_map(|(key, value)| Some((key.strip_prefix(OF_OWNER)?, value.as_str())))
    }
}

/// Why an app-server that was left cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LeftAppServerError {
    /// Its guard does not hand it over.
    #[error("its guard does not hand it over: {0}")]
    Guard(#[from] io::Error),
    /// The kept values are not understood.
    #[error(transparent)]
    Kept(#[from] AdoptionError),
}

impl Engine {
    /// The same engine, whose app-server another process can take over if this one is killed, where
    /// Codex can listen on a port. The app-server runs without an owner for `wait`, and
    /// `new_adoption_socket` returns a new path for the adoption socket of each. Call this after the
    /// other settings of the engine.
    #[must_use]
    pub fn adoptable(
        self,
        wait: Duration,
        new_adoption_socket: impl Fn() -> PathBuf + Send + Sync + 'static,
    ) -> Self {
        let mut codex = SharedCodex::new(self.start.clone());
        let agreement = Agreement::of_one(&self.start.launch);
        // Plain values are always written.
        let agreement = serde_json::to_string(&agreement).unwrap_or_default();
        let new_socket = Arc::new(new_adoption_socket);
        codex.backend.make_adoptable(new_socket, wait, agreement);
        self.with_codex(codex)
    }

    /// Takes over an app-server, with its sessions. Each of them is still to be
    /// [continued](Self::continue_session) or closed.
    ///
    /// # Errors
    ///
    /// [`AdoptionError`]; the app-server is ended then.
    pub async fn adopt(&self, left: LeftAppServer) -> Result<(), AdoptionError> {
        take_over(&self.codex, &left.agreement, left.adopted).await
    }

    /// Stores a value for the process that takes the app-server over, in place of an earlier one with
    /// this key. Does nothing if none can take it over.
    pub fn keep(&self, key: &str, value: &impl Serialize) {
        if let Some((server, _)) = self.codex.backend.running()
            && let Some(keeper) = server.keeper()
        {
            keep_as(keeper, &format!("{OF_OWNER}{key}"), value);
        }
    }

    /// Waits until the guard has received all that was stored with it, but not for longer than 2 s.
    pub async fn flush_kept(&self) {
        if let Some((server, _)) = self.codex.backend.running()
            && let Some(keeper) = server.keeper()
            && timeout(FLUSH_TIMEOUT, keeper.flush()).await.is_err()
        {
            tracing::warn!("the guard of Codex does not read: no process could continue the turn");
        }
    }

    /// Removes a [kept](Self::keep) value.
    pub fn forget(&self, key: &str) {
        if let Some((server, _)) = self.codex.backend.running()
            && let Some(keeper) = server.keeper()
        {
            keeper.forget(&format!("{OF_OWNER}{key}"));
        }
    }

    /// Continues a session of an app-server that was taken over: handles the steps of its last turn
    /// as if Codex had just reported them, and waits until Codex has repeated its open questions.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoSession`].
    pub async fn continue_session(&self, session: &SessionId) -> Result<(), EngineError> {
        let entry = self.entry(session)?;
        entry.set_owner(self.owner.clone());
        restore(&self.codex.hub, &entry).await;
        wait_for_repetition(&entry).await;
        Ok(())
    }
}
