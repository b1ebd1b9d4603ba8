//! The TLS of a PostgreSQL URL: `sslmode` and its files.
//!
//! The modes are those of libpq. A server on another machine has to prove its identity unless the
//! URL itself names another mode: a mode in a variable may be meant for another server.
//!
//! Source: <https://www.postgresql.org/docs/current/libpq-ssl.html>

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::BadLocation;

/// The CAs that may vouch for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustedRoots {
    /// Those that the operating system trusts.
    System,
    /// Those in a PEM file (`sslrootcert`), and no others.
    File(PathBuf),
}

/// The TLS files of a PostgreSQL URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The CAs that may vouch for the server.
    pub roots: TrustedRoots,
    /// The certificate of this client (`sslcert`).
    pub certificate: Option<PathBuf>,
    /// The key of that certificate (`sslkey`).
    pub key: Option<PathBuf>,
}

/// The TLS of a URL.
pub(super) struct UrlTls {
    pub(super) mode: PgSslMode,
    pub(super) files: TlsFiles,
}

impl UrlTls {
    /// The TLS settings of a URL and of libpq's variables. `options` are the options that sqlx has
    /// read from them.
    pub(super) fn of(
        url: &str,
        shown: &str,
        options: &PgConnectOptions,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, BadLocation> {
        let file = |names: &[&str], name: &str| {
            let value = parameter(url, names).map(Cow::into_owned);
            value.or_else(|| variable(name))
        };
        let absolute = |parameter: &'static str, value: Option<String>| match value {
            Some(path) if !path.starts_with('/') => Err(BadLocation::RelativeFile {
                url: shown.to_owned(),
                parameter,
                path,
            }),
            path => Ok(path.map(PathBuf::from)),
        };
        let roots = file(&["sslrootcert", "ssl-root-cert", "ssl-ca"], "PGSSLROOTCERT");
        let roots = roots.filter(|roots| roots != "system");
        let files = TlsFiles {
            roots: absolute("sslrootcert", roots)?.map_or(TrustedRoots::System, TrustedRoots::File),
            certificate: absolute("sslcert", file(&["sslcert", "ssl-cert"], "PGSSLCERT"))?,
            key: absolute("sslkey", file(&["sslkey", "ssl-key"], "PGSSLKEY"))?,
        };
        let mode = mode(url, options, &files.roots);
        match (mode, &files.roots) {
            // Anybody can get a certificate from such a CA, and this mode does not compare the
            // server's name.
            (PgSslMode::VerifyCa, TrustedRoots::System) => Err(BadLocation::AnyCertificate {
                url: shown.to_owned(),
            }),
            _ => Ok(Self { mode, files }),
        }
    }
}

fn mode(url: &str, options: &PgConnectOptions, roots: &TrustedRoots) -> PgSslMode {
    let is_written = parameter(url, &["sslmode", "ssl-mode"]).is_some();
    match options.get_ssl_mode() {
        _ if is_socket(options) => PgSslMode::Disable,
        _ if !is_written && !is_loopback(options) => PgSslMode::VerifyFull,
        // As in libpq: whoever names a CA wants the server's certificate to be checked against it.
        PgSslMode::Require if *roots != TrustedRoots::System => PgSslMode::VerifyCa,
        mode => mode,
    }
}

fn is_socket(options: &PgConnectOptions) -> bool {
    options.get_socket().is_some() || options.get_host().starts_with('/')
}

/// Whether the host is a loopback address. Names are not resolved; the only name that counts is
/// `localhost`.
fn is_loopback(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let address = without_brackets(host).parse();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The address without the brackets in which a URL writes an IPv6 address.
pub(super) fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The last parameter of a URL that has one of these names.
fn parameter<'a>(url: &'a str, names: &[&str]) -> Option<Cow<'a, str>> {
    let url = url.split('#').next().unwrap_or_default();
    let (_, parameters) = url.split_once('?')?;
    let mut named = parameters.split('&').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        names.contains(&&*decoded(name)).then_some(value)
    });
    named.next_back().map(decoded)
}

