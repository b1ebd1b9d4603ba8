//! The events of jobs, in order.

use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::cells::{count, moment, readable};
use super::columns::bounded;
use super::error::Fault;
use super::pool::Purpose;
use super::rows::bound;
use super::sql::{Connection, Row, Value};
use super::{Claim, JobStore, NewEvent, Notify, StoreError, StoredEvent};
use crate::logic::JobId;

/// The most events of a job. The last one is then of the kind `codex-mcp/cut`, and all later
/// events are dropped.
pub const MOST_EVENTS: u32 = 100_000;

/// The kind of the event that marks the limit.
const CUT: &str = "codex-mcp/cut";

/// The kind of the event in place of one that cannot be read.
const UNREADABLE: &str = "codex-mcp/unreadable";

/// How many events one statement inserts. SQLite allows 32,766 parameters in a statement.
const AT_ONCE: usize = 200;

/// How much of the events of a job is read at a time, in bytes (4 MiB). A longer event is read alone.
const LONGEST_PART: u64 = 4 << 20;

/// The outcome of appending events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The events are stored, except for dropped ones.
    Done {
        /// How many events were dropped, as the job has too many.
        dropped: usize,
    },
    /// Nothing was written: the worker no longer has the job.
    Lost,
}

impl JobStore {
    /// Appends events to a job. A worker makes one call after the other; a call with many
    /// events costs little more than one with a single event.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; no event is stored then.
    pub async fn append(
        &self,
        claim: &Claim,
        events: &[NewEvent],
    ) -> Result<AppendOutcome, StoreError> {
        let append =
            async |connection: &mut Connection| append(connection, claim, None, events).await;
        writing!(self, append, Purpose::WriteBehind, Notify::Nobody)
    }

    /// Appends events as [`JobStore::append`] does, the first of them with the number `first`.
    /// Those that are there already are skipped, so a call whose answer was lost can be repeated.
    /// Numbers stay consecutive if the store has lost earlier events.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn append_from(
        &self,
        claim: &Claim,
        first: u32,
        events: &[NewEvent],
    ) -> Result<AppendOutcome, StoreError> {
        let append = async |connection: &mut Connection| {
            append(connection, claim, Some(first), events).await
        };
        writing!(self, append, Purpose::WriteBehind, Notify::Nobody)
    }

    /// The first events of a job after the number `after`, oldest first: at most `limit`, and only some
    /// MiB. There are none if there are no more, or if the job is missing. An unreadable event is
    /// replaced by a placeholder. An event whose number is too large comes last; events with other
    /// unreadable numbers are omitted.
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
        if after == u32::MAX {
            return Ok(Vec::new());
        }
        let sql = "SELECT sequence, CAST(OCTET_LENGTH(data) AS BIGINT) AS size FROM codex_events \
                   WHERE job = (SELECT seq FROM codex_jobs WHERE id = $1) AND sequence > $2 \
                   ORDER BY sequence LIMIT $3";
        let look = async |connection: &mut Connection| {
            let values = vec![job.as_str().into(), after.into(), limit.into()];
            let rows = connection.rows(sql, values).await?;
            let sizes = readable(&rows, number_and_size)?;
            Ok::<_, Fault>((sizes, rows.is_empty()))
        };
        let (sizes, is_end) = reading!(self, look)?;
        match parts(&sizes).first() {
            Some(first) => self.part(job, first, all).await,
            None if is_end => Ok(Vec::new()),
            // Numbers that are too large follow all others.
            None => Ok(vec![unreadable(u32::MAX, UNIX_EPOCH, "sequence")]),
        }
    }

    /// The last `most` events of a job, oldest first, without those that cannot be read.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn tail(&self, job: &JobId, most: u32) -> Result<Vec<StoredEvent>, StoreError> {
        let [kind, data] = ["kind", "data"].map(bounded);
        let sql = format!(
            "SELECT sequence, at, {kind}, {data} FROM codex_events \
             WHERE job = (SELECT seq FROM codex_jobs WHERE id = $1) \
             ORDER BY sequence DESC LIMIT $2"
        );
        let look = async |connection: &mut Connection| {
            let values = vec![job.as_str().into(), most.into()];
            let rows = connection.rows(&sql, values).await?;
            readable(&rows, StoredEvent::read)
        };
        let mut events = reading!(self, look)?;
        events.reverse();
        Ok(events)
    }

    /// Passes the events that [`JobStore::tail`] returns to `take`, oldest first. Only some MiB of them
    /// are in memory at a time.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; some events may have been passed then.
    pub async fn each_of_tail(
        &self,
        job: &JobId,
        most: u32,
        mut take: impl FnMut(StoredEvent),
    ) -> Result<(), StoreError> {
        let sql = "SELECT sequence, CAST(OCTET_LENGTH(data) AS BIGINT) AS size FROM codex_events \
                   WHERE job = (SELECT seq FROM codex_jobs WHERE id = $1) \
                   ORDER BY sequence DESC LIMIT $2";
        let look = async |connection: &mut Connection| {
            let values = vec![job.as_str().into(), most.into()];
            let rows = connection.rows(sql, values).await?;
            readable(&rows, number_and_size)
        };
        let mut sizes = reading!(self, look)?;
        sizes.reverse();
        for part in parts(&sizes) {
            let events = self.part(job, &part, all_readable).await?;
            events.into_iter().for_each(&mut take);
        }
        Ok(())
    }

    /// The events with these numbers, as `read` reads them.
    async fn part(
        &self,
        job: &JobId,
        numbers: &RangeInclusive<u32>,
        read: fn(&[Row]) -> Result<Vec<StoredEvent>, Fault>,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        let [kind, data] = ["kind", "data"].map(bounded);
        let sql = format!(
            "SELECT sequence, at, {kind}, {data} FROM codex_events \
             WHERE job = (SELECT seq FROM codex_jobs WHERE id = $1) \
             AND sequence BETWEEN $2 AND $3 ORDER BY sequence"
        );
        let look = async |connection: &mut Connection| {
            let (first, last) = (*numbers.start(), *numbers.end());
            let values = vec![job.as_str().into(), first.into(), last.into()];
            let rows = connection.rows(&sql, values).await?;
            read(&rows)
        };
        reading!(self, look)
    }

    /// The number of the latest event of a job, 0 before the first. A number that cannot be read is
    /// an error: no event can follow it.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn latest_event(&self, job: &JobId) -> Result<u32, StoreError> {
        let sql = "SELECT COALESCE(MAX(sequence), 0) AS last FROM codex_events \
                   WHERE job = (SELECT seq FROM codex_jobs WHERE id = $1)";
        let look = async |connection: &mut Connection| {
            let row = connection.row(sql, vec![job.as_str().into()]).await?;
            row.map_or(Ok(0), |row| count(&row, "last"))
        };
        reading!(self, look)
    }
}

