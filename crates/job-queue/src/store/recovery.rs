//! Attempts without a result: given up by their worker, interrupted by a wait, or lost with their
//! worker.

use std::slice;
use std::time::{SystemTime, UNIX_EPOCH};

use settings::store_access::OthersJobs;

use super::cells::{cancellation, count, optional, parsed, truth};
use super::columns::bounded;
use super::error::Fault;
use super::pool::Purpose;
use super::queue::{
    BATCH, ENDED, FENCE, end, fail_unreadable, fence, millis, none_of, remove_open_dialog,
};
use super::sql::{Connection, Row, Value};
use super::{Claim, Job, JobStore, NewEvent, Notify, ReapedJob, StoreError, events};
use crate::logic::{
    Attempt, AttemptPhase, Cancellation, JobId, JobState, LOOK_EVERY, NextWait, WORKER_LOST,
    WorkerId,
};

/// The columns that decide the next state of a lost job, see [`LostJob`].
fn lost_columns() -> String {
    let worker = bounded("worker");
    format!(
        "seq, id, {worker}, attempts, waits, retry, cancel_requested, \
         CAST(CASE WHEN not_before > {{now}} THEN 1 ELSE 0 END AS BIGINT) AS looks"
    )
}

impl JobStore {
    /// Gives up a job that cannot be finished, as if its worker had died: the job is queued again
    /// if it may run again, and fails for this reason otherwise. Returns its new state; `None` if
    /// the worker no longer has the job, or if the job has failed because its row cannot be read.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn give_up(&self, claim: &Claim, why: &str) -> Result<Option<JobState>, StoreError> {
        let columns = lost_columns();
        let sql = format!("SELECT {columns} FROM codex_jobs WHERE {FENCE} {{locked}}");
        let give_up = async |connection: &mut Connection| {
            let Some(row) = connection.row(&sql, fence(claim, [])).await? else {
                return Ok(None);
            };
            let Some(lost) = LostJob::read_or_fail(connection, &row).await? else {
                return Ok(None);
            };
            lost.write(connection, why).await?;
            Ok(Some(lost.state))
        };
        writing!(self, give_up, Purpose::Write, Notify::Watchers)
    }

    /// Puts a job back into the queue to wait, and appends an event. The attempt does not count,
    /// and a wait that is not new keeps its end. Nothing is written if the cancellation of the
    /// job was requested, if the worker no longer has the job (`None`), or if the job has failed
    /// because its row cannot be read (`None`).
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn requeue(
        &self,
        claim: &Claim,
        waiting: &NextWait,
        event: Option<&NewEvent>,
    ) -> Result<Option<Cancellation>, StoreError> {
        let columns = lost_columns();
        let sql = format!("SELECT {columns} FROM codex_jobs WHERE {FENCE} {{locked}}");
        let requeue = async |connection: &mut Connection| {
            let Some(row) = connection.row(&sql, fence(claim, [])).await? else {
                return Ok(None);
            };
            let Some(lost) = LostJob::read_or_fail(connection, &row).await? else {
                return Ok(None);
            };
            if cancellation(&row)? == Cancellation::Requested {
                return Ok(Some(Cancellation::Requested));
            }
            if let Some(event) = event {
                events::append(connection, claim, None, slice::from_ref(event)).await?;
            }
            let queued = LostJob {
                state: JobState::Queued,
                phase: AttemptPhase::Turn,
                ..lost
            };
            queued.write(connection, "").await?;
            let sql = "UPDATE codex_jobs SET not_before = COALESCE($7, {now} + $2), waits_for = $3, \
                       look_at = {now} + $4, wait_since = COALESCE(wait_since, {now}), \
                       wait_resets = $5, wait_pauses = $6, waits = waits + 1 WHERE id = $1";
            connection.run(sql, waiting_values(claim, waiting)).await?;
            Ok(Some(Cancellation::NotRequested))
        };
        writing!(self, requeue, Purpose::Write, Notify::Watchers)
    }

    /// Puts back into the queue the jobs that this worker has claimed without knowing it, because
    /// the answer was lost. `known` are the jobs that the worker knows. The other jobs have not run
    /// at all, so these attempts do not count. A job whose cancellation was requested is cancelled.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn put_back_unknown(
        &self,
        worker: &WorkerId,
        known: &[JobId],
    ) -> Result<(), StoreError> {
        let (columns, unknown) = (lost_columns(), none_of(known, 2));
        let sql = format!(
            "SELECT {columns} FROM codex_jobs \
             WHERE state = 'running' AND worker = $1 AND {unknown} LIMIT {BATCH} {{free}}"
        );
        let mut values: Vec<Value> = vec![worker.as_str().into()];
        values.extend(known.iter().map(|job| job.as_str().into()));
        let put_back = async |connection: &mut Connection| {
            for row in connection.rows(&sql, values.clone()).await? {
                let Some(lost) = LostJob::read_or_fail(connection, &row).await? else {
                    continue;
                };
                let state = match lost.state {
                    JobState::Cancelled => JobState::Cancelled,
                    _ => JobState::Queued,
                };
                let unbegun = LostJob { state, ..lost };
                unbegun.write(connection, WORKER_LOST).await?;
                if (unbegun.state, unbegun.phase) == (JobState::Queued, AttemptPhase::Turn) {
                    let sql = "UPDATE codex_jobs SET waits = waits + 1 WHERE id = $1";
                    let job = vec![unbegun.job.as_str().into()];
                    connection.run(sql, job).await?;
                }
            }
            Ok(())
        };
        writing!(self, put_back, Purpose::Write, Notify::Watchers)
    }

    /// Recovers at most 200 jobs from workers whose leases have ended. Jobs of others are
    /// recovered only if this machine runs them, and those that the worker still works on (`held`)
    /// not at all. A job whose row cannot be read fails, and is not returned.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn reap(&self, held: &[JobId]) -> Result<Vec<ReapedJob>, StoreError> {
        let may = self.identity.may(OthersJobs::Run);
        let not_held = none_of(held, 1);
        let held: Vec<Value> = held.iter().map(|job| job.as_str().into()).collect();
        let lost = format!("state = 'running' AND lease_until < {{now}} AND {may} AND {not_held}");
        let found = format!("SELECT 1 AS found FROM codex_jobs WHERE {lost} LIMIT 1");
        let is_any = async |connection: &mut Connection| connection.row(&found, held.clone()).await;
        if reading!(self, is_any)?.is_none() {
            return Ok(Vec::new());
        }
        let columns = lost_columns();
        let sql = format!(
            "SELECT {columns} FROM codex_jobs \
             WHERE {lost} ORDER BY lease_until LIMIT {BATCH} {{free}}"
        );
        let reap = async |connection: &mut Connection| {
            let mut reaped = Vec::new();
            for row in connection.rows(&sql, held.clone()).await? {
                let Some(lost) = LostJob::read_or_fail(connection, &row).await? else {
                    continue;
                };
                let ended = self.ended(connection, &lost).await?;
                lost.write(connection, WORKER_LOST).await?;
                reaped.push(ReapedJob {
                    job: lost.job,
                    worker: lost.worker,
                    state: lost.state,
                    ended,
                });
            }
            Ok(reaped)
        };
        writing!(self, reap, Purpose::Write, Notify::Watchers)
    }

    /// A lost job in its state after its end, but with unmasked credentials and its signature;
    /// `None` if the job does not end. A row that cannot be read must not keep others from being
    /// recovered.
    async fn ended(
        &self,
        connection: &mut Connection,
        lost: &LostJob,
    ) -> Result<Option<Job>, Fault> {
        if !lost.state.has_ended() {
            return Ok(None);
        }
        let sql = "SELECT {job} FROM codex_jobs WHERE id = $1";
        let row = connection.row(sql, vec![lost.job.as_str().into()]).await?;
        let job = row.and_then(|row| Job::read(&row, &self.identity).ok());
        Ok(job.map(|job| job.ended_without_result(lost.state, WORKER_LOST)))
    }
}

