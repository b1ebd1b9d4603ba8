//! Connects to a PostgreSQL server with the TLS mode of its URL.
//!
//! sqlx does not know `sslmode=allow`, and with `prefer` does not fall back from TLS to plain text.
//! For these modes, two connection attempts are made here.

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use safe_files::off_runtime;
use safe_files::untrusted_file::{Links, read};
use settings::store_location::{PostgresUrl, TrustedRoots};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio_rustls::rustls::{CertificateError, Error as RustlsError};

use super::error::Fault;
use super::tls_error::TlsError;

/// The largest file of certificates that is read: the CAs of a system have 250 KB.
const LONGEST: u64 = 4 << 20;

/// The attempts to connect to a server, one after the other.
pub(super) struct Attempts<'a> {
    url: &'a PostgresUrl,
    options: PgConnectOptions,
    /// The mode of the last attempt, if it is another.
    fallback: Option<PgSslMode>,
    /// Which CAs are trusted, in words.
    roots: String,
}

impl<'a> Attempts<'a> {
    /// The attempts that the mode of a URL allows. Reads the TLS files.
    pub(super) async fn of(url: &'a PostgresUrl) -> Result<Self, Fault> {
        let options = url.options().clone().disable_statement_logging();
        let (options, roots) = with_files(options, url).await?;
        let (first, fallback) = match options.get_ssl_mode() {
            PgSslMode::Allow => (PgSslMode::Disable, Some(PgSslMode::Require)),
            PgSslMode::Prefer => (PgSslMode::Prefer, Some(PgSslMode::Disable)),
            mode => (mode, None),
        };
        Ok(Self {
            url,
            options: options.ssl_mode(first),
            fallback,
            roots,
        })
    }

    /// The options of the next attempt.
    pub(super) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// The result of an attempt, unless there is another one to make.
    pub(super) fn judge<T>(&mut self, tried: Result<T, Fault>) -> ControlFlow<Result<T, Fault>> {
        let fault = match tried {
            Ok(connected) => return ControlFlow::Break(Ok(connected)),
            Err(fault) => explained(fault, self.url, &self.roots),
        };
        match self.fallback.take_if(|_| asks_for_the_other(&fault)) {
            Some(mode) => {
                self.options = self.options.clone().ssl_mode(mode);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(Err(fault)),
        }
    }
}

/// Whether the connection may work with TLS if it failed without, or without TLS if it failed with
/// it: TLS could not be negotiated, or `pg_hba.conf` has no entry for the connection (28000).
fn asks_for_the_other(fault: &Fault) -> bool {
    match fault {
        Fault::Tls(TlsError::Handshake(_)) => true,
        Fault::Sql(sqlx::Error::Database(error)) => error.code().as_deref() == Some("28000"),
        _ => false,
    }
}

/// Adds the contents of the TLS files to the options, so that an error names its file. Returns
/// also which CAs are trusted, in words.
async fn with_files(
    mut options: PgConnectOptions,
    url: &PostgresUrl,
) -> Result<(PgConnectOptions, String), Fault> {
    let files = url.tls_files();
    let mode = url.options().get_ssl_mode();
    if matches!(mode, PgSslMode::Disable) {
        return Ok((options, String::new()));
    }
    if let Some(path) = &files.certificate {
        options = options.ssl_client_cert_from_pem(pem("sslcert", path).await?);
    }
    if let Some(path) = &files.key {
        check_mode(path).await?;
        options = options.ssl_client_key_from_pem(pem("sslkey", path).await?);
    }
    if !matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull) {
        return Ok((options, String::new()));
    }
    let (roots, words) = match &files.roots {
        TrustedRoots::File(path) => {
            let words = format!("those in {} are", path.display());
            (pem("sslrootcert", path).await?, words)
        }
        TrustedRoots::System => (system_roots().await?, "those of the system are".to_owned()),
    };
    Ok((options.ssl_root_cert_from_pem(roots), words))
}

