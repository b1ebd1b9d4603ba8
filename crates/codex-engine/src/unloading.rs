//! Has Codex unload threads, so that any process can resume them, and ends sessions that nobody uses.

use std::sync::{Arc, Weak};
use std::time::Duration;

use codex_protocol::codex::{Method, Persistence, ThreadParams};
use serde_json::Value;
use supervise::memory;
use tokio::time::sleep;

use super::connection::CallError;
use super::effects::perform;
use super::entry::Entry;
use super::hub::{Hub, ensure_end};
use super::observer::Act;

/// The time limit for each of the two steps of unloading a thread, archiving and restoring it.
/// Codex takes about 5 ms, 0.104.0 about 60 ms, and on a busy machine more than 500 ms. Between the
/// two, other processes cannot find the thread.
pub(super) const UNLOAD_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason with which the sweep cancels a session. The session adds the limit.
const UNUSED: &str = "it has not been used for long";

/// The interval between searches for unused sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Whether Codex has unloaded the thread of a closed session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnloadState {
    /// The thread is unloaded.
    Unloaded,
    /// Codex has not confirmed it. Resuming a loaded thread keeps its settings.
    MaybeLoaded,
}

/// Cancels and forgets unused sessions, as long as the hub exists.
pub(super) async fn sweep(hub: Weak<Hub>) {
    loop {
        sleep(SWEEP_EVERY).await;
        let Some(hub) = hub.upgrade() else { return };
        for (entry, effects) in hub.sessions.tidy() {
            let _in_span = entry.span.enter();
            tracing::info!("the session ends: {UNUSED}");
            let observer = entry.owner().observer;
            observer.acted(&entry.thread, Act::Cancelled(UNUSED));
            perform(&entry, effects);
            ensure_end(&entry);
            tokio::spawn(unload_when_ended(Arc::clone(&hub), Arc::clone(&entry)));
        }
        // A session has up to some MB of events, in allocations of all sizes.
        memory::release_unused();
    }
}

/// Has Codex unload the thread of a cancelled session once its turn has ended. The thread stays
/// loaded while a sub-agent, an attached program or a successor of the session may use it.
pub(super) async fn unload_when_ended(hub: Arc<Hub>, entry: Arc<Entry>) {
    let mut revision = entry.watch();
    while entry.access(|machine, _| machine.has_turn()) {
        // Fails only without the entry, which this holds.
        let _ = revision.changed().await;
    }
    // A session that resumes the thread waits for it.
    let _unloading = entry.unloading.lock().await;
    let is_attached = entry.access(|machine, _| machine.is_attached());
    let is_free = || hub.sessions.is_current(&entry) && hub.sessions.children(&entry).is_empty();
    let is_loaded = entry.is_loaded_in(&entry.server());
    if is_loaded
        && is_written(&entry)
        && !is_attached
        && is_free()
        && unload(&hub, &entry).await == UnloadState::Unloaded
    {
        entry.mark_unloaded();
    }
}

/// Has Codex unload the thread of a cancelled session that was removed to make room for another
/// one. The thread is known until then, so that a session that resumes it waits.
pub(super) async fn unload_evicted(hub: Arc<Hub>, entry: Arc<Entry>) {
    unload_when_ended(Arc::clone(&hub), Arc::clone(&entry)).await;
    hub.sessions.forget(&entry);
}

/// Whether Codex has a rollout of the thread, so that it is not lost when it is unloaded.
pub(super) fn is_written(entry: &Entry) -> bool {
    entry.settings().persistence != Persistence::Ephemeral
        && (entry.was_there_before() || entry.access(|machine, _| machine.turns() > 0))
}

/// Makes Codex unload a thread at once, by archiving and restoring it. A thread without
/// subscribers stays loaded, and closed to other processes, for 30 minutes (0.153.4 and
/// 0.169.0) or for good (0.104.0); an archived one is unloaded at once.
pub(super) async fn unload(hub: &Hub, entry: &Entry) -> UnloadState {
    let Ok(_unloading) = hub.unloading.try_read() else {
        // Codex is being ended, which unloads the thread too.
        return UnloadState::MaybeLoaded;
    };
    let (server, _) = entry.server();
    let params = ThreadParams {
        thread_id: &entry.thread,
    };
    let unloading = async {
        let _: Value = server
            .call(Method::ThreadArchive, &params, UNLOAD_TIMEOUT)
            .await?;
        let _: Value = server
            .call(Method::ThreadUnarchive, &params, UNLOAD_TIMEOUT)
            .await?;
        Ok::<(), CallError>(())
    };
    match unloading.await {
        Ok(()) => UnloadState::Unloaded,
        Err(error) => {
            // The thread is empty, Codex is gone, or it is slow.
            tracing::debug!("the thread is not unloaded: {error}");
            server.connection().cast(Method::ThreadUnarchive, &params);
            UnloadState::MaybeLoaded
        }
    }
}