/// The error of a job that has ended without a result: a cancelled one has none.
fn error_of(state: JobState, why: &str) -> Option<String> {
    (state == JobState::Failed).then(|| why.to_owned())
}

impl Job {
    /// The job with the state and the error of [`JobStore::give_up`].
    pub(crate) fn ended_without_result(mut self, state: JobState, why: &str) -> Self {
        self.summary.state = state;
        self.summary.error = error_of(state, why);
        self
    }
}

/// A job whose worker is lost, with its next state.
struct LostJob {
    job: JobId,
    worker: Option<WorkerId>,
    state: JobState,
    phase: AttemptPhase,
}

impl LostJob {
    /// Reads a row. If it cannot be read, its job fails (`None`).
    async fn read_or_fail(connection: &mut Connection, row: &Row) -> Result<Option<Self>, Fault> {
        match Self::read(row) {
            Ok(lost) => Ok(Some(lost)),
            Err(fault) => {
                fail_unreadable(connection, row, fault).await?;
                Ok(None)
            }
        }
    }

    fn read(row: &Row) -> Result<Self, Fault> {
        let phase = match truth(row, "looks")? {
            true => AttemptPhase::Look,
            false => AttemptPhase::Turn,
        };
        let attempt = Attempt {
            number: count(row, "attempts")?.saturating_sub(count(row, "waits")?),
            retry: count(row, "retry")?,
            cancellation: cancellation(row)?,
            phase,
        };
        Ok(Self {
            job: parsed(row, "id")?,
            worker: optional(row, "worker")?,
            state: attempt.lost(),
            phase,
        })
    }