/// Without a number, an event has no place among the others, and is left out. SQLite also stores
/// fractions.
fn all(rows: &[Row]) -> Result<Vec<StoredEvent>, Fault> {
    readable(rows, read_or_replace)
}

/// Another program may have written any values, and one row must not hide the others.
fn read_or_replace(row: &Row) -> Result<StoredEvent, Fault> {
    match StoredEvent::read(row) {
        Err(Fault::Unreadable { column, .. }) => {
            let at = moment(row, "at").ok().flatten().unwrap_or(UNIX_EPOCH);
            Ok(unreadable(count(row, "sequence")?, at, column))
        }
        read => read,
    }
}

/// The event in place of one of which a column cannot be read.
fn unreadable(sequence: u32, at: SystemTime, column: &str) -> StoredEvent {
    StoredEvent {
        sequence,
        at,
        kind: UNREADABLE.to_owned(),
        data: json!({ "unreadable": column }).to_string(),
    }
}

fn all_readable(rows: &[Row]) -> Result<Vec<StoredEvent>, Fault> {
    readable(rows, StoredEvent::read)
}

fn number_and_size(row: &Row) -> Result<(u32, u32), Fault> {
    Ok((count(row, "sequence")?, count(row, "size")?))
}

/// Splits events, of which it gets the numbers and sizes, into parts that are in memory at a time.
fn parts(sizes: &[(u32, u32)]) -> Vec<RangeInclusive<u32>> {
    let mut parts: Vec<RangeInclusive<u32>> = Vec::new();
    let mut length = 0;
    for &(number, size) in sizes {
        length += u64::from(size);
        match parts.last_mut() {
            Some(part) if length <= LONGEST_PART => *part = *part.start()..=number,
            _ => {
                parts.push(number..=number);
                length = size.into();
            }
        }
    }
    parts
}

pub(super) async fn append(
    connection: &mut Connection,
    claim: &Claim,
    first: Option<u32>,
    events: &[NewEvent],
) -> Result<AppendOutcome, Fault> {
    let Some(row) = hold(connection, claim).await? else {
        return Ok(AppendOutcome::Lost);
    };
    let job = Value::Integer(row.number("seq")?);
    let last = "SELECT COALESCE(MAX(sequence), 0) AS last FROM codex_events WHERE job = $1";
    let last = connection.row(last, vec![job.clone()]).await?;
    let last = last.map(|row| row.number("last")).transpose()?.flatten();
    let last = last.unwrap_or(0);
    let new = first.map_or(events, |first| not_stored(events, first, last));
    let (kept, dropped) = within_bound(new, last)?;
    let mut next = last.saturating_add(1);
    for some in kept.chunks(AT_ONCE) {
        insert(connection, &job, next, some).await?;
        next = next.saturating_add(i64::try_from(some.len()).unwrap_or(i64::MAX));
    }
    Ok(AppendOutcome::Done { dropped })
}

/// Locks the row of a job until the end of the transaction; `None` if the worker no longer has
/// the job.
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

/// The events after the number `last`, if the first of them has the number `first`.
fn not_stored(events: &[NewEvent], first: u32, last: i64) -> &[NewEvent] {
    let stored = last.saturating_add(1).saturating_sub(first.into());
    // A negative number is a gap.
    let stored = usize::try_from(stored).unwrap_or(0);
    events.get(stored..).unwrap_or_default()
}

/// The events within the limit, and the number of dropped ones.
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    #[test]
    fn part_of_the_events_is_bounded() {
        let parts_of = |sizes: &[(u32, u32)]| -> Vec<(u32, u32)> {
            let parts = parts(sizes).into_iter().map(RangeInclusive::into_inner);
            parts.collect()
        };
        assert_eq!(parts_of(&[]), []);
        assert_eq!(parts_of(&[(7, 10), (8, 20), (9, 30)]), [(7, 9)]);
        // Numbers that are missing, and an event that is longer than a part.
        let sizes = [(1, MIB), (3, 3 * MIB), (4, 1), (5, 16 * MIB), (7, 0)];
        assert_eq!(parts_of(&sizes), [(1, 3), (4, 4), (5, 5), (7, 7)]);
    }
}
