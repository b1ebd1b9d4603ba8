//! The queue: submits, claims, finishes and cancels jobs, and renews their leases.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use settings::store_access::OthersJobs;

use super::cells::{self, cancellation, count, parsed, readable};
use super::columns::{SIGNED, bounded};
use super::error::Fault;
use super::pool::Purpose;
use super::rows::bound;
use super::signature::Texts;
use super::sql::{Connection, Row, Value};
use super::{
    Claim, ClaimedJob, FinishedJob, Job, JobStore, NewJob, Notify, RenewOutcome, StoreError,
    WriteOutcome, access,
};
use crate::logic::{CancelResponse, JobId, JobState, WorkerId};

/// How many jobs one transaction recovers from lost workers or removes: other writers wait
/// meanwhile.
pub(super) const BATCH: u32 = 200;

/// The limit of the number of attempts. A row may hold any number, and the statement that increases
/// it must not fail.
const ATTEMPTS: i64 = 1 << 32;

/// The assignments for every job that ends: its signature for running is removed.
pub(super) const ENDED: &str = "signature = NULL";

/// The condition of the row of a claim, see [`fence`].
pub(super) const FENCE: &str = "id = $1 AND worker = $2 AND attempts = $3 AND state = 'running'";

/// The parameters of a statement with [`FENCE`], followed by the `rest`.
pub(super) fn fence(claim: &Claim, rest: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let Claim {
        job,
        worker,
        attempt,
    } = claim;
    let mut values = vec![
        job.as_str().into(),
        worker.as_str().into(),
        Value::from(*attempt),
    ];
    values.extend(rest);
    values
}

pub(super) fn millis(duration: Duration) -> Value {
    i64::try_from(duration.as_millis())
        .unwrap_or(i64::MAX)
        .into()
}

/// The condition that a job is none of these, whose IDs are the parameters from the number `first`
/// on.
pub(super) fn none_of(jobs: &[JobId], first: usize) -> String {
    let parameters = (first..).take(jobs.len()).map(|n| format!("${n}"));
    let parameters: Vec<String> = parameters.collect();
    match jobs {
        [] => "TRUE".to_owned(),
        _ => format!("id NOT IN ({})", parameters.join(", ")),
    }
}

fn written(rows: u64) -> WriteOutcome {
    match rows {
        0 => WriteOutcome::Lost,
        _ => WriteOutcome::Done,
    }
}

fn claimed(job: Job, worker: &WorkerId) -> ClaimedJob {
    let claim = Claim {
        job: job.summary.id.clone(),
        worker: worker.clone(),
        attempt: job.attempts,
    };
    ClaimedJob { claim, job }
}

