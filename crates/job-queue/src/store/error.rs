//! Errors of a store, with their remedies.

use std::io;
use std::path::PathBuf;

use common::text::shell_word;
use settings::store_location::Location;
use sqlx::error::DatabaseError;

use super::migrations;
use super::tls_error::TlsError;
use crate::logic::JobId;
use crate::machine::KeyError;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, or the connection was lost. No change was made.
    #[error("the job store {store} cannot be reached: {error}. Look whether its server runs")]
    Unreachable {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// The server answers, but takes no changes for now. No change was made.
    #[error(
        "the job store {store} takes no changes: {error}. If this lasts, promote its server or make \
         it writable"
    )]
    Standby {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// The connection was lost during the commit of a change, which may have been made or not.
    #[error(
        "the job store {store} cannot be reached any more: {error}. Look whether its server runs; \
         the change that was under way may have been made or not"
    )]
    AnswerLost {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// A connection with the TLS that the URL requires cannot be made: the server may be another
    /// one.
    #[error("the job store {store} is not used: {error}")]
    Untrusted {
        /// The store.
        store: String,
        /// Why, and what to do.
        error: String,
    },
    /// The server does not admit this user.
    #[error(
        "the job store {store} does not admit this user: {error}. Check the user and the password \
         of its URL, PGPASSWORD or ~/.pgpass, and on the server the role and pg_hba.conf"
    )]
    Refused {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// The server has no such database.
    #[error(
        "there is no job store {store}: {error}. Have the administrator of the server run CREATE \
         DATABASE, or name another one"
    )]
    NoDatabase {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// A setting names a file in a directory that does not exist. Its path is probably mistyped, so
    /// the directory is not made.
    #[error(
        "there is no directory {} for the job store; correct {setting}, or make the directory",
        directory.display()
    )]
    NoDirectory {
        /// The missing directory.
        directory: PathBuf,
        /// The setting, and where it is.
        setting: String,
    },
    /// The role lacks rights that the store needs.
    #[error(
        "the role of the job store {store} has no right to what it needs: {error}. Have the owner \
         of the database run the SQL that `codex-mcp jobs schema{options}` prints, as in \
         `codex-mcp jobs schema{options} | psql --set ON_ERROR_STOP=1 DATABASE`"
    )]
    NoRight {
        /// The store.
        store: String,
        /// The cause.
        error: String,
        /// The options of `codex-mcp jobs schema`.
        options: String,
    },
    /// Other processes keep the store locked.
    #[error("the job store {store} is busy: {error}. Try again")]
    Busy {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// The store is read-only.
    #[error(
        "the job store {store} cannot be written: {error}. Give this user the right to write to \
         the file and its directory, or name another store with --store"
    )]
    ReadOnly {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// The disk is full, a quota is used up, or the disk fails: SQLite does not tell the last two
    /// apart.
    #[error(
        "there is no room for the job store {store}, or its disk fails: {error}. Make room on its \
         disk, also within your quota, and try again; what was in the store is still there unless \
         the disk fails"
    )]
    Full {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// A newer program has created or upgraded the store.
    #[error(
        "the job store {store} has schema version {found}, and this program knows versions up to \
         {known}: use the newer codex-mcp that created it, or another store"
    )]
    Newer {
        /// The store.
        store: String,
        /// The version of the store's schema.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// There are no tables yet, or those of an older program. Only an inspection fails with this:
    /// opening the store in any other way creates or upgrades them.
    #[error("the job store {store} has schema version {found}, and is not upgraded to {known} yet")]
    Older {
        /// The store.
        store: String,
        /// The version of the store's schema; 0 if there are no tables.
        found: i64,
        /// The version to which this program upgrades it.
        known: i64,
    },
    /// The location has something other than a store.
    #[error(
        "{store} is not a job store: {error}. Name another place with --store, or move it away"
    )]
    NotAStore {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// A text is too long for the store.
    #[error("{what} has {length} bytes, and a job store keeps {most} at most: make it shorter")]
    TooLong {
        /// The text's name.
        what: &'static str,
        /// The length of the text, in bytes.
        length: usize,
        /// The limit, in bytes.
        most: usize,
    },
    /// The database refuses the data that is to be stored.
    #[error(
        "the job store {store} refuses what is to be stored: {error}. Look at the constraints and \
         triggers of its tables"
    )]
    Rejected {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
    /// A value of a row is missing or malformed: another program has written it.
    #[error("the job store {store} has a malformed row: {error}")]
    Unreadable {
        /// The store.
        store: String,
        /// Which value, and why.
        error: String,
    },
    /// The job belongs to others, and this machine does not manage their jobs.
    #[error(
        "job {job} belongs to {owner}, and this machine leaves the jobs of others alone. Ask them, \
         or set jobs_of_others = \"manage\" in {}",
        settings::user_file().display()
    )]
    OfOthers {
        /// The job.
        job: JobId,
        /// The owner's name.
        owner: String,
    },
    /// The key of this machine cannot be used, so that it can neither sign jobs nor recognise its
    /// own.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The database has reported another error.
    #[error("the job store {store} has failed: {error}")]
    Database {
        /// The store.
        store: String,
        /// The cause.
        error: String,
    },
}