/// A file in PEM. sqlx would accept one without any certificate.
async fn pem(parameter: &'static str, path: &Path) -> Result<Vec<u8>, Fault> {
    let failed = |error: String| Fault::Tls(TlsError::File { parameter, error });
    let owned = PathBuf::from(path);
    let contents = off_runtime::run(move || read(&owned, LONGEST, Links::Followed)).await;
    let contents = contents.map_err(|error| failed(error.to_string()))?;
    let contents = contents.map_err(|error| failed(error.to_string()))?;
    match contents.windows(10).any(|part| part == b"-----BEGIN") {
        true => Ok(contents),
        false => Err(failed(format!("{} has no PEM text", path.display()))),
    }
}

/// As libpq: a key that others can read is no secret. Root may own one that its group can read.
async fn check_mode(key: &Path) -> Result<(), Fault> {
    let failed = |error: String| {
        Fault::Tls(TlsError::File {
            parameter: "sslkey",
            error,
        })
    };
    let owned = PathBuf::from(key);
    let about = off_runtime::run(move || fs::metadata(owned)).await;
    let about = about.map_err(|error| failed(error.to_string()))?;
    let about = about.map_err(|error| failed(format!("{}: {error}", key.display())))?;
    let forbidden = match about.uid() {
        0 => 0o037,
        _ => 0o077,
    };
    match about.mode() & forbidden {
        0 => Ok(()),
        _ => Err(failed(format!(
            "others can read {}. Run chmod 600 on it",
            key.display()
        ))),
    }
}

/// The CAs of the system, in PEM.
async fn system_roots() -> Result<Vec<u8>, Fault> {
    let found = off_runtime::run(rustls_native_certs::load_native_certs).await;
    let found = found.map_err(io::Error::other)?;
    for error in found.errors {
        tracing::debug!("a CA of the system cannot be read: {error}");
    }
    let roots = found.certs.iter().map(|certificate| {
        let text = BASE64_STANDARD.encode(certificate);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    });
    let roots: String = roots.collect();
    match roots.is_empty() {
        true => Err(Fault::Tls(TlsError::NoRoots)),
        false => Ok(roots.into_bytes()),
    }
}

/// An error of TLS in words that say what to do.
fn explained(fault: Fault, url: &PostgresUrl, roots: &str) -> Fault {
    let Fault::Sql(error) = &fault else {
        return fault;
    };
    let options = url.options();
    let error = match error {
        sqlx::Error::Tls(error) => match error.downcast_ref::<RustlsError>() {
            Some(error) => of_rustls(error, options, roots),
            None if error.to_string() == "server does not support TLS" => {
                TlsError::NotOffered(name(options.get_ssl_mode()))
            }
            None => TlsError::Handshake(error.to_string()),
        },
        sqlx::Error::Io(error) => {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
            match cause {
                Some(cause) => of_rustls(cause, options, roots),
                None => return fault,
            }
        }
        _ => return fault,
    };
    Fault::Tls(error)
}

fn of_rustls(error: &RustlsError, options: &PgConnectOptions, roots: &str) -> TlsError {
    let RustlsError::InvalidCertificate(refused) = error else {
        return TlsError::Handshake(error.to_string());
    };
    match refused {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsError::Issuer {
            roots: roots.to_owned(),
        },
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            TlsError::Name {
                host: options.get_host().to_owned(),
                error: refused.to_string(),
            }
        }
        _ => TlsError::Certificate(refused.to_string()),
    }
}

fn name(mode: PgSslMode) -> &'static str {
    match mode {
        PgSslMode::Disable => "disable",
        PgSslMode::Allow => "allow",
        PgSslMode::Prefer => "prefer",
        PgSslMode::Require => "require",
        PgSslMode::VerifyCa => "verify-ca",
        PgSslMode::VerifyFull => "verify-full",
    }
}