/// Decodes `%XX` and `+`, as in the parameters of a form.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return text.into();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let escaped = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped =
            escaped.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match (
            byte,
            escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()),
        ) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls_with(url: &str, variables: &[(&str, &str)]) -> Result<UrlTls, BadLocation> {
        let variable = |name: &str| {
            let mut known = variables.iter();
            let found = known.find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let options: PgConnectOptions = url.parse().unwrap();
        UrlTls::of(url, "shown", &options, variable)
    }

    fn mode(url: &str) -> PgSslMode {
        let tls = tls_with(url, &[]);
        tls.unwrap_or_else(|error| panic!("{url}: {error}")).mode
    }

    #[test]
    fn server_beyond_loopback_is_verified_unless_the_url_names_a_mode() {
        for url in [
            "postgres://host/jobs",
            "postgres://me@192.0.2.7/jobs",
            "postgres://me@0.0.0.0/jobs",
            "postgres://me@[2001:db8::7]/jobs",
            "postgres://me@localhost.example.org/jobs",
            "postgres://me@localhost/jobs?host=db",
            "postgres://me@localhost/jobs?hostaddr=192.0.2.7",
            "postgres://me@db/jobs?application_name=sslmode%3Ddisable",
            "postgres://me@db/jobs#?sslmode=disable",
            "postgres://me@db/jobs?sslrootcert=/ca.crt",
        ] {
            assert!(matches!(mode(url), PgSslMode::VerifyFull), "{url}");
        }
        for (written, expected) in [
            ("disable", PgSslMode::Disable),
            ("allow", PgSslMode::Allow),
            ("prefer", PgSslMode::Prefer),
            ("require", PgSslMode::Require),
            ("verify-full", PgSslMode::VerifyFull),
            ("require&sslmode=disable", PgSslMode::Disable),
            ("disable&ssl-mode=verify-full", PgSslMode::VerifyFull),
            ("verify-ca&sslrootcert=/ca.crt", PgSslMode::VerifyCa),
            ("require&sslrootcert=/ca.crt", PgSslMode::VerifyCa),
            ("require&sslrootcert=system", PgSslMode::Require),
        ] {
            let url = format!("postgres://me@db/jobs?sslmode={written}");
            let found = mode(&url);
            assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{url}");
        }
        let url = "postgres://me@db/jobs?%73slmode=disable";
        assert!(matches!(mode(url), PgSslMode::Disable));
    }

    #[test]
    fn server_on_this_machine_has_the_default_of_libpq() {
        for url in [
            "postgres://me@localhost/jobs",
            "postgres://me@LOCALHOST:5433/jobs",
            "postgres://me@127.0.0.1/jobs",
            "postgres://me@127.8.9.1/jobs",
            "postgres://me@[::1]/jobs",
        ] {
            assert!(matches!(mode(url), PgSslMode::Prefer), "{url}");
            let strict = format!("{url}?sslmode=verify-full");
            assert!(matches!(mode(&strict), PgSslMode::VerifyFull), "{url}");
        }
        for url in [
            "postgres://me@db/jobs?host=/var/run/postgresql",
            "postgres://me@%2Fvar%2Frun/jobs?sslmode=verify-full",
        ] {
            assert!(matches!(mode(url), PgSslMode::Disable), "{url}");
        }
    }

    #[test]
    fn files_are_of_the_url_or_of_variables() {
        let variables = [("PGSSLROOTCERT", "/env.crt"), ("PGSSLKEY", "/env.key")];
        let of = |url| tls_with(url, &variables).unwrap().files;
        let files = of("postgres://db/jobs?sslcert=/a%20b+c.crt&ssl-ca=/own.crt");
        assert_eq!(files.roots, TrustedRoots::File("/own.crt".into()));
        assert_eq!(files.certificate, Some("/a b c.crt".into()));
        assert_eq!(files.key, Some("/env.key".into()));
        let files = of("postgres://db/jobs");
        assert_eq!(files.roots, TrustedRoots::File("/env.crt".into()));
        let files = of("postgres://db/jobs?sslrootcert=system");
        assert_eq!(files.roots, TrustedRoots::System);
    }

    #[test]
    fn weak_or_relative_roots_are_refused() {
        let error = |url| tls_with(url, &[]).err().unwrap().to_string();
        for url in [
            "postgres://db/jobs?sslmode=verify-ca",
            "postgres://db/jobs?sslmode=verify-ca&sslrootcert=system",
        ] {
            let said = error(url);
            assert!(said.contains("sslrootcert=FILE"), "{said}");
        }
        let said = error("postgres://db/jobs?sslrootcert=ca.crt");
        assert!(said.contains("sslrootcert=ca.crt"), "{said}");
        assert!(said.contains("absolute"), "{said}");
    }
}