impl StoreError {
    /// Whether a retry may succeed without any action by the user.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Standby { .. }
                | Self::AnswerLost { .. }
                | Self::Busy { .. }
        )
    }
}

/// How far a change has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeProgress {
    /// If the connection is lost, the change is not made.
    Uncommitted,
    /// If the connection is lost, the change may have been made or not.
    Committing,
}

/// An error within this module, before the location of the store is added.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A file beside the database.
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("the server is a standby that is not promoted yet")]
    Standby,
    #[error("another process has held its lock for more than {0} s")]
    Locked(u64),
    #[error("schema version {found}")]
    Newer { found: i64, known: i64 },
    /// The store has an older schema, see [`StoreError::Older`].
    #[error("schema version {found}, not upgraded yet")]
    Older { found: i64, known: i64 },
    /// Tables of this version cannot be created.
    #[error("{error}")]
    NoRight { error: String, found: i64 },
    #[error("{0}")]
    NotAStore(&'static str),
    #[error("too long")]
    TooLong {
        what: &'static str,
        length: usize,
        most: usize,
    },
    #[error("job {0} belongs to others")]
    OfOthers(JobId, Option<String>),
    /// A value of a row is missing or malformed.
    #[error("{column} of a row cannot be read: {error}")]
    Unreadable { column: &'static str, error: String },
}

impl Fault {
    /// Whether the connection is lost.
    pub(super) fn is_disconnected(&self) -> bool {
        let error = match self {
            Self::Sql(error) => error,
            Self::File(error) => return error.kind() == io::ErrorKind::TimedOut,
            _ => return false,
        };
        match error {
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
            // The classes of PostgreSQL: 08 connection, 57P0 shutdown.
            sqlx::Error::Database(error) => code(&**error).is_some_and(|code| {
                is_postgres(&**error) && (code.starts_with("08") || code.starts_with("57P0"))
            }),
            _ => false,
        }
    }

    /// Whether the location has something other than a store.
    pub(super) fn is_of_other_file(&self) -> bool {
        self.kind() == FaultKind::NotAStore
    }

    /// Whether another connection may succeed where this one has failed: it is lost, or leads to
    /// a server that is now a standby.
    pub(super) fn is_stale(&self) -> bool {
        let is_standby = match self {
            Self::Sql(sqlx::Error::Database(error)) => {
                is_postgres(&**error) && code(&**error).as_deref() == Some("25006")
            }
            _ => false,
        };
        is_standby || self.is_disconnected()
    }

    /// The error of an upgrade from this version of the schema.
    pub(super) fn of_schema(self, found: i64) -> Self {
        match &self {
            Self::Sql(sqlx::Error::Database(error)) if may_not(&**error) => Self::NoRight {
                error: error.message().to_owned(),
                found,
            },
            _ => self,
        }
    }

    /// Whether two transactions conflicted: 40001 and 40P01 of PostgreSQL.
    pub(super) fn is_conflict(&self) -> bool {
        let Self::Sql(sqlx::Error::Database(error)) = self else {
            return false;
        };
        is_postgres(&**error) && matches!(code(&**error).as_deref(), Some("40001" | "40P01"))
    }

    /// The public error of a change, with the location of the store.
    pub(super) fn of_change(self, progress: ChangeProgress, location: &Location) -> StoreError {
        match progress {
            ChangeProgress::Committing if self.is_disconnected() => StoreError::AnswerLost {
                store: location.to_string(),
                error: self.in_words(),
            },
            ChangeProgress::Committing | ChangeProgress::Uncommitted => self.at(location),
        }
    }

    /// The public error, with the location of the store.
    pub(super) fn at(self, location: &Location) -> StoreError {
        let store = location.to_string();
        let kind = self.kind();
        match self {
            Self::TooLong { what, length, most } => StoreError::TooLong { what, length, most },
            Self::OfOthers(job, owner) => StoreError::OfOthers {
                job,
                owner: owner.unwrap_or_else(|| "somebody unknown".to_owned()),
            },
            Self::NoRight { error, found } => no_right(location, error, found),
            Self::Sql(sqlx::Error::Database(error)) if may_not(&*error) => {
                no_right(location, error.message().to_owned(), migrations::newest())
            }
            Self::Newer { found, known } => StoreError::Newer {
                store,
                found,
                known,
            },
            Self::Older { found, known } => StoreError::Older {
                store,
                found,
                known,
            },
            other => {
                let error = other.in_words();
                match kind {
                    FaultKind::Unreachable => StoreError::Unreachable { store, error },
                    FaultKind::Standby => StoreError::Standby { store, error },
                    FaultKind::Untrusted => StoreError::Untrusted { store, error },
                    FaultKind::Refused => StoreError::Refused { store, error },
                    FaultKind::NoDatabase => StoreError::NoDatabase { store, error },
                    FaultKind::Busy => StoreError::Busy { store, error },
                    FaultKind::ReadOnly => StoreError::ReadOnly { store, error },
                    FaultKind::Full => StoreError::Full { store, error },
                    FaultKind::NotAStore => StoreError::NotAStore { store, error },
                    FaultKind::Rejected => StoreError::Rejected { store, error },
                    FaultKind::Unreadable => StoreError::Unreadable { store, error },
                    FaultKind::Other => StoreError::Database { store, error },
                }
            }
        }
    }

    /// The error's message, without the prefix that sqlx adds to a message of the database.
    fn in_words(&self) -> String {
        match self {
            Self::Sql(sqlx::Error::Database(error)) => error.message().to_owned(),
            other => other.to_string(),
        }
    }

    fn kind(&self) -> FaultKind {
        match self {
            _ if self.is_disconnected() => FaultKind::Unreachable,
            Self::Standby => FaultKind::Standby,
            Self::Tls(_) => FaultKind::Untrusted,
            Self::Locked(_) => FaultKind::Busy,
            Self::NotAStore(_) => FaultKind::NotAStore,
            Self::Unreadable { .. } => FaultKind::Unreadable,
            Self::File(error) => of_file(error),
            Self::Sql(sqlx::Error::Database(error)) => of_database(&**error),
            _ => FaultKind::Other,
        }
    }
}

/// The kind of an error, by its remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultKind {
    Unreachable,
    Standby,
    Untrusted,
    Refused,
    NoDatabase,
    Busy,
    ReadOnly,
    Full,
    NotAStore,
    Rejected,
    Unreadable,
    Other,
}

