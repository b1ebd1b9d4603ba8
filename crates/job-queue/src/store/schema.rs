//! The schema and its migrations. Each program that opens a store upgrades it; a store of a
//! newer program is refused.

use settings::store_location::Location;

use super::columns::bounded;
use super::error::Fault;
use super::migrations::{MASKED_SINCE, MIGRATIONS, Migration, newest};
use super::pool::{self, Purpose};
use super::queue;
use super::sql::{Connection, Dialect};

impl Migration {
    /// The script of the migration.
    pub(super) fn script(&self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Sqlite => self.sqlite,
            Dialect::Postgres => self.postgres,
        }
    }
}

/// The application ID in SQLite's header: "cmjs".
const APPLICATION: i64 = 0x636d_6a73;

/// Creates or upgrades the tables. Only one process does so at a time.
pub(super) async fn prepare(location: &Location) -> Result<(), Fault> {
    check_path(location)?;
    refuse_other_file(location).await?;
    let (mut connection, _lock) = pool::first(location).await?;
    if version(&mut connection).await? == newest() {
        return Ok(());
    }
    connection.begin(Purpose::WriteThrough).await?;
    if connection.dialect() == Dialect::Postgres {
        // The lock lasts until the transaction ends; its number spells "codexjob". The isolation
        // level is set as another process may commit between here and the read of the version.
        let lock = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                    SELECT pg_advisory_xact_lock(x'636f6465786a6f62'::bigint)";
        connection.script(lock).await?;
    }
    let version = version(&mut connection).await?;
    for step in MIGRATIONS
        .iter()
        .skip(usize::try_from(version).unwrap_or(0))
    {
        let script = step.script(connection.dialect());
        let done = connection.script(script).await;
        done.map_err(|fault| fault.of_schema(version))?;
    }
    if version < MASKED_SINCE {
        mask_ended(&mut connection).await?;
    }
    connection.script("COMMIT").await
}

/// A connection to a store whose tables are as this program knows them. Nothing is written, so an
/// older store is refused.
pub(super) async fn inspect(location: &Location) -> Result<Connection, Fault> {
    check_path(location)?;
    let mut connection = pool::connect(location, Purpose::Inspect).await?;
    let (found, known) = (version(&mut connection).await?, newest());
    match found == known {
        true => Ok(connection),
        false => Err(Fault::Older { found, known }),
    }
}

fn check_path(location: &Location) -> Result<(), Fault> {
    match location.path() {
        // The current directory may be a stranger's.
        Some(path) if path.is_relative() => Err(Fault::NotAStore(
            "its path is not absolute, as neither HOME nor XDG_STATE_HOME is",
        )),
        Some(path) if path.is_dir() => Err(Fault::NotAStore("it is a directory")),
        _ => Ok(()),
    }
}

/// Refuses a file of another program before anything is written to it or beside it. A file with a
/// lock beside it is left to the check under that lock: the process that creates a store makes the
/// lock first.
async fn refuse_other_file(location: &Location) -> Result<(), Fault> {
    let Some(path) = location.path().filter(|path| path.is_file()) else {
        return Ok(());
    };
    if pool::lock_path(path).exists() {
        return Ok(());
    }
    let seen = match pool::connect(location, Purpose::Inspect).await {
        Ok(mut connection) => version(&mut connection).await,
        Err(fault) => Err(fault),
    };
    match seen {
        Err(fault) if fault.is_of_other_file() => Err(fault),
        // Whatever else is wrong is found when the store is opened.
        _ => Ok(()),
    }
}

/// How many prompts one statement reads.
const BATCH: u32 = 100;

/// Masks credentials in jobs that have ended before the migration.
async fn mask_ended(connection: &mut Connection) -> Result<(), Fault> {
    let [prompt, run, settings] = ["prompt", "run", "settings"].map(bounded);
    let sql = format!(
        "SELECT seq, {prompt}, {run}, {settings} FROM codex_jobs WHERE seq > $1 \
         AND state IN ('completed', 'failed', 'cancelled') ORDER BY seq LIMIT $2"
    );
    let mut last = 0;
    loop {
        let rows = connection
            .rows(&sql, vec![last.into(), BATCH.into()])
            .await?;
        for row in &rows {
            queue::mask(connection, row).await?;
        }
        match rows.last() {
            Some(row) => last = row.number("seq")?.unwrap_or(i64::MAX),
            None => return Ok(()),
        }
    }
}

/// The version of the schema: the number of completed migrations.
async fn version(connection: &mut Connection) -> Result<i64, Fault> {
    let found = match connection.dialect() {
        Dialect::Sqlite => of_sqlite(connection).await?,
        Dialect::Postgres => of_postgres(connection).await?,
    };
    let known = newest();
    match found > known {
        true => Err(Fault::Newer { found, known }),
        false => Ok(found),
    }
}

async fn of_sqlite(connection: &mut Connection) -> Result<i64, Fault> {
    let sql = "SELECT application_id AS application, user_version AS version, \
               (SELECT COUNT(*) FROM sqlite_schema) AS things \
               FROM pragma_application_id, pragma_user_version";
    let row = connection.row(sql, Vec::new()).await?;
    let row = row.ok_or(sqlx::Error::RowNotFound)?;
    let version = row.number("version")?.unwrap_or(0);
    match (row.number("application")?, row.number("things")?) {
        (Some(APPLICATION), _) => Ok(version),
        (_, Some(0)) => Ok(0),
        _ => Err(Fault::NotAStore("it is the database of another program")),
    }
}

async fn of_postgres(connection: &mut Connection) -> Result<i64, Fault> {
    let sql = "SELECT COUNT(*) AS tables FROM pg_class WHERE oid = to_regclass('codex_store')";
    let row = connection.row(sql, Vec::new()).await?;
    match row.map(|row| row.number("tables")).transpose()?.flatten() {
        Some(1) => {}
        _ => return Ok(0),
    }
    let row = connection.row(
        "SELECT MAX(version) AS version FROM codex_store",
        Vec::new(),
    );
    let row = row.await?.ok_or(sqlx::Error::RowNotFound)?;
    Ok(row.number("version")?.unwrap_or(0))
}
