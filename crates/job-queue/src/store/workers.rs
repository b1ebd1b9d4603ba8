//! The workers of a store.

use std::time::{Duration, SystemTime};

use settings::store_access::OthersJobs;

use super::cells::{moment, readable};
use super::columns::bounded;
use super::sql::Connection;
use super::{Demand, JobStore, NewWorker, StoreError, WorkerRecord, WriteOutcome};
use crate::logic::WorkerId;

impl JobStore {
    /// Registers a worker.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn register(&self, worker: &NewWorker) -> Result<(), StoreError> {
        let sql = "INSERT INTO codex_workers \
                   (id, host, pid, concurrency, started_at, heartbeat_at) \
                   VALUES ($1, $2, $3, $4, {now}, {now}) \
                   ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at";
        let register = async |connection: &mut Connection| {
            let values = vec![
                worker.id.as_str().into(),
                (&worker.host).into(),
                worker.pid.into(),
                worker.concurrency.into(),
            ];
            connection.run(sql, values).await
        };
        writing!(self, register)?;
        Ok(())
    }

    /// Records the heartbeat of a worker, and returns its moment by the database's clock; `None` if
    /// the worker must be registered again.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn heartbeat(&self, worker: &WorkerId) -> Result<Option<SystemTime>, StoreError> {
        let sql = "UPDATE codex_workers SET heartbeat_at = {now} WHERE id = $1 \
                   RETURNING heartbeat_at";
        let beat = async |connection: &mut Connection| {
            let row = connection.row(sql, vec![worker.as_str().into()]).await?;
            let now = row.map(|row| moment(&row, "heartbeat_at")).transpose();
            now.map(Option::flatten)
        };
        writing!(self, beat)
    }

    /// Removes a worker that ends.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn remove_worker(&self, worker: &WorkerId) -> Result<WriteOutcome, StoreError> {
        let sql = "DELETE FROM codex_workers WHERE id = $1";
        let remove = async |connection: &mut Connection| {
            let rows = connection.run(sql, vec![worker.as_str().into()]).await?;
            Ok(match rows {
                0 => WriteOutcome::Lost,
                _ => WriteOutcome::Done,
            })
        };
        writing!(self, remove)
    }

    /// The workers, in the order of their start.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        let host = bounded("host");
        let sql = format!(
            "SELECT id, {host}, pid, concurrency, started_at, \
             {{now}} - heartbeat_at AS silent_for FROM codex_workers ORDER BY started_at, id"
        );
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(&sql, Vec::new()).await?;
            readable(&rows, WorkerRecord::read)
        };
        reading!(self, look)
    }

    /// The work for the workers of a machine, for a worker that is about to leave.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn demand(&self, host: &str) -> Result<Demand, StoreError> {
        let may = self.identity.may(OthersJobs::Run);
        let sql = format!(
            "SELECT CASE WHEN EXISTS (SELECT 1 FROM codex_jobs WHERE state = 'queued' \
             AND (run_on IS NULL OR run_on = $1) AND {may}) THEN 'waiting' \
             WHEN EXISTS (SELECT 1 FROM codex_jobs WHERE state = 'running' \
             AND worker_host = $1 AND {may}) THEN 'running' \
             WHEN EXISTS (SELECT 1 FROM codex_jobs WHERE state = 'running' AND {may}) \
             THEN 'elsewhere' ELSE 'nothing' END AS demand"
        );
        let look = async |connection: &mut Connection| {
            let row = connection.row(&sql, vec![host.into()]).await?;
            Demand::read(&row.ok_or(sqlx::Error::RowNotFound)?)
        };
        reading!(self, look)
    }

    /// Removes workers that have been silent for longer than this, as they have died. Returns
    /// their number.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn forget_workers(&self, silent_for: Duration) -> Result<u64, StoreError> {
        let sql = "DELETE FROM codex_workers WHERE heartbeat_at < {now} - $1";
        let millis = i64::try_from(silent_for.as_millis()).unwrap_or(i64::MAX);
        let forget =
            async |connection: &mut Connection| connection.run(sql, vec![millis.into()]).await;
        writing!(self, forget)
    }
}