fn of_file(error: &io::Error) -> FaultKind {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FaultKind::ReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FaultKind::Full,
        _ => FaultKind::Other,
    }
}

/// Whether the role has no right to do this: 42501 of PostgreSQL.
fn may_not(error: &dyn DatabaseError) -> bool {
    is_postgres(error) && code(error).as_deref() == Some("42501")
}

fn no_right(location: &Location, error: String, found: i64) -> StoreError {
    let role = match location {
        Location::Postgres(url) => url.options().get_username(),
        Location::Sqlite(_) => "ROLE",
    };
    let from = match found {
        0 => String::new(),
        found => format!(" --from {found}"),
    };
    StoreError::NoRight {
        store: location.to_string(),
        error,
        options: format!("{from} --role {}", shell_word(role)),
    }
}

fn code(error: &dyn DatabaseError) -> Option<String> {
    error.code().map(|code| code.into_owned())
}

/// The codes of PostgreSQL have five characters, those of SQLite four at most.
fn is_postgres(error: &dyn DatabaseError) -> bool {
    code(error).is_some_and(|code| code.len() == 5)
}

fn of_database(error: &dyn DatabaseError) -> FaultKind {
    let Some(code) = code(error) else {
        return FaultKind::Other;
    };
    match is_postgres(error) {
        true => of_postgres(&code),
        false => of_sqlite(code.parse().unwrap_or_default()),
    }
}

