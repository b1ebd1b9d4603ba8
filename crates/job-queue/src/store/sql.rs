//! One interface for both databases: statements with numbered parameters, and rows of integers
//! and texts.
//!
//! A statement is written once, in the syntax that PostgreSQL and SQLite share. Where they
//! differ it has a placeholder in braces, see [`Dialect::expand`]. All values from outside are
//! parameters.

use sqlx::postgres::PgRow;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _};

use super::columns;
use super::error::Fault;
use super::postgres::PostgresConnection;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The expression for the current time of the database's clock, in milliseconds since 1970. In
    /// PostgreSQL this is the time at which the statement was sent, so that a lease ends too early
    /// rather than too late.
    fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// Expands the placeholders of a statement for this database:
    ///
    /// - `{now}`: the current moment.
    /// - `{locked}`: locks the selected rows. `{free}`: locks those that no other transaction has
    ///   locked. SQLite has only one writer.
    /// - `{job}`, `{summary}`: the columns to read, their texts within bounds. `{request}`: those to
    ///   write.
    /// - `{no index}`: keeps SQLite from using the index of the next column. PostgreSQL has
    ///   statistics about the values.
    /// - `{bytes}`: the collation by bytes.
    /// - `{same role}`: adds to a condition that the submitter's role is that of this connection.
    ///   `{role matches}` is 1 if it is. SQLite has no roles.
    fn expand(self, sql: &str) -> String {
        let (locked, free, no_index, bytes) = match self {
            Self::Sqlite => ("", "", "+", "BINARY"),
            Self::Postgres => (
                "FOR NO KEY UPDATE",
                "FOR NO KEY UPDATE SKIP LOCKED",
                "",
                "\"C\"",
            ),
        };
        let (same_role, role_matches) = match self {
            Self::Sqlite => ("", "1"),
            Self::Postgres => (
                " AND owner_role = session_user",
                "CAST(CASE WHEN owner_role = session_user THEN 1 ELSE 0 END AS BIGINT)",
            ),
        };
        sql.replace("{now}", self.now())
            .replace("{locked}", locked)
            .replace("{free}", free)
            .replace("{no index}", no_index)
            .replace("{bytes}", bytes)
            .replace("{job}", "{summary}, {details}")
            .replace("{summary}", &columns::READ_SUMMARY)
            .replace("{details}", &columns::READ_DETAILS)
            .replace("{request}", columns::REQUEST)
            .replace("{same role}", same_role)
            .replace("{role matches}", role_matches)
    }
}

/// A parameter.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(Some(number))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(Some(number.into()))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Integer(Some(truth.into()))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(storable(text)))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<&Option<String>> for Value {
    fn from(text: &Option<String>) -> Self {
        Self::Text(text.as_deref().map(storable))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        (&text).into()
    }
}

/// Replaces NUL, which PostgreSQL cannot store. JSON escapes it, so it has none.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// A row.
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// An optional number.
    pub(super) fn number(&self, column: &'static str) -> Result<Option<i64>, Fault> {
        let number: Result<Option<i64>, sqlx::Error> = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        number.map_err(|error| of_column(column, error))
    }

    /// An optional text.
    pub(super) fn text(&self, column: &'static str) -> Result<Option<String>, Fault> {
        let text: Result<Option<String>, sqlx::Error> = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        };
        text.map_err(|error| of_column(column, error))
    }
}

/// The fault of a value that cannot be read: SQLite stores values of any type in a column.
fn of_column(column: &'static str, error: sqlx::Error) -> Fault {
    match error {
        sqlx::Error::ColumnDecode { source, .. } => Fault::Unreadable {
            column,
            error: source.to_string(),
        },
        other => other.into(),
    }
}

/// A connection.
pub(super) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PostgresConnection),
}

macro_rules! with_parameters {
    ($sql:expr, $parameters:expr) => {
        $parameters.into_iter().fold(
            sqlx::query(AssertSqlSafe($sql)),
            |query, value| match value {
                Value::Integer(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
            },
        )
    };
}

impl Connection {
    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Runs a statement. Returns the number of changed rows.
    pub(super) async fn run(&mut self, sql: &str, with: Vec<Value>) -> Result<u64, Fault> {
        let sql = self.dialect().expand(sql);
        Ok(match self {
            Self::Sqlite(connection) => {
                let query = with_parameters!(sql, with);
                query.execute(connection).await?.rows_affected()
            }
            Self::Postgres(connection) => {
                let mut entered = connection.enter().await?;
                let query = with_parameters!(sql, with).persistent(entered.prepares);
                let done = query.execute(entered.connection()).await;
                entered.leave(done).await?.rows_affected()
            }
        })
    }

    /// Runs a statement to its end. Returns its rows.
    pub(super) async fn rows(&mut self, sql: &str, with: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let sql = self.dialect().expand(sql);
        Ok(match self {
            Self::Sqlite(connection) => {
                let rows = with_parameters!(sql, with).fetch_all(connection).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(connection) => {
                let mut entered = connection.enter().await?;
                let query = with_parameters!(sql, with).persistent(entered.prepares);
                let rows = query.fetch_all(entered.connection()).await;
                let rows = entered.leave(rows).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// Runs a statement to its end. Returns its first row.
    pub(super) async fn row(&mut self, sql: &str, with: Vec<Value>) -> Result<Option<Row>, Fault> {
        Ok(self.rows(sql, with).await?.into_iter().next())
    }

    /// Runs statements without parameters, one after the other.
    pub(super) async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        match self {
            Self::Sqlite(connection) => {
                sqlx::raw_sql(sql).execute(connection).await?;
                Ok(())
            }
            Self::Postgres(connection) => connection.script(sql).await,
        }
    }
}
