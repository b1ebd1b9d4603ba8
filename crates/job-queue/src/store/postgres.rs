//! Connections to a PostgreSQL server, which may be a standby, or behind a pooler.
//!
//! A pooler in transaction mode assigns another server connection to each transaction. Behind it, a
//! prepared statement may be missing later, or be another client's, and notifications do not
//! arrive. pgbouncer either refuses the parameter that marks our connections, or does not pass it
//! on.

use std::ops::ControlFlow;
use std::time::Duration;

use settings::store_location::PostgresUrl;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions, PgRow};
use sqlx::{ConnectOptions, Executor as _, Row as _};

use super::error::Fault;
use super::in_time;
use super::tls::Attempts;

/// How long a server may take to accept a connection, or to answer on one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The mark of our connections: a value of `extra_float_digits` that nobody else sets. The
/// parameter affects only texts of floating-point numbers, and the store has none.
const MARK: i8 = -2;

/// The query that checks a connection.
const CHECK: &str = "SELECT pg_is_in_recovery()::text AS standby, \
                     current_setting('extra_float_digits') AS mark";

/// The route to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Nothing stands between.
    Direct,
    /// Possibly a pooler in transaction mode.
    Pooler,
}

/// The treatment of a connection to a standby, which takes no changes and may be out of date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandbyPolicy {
    Accept,
    Refuse,
}

/// Whether a transaction is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    Open,
    Closed,
}

/// A connection to a server.
pub(super) struct PostgresConnection {
    connection: PgConnection,
    route: Route,
    transaction: TransactionState,
}

/// Connects to a server.
pub(super) async fn connect(
    url: &PostgresUrl,
    policy: StandbyPolicy,
) -> Result<PostgresConnection, Fault> {
    let mut attempts = Attempts::of(url).await?;
    loop {
        let options = attempts.options();
        let marked = options.clone().extra_float_digits(MARK);
        let mut tried = in_time(CONNECT_TIMEOUT, open(marked, policy)).await;
        if refuses_mark(&tried) {
            let unmarked = options.extra_float_digits(None);
            tried = in_time(CONNECT_TIMEOUT, open(unmarked, policy)).await;
        }
        if let ControlFlow::Break(connected) = attempts.judge(tried) {
            return connected;
        }
    }
}

async fn open(
    options: PgConnectOptions,
    policy: StandbyPolicy,
) -> Result<PostgresConnection, Fault> {
    let mut connection = options.connect().await?;
    let row = connection.fetch_one(CHECK).await?;
    let (route, standby) = checked(&row)?;
    match standby && policy == StandbyPolicy::Refuse {
        true => Err(Fault::Standby),
        false => Ok(PostgresConnection {
            connection,
            route,
            transaction: TransactionState::Closed,
        }),
    }
}

/// Listens for notifications; `None` if a pooler would keep them.
pub(super) async fn listener(
    url: &PostgresUrl,
    channel: &str,
) -> Result<Option<PgListener>, Fault> {
    let mut attempts = Attempts::of(url).await?;
    loop {
        let tried = listen(attempts.options().extra_float_digits(MARK), channel).await;
        if refuses_mark(&tried) {
            return Ok(None);
        }
        if let ControlFlow::Break(listener) = attempts.judge(tried) {
            return listener;
        }
    }
}

async fn listen(options: PgConnectOptions, channel: &str) -> Result<Option<PgListener>, Fault> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(CONNECT_TIMEOUT)
        .connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    let row = listener.fetch_one(CHECK).await?;
    if checked(&row)?.0 == Route::Pooler {
        return Ok(None);
    }
    listener.listen(channel).await?;
    Ok(Some(listener))
}

/// Whether a pooler has refused the mark.
fn refuses_mark<T>(tried: &Result<T, Fault>) -> bool {
    match tried {
        Err(Fault::Sql(sqlx::Error::Database(error))) => {
            error.message().contains("extra_float_digits")
        }
        _ => false,
    }
}

/// Checks that the server of a listener still answers: nothing else would show that the machine
/// is gone.
pub(super) async fn check_alive(listener: &mut PgListener) -> Result<(), Fault> {
    let answer = listener.execute(CHECK);
    in_time(CONNECT_TIMEOUT, async { Ok(answer.await?) }).await?;
    Ok(())
}

/// The route to a server, and whether it is a standby.
fn checked(row: &PgRow) -> Result<(Route, bool), sqlx::Error> {
    let route = match row.try_get::<String, _>("mark")? == MARK.to_string() {
        true => Route::Direct,
        false => Route::Pooler,
    };
    Ok((route, row.try_get::<String, _>("standby")? == "true"))
}

impl PostgresConnection {
    /// The connection, and whether statements may be prepared for later ones. Behind a pooler,
    /// a statement that is alone gets a transaction, which [`PostgresConnection::leave`] ends.
    pub(super) async fn enter(&mut self) -> Result<ReadyConnection<'_>, Fault> {
        let is_alone = self.route == Route::Pooler && self.transaction == TransactionState::Closed;
        if is_alone {
            self.script("BEGIN").await?;
        }
        Ok(ReadyConnection {
            prepares: self.route == Route::Direct,
            is_alone,
            connection: self,
        })
    }

    /// Runs statements without parameters.
    pub(super) async fn script(&mut self, sql: &'static str) -> Result<(), Fault> {
        sqlx::raw_sql(sql).execute(&mut self.connection).await?;
        match sql.split([';', ' ']).next() {
            Some("BEGIN") => self.transaction = TransactionState::Open,
            Some("COMMIT" | "ROLLBACK") => self.transaction = TransactionState::Closed,
            _ => {}
        }
        Ok(())
    }
}

/// A connection that is ready for one statement.
pub(super) struct ReadyConnection<'a> {
    /// Whether the statement may be prepared for later ones.
    pub(super) prepares: bool,
    is_alone: bool,
    connection: &'a mut PostgresConnection,
}

impl ReadyConnection<'_> {
    /// The connection for the statement.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection.connection
    }

    /// Ends the statement.
    pub(super) async fn leave<T>(self, done: Result<T, sqlx::Error>) -> Result<T, Fault> {
        match (&done, self.is_alone) {
            (Ok(_), true) => self.connection.script("COMMIT").await?,
            // If this fails too, the connection is dropped and thereby closed.
            (Err(_), true) => drop(self.connection.script("ROLLBACK").await),
            (_, false) => {}
        }
        Ok(done?)
    }
}
