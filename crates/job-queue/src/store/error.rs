//! What can go wrong with a store, and what to do then.

use std::io;

use settings::store_location::Location;
use sqlx::error::DatabaseError;

use crate::host_key::KeyError;
use crate::logic::JobId;

/// Why a store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It can't be reached, or was lost in the middle.
    #[error(
        "the job store {store} can't be reached: {error}. Look whether its server runs; a change \
         that was under way may have been made or not"
    )]
    Unreachable {
        /// Where.
        store: String,
        /// Why.
        error: String,
    },
    /// Others write to it all the time.
    #[error("the job store {store} is busy: {error}. Try again")]
    Busy {
        /// Where.
        store: String,
        /// Why.
        error: String,
    },
    /// Nothing can be written.
    #[error(
        "the job store {store} can't be written: {error}. Give this user the right to write to \
         the file and its directory, or name another store with --store"
    )]
    ReadOnly {
        /// Where.
        store: String,
        /// Why.
        error: String,
    },
    /// There is no room left.
    #[error(
        "there is no room for the job store {store}: {error}. Make room on its disk, and try \
         again; what was in the store is still there"
    )]
    Full {
        /// Where.
        store: String,
        /// Why.
        error: String,
    },
    /// A newer program has made it.
    #[error(
        "the job store {store} has the form {found}, and this program knows those up to {known}: \
         use the newer codex-mcp that has made it, or another store"
    )]
    Newer {
        /// Where.
        store: String,
        /// The form that it has.
        found: i64,
        /// The newest one that we know.
        known: i64,
    },
    /// Something else is there.
    #[error("{store} is no job store: {error}. Name another place with --store, or move it away")]
    NotAStore {
        /// Where.
        store: String,
        /// Why.
        error: String,
    },
    /// A text is too long to be kept.
    #[error("{what} has {length} bytes, and a job store keeps {most} at most: make it shorter")]
    TooLong {
        /// Of what.
        what: &'static str,
        /// How long it is, in bytes.
        length: usize,
        /// The most that is kept, in bytes.
        most: usize,
    },
    /// A job is another's, and this host leaves those alone.
    #[error(
        "job {job} belongs to {owner}, and this host leaves the jobs of others alone. Ask them, \
         or set jobs_of_others = \"manage\" in {}",
        settings::user_file().display()
    )]
    OfOthers {
        /// The job.
        job: JobId,
        /// Whose it is.
        owner: String,
    },
    /// This host cannot sign its jobs, nor tell which are its own.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The database has found something wrong.
    #[error("the job store {store} has failed: {error}")]
    Database {
        /// Where.
        store: String,
        /// Why.
        error: String,
    },
}

impl StoreError {
    /// Whether the same may well succeed a little later, without anybody doing
    /// something about it.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Busy { .. })
    }
}

/// What goes wrong within, where nobody knows which store it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// A file beside the database.
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("another process has its lock for more than {0} s")]
    Locked(u64),
    #[error("form {found}")]
    Newer { found: i64, known: i64 },
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
    /// What was written is not what is written there.
    #[error("{column} of a row can't be read: {error}")]
    Unreadable { column: &'static str, error: String },
}

impl Fault {
    /// Whether the connection is of no use any more.
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

    /// Whether two transactions were in each other's way: 40001 and 40P01 of
    /// PostgreSQL.
    pub(super) fn is_conflict(&self) -> bool {
        let Self::Sql(sqlx::Error::Database(error)) = self else {
            return false;
        };
        is_postgres(&**error) && matches!(code(&**error).as_deref(), Some("40001" | "40P01"))
    }

    /// It for others.
    pub(super) fn at(self, location: &Location) -> StoreError {
        let store = location.to_string();
        let kind = self.kind();
        match self {
            Self::TooLong { what, length, most } => StoreError::TooLong { what, length, most },
            Self::OfOthers(job, owner) => StoreError::OfOthers {
                job,
                owner: owner.unwrap_or_else(|| "somebody unknown".to_owned()),
            },
            Self::Newer { found, known } => StoreError::Newer {
                store,
                found,
                known,
            },
            other => {
                let error = other.in_words();
                match kind {
                    Kind::Unreachable => StoreError::Unreachable { store, error },
                    Kind::Busy => StoreError::Busy { store, error },
                    Kind::ReadOnly => StoreError::ReadOnly { store, error },
                    Kind::Full => StoreError::Full { store, error },
                    Kind::NotAStore => StoreError::NotAStore { store, error },
                    Kind::Other => StoreError::Database { store, error },
                }
            }
        }
    }

    /// sqlx says before what the database says that the database has said it.
    fn in_words(&self) -> String {
        match self {
            Self::Sql(sqlx::Error::Database(error)) => error.message().to_owned(),
            other => other.to_string(),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            _ if self.is_disconnected() => Kind::Unreachable,
            Self::Locked(_) => Kind::Busy,
            Self::NotAStore(_) => Kind::NotAStore,
            Self::File(error) => of_file(error),
            Self::Sql(sqlx::Error::Database(error)) => of_database(&**error),
            _ => Kind::Other,
        }
    }
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unreachable,
    Busy,
    ReadOnly,
    Full,
    NotAStore,
    Other,
}

fn of_file(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::ReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::Full,
        _ => Kind::Other,
    }
}

fn code(error: &dyn DatabaseError) -> Option<String> {
    error.code().map(|code| code.into_owned())
}

/// The codes of PostgreSQL have five characters, those of SQLite four at most.
fn is_postgres(error: &dyn DatabaseError) -> bool {
    code(error).is_some_and(|code| code.len() == 5)
}

fn of_database(error: &dyn DatabaseError) -> Kind {
    let Some(code) = code(error) else {
        return Kind::Other;
    };
    match is_postgres(error) {
        true => of_postgres(&code),
        false => of_sqlite(code.parse().unwrap_or_default()),
    }
}

/// Source: <https://www.sqlite.org/rescode.html>
fn of_sqlite(code: u32) -> Kind {
    // The wal-index can't grow or be mapped: it lies on the same disk.
    const SHM_SIZE: u32 = 4874;
    match (code, code & 0xff) {
        (SHM_SIZE, _) | (_, 13) => Kind::Full,
        (_, 5 | 6) => Kind::Busy,
        (_, 3 | 8 | 14) => Kind::ReadOnly,
        (_, 26) => Kind::NotAStore,
        _ => Kind::Other,
    }
}

/// Source: <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn of_postgres(code: &str) -> Kind {
    match code {
        "53100" => Kind::Full,
        "25006" | "42501" => Kind::ReadOnly,
        "40001" | "40P01" | "55P03" => Kind::Busy,
        "53300" => Kind::Unreachable,
        _ => Kind::Other,
    }
}