impl JobStore {
    /// Submits a job. Submitting the same job again has no effect.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn submit(&self, job: &NewJob) -> Result<JobId, StoreError> {
        let submit = async |connection: &mut Connection| {
            let request = job.request.values()?;
            let signed = self.identity.sign(job, &request);
            let mut values = vec![job.id.as_str().into()];
            values.extend(request);
            values.extend(signed);
            let parameters: Vec<String> = (1..=values.len()).map(|n| format!("${n}")).collect();
            let sql = format!(
                "INSERT INTO codex_jobs (state, created_at, id, {{request}}, {SIGNED}) \
                 VALUES ('queued', {{now}}, {}) ON CONFLICT (id) DO NOTHING",
                parameters.join(", ")
            );
            connection.run(&sql, values).await
        };
        writing!(self, submit, Purpose::WriteThrough, Notify::Watchers)?;
        Ok(job.id.clone())
    }

    /// Claims the oldest waiting job that this machine may run for a worker, for the time of the
    /// lease. Jobs of others are claimed only if this machine runs them. A job whose row cannot be
    /// read fails.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn claim(
        &self,
        worker: &WorkerId,
        host: &str,
        lease: Duration,
    ) -> Result<Option<ClaimedJob>, StoreError> {
        let may = self.identity.may(OthersJobs::Run);
        let sql = format!(
            "UPDATE codex_jobs SET state = 'running', worker = $1, worker_host = $2, \
             attempts = attempts % {ATTEMPTS} + 1, started_at = {{now}}, \
             lease_until = {{now}} + $3, look_at = NULL \
             WHERE seq = (SELECT seq FROM codex_jobs WHERE state = 'queued' \
             AND (look_at IS NULL OR look_at <= {{now}}) \
             AND (run_on IS NULL OR run_on = $2) AND {may} ORDER BY seq LIMIT 1 {{free}}) \
             RETURNING seq, {{job}}"
        );
        let values = vec![worker.as_str().into(), host.into(), millis(lease)];
        let job = self.take(&sql, &values).await?;
        Ok(job.map(|job| claimed(job, worker)))
    }

    /// Takes a job with a statement that returns its row. If the row cannot be read, fails that job
    /// and takes the next one, each in a separate transaction, as there may be many.
    async fn take(&self, sql: &str, values: &[Value]) -> Result<Option<Job>, StoreError> {
        let take = async |connection: &mut Connection| {
            let Some(row) = connection.row(sql, values.to_vec()).await? else {
                return Ok::<_, Fault>(ControlFlow::Break(None));
            };
            match Job::read(&row, &self.identity) {
                Ok(job) => Ok(ControlFlow::Break(Some(job))),
                Err(fault) => {
                    fail_unreadable(connection, &row, fault).await?;
                    Ok(ControlFlow::Continue(()))
                }
            }
        };
        loop {
            if let ControlFlow::Break(job) = writing!(self, take)? {
                return Ok(job);
            }
        }
    }

    /// Returns a job that this worker has claimed without knowing it, because the answer was lost,
    /// and starts its lease again. `known` are the jobs that the worker knows. A job whose row
    /// cannot be read fails.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn reclaim(
        &self,
        worker: &WorkerId,
        known: &[JobId],
        lease: Duration,
    ) -> Result<Option<ClaimedJob>, StoreError> {
        let unknown = none_of(known, 3);
        let sql = format!(
            "UPDATE codex_jobs SET lease_until = {{now}} + $2 WHERE seq = (SELECT seq \
             FROM codex_jobs WHERE state = 'running' AND worker = $1 AND {unknown} \
             ORDER BY seq LIMIT 1 {{free}}) RETURNING seq, {{job}}"
        );
        let mut values = vec![worker.as_str().into(), millis(lease)];
        values.extend(known.iter().map(|job| job.as_str().into()));
        let job = self.take(&sql, &values).await?;
        Ok(job.map(|job| claimed(job, worker)))
    }

    /// Gives a running job with its attempt to another worker, and starts its lease again. `None` if the
    /// job has ended, or another worker has it. A job whose row cannot be read fails.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn take_over(
        &self,
        earlier: &Claim,
        worker: &WorkerId,
        lease: Duration,
    ) -> Result<Option<ClaimedJob>, StoreError> {
        let sql = format!(
            "UPDATE codex_jobs SET worker = $4, lease_until = {{now}} + $5 WHERE {FENCE} \
             RETURNING seq, {{job}}"
        );
        let values = fence(earlier, [worker.as_str().into(), millis(lease)]);
        let job = self.take(&sql, &values).await?;
        Ok(job.map(|job| claimed(job, worker)))
    }

    /// Renews a lease from now on, and reports whether the cancellation of the job was requested. A
    /// job whose row cannot be read fails, and the worker no longer has it.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn renew(&self, claim: &Claim, lease: Duration) -> Result<RenewOutcome, StoreError> {
        let sql = format!(
            "UPDATE codex_jobs SET lease_until = {{now}} + $4 WHERE {FENCE} \
             RETURNING seq, id, cancel_requested"
        );
        let renew = async |connection: &mut Connection| {
            let Some(row) = connection.row(&sql, fence(claim, [millis(lease)])).await? else {
                return Ok(RenewOutcome::Lost);
            };
            match cancellation(&row) {
                Ok(cancellation) => Ok(RenewOutcome::Held(cancellation)),
                Err(fault) => {
                    fail_unreadable(connection, &row, fault).await?;
                    Ok(RenewOutcome::Lost)
                }
            }
        };
        writing!(self, renew)
    }

    /// Stores the ID of Codex's thread and signs it, so that the job can be resumed in any case.
    /// This ends the wait of the job, and the attempt counts if its worker is lost.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn note_session(
        &self,
        claim: &Claim,
        session: &str,
    ) -> Result<WriteOutcome, StoreError> {
        let sql = format!(
            "UPDATE codex_jobs SET session_id = $4, session_signature = $5, not_before = NULL, \
             waits_for = NULL WHERE {FENCE}"
        );
        let signature = self.identity.sign_session(&claim.job, session);
        let note = async |connection: &mut Connection| {
            let values = fence(claim, [session.into(), signature.as_str().into()]);
            Ok(written(connection.run(&sql, values).await?))
        };
        writing!(self, note)
    }

    /// Stores the end of a job.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; a result that is too long is not stored.
    pub async fn finish(
        &self,
        claim: &Claim,
        how: &FinishedJob,
    ) -> Result<WriteOutcome, StoreError> {
        let sql = format!(
            "UPDATE codex_jobs SET completed_at = {{now}}, lease_until = NULL, state = $4, \
             error = $5, session_id = COALESCE($6, session_id), exchange_id = $7, result = $8, \
             session_signature = COALESCE($9, session_signature), {ENDED} WHERE {FENCE}"
        );
        let sign = |session: &String| self.identity.sign_session(&claim.job, session);
        let signature = how.session_id.as_ref().map(sign);
        let finish = async |connection: &mut Connection| {
            let result = how.result.as_ref().map(serde_json::Value::to_string);
            bound("the result", result.as_deref().unwrap_or_default())?;
            bound("the error", how.error.as_deref().unwrap_or_default())?;
            let rest: [Value; 6] = [
                JobState::from(how.ending).as_str().into(),
                (&how.error).into(),
                (&how.session_id).into(),
                (&how.exchange_id).into(),
                result.into(),
                (&signature).into(),
            ];
            Ok(written(end(connection, &sql, fence(claim, rest)).await?))
        };
        writing!(self, finish, Purpose::Write, Notify::Watchers)
    }

    /// Lets the next free worker claim a waiting job, to check whether it still has to wait.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn recheck_now(&self, job: &JobId) -> Result<(), StoreError> {
        let sql = "UPDATE codex_jobs SET look_at = {now} \
                   WHERE id = $1 AND state = 'queued' AND look_at IS NOT NULL";
        let recheck_now = async |connection: &mut Connection| {
            let values = vec![job.as_str().into()];
            connection.run(sql, values).await?;
            Ok(())
        };
        writing!(self, recheck_now, Purpose::Write, Notify::Watchers)
    }

    /// The jobs that wait until a moment.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn waiting(&self) -> Result<HashSet<JobId>, StoreError> {
        let sql = "SELECT id FROM codex_jobs WHERE state = 'queued' AND look_at IS NOT NULL";
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(sql, Vec::new()).await?;
            let ids = readable(&rows, |row| parsed(row, "id"))?;
            Ok::<HashSet<JobId>, Fault>(ids.into_iter().collect())
        };
        reading!(self, look)
    }

    /// Requests the cancellation of a job; `None` if there is no such job.
    ///
    /// # Errors
    ///
    /// [`StoreError`], also if the job belongs to others and this machine does not manage it.
    pub async fn request_cancel(&self, job: &JobId) -> Result<Option<CancelResponse>, StoreError> {
        let may = self.identity.may(OthersJobs::Manage);
        let owner = bounded("owner");
        let sql = format!(
            "SELECT state, {owner}, CAST(CASE WHEN {may} THEN 1 ELSE 0 END AS BIGINT) AS may \
             FROM codex_jobs WHERE id = $1 {{locked}}"
        );
        let cancel = async |connection: &mut Connection| {
            let Some(row) = connection.row(&sql, vec![job.as_str().into()]).await? else {
                return Ok(None);
            };
            if count(&row, "may")? == 0 {
                let owner = access::name(&row)?;
                return Err(Fault::OfOthers(job.clone(), owner));
            }
            let answer = CancelResponse::of(cells::state(&row)?);
            let values = vec![job.as_str().into()];
            match answer {
                CancelResponse::Cancelled => {
                    let sql = format!(
                        "UPDATE codex_jobs SET state = 'cancelled', completed_at = {{now}}, \
                         {ENDED} WHERE id = $1"
                    );
                    end(connection, &sql, values).await?;
                }
                CancelResponse::Requested => {
                    let sql = "UPDATE codex_jobs SET cancel_requested = 1 WHERE id = $1";
                    connection.run(sql, values).await?;
                }
                CancelResponse::AlreadyCancelled | CancelResponse::Refused(_) => {}
            }
            Ok(Some(answer))
        };
        writing!(self, cancel, Purpose::WriteThrough, Notify::Watchers)
    }

    /// The jobs of a worker whose cancellation was requested. Call this after each
    /// [`changed`](super::Watch::changed); renewals report cancellations too, but seldom.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn jobs_to_cancel(&self, worker: &WorkerId) -> Result<Vec<JobId>, StoreError> {
        let sql = "SELECT id FROM codex_jobs \
                   WHERE state = 'running' AND worker = $1 AND cancel_requested = 1";
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(sql, vec![worker.as_str().into()]).await?;
            readable(&rows, |row| parsed(row, "id"))
        };
        reading!(self, look)
    }
}

