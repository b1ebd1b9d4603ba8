//! Values of columns, read as what they stand for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::timestamp::writable;

use super::error::Fault;
use super::sql::Row;
use crate::logic::{JobState, Wanted};

/// How the job of a row stands.
pub(super) fn state(row: &Row) -> Result<JobState, Fault> {
    parsed(row, "state")
}

/// Whether the job of a row is still wanted.
pub(super) fn wanted(row: &Row) -> Result<Wanted, Fault> {
    Ok(match truth(row, "cancel_requested")? {
        true => Wanted::No,
        false => Wanted::Yes,
    })
}

/// A text that has to be there.
pub(super) fn text(row: &Row, column: &'static str) -> Result<String, Fault> {
    row.text(column)?.ok_or_else(|| nothing(column))
}

/// A number that is not negative, and has to be there.
pub(super) fn count(row: &Row, column: &'static str) -> Result<u32, Fault> {
    let number = row.number(column)?.ok_or_else(|| nothing(column))?;
    number
        .try_into()
        .map_err(|error| unreadable(column, &error))
}

/// Something with a form of its own, which has to be there.
pub(super) fn parsed<T>(row: &Row, column: &'static str) -> Result<T, Fault>
where
    T: std::str::FromStr<Err: std::error::Error>,
{
    let text = text(row, column)?;
    text.parse().map_err(|error| unreadable(column, &error))
}

/// The same where there may be nothing.
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

pub(super) fn truth(row: &Row, column: &'static str) -> Result<bool, Fault> {
    Ok(count(row, column)? != 0)
}

pub(super) fn moment(row: &Row, column: &'static str) -> Result<Option<SystemTime>, Fault> {
    let since = |millis: i64| Duration::from_millis(millis.try_into().unwrap_or_default());
    // Whoever else writes to the database may have written any number.
    let moment = row.number(column)?;
    Ok(moment.map(|millis| writable(UNIX_EPOCH + since(millis))))
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
