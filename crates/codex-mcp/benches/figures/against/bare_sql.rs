//! A queue of the fewest columns in a database, worked off with nothing but SQL: what a job store
//! is measured against.

use std::time::{Duration, Instant};

use futures::future::join_all;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, PgConnection, SqliteConnection};

use crate::block_on;
use crate::jobs::{Load, is_postgres};

/// As long as our store waits for the locks of others.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The columns that a list shows.
const LISTED: &str = "SELECT id, state, prompt FROM queue ORDER BY seq DESC LIMIT 20";
const COUNTED: &str = "SELECT count(*) FROM queue";

/// A connection with the settings that our store has.
enum Bare {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Bare {
    async fn open(store_url: &str) -> Self {
        if is_postgres(store_url) {
            return Self::Postgres(PgConnection::connect(store_url).await.unwrap());
        }
        let options = SqliteConnectOptions::new()
            .filename(store_url)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(LOCK_TIMEOUT);
        Self::Sqlite(options.connect().await.unwrap())
    }

    async fn script(&mut self, sql: String) {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        match self {
            Self::Sqlite(connection) => drop(sql.execute(connection).await.unwrap()),
            Self::Postgres(connection) => drop(sql.execute(connection).await.unwrap()),
        }
    }

    /// Claims the oldest job.
    async fn claim(&mut self) -> Option<i64> {
        let claimed = match self {
            Self::Sqlite(connection) => {
                let sql = "UPDATE queue SET state = 'running', worker = $1 WHERE seq = (SELECT seq \
                    FROM queue WHERE state = 'queued' ORDER BY seq LIMIT 1) RETURNING seq, prompt";
                let claim = sqlx::query_as::<_, (i64, String)>(sql).bind("me");
                claim.fetch_optional(connection).await
            }
            Self::Postgres(connection) => {
                let sql = "UPDATE queue SET state = 'running', worker = $1 WHERE seq = (SELECT seq \
                    FROM queue WHERE state = 'queued' ORDER BY seq LIMIT 1 \
                    FOR UPDATE SKIP LOCKED) RETURNING seq, prompt";
                let claim = sqlx::query_as::<_, (i64, String)>(sql).bind("me");
                claim.fetch_optional(connection).await
            }
        };
        Some(claimed.unwrap()?.0)
    }

    async fn finish(&mut self, job: i64) {
        let sql = "UPDATE queue SET state = 'completed', result = $1 WHERE seq = $2";
        match self {
            Self::Sqlite(connection) => {
                let finish = sqlx::query(sql).bind("Done.").bind(job);
                finish.execute(connection).await.unwrap();
            }
            Self::Postgres(connection) => {
                let finish = sqlx::query(sql).bind("Done.").bind(job);
                finish.execute(connection).await.unwrap();
            }
        }
    }
}

/// Makes a queue with the jobs of a load.
pub(super) fn fill(store_url: &str, load: &Load) {
    let kind = match is_postgres(store_url) {
        true => "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        false => "INTEGER PRIMARY KEY AUTOINCREMENT",
    };
    let jobs = load.stored + load.waiting;
    let (stored, prompt) = (load.stored, "Say hello. ".repeat(20));
    let sql = format!(
        "CREATE TABLE queue (seq {kind}, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, \
         worker TEXT, prompt TEXT NOT NULL, result TEXT); \
         CREATE INDEX queue_queued ON queue (seq) WHERE state = 'queued'; \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {jobs}) \
         INSERT INTO queue (id, state, prompt) SELECT 'job-' || i, \
         CASE WHEN i <= {stored} THEN 'completed' ELSE 'queued' END, '{prompt}' FROM n"
    );
    block_on(async {
        let mut connection = Bare::open(store_url).await;
        connection.script(sql).await;
        if is_postgres(store_url) {
            connection.script("VACUUM ANALYZE queue".to_owned()).await;
        }
    });
}

/// Takes jobs until there are none, and returns them. PostgreSQL has a connection for each job at
/// once; SQLite has one writer, and gains nothing by more.
pub(super) async fn work(store_url: &str, load: &Load) -> Vec<i64> {
    let connections = match is_postgres(store_url) {
        true => load.at_once,
        false => 1,
    };
    let one = async || {
        let mut connection = Bare::open(store_url).await;
        let mut done = Vec::new();
        while let Some(job) = connection.claim().await {
            if load.finishes {
                connection.finish(job).await;
            }
            done.push(job);
        }
        done
    };
    join_all((0..connections).map(|_| one())).await.concat()
}

/// Seconds for the newest 20 of all jobs and their number, as often as this.
pub(super) fn listed(store_url: &str, looks: u32) -> Vec<f64> {
    block_on(async {
        let mut connection = Bare::open(store_url).await;
        let mut times = Vec::new();
        for _ in 0..looks {
            let begin = Instant::now();
            connection.list().await;
            times.push(begin.elapsed().as_secs_f64());
        }
        times
    })
}

impl Bare {
    async fn list(&mut self) {
        type Listed = (String, String, String);
        let (rows, (_,)): (Vec<Listed>, (i64,)) = match self {
            Self::Sqlite(connection) => (
                sqlx::query_as(LISTED)
                    .fetch_all(&mut *connection)
                    .await
                    .unwrap(),
                sqlx::query_as(COUNTED).fetch_one(connection).await.unwrap(),
            ),
            Self::Postgres(connection) => (
                sqlx::query_as(LISTED)
                    .fetch_all(&mut *connection)
                    .await
                    .unwrap(),
                sqlx::query_as(COUNTED).fetch_one(connection).await.unwrap(),
            ),
        };
        assert_eq!(rows.len(), 20);
    }
}
