//! The location of a job store.

mod tls;

use std::env::var;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use sqlx::postgres::PgConnectOptions;

use tls::UrlTls;
pub use tls::{TlsFiles, TrustedRoots};

/// The location of a job store.
#[derive(Clone)]
pub enum Location {
    /// A file, for the processes of one host.
    Sqlite(PathBuf),
    /// A server, for many hosts.
    Postgres(PostgresUrl),
}

/// The URL of a PostgreSQL database. It is never shown with its password.
#[derive(Clone)]
pub struct PostgresUrl {
    text: String,
    shown: String,
    options: Box<PgConnectOptions>,
    tls_files: TlsFiles,
}

impl PostgresUrl {
    /// The options with which sqlx connects, without the TLS files.
    #[must_use]
    pub fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// The TLS files.
    #[must_use]
    pub fn tls_files(&self) -> &TlsFiles {
        &self.tls_files
    }
}

/// An error of parsing the location of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    /// The text is empty.
    #[error("a store is a path or a URL like postgres://user@host/database, and not empty")]
    Empty,
    /// The scheme of the URL is unknown.
    #[error("there is no store at {0}://: use a path, or a URL that begins with postgres://")]
    Scheme(String),
    /// The URL is malformed. The parser's own message is not shown, as it may have a part of the
    /// password.
    #[error(
        "{0} cannot be read: it has the form postgres://user:password@host:port/database, and \
         other characters than letters and digits in a name or password are written as %XX"
    )]
    Url(String),
    /// Several hosts are named, of which sqlx would connect to none.
    #[error(
        "{url} names several hosts, and this program connects to one: name one that follows the \
         primary, such as a DNS name, a virtual address, or pgbouncer or HAProxy before the servers"
    )]
    SeveralHosts {
        /// The URL without its password.
        url: String,
    },
    /// A TLS file has a relative path: a worker runs in another directory.
    #[error(
        "{url} has {parameter}={path}: write an absolute path, as workers run in any directory"
    )]
    RelativeFile {
        /// The URL without its password.
        url: String,
        /// The parameter of the URL.
        parameter: &'static str,
        /// The path.
        path: String,
    },
    /// Every certificate of a public CA would be accepted.
    #[error(
        "{url} has sslmode=verify-ca without a CA of its own, so that a certificate of any public \
         CA would do, whatever its name: add sslrootcert=FILE, or write sslmode=verify-full"
    )]
    AnyCertificate {
        /// The URL without its password.
        url: String,
    },
}

impl FromStr for Location {
    type Err = BadLocation;

    fn from_str(text: &str) -> Result<Self, BadLocation> {
        match text.split_once("://") {
            _ if text.is_empty() => Err(BadLocation::Empty),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text.parse()?)),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(plain(path))),
            Some((scheme, _)) if is_scheme(scheme) => Err(BadLocation::Scheme(scheme.to_owned())),
            _ => Ok(Self::Sqlite(text.into())),
        }
    }
}

