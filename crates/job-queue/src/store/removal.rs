//! Removes jobs that ended long ago, with their events.

use std::time::Duration;

use settings::store_access::OthersJobs;

use super::error::Fault;
use super::queue::{BATCH, millis};
use super::sql::{Connection, Value};
use super::{JobStore, StoreError};

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
        let mut removed = 0;
        loop {
            let remove = async |connection: &mut Connection| {
                remove_some(connection, old, millis(older_than)).await
            };
            let some = writing!(self, remove)?;
            removed += some;
            if some < BATCH.into() {
                return Ok(removed);
            }
        }
    }
}

/// The condition of jobs that ended longer ago than the first parameter, and that may be removed.
fn ended_before(may: &str) -> String {
    format!(
        "state IN ('completed', 'failed', 'cancelled') AND completed_at <= {{now}} - $1 AND {may}"
    )
}

async fn remove_some(
    connection: &mut Connection,
    old: &str,
    older_than: Value,
) -> Result<u64, Fault> {
    let sql = format!("SELECT seq FROM codex_jobs WHERE {old} ORDER BY seq LIMIT $2 {{free}}");
    let rows = connection
        .rows(&sql, vec![older_than, BATCH.into()])
        .await?;
    for row in &rows {
        let job = Value::Integer(row.number("seq")?);
        for sql in [
            "DELETE FROM codex_events WHERE job = $1",
            "DELETE FROM codex_instructions WHERE job = $1",
        ] {
            connection.run(sql, vec![job.clone()]).await?;
        }
        let this = "DELETE FROM codex_jobs WHERE seq = $1";
        connection.run(this, vec![job]).await?;
    }
    Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
}