/// Source: <https://www.sqlite.org/rescode.html>
fn of_sqlite(code: u32) -> FaultKind {
    match code & 0xff {
        // A quota that is used up is an I/O error, as is a wal-index that cannot grow on a full
        // disk.
        10 | 13 => FaultKind::Full,
        5 | 6 => FaultKind::Busy,
        3 | 8 | 14 => FaultKind::ReadOnly,
        18..=20 => FaultKind::Rejected,
        26 => FaultKind::NotAStore,
        _ => FaultKind::Other,
    }
}

/// Source: <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn of_postgres(code: &str) -> FaultKind {
    match code {
        "53100" | "58030" => FaultKind::Full,
        // The server has become a standby behind the same connection, as behind pgbouncer: another
        // connection may lead to its successor.
        "25006" => FaultKind::Standby,
        "40001" | "40P01" | "55P03" | "57014" => FaultKind::Busy,
        "53300" => FaultKind::Unreachable,
        "28000" | "28P01" => FaultKind::Refused,
        "3D000" => FaultKind::NoDatabase,
        // A trigger has raised an exception.
        "P0001" => FaultKind::Rejected,
        _ => match code.get(..2) {
            // The server has too little memory, or has reached a limit of its configuration.
            Some("53") => FaultKind::Busy,
            // Invalid data, violated constraints, and limits of the database.
            Some("22" | "23" | "54") => FaultKind::Rejected,
            _ => FaultKind::Other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_data_is_distinguished_from_an_outage() {
        for (code, kind) in [
            (5, FaultKind::Busy),
            (13, FaultKind::Full),
            // SQLITE_IOERR_WRITE and SQLITE_IOERR_SHMSIZE.
            (778, FaultKind::Full),
            (4874, FaultKind::Full),
            (11, FaultKind::Other),
            (18, FaultKind::Rejected),
            // SQLITE_CONSTRAINT_TRIGGER.
            (1811, FaultKind::Rejected),
            (20, FaultKind::Rejected),
        ] {
            assert_eq!(of_sqlite(code), kind, "{code}");
        }
        for (code, kind) in [
            ("53100", FaultKind::Full),
            ("58030", FaultKind::Full),
            ("53200", FaultKind::Busy),
            ("53400", FaultKind::Busy),
            ("57014", FaultKind::Busy),
            ("53300", FaultKind::Unreachable),
            ("25006", FaultKind::Standby),
            ("22021", FaultKind::Rejected),
            ("23514", FaultKind::Rejected),
            ("54000", FaultKind::Rejected),
            ("P0001", FaultKind::Rejected),
            ("42P01", FaultKind::Other),
            ("XX000", FaultKind::Other),
        ] {
            assert_eq!(of_postgres(code), kind, "{code}");
        }
    }
}
