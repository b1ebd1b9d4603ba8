//! Reads the values of columns into types.

use std::sync::Once;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::timestamp::writable;

use super::error::Fault;
use super::sql::Row;
use crate::logic::{Cancellation, JobState};

/// The state of the job of a row.
pub(super) fn state(row: &Row) -> Result<JobState, Fault> {
    parsed(row, "state")
}

/// Whether the cancellation of the job of a row was requested.
pub(super) fn cancellation(row: &Row) -> Result<Cancellation, Fault> {
    Ok(match truth(row, "cancel_requested")? {
        true => Cancellation::Requested,
        false => Cancellation::NotRequested,
    })
}

/// A required text.
pub(super) fn text(row: &Row, column: &'static str) -> Result<String, Fault> {
    row.text(column)?.ok_or_else(|| nothing(column))
}

/// A required number that is not negative.
pub(super) fn count(row: &Row, column: &'static str) -> Result<u32, Fault> {
    let number = row.number(column)?.ok_or_else(|| nothing(column))?;
    number
        .try_into()
        .map_err(|error| unreadable(column, &error))
}

/// A required value that is parsed from a text.
pub(super) fn parsed<T>(row: &Row, column: &'static str) -> Result<T, Fault>
where
    T: std::str::FromStr<Err: std::error::Error>,
{
    let text = text(row, column)?;
    text.parse().map_err(|error| unreadable(column, &error))
}

/// An optional value that is parsed from a text.
pub(super) fn optional<T>(row: &Row, column: &'static str) -> Result<Option<T>, Fault>
where
    T: std::str::FromStr<Err: std::error::Error>,
{
    let text = row.text(column)?;
    let parsed = text.map(|text| text.parse()).transpose();
    parsed.map_err(|error| unreadable(column, &error))
}

pub(super) fn json<T: serde::de::DeserializeOwned>(
    row: &Row,
    column: &'static str,
) -> Result<Option<T>, Fault> {
    let text = row.text(column)?;
    let read = text.map(|text| serde_json::from_str(&text)).transpose();
    read.map_err(|error| unreadable(column, &error))
}

/// A required truth value: any number but 0 is true.
pub(super) fn truth(row: &Row, column: &'static str) -> Result<bool, Fault> {
    let number = row.number(column)?.ok_or_else(|| nothing(column))?;
    Ok(number != 0)
}

pub(super) fn moment(row: &Row, column: &'static str) -> Result<Option<SystemTime>, Fault> {
    let since = |millis: i64| Duration::from_millis(millis.try_into().unwrap_or_default());
    // Another program may have written any number.
    let moment = row.number(column)?;
    Ok(moment.map(|millis| writable(UNIX_EPOCH + since(millis))))
}

/// The records of the rows that can be read. Another program may have written any values, and one
/// row must not hide the others.
pub(super) fn readable<T>(
    rows: &[Row],
    read: impl Fn(&Row) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    // The same rows are read again and again.
    static WARNED: Once = Once::new();
    let mut records = Vec::with_capacity(rows.len());
    for row in rows {
        match read(row) {
            Ok(record) => records.push(record),
            Err(fault @ Fault::Unreadable { .. }) => WARNED.call_once(|| {
                tracing::warn!("a row of the job store is left out: {fault}");
            }),
            Err(fault) => return Err(fault),
        }
    }
    Ok(records)
}

pub(super) fn nothing(column: &'static str) -> Fault {
    Fault::Unreadable {
        column,
        error: "there is nothing".to_owned(),
    }
}

pub(super) fn unreadable(column: &'static str, error: &dyn std::error::Error) -> Fault {
    let error = error.to_string();
    Fault::Unreadable { column, error }
}