/// Ends jobs by a statement that sets [`ENDED`], and masks credentials in their prompts. Returns
/// the number of jobs.
pub(super) async fn end(
    connection: &mut Connection,
    sql: &str,
    values: Vec<Value>,
) -> Result<u64, Fault> {
    let [prompt, run, settings] = ["prompt", "run", "settings"].map(bounded);
    let sql = format!("{sql} RETURNING seq, {prompt}, {run}, {settings}");
    let rows = connection.rows(&sql, values).await?;
    for row in &rows {
        mask(connection, row).await?;
        remove_open_dialog(connection, row.number("seq")?).await?;
    }
    Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
}

/// Fails a job whose row cannot be read. Any further attempt would fail too, and keep other jobs
/// from being claimed or recovered. The row must have the columns `seq` and `id`. Returns the fault
/// if it is not about reading the row.
pub(super) async fn fail_unreadable(
    connection: &mut Connection,
    row: &Row,
    fault: Fault,
) -> Result<(), Fault> {
    let Fault::Unreadable { column, .. } = &fault else {
        return Err(fault);
    };
    let sql = format!(
        "UPDATE codex_jobs SET state = 'failed', error = $2, completed_at = {{now}}, \
         lease_until = NULL, {ENDED} WHERE seq = $1"
    );
    // The ID may be malformed too.
    let job =
        parsed::<JobId>(row, "id").map_or_else(|_| "this job".to_owned(), |id| format!("job {id}"));
    let why = format!(
        "{job} has failed, as the column `{column}` of its row in the job store is malformed: \
         another program may have written it. Submit its task as a new job"
    );
    let seq = row.number("seq")?;
    end(connection, &sql, vec![Value::Integer(seq), (&why).into()]).await?;
    let seq = seq.unwrap_or_default();
    tracing::warn!("{why} (its number in the store is {seq}; {fault})");
    Ok(())
}

