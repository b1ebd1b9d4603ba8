//! The way of a job: submitted, claimed, renewed, finished, called off, taken from a
//! worker that was lost.

use std::collections::HashSet;
use std::slice;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use settings::store_access::OthersJobs;

use super::cells::{self, count, optional, parsed, truth, wanted};
use super::columns::SIGNED;
use super::error::Fault;
use super::pool::Purpose;
use super::rows::bound;
use super::signature::Texts;
use super::sql::{Connection, Value};
use super::{
    Claim, Claimed, Finished, Job, JobStore, NewEvent, NewJob, Reaped, Renewed, StoreError, Tell,
    Written, access, events,
};
use crate::logic::{
    Attempt, AttemptPhase, CancelAnswer, JobId, JobState, LOOK_EVERY, WORKER_LOST, Waiting, Wanted,
    WorkerId,
};

/// How many jobs are taken from lost workers, and how many ended ones removed, in
/// one transaction: others wait meanwhile.
const BATCH: u32 = 200;

/// What is set of any job that ends: what let it be run is of no use any more.
const ENDED: &str = "signature = NULL";

/// What only who has a claim may change: see [`fence`].
const FENCE: &str = "id = $1 AND worker = $2 AND attempts = $3 AND state = 'running'";

/// What decides of a job that was lost: see [`Lost`].
const LOST: &str = "id, worker, attempts, waits, retry, cancel_requested, \
                    CAST(CASE WHEN not_before > {now} THEN 1 ELSE 0 END AS BIGINT) AS looks";

