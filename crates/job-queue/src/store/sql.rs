//! The two databases as one: statements with numbered parameters, and rows of
//! whole numbers and texts.
//!
//! A statement is written once, as PostgreSQL and SQLite both read it. Where they
//! differ there is a word in braces, see [`Dialect::expand`]. All that comes from
//! outside is a parameter.

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _};

use super::columns;
use super::error::Fault;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The moment, in milliseconds since 1970, by the database's clock. That of
    /// PostgreSQL is when the statement was sent: a lease ends rather too early than
    /// too late.
    fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
            Self::Postgres => "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// Puts the words of this database in place of those in braces: `{now}`,
    /// `{locked}` for rows that will be changed, `{free}` for those of them that
    /// nobody else is about to change (of SQLite's writers there is but one),
    /// `{job}`, `{summary}`, `{request}` and `{rest}` for columns, and `{no index}`
    /// before a column by which SQLite is not to look for rows: PostgreSQL knows how
    /// many there are of each value. `{bytes}` is the order of texts by their bytes.
    /// `{same role}` adds to a condition that the role that has submitted a job is this
    /// connection's, `{role matches}` is 1 if it is: SQLite knows no roles.
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
            .replace("{job}", "{summary}, {request}, {rest}")
            .replace("{summary}", columns::SUMMARY)
            .replace("{request}", columns::REQUEST)
            .replace("{rest}", columns::REST)
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

/// PostgreSQL keeps no NUL. JSON has none: there it is written as an escape.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// A row.
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// A number that there may be.
    pub(super) fn number(&self, column: &'static str) -> Result<Option<i64>, Fault> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
        })
    }

    /// A text that there may be.
    pub(super) fn text(&self, column: &'static str) -> Result<Option<String>, Fault> {
        Ok(match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
        })
    }
}

/// A connection.
pub(super) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
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

    /// Runs a statement; returns how many rows it has changed.
    pub(super) async fn run(&mut self, sql: &str, with: Vec<Value>) -> Result<u64, Fault> {
        let sql = self.dialect().expand(sql);
        Ok(match self {
            Self::Sqlite(connection) => {
                let query = with_parameters!(sql, with);
                query.execute(connection).await?.rows_affected()
            }
            Self::Postgres(connection) => {
                let query = with_parameters!(sql, with);
                query.execute(connection).await?.rows_affected()
            }
        })
    }

    /// Runs a statement to its end; returns its rows.
    pub(super) async fn rows(&mut self, sql: &str, with: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let sql = self.dialect().expand(sql);
        Ok(match self {
            Self::Sqlite(connection) => {
                let rows = with_parameters!(sql, with).fetch_all(connection).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(connection) => {
                let rows = with_parameters!(sql, with).fetch_all(connection).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// Runs a statement to its end; returns its first row.
    pub(super) async fn row(&mut self, sql: &str, with: Vec<Value>) -> Result<Option<Row>, Fault> {
        Ok(self.rows(sql, with).await?.into_iter().next())
    }

    /// Runs statements without parameters, one after the other.
    pub(super) async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        let script = sqlx::raw_sql(sql);
        match self {
            Self::Sqlite(connection) => {
                script.execute(connection).await?;
            }
            Self::Postgres(connection) => {
                script.execute(connection).await?;
            }
        }
        Ok(())
    }
}