    /// The assignments that set the wait of a requeued job. A lost check does not count, and the
    /// next check comes no sooner than after any other check.
    fn wait(&self) -> &'static str {
        match self.phase {
            AttemptPhase::Look => {
                "waits = waits + 1, look_at = CASE WHEN not_before < {now} + $2 \
                 THEN not_before ELSE {now} + $2 END"
            }
            AttemptPhase::Turn => "not_before = NULL, waits_for = NULL",
        }
    }

    async fn write(&self, connection: &mut Connection, why: &str) -> Result<(), Fault> {
        let job: Value = self.job.as_str().into();
        match self.state {
            JobState::Queued => {
                let (wait, mut values) = (self.wait(), vec![job]);
                if self.phase == AttemptPhase::Look {
                    values.push(millis(LOOK_EVERY));
                }
                let sql = format!(
                    "UPDATE codex_jobs SET state = 'queued', worker = NULL, \
                     worker_host = NULL, started_at = NULL, lease_until = NULL, {wait} \
                     WHERE id = $1 RETURNING seq"
                );
                if let Some(row) = connection.row(&sql, values).await? {
                    remove_open_dialog(connection, row.number("seq")?).await?;
                }
            }
            state => {
                let sql = format!(
                    "UPDATE codex_jobs SET state = $2, error = $3, completed_at = {{now}}, \
                     lease_until = NULL, {ENDED} WHERE id = $1"
                );
                let values = vec![job, state.as_str().into(), error_of(state, why).into()];
                end(connection, &sql, values).await?;
            }
        }
        Ok(())
    }
}

/// The parameters of the statement by which a job waits.
fn waiting_values(claim: &Claim, waiting: &NextWait) -> Vec<Value> {
    let now = SystemTime::now();
    // Relative, as the database adds its own clock.
    let left = |until: SystemTime| millis(until.duration_since(now).unwrap_or_default());
    // The end of a wait that is not new is a moment of the database's clock already.
    let same = || {
        millis(
            waiting
                .wait
                .until
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        )
    };
    vec![
        claim.job.as_str().into(),
        left(waiting.wait.until),
        waiting.wait.reason.as_str().into(),
        left(waiting.look_at),
        waiting.resets.into(),
        waiting.pauses.into(),
        match waiting.is_new {
            true => Value::Integer(None),
            false => same(),
        },
    ]
}