/// The first parameters of a statement with [`FENCE`], and the rest of them.
fn fence(claim: &Claim, rest: impl IntoIterator<Item = Value>) -> Vec<Value> {
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

fn written(rows: u64) -> Written {
    match rows {
        0 => Written::Lost,
        _ => Written::Done,
    }
}

impl JobStore {
    /// Which jobs are removed that ended longer ago than the first parameter says.
    pub(super) fn old(&self) -> String {
        let may = self.identity.may(OthersJobs::Manage);
        format!(
            "state IN ('completed', 'failed', 'cancelled') AND completed_at <= {{now}} - $1 \
             AND {may}"
        )
    }

    /// Submits a job. The same job may be submitted again: there is one of it.
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
        writing!(self, submit, Purpose::WriteThrough, Tell::Watchers)?;
        Ok(job.id.clone())
    }

    /// Gives the oldest job that waits for a worker, and that a worker on this machine may run, to
    /// a worker, for as long as the lease says. Jobs of others only if this host runs
    /// them.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn claim(
        &self,
        worker: &WorkerId,
        host: &str,
        lease: Duration,
    ) -> Result<Option<Claimed>, StoreError> {
        let may = self.identity.may(OthersJobs::Run);
        let sql = format!(
            "UPDATE codex_jobs SET state = 'running', worker = $1, worker_host = $2, \
             attempts = attempts + 1, started_at = {{now}}, lease_until = {{now}} + $3, \
             look_at = NULL \
             WHERE seq = (SELECT seq FROM codex_jobs WHERE state = 'queued' \
             AND (look_at IS NULL OR look_at <= {{now}}) \
             AND (run_on IS NULL OR run_on = $2) AND {may} ORDER BY seq LIMIT 1 {{free}}) \
             RETURNING {{job}}"
        );
        let claim = async |connection: &mut Connection| {
            let values = vec![worker.as_str().into(), host.into(), millis(lease)];
            let row = connection.row(&sql, values).await?;
            row.map(|row| Job::read(&row, &self.identity)).transpose()
        };
        let job = writing!(self, claim)?;
        Ok(job.map(|job| Claimed {
            claim: Claim {
                job: job.summary.id.clone(),
                worker: worker.clone(),
                attempt: job.attempts,
            },
            job,
        }))
    }

    /// Lets a lease last for so long from now on, and asks whether the job is still
    /// wanted.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn renew(&self, claim: &Claim, lease: Duration) -> Result<Renewed, StoreError> {
        let sql = format!(
            "UPDATE codex_jobs SET lease_until = {{now}} + $4 WHERE {FENCE} \
             RETURNING cancel_requested"
        );
        let renew = async |connection: &mut Connection| {
            let row = connection.row(&sql, fence(claim, [millis(lease)])).await?;
            Ok(match row {
                Some(row) => Renewed::Held(wanted(&row)?),
                None => Renewed::Lost,
            })
        };
        writing!(self, renew)
    }

    /// Notes Codex's session, so that the job can be resumed whatever happens. The job does
    /// not wait any more then, and the attempt counts if its worker is lost.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn note_session(&self, claim: &Claim, session: &str) -> Result<Written, StoreError> {
        let sql = format!(
            "UPDATE codex_jobs SET session_id = $4, not_before = NULL, waits_for = NULL \
             WHERE {FENCE}"
        );
        let note = async |connection: &mut Connection| {
            let values = fence(claim, [session.into()]);
            Ok(written(connection.run(&sql, values).await?))
        };
        writing!(self, note)
    }

    /// Says how a job has ended.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing is kept of a result that is too long.
    pub async fn finish(&self, claim: &Claim, how: &Finished) -> Result<Written, StoreError> {
        let sql = format!(
            "UPDATE codex_jobs SET completed_at = {{now}}, lease_until = NULL, state = $4, \
             error = $5, session_id = COALESCE($6, session_id), exchange_id = $7, result = $8, \
             {ENDED} WHERE {FENCE}"
        );
        let finish = async |connection: &mut Connection| {
            let result = how.result.as_ref().map(serde_json::Value::to_string);
            bound("the result", result.as_deref().unwrap_or_default())?;
            bound("the error", how.error.as_deref().unwrap_or_default())?;
            let rest: [Value; 5] = [
                JobState::from(how.ending).as_str().into(),
                (&how.error).into(),
                (&how.session_id).into(),
                (&how.exchange_id).into(),
                result.into(),
            ];
            Ok(written(end(connection, &sql, fence(claim, rest)).await?))
        };
        writing!(self, finish, Purpose::Write, Tell::Watchers)
    }

    /// Gives a job up that can't be finished, as if its worker had died: it waits
    /// again if it may, and fails for this reason otherwise. Returns what has become
    /// of it; `None` if it was not that worker's any more.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn give_up(&self, claim: &Claim, why: &str) -> Result<Option<JobState>, StoreError> {
        let sql = format!(
            "SELECT {LOST} FROM codex_jobs \
             WHERE {FENCE} {{locked}}"
        );
        let give_up = async |connection: &mut Connection| {
            let Some(row) = connection.row(&sql, fence(claim, [])).await? else {
                return Ok(None);
            };
            let lost = Lost::read(&row)?;
            lost.write(connection, why).await?;
            Ok(Some(lost.state))
        };
        writing!(self, give_up, Purpose::Write, Tell::Watchers)
    }

    /// Puts a job back into the queue, where it waits, with this event. The attempt does not
    /// count, and a wait that is not new ends when it did before. Nothing is written if the job
    /// was cancelled, or is not that worker's any more
    /// (`None`).
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn put_back(
        &self,
        claim: &Claim,
        waiting: &Waiting,
        event: Option<&NewEvent>,
    ) -> Result<Option<Wanted>, StoreError> {
        let sql = format!("SELECT {LOST} FROM codex_jobs WHERE {FENCE} {{locked}}");
        let put_back = async |connection: &mut Connection| {
            let Some(row) = connection.row(&sql, fence(claim, [])).await? else {
                return Ok(None);
            };
            if wanted(&row)? == Wanted::No {
                return Ok(Some(Wanted::No));
            }
            if let Some(event) = event {
                events::append(connection, claim, slice::from_ref(event)).await?;
            }
            let queued = Lost {
                state: JobState::Queued,
                phase: AttemptPhase::Turn,
                ..Lost::read(&row)?
            };
            queued.write(connection, "").await?;
            let sql = "UPDATE codex_jobs SET not_before = COALESCE($7, {now} + $2), waits_for = $3, \
                       look_at = {now} + $4, wait_since = COALESCE(wait_since, {now}), \
                       wait_resets = $5, wait_pauses = $6, waits = waits + 1 WHERE id = $1";
            connection.run(sql, waiting_values(claim, waiting)).await?;
            Ok(Some(Wanted::Yes))
        };
        writing!(self, put_back, Purpose::Write, Tell::Watchers)
    }

    /// Has a job that waits claimed as soon as a worker has room, to look whether it still has
    /// to wait.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn look_now(&self, job: &JobId) -> Result<(), StoreError> {
        let sql = "UPDATE codex_jobs SET look_at = {now} \
                   WHERE id = $1 AND state = 'queued' AND look_at IS NOT NULL";
        let look_now = async |connection: &mut Connection| {
            let values = vec![job.as_str().into()];
            connection.run(sql, values).await?;
            Ok(())
        };
        writing!(self, look_now, Purpose::Write, Tell::Watchers)
    }

    /// The jobs that are put back and wait.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn waiting(&self) -> Result<HashSet<JobId>, StoreError> {
        let sql = "SELECT id FROM codex_jobs WHERE state = 'queued' AND look_at IS NOT NULL";
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(sql, Vec::new()).await?;
            let ids = rows.iter().map(|row| parsed(row, "id"));
            ids.collect::<Result<_, Fault>>()
        };
        reading!(self, look)
    }

    /// Takes jobs, at most 200, from workers whose leases have ended. Jobs of others
    /// only if this host runs them.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn reap(&self) -> Result<Vec<Reaped>, StoreError> {
        let may = self.identity.may(OthersJobs::Run);
        let lost = format!("state = 'running' AND lease_until < {{now}} AND {may}");
        let found = format!("SELECT 1 AS found FROM codex_jobs WHERE {lost} LIMIT 1");
        let is_any = async |connection: &mut Connection| connection.row(&found, Vec::new()).await;
        if reading!(self, is_any)?.is_none() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {LOST} FROM codex_jobs \
             WHERE {lost} ORDER BY lease_until LIMIT $1 {{free}}"
        );
        let reap = async |connection: &mut Connection| {
            let mut reaped = Vec::new();
            for row in connection.rows(&sql, vec![BATCH.into()]).await? {
                let lost = Lost::read(&row)?;
                lost.write(connection, WORKER_LOST).await?;
                reaped.push(Reaped {
                    job: lost.job,
                    worker: lost.worker,
                    state: lost.state,
                });
            }
            Ok(reaped)
        };
        writing!(self, reap, Purpose::Write, Tell::Watchers)
    }

    /// Calls a job off; `None` if there is no such job.
    ///
    /// # Errors
    ///
    /// [`StoreError`], also if it is another's, and this host leaves those alone.
    pub async fn request_cancel(&self, job: &JobId) -> Result<Option<CancelAnswer>, StoreError> {
        let may = self.identity.may(OthersJobs::Manage);
        let sql = format!(
            "SELECT state, owner, CAST(CASE WHEN {may} THEN 1 ELSE 0 END AS BIGINT) AS may \
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
            let answer = CancelAnswer::of(cells::state(&row)?);
            let values = vec![job.as_str().into()];
            match answer {
                CancelAnswer::Cancelled => {
                    let sql = format!(
                        "UPDATE codex_jobs SET state = 'cancelled', completed_at = {{now}}, \
                         {ENDED} WHERE id = $1"
                    );
                    end(connection, &sql, values).await?;
                }
                CancelAnswer::Asked => {
                    let sql = "UPDATE codex_jobs SET cancel_requested = 1 WHERE id = $1";
                    connection.run(sql, values).await?;
                }
                CancelAnswer::AlreadyCancelled | CancelAnswer::Refused(_) => {}
            }
            Ok(Some(answer))
        };
        writing!(self, cancel, Purpose::WriteThrough, Tell::Watchers)
    }

    /// The jobs of a worker that it was asked to cancel. To be looked at after each
    /// [`changed`](super::Watch::changed): renewing tells it too, but seldom.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn unwanted(&self, worker: &WorkerId) -> Result<Vec<JobId>, StoreError> {
        let sql = "SELECT id FROM codex_jobs \
                   WHERE state = 'running' AND worker = $1 AND cancel_requested = 1";
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(sql, vec![worker.as_str().into()]).await?;
            let ids = rows.iter().map(|row| parsed(row, "id"));
            ids.collect::<Result<_, Fault>>()
        };
        reading!(self, look)
    }

    /// Removes jobs that ended longer ago than this, with their events; returns how
    /// many. Jobs of others only if this host manages them.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; some may have been removed then.
    pub async fn prune(&self, older_than: Duration) -> Result<u64, StoreError> {
        let mut removed = 0;
        let old = self.old();
        loop {
            let prune = async |connection: &mut Connection| {
                prune_some(connection, &old, millis(older_than)).await
            };
            let some = writing!(self, prune)?;
            removed += some;
            if some < BATCH.into() {
                return Ok(removed);
            }
        }
    }
}

