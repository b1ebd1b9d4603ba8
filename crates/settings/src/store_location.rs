//! The location of a job store.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

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
}

impl PostgresUrl {
    /// The options with which sqlx connects.
    #[must_use]
    pub fn options(&self) -> &PgConnectOptions {
        &self.options
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
    /// TLS is required, which this program does not support.
    #[error(
        "{url} is to be reached with TLS (sslmode={mode} in the URL or in PGSSLMODE), and this \
         program has none: reach the server through a tunnel, such as ssh -L, and leave sslmode \
         out or say sslmode=disable"
    )]
    Tls {
        /// The URL without its password.
        url: String,
        /// The required mode.
        mode: &'static str,
    },
    /// The connection would leave this machine in plain text.
    #[error(
        "{url} is not on this machine, and would be reached in plain text: anybody on the way \
         could read the jobs and change them. Reach the server through a tunnel (ssh -L \
         5432:localhost:5432 HOST, then postgres://USER@localhost/DATABASE); if the network is \
         trusted, write sslmode=disable into the URL"
    )]
    PlainText {
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
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
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

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl FromStr for PostgresUrl {
    type Err = BadLocation;

    fn from_str(text: &str) -> Result<Self, BadLocation> {
        let shown = without_secrets(text);
        let Ok(options) = text.parse::<PgConnectOptions>() else {
            return Err(BadLocation::Url(shown));
        };
        if let Some(mode) = insists_on_tls(&options) {
            return Err(BadLocation::Tls { url: shown, mode });
        }
        if !stays_on_this_machine(&options) && !accepts_plain_text(text) {
            return Err(BadLocation::PlainText { url: shown });
        }
        Ok(Self {
            text: text.to_owned(),
            shown,
            options: Box::new(options),
        })
    }
}

/// The mode of the options that requires TLS, if it does.
fn insists_on_tls(options: &PgConnectOptions) -> Option<&'static str> {
    match options.get_ssl_mode() {
        PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer => None,
        PgSslMode::Require => Some("require"),
        PgSslMode::VerifyCa => Some("verify-ca"),
        PgSslMode::VerifyFull => Some("verify-full"),
    }
}

/// Whether the connection is a Unix socket or a loopback address. Names are not
/// resolved: of them, only `localhost` counts.
fn stays_on_this_machine(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    options.get_socket().is_some()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Whether the URL itself says `sslmode=disable`. A variable does not count: it may be
/// meant for another server.
fn accepts_plain_text(url: &str) -> bool {
    let url = url.split('#').next().unwrap_or_default();
    let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
    let mut modes = parameters.split('&').filter_map(|parameter| {
        let (name, mode) = parameter.split_once('=')?;
        matches!(name, "sslmode" | "ssl-mode").then_some(mode)
    });
    modes.next_back() == Some("disable")
}

impl PostgresUrl {
    /// A text that identifies the store, without passwords. Settings of the environment count
    /// too.
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

/// A URL without its password, and without its parameters, which may have a password too.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    // A password may have a `?`, `#` or `/` that is not written as %XX: so only the name is shown
    // of all that is before the last `@`.
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

    /// The location with its password, as it can be parsed again. It is not for a command line,
    /// which others can see.
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
    fn required_tls_is_refused() {
        let with = |mode: &str| {
            let url = format!("postgres://me:sesame@host/jobs?sslmode={mode}");
            url.parse::<Location>()
        };
        assert_eq!(
            with("disable").unwrap().to_string(),
            "postgres://me@host/jobs"
        );
        for mode in ["require", "verify-ca", "verify-full"] {
            let said = with(mode).unwrap_err().to_string();
            let begin =
                format!("postgres://me@host/jobs is to be reached with TLS (sslmode={mode}");
            assert!(said.starts_with(&begin), "{said}");
            assert!(said.contains("tunnel"), "{said}");
        }
    }

    #[test]
    fn remote_plain_text_connection_requires_sslmode_disable() {
        for url in [
            "postgres://host/jobs",
            "postgres://me:sesame@db.example.org/jobs?sslmode=prefer",
            "postgres://me@192.0.2.7/jobs",
            "postgres://me@[2001:db8::7]/jobs",
            "postgres://me@localhost.example.org/jobs",
            "postgres://me@localhost/jobs?host=db",
            "postgres://me@localhost/jobs?hostaddr=192.0.2.7",
            "postgres://me@db/jobs?sslmode=disable&sslmode=prefer",
            "postgres://me@db/jobs?application_name=sslmode%3Ddisable",
            "postgres://me@db/jobs#?sslmode=disable",
        ] {
            let said = url.parse::<Location>().unwrap_err().to_string();
            assert!(said.contains("plain text"), "{url}: {said}");
            assert!(said.contains("ssh -L") && said.contains("sslmode=disable"));
            assert!(!said.contains("sesame"), "{said}");
        }
        for url in [
            "postgres://me@localhost/jobs",
            "postgres://me@LOCALHOST:5433/jobs",
            "postgres://me@127.0.0.1/jobs",
            "postgres://me@127.8.9.1/jobs",
            "postgres://me@[::1]/jobs",
            "postgres://me@db/jobs?host=/var/run/postgresql",
            "postgres://me@db/jobs?sslmode=disable",
            "postgres://me@192.0.2.7/jobs?application_name=a&sslmode=disable",
        ] {
            assert!(url.parse::<Location>().is_ok(), "{url}");
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
