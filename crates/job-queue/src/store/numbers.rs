//! Unique numbers.

use super::error::Fault;
use super::sql::Connection;
use super::{JobStore, StoreError};

impl JobStore {
    /// The next number of a run, from 1. A number that is not used leaves a gap.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn next_run_number(&self) -> Result<u64, StoreError> {
        let sql = "INSERT INTO codex_numbers (of_what, last) VALUES ('run', 1) \
                   ON CONFLICT (of_what) DO UPDATE SET last = codex_numbers.last + 1 \
                   RETURNING last";
        let count = async |connection: &mut Connection| {
            let row = connection.row(sql, Vec::new()).await?;
            let row = row.ok_or(sqlx::Error::RowNotFound)?;
            let number = row.number("last")?.unwrap_or_default();
            Ok::<u64, Fault>(u64::try_from(number).unwrap_or_default())
        };
        writing!(self, count)
    }
}