/// Ends jobs by a statement, with [`ENDED`] among what it sets, and masks credentials in
/// their prompts; returns how many.
async fn end(connection: &mut Connection, sql: &str, values: Vec<Value>) -> Result<u64, Fault> {
    let sql = format!("{sql} RETURNING seq, prompt, run, settings");
    let rows = connection.rows(&sql, values).await?;
    for row in &rows {
        mask(connection, row).await?;
        leave(connection, row.number("seq")?).await?;
    }
    Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
}

/// Removes the questions of an attempt that is over, and the instructions that it has said
/// nothing of.
async fn leave(connection: &mut Connection, job: Option<i64>) -> Result<(), Fault> {
    for sql in [
        "DELETE FROM codex_questions WHERE job = $1",
        "DELETE FROM codex_instructions WHERE job = $1 AND outcome IS NULL",
    ] {
        connection.run(sql, vec![Value::Integer(job)]).await?;
    }
    Ok(())
}

/// Masks credentials in a job that has ended.
pub(super) async fn mask(connection: &mut Connection, row: &super::sql::Row) -> Result<(), Fault> {
    let texts = Texts {
        prompt: cells::text(row, "prompt")?,
        run: row.text("run")?,
        settings: row.text("settings")?,
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

async fn prune_some(
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

/// A job whose worker is lost, and what becomes of it.
struct Lost {
    job: JobId,
    worker: Option<WorkerId>,
    state: JobState,
    phase: AttemptPhase,
}

/// The parameters by which a job is made to wait.
fn waiting_values(claim: &Claim, waiting: &Waiting) -> Vec<Value> {
    let now = SystemTime::now();
    // By the clock of the database, as all that it compares.
    let left = |until: SystemTime| millis(until.duration_since(now).unwrap_or_default());
    // That clock has given the end of a wait that is not new.
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

impl Lost {
    fn read(row: &super::sql::Row) -> Result<Self, Fault> {
        let phase = match truth(row, "looks")? {
            true => AttemptPhase::Look,
            false => AttemptPhase::Turn,
        };
        let attempt = Attempt {
            number: count(row, "attempts")?.saturating_sub(count(row, "waits")?),
            retry: count(row, "retry")?,
            wanted: wanted(row)?,
            phase,
        };
        Ok(Self {
            job: parsed(row, "id")?,
            worker: optional(row, "worker")?,
            state: attempt.lost(),
            phase,
        })
    }

    /// What is set of the wait of a job that goes back into the queue. A lost look does not
    /// count, and the next one comes no sooner than after any other.
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
                    leave(connection, row.number("seq")?).await?;
                }
            }
            state => {
                let sql = format!(
                    "UPDATE codex_jobs SET state = $2, error = $3, completed_at = {{now}}, \
                     lease_until = NULL, {ENDED} WHERE id = $1"
                );
                let error = (state == JobState::Failed).then(|| why.to_owned());
                let values = vec![job, state.as_str().into(), error.into()];
                end(connection, &sql, values).await?;
            }
        }
        Ok(())
    }
}