/// Removes the questions of an ended attempt, and its instructions without an outcome.
pub(super) async fn remove_open_dialog(
    connection: &mut Connection,
    job: Option<i64>,
) -> Result<(), Fault> {
    for sql in [
        "DELETE FROM codex_questions WHERE job = $1",
        "DELETE FROM codex_instructions WHERE job = $1 AND outcome IS NULL",
    ] {
        connection.run(sql, vec![Value::Integer(job)]).await?;
    }
    Ok(())
}

/// Masks credentials in a job that has ended. Values that are no texts stay as they are, or the job
/// could not end.
pub(super) async fn mask(connection: &mut Connection, row: &Row) -> Result<(), Fault> {
    let texts = match Texts::read(row) {
        Err(Fault::Unreadable { .. }) => return Ok(()),
        texts => texts?,
    };
    if let Some(masked) = texts.masked() {
        let sql = "UPDATE codex_jobs SET prompt = $2, run = $3, settings = $4, masked = 1 \
                   WHERE seq = $1";
        let job = Value::Integer(row.number("seq")?);
        let Texts {
            prompt,
            run,
            settings,
        } = masked;
        let values = vec![job, (&prompt).into(), run.into(), settings.into()];
        connection.run(sql, values).await?;
    }
    Ok(())
}
