//! Numbers that are given once.

use super::error::Fault;
use super::sql::Connection;
use super::{JobStore, StoreError};

impl JobStore {
    /// The number of a run: 1 for the first of the store, and for each one more than
    /// for the last. One that was given and not used is missing.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn number_of_a_run(&self) -> Result<u64, StoreError> {
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
