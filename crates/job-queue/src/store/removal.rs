//! Removes jobs that ended long ago, with their events. A job may have more events than one
//! transaction can remove in time, so they go first, some at a time.

use std::time::Duration;

use settings::store_access::OthersJobs;
use tokio::time::sleep;

use super::error::Fault;
use super::queue::{BATCH, millis};
use super::sql::{Connection, Value};
use super::{JobStore, PAUSE, StoreError};

/// How many events one transaction removes: other writers wait meanwhile, and each event may be
/// long.
const EVENTS: u32 = 1000;

impl JobStore {
    /// The condition of prunable jobs: they ended longer ago than the first parameter.
    pub(super) fn prunable_condition(&self) -> String {
        ended_before(&self.identity.may(OthersJobs::Manage))
    }

    /// Removes jobs that ended longer ago than this, with their events. Returns their number.
    /// Jobs of others are removed only if this machine manages them.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; some may have been removed then.
    pub async fn prune(&self, older_than: Duration) -> Result<u64, StoreError> {
        self.remove(&self.prunable_condition(), older_than).await
    }

    /// Removes jobs as [`prune`](Self::prune) does, but never jobs of others, as nobody has asked for
    /// it.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; some may have been removed then.
    pub async fn remove_old(&self, older_than: Duration) -> Result<u64, StoreError> {
        let old = ended_before(&self.identity.is_own());
        self.remove(&old, older_than).await
    }

    async fn remove(&self, old: &str, older_than: Duration) -> Result<u64, StoreError> {
        let remove = async |connection: &mut Connection| {
            remove_some(connection, old, millis(older_than)).await
        };
        let mut removed = 0;
        while let Some(jobs) = writing!(self, remove)? {
            removed += jobs;
            // Writers of other processes get their turn.
            sleep(PAUSE).await;
        }
        Ok(removed)
    }
}

/// The condition of jobs that ended longer ago than the first parameter, and that may be removed.
fn ended_before(may: &str) -> String {
    format!(
        "state IN ('completed', 'failed', 'cancelled') AND completed_at <= {{now}} - $1 AND {may}"
    )
}

/// Removes some jobs and events. Returns the number of jobs; `None` if nothing was removed.
async fn remove_some(
    connection: &mut Connection,
    old: &str,
    older_than: Value,
) -> Result<Option<u64>, Fault> {
    let sql = format!("SELECT seq FROM codex_jobs WHERE {old} ORDER BY seq LIMIT $2 {{free}}");
    let rows = connection
        .rows(&sql, vec![older_than, BATCH.into()])
        .await?;
    let mut jobs: u64 = 0;
    let mut room = EVENTS;
    for row in &rows {
        let job = Value::Integer(row.number("seq")?);
        let events = "DELETE FROM codex_events WHERE job = $1 AND sequence IN \
                      (SELECT sequence FROM codex_events WHERE job = $1 \
                      ORDER BY sequence LIMIT $2)";
        let removed = connection.run(events, vec![job.clone(), room.into()]);
        room = room.saturating_sub(u32::try_from(removed.await?).unwrap_or(u32::MAX));
        if room == 0 {
            break;
        }
        let instructions = "DELETE FROM codex_instructions WHERE job = $1";
        connection.run(instructions, vec![job.clone()]).await?;
        let this = "DELETE FROM codex_jobs WHERE seq = $1";
        jobs += connection.run(this, vec![job]).await?;
    }
    let is_any = jobs > 0 || room < EVENTS;
    Ok(is_any.then_some(jobs))
}
