//! What happened in jobs, in order.

use super::error::Fault;
use super::pool::Purpose;
use super::rows::bound;
use super::sql::{Connection, Row, Value};
use super::{Claim, JobStore, NewEvent, StoreError, StoredEvent, Tell};
use crate::logic::JobId;

/// How many events of a job are kept. The last of them is then of the kind
/// `codex-mcp/cut`, and those after it are not kept.
pub const MOST_EVENTS: u32 = 100_000;

/// The kind of the event that says that there were more.
const CUT: &str = "codex-mcp/cut";

/// How many events are written by one statement: five parameters each, of 32,766
/// that SQLite takes at most.
const AT_ONCE: usize = 200;

/// What has come of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// They are in the store, but for so many that were too many.
    Done {
        /// How many are not kept.
        dropped: usize,
    },
    /// Nothing was written: the job is not that worker's any more.
    Lost,
}

impl JobStore {
    /// Adds events to those of a job. A worker does this one call after the other;
    /// many at once cost little more than one.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; nothing is kept then.
    pub async fn append(&self, claim: &Claim, events: &[NewEvent]) -> Result<Appended, StoreError> {
        let append = async |connection: &mut Connection| append(connection, claim, events).await;
        writing!(self, append, Purpose::WriteBehind, Tell::Nobody)
    }

    /// The events of a job after the one of this number, at most so many, oldest
    /// first. Of a job that there isn't there are none.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn events(
        &self,
        job: &JobId,
        after: u32,
        limit: u32,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let sql = "SELECT sequence, at, kind, data FROM codex_events \
                   WHERE job = (SELECT seq FROM codex_jobs WHERE id = $1) AND sequence > $2 \
                   ORDER BY sequence LIMIT $3";
        let values = vec![job.as_str().into(), after.into(), limit.into()];
        self.stored(sql, values).await
    }

    /// The last events of a job, at most so many, oldest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn tail(&self, job: &JobId, most: u32) -> Result<Vec<StoredEvent>, StoreError> {
        let sql = "SELECT sequence, at, kind, data FROM codex_events \
                   WHERE job = (SELECT seq FROM codex_jobs WHERE id = $1) \
                   ORDER BY sequence DESC LIMIT $2";
        let mut events = self
            .stored(sql, vec![job.as_str().into(), most.into()])
            .await?;
        events.reverse();
        Ok(events)
    }

    async fn stored(&self, sql: &str, values: Vec<Value>) -> Result<Vec<StoredEvent>, StoreError> {
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(sql, values.clone()).await?;
            rows.iter()
                .map(StoredEvent::read)
                .collect::<Result<_, Fault>>()
        };
        reading!(self, look)
    }
}

pub(super) async fn append(
    connection: &mut Connection,
    claim: &Claim,
    events: &[NewEvent],
) -> Result<Appended, Fault> {
    let Some(row) = hold(connection, claim).await? else {
        return Ok(Appended::Lost);
    };
    let job = Value::Integer(row.number("seq")?);
    let last = "SELECT COALESCE(MAX(sequence), 0) AS last FROM codex_events WHERE job = $1";
    let last = connection.row(last, vec![job.clone()]).await?;
    let last = last.map(|row| row.number("last")).transpose()?.flatten();
    let (kept, dropped) = within_bound(events, last.unwrap_or(0))?;
    let mut next = last.unwrap_or(0).saturating_add(1);
    for some in kept.chunks(AT_ONCE) {
        insert(connection, &job, next, some).await?;
        next = next.saturating_add(i64::try_from(some.len()).unwrap_or(i64::MAX));
    }
    Ok(Appended::Done { dropped })
}

/// The row of a job that is still the worker's; it stays so until the end of the
/// transaction.
pub(super) async fn hold(connection: &mut Connection, claim: &Claim) -> Result<Option<Row>, Fault> {
    let sql = "SELECT seq FROM codex_jobs \
               WHERE id = $1 AND worker = $2 AND attempts = $3 AND state = 'running' {locked}";
    let values = vec![
        claim.job.as_str().into(),
        claim.worker.as_str().into(),
        claim.attempt.into(),
    ];
    connection.row(sql, values).await
}

/// Those of the events that are kept, and how many are not.
fn within_bound(events: &[NewEvent], last: i64) -> Result<(Vec<NewEvent>, usize), Fault> {
    for event in events {
        bound("the kind of an event", &event.kind)?;
        bound("an event", &event.data)?;
    }
    let room = usize::try_from(i64::from(MOST_EVENTS).saturating_sub(last)).unwrap_or(0);
    if events.len() < room || events.is_empty() {
        return Ok((events.to_vec(), 0));
    }
    let fit = room.saturating_sub(1);
    let mut kept: Vec<NewEvent> = events.iter().take(fit).cloned().collect();
    if room > 0 {
        kept.push(NewEvent {
            kind: CUT.to_owned(),
            data: format!("{{\"most_events\":{MOST_EVENTS}}}"),
        });
    }
    Ok((kept, events.len().saturating_sub(fit)))
}

async fn insert(
    connection: &mut Connection,
    job: &Value,
    first: i64,
    events: &[NewEvent],
) -> Result<(), Fault> {
    let mut values = vec![job.clone()];
    let mut rows = Vec::with_capacity(events.len());
    for (sequence, event) in (first..).zip(events) {
        let n = values.len();
        rows.push(format!("($1, ${}, {{now}}, ${}, ${})", n + 1, n + 2, n + 3));
        values.extend([sequence.into(), (&event.kind).into(), (&event.data).into()]);
    }
    let rows = rows.join(", ");
    let sql = format!("INSERT INTO codex_events (job, sequence, at, kind, data) VALUES {rows}");
    connection.run(&sql, values).await?;
    Ok(())
}