impl<'de> Deserialize<'de> for Location {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The path, written so that it is not taken for a URL when it is parsed again.
fn plain(path: &str) -> PathBuf {
    match path.split_once("://") {
        Some((scheme, _)) if is_scheme(scheme) => Path::new(".").join(path),
        _ => path.into(),
    }
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl FromStr for PostgresUrl {
    type Err = BadLocation;

    fn from_str(text: &str) -> Result<Self, BadLocation> {
        let shown = without_secrets(text);
        let Ok(options) = text.parse::<PgConnectOptions>() else {
            return Err(match names_several_hosts(&shown) {
                true => BadLocation::SeveralHosts { url: shown },
                false => BadLocation::Url(shown),
            });
        };
        if options.get_host().contains(',') {
            return Err(BadLocation::SeveralHosts { url: shown });
        }
        let UrlTls { mode, files } = UrlTls::of(text, &shown, &options, |name| var(name).ok())?;
        let host = tls::without_brackets(options.get_host()).to_owned();
        Ok(Self {
            text: text.to_owned(),
            shown,
            options: Box::new(options.host(&host).ssl_mode(mode)),
            tls_files: files,
        })
    }
}

fn names_several_hosts(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let hosts = rest.split('/').next().unwrap_or_default();
    hosts.contains(',')
}

impl PostgresUrl {
    /// A text that identifies the store, without its password. It includes what sqlx takes from the
    /// environment.
    pub fn target(&self) -> String {
        let options = &self.options;
        format!(
            "{:?} {} {} {} {:?} {:?}",
            options.get_socket(),
            options.get_host(),
            options.get_port(),
            options.get_username(),
            options.get_database(),
            options.get_options(),
        )
    }
}

/// A URL without its password, and without its parameters, which may contain a password too.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    // A password may contain a `?`, `#` or `/` that is not written as %XX. So of everything before
    // the last `@`, only the user's name is shown.
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (user.split(':').next(), place),
        None => (None, rest),
    };
    let place = place.split(['?', '#']).next().unwrap_or_default();
    match user.filter(|user| !user.contains(['/', '?', '#'])) {
        Some(user) => format!("{scheme}://{user}@{place}"),
        None => format!("{scheme}://{place}"),
    }
}

impl Location {
    /// The path, if the store is a file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(path) => Some(path),
            Self::Postgres(_) => None,
        }
    }

    /// The location with its password, in the form in which it can be parsed again. It must not be
    /// put on a command line, which other users can see.
    #[must_use]
    pub fn with_secrets(&self) -> OsString {
        match self {
            Self::Sqlite(path) => path.clone().into_os_string(),
            Self::Postgres(url) => (&url.text).into(),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(url) => f.write_str(&url.shown),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_is_a_path_or_a_url() {
        for (text, shown) in [
            ("jobs.db", "jobs.db"),
            ("/a b/jobs.db", "/a b/jobs.db"),
            ("sqlite:///var/jobs.db", "/var/jobs.db"),
            ("./a://b", "./a://b"),
            ("sqlite://a://b", "./a://b"),
            ("sqlite:///a://b", "/a://b"),
            ("sqlite://postgres://host/jobs", "./postgres://host/jobs"),
            ("postgres://localhost/jobs", "postgres://localhost/jobs"),
            (
                "postgresql://me@[::1]:5433/jobs",
                "postgresql://me@[::1]:5433/jobs",
            ),
        ] {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), shown);
        }
        for text in [
            "",
            "mysql://host/jobs",
            "sqlite://",
            "postgres://host:port/jobs",
        ] {
            text.parse::<Location>().unwrap_err();
        }
    }

    #[test]
    fn several_hosts_are_refused() {
        for url in [
            "postgres://me:sesame@a,b/jobs",
            "postgres://me:sesame@a:5432,b:5432/jobs",
            "postgres://me:sesame@a/jobs?host=a,b",
        ] {
            let said = url.parse::<Location>().unwrap_err().to_string();
            assert!(said.contains("several hosts"), "{url}: {said}");
            assert!(!said.contains("sesame"), "{said}");
        }
    }

    #[test]
    fn password_is_never_shown() {
        for text in [
            "postgres://me:sesame@host/jobs",
            "postgres://me:sesame%40@host:5432/jobs?sslmode=disable",
            "postgres://host/jobs?user=me&password=sesame",
            "postgres://me:ses@ame:sesame@host/jobs",
            "postgres://me:a/sesame@host/jobs",
            "postgres://me:a#sesame@host:x/jobs",
            "postgres://:sesame@host/jobs",
            "postgres://me:sesame@host/jobs?sslmode=require",
        ] {
            let shown = match text.parse::<Location>() {
                Ok(location) => format!("{location} {location:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("sesame"), "{shown}");
            assert!(shown.contains("host"), "{shown}");
        }
    }
}
