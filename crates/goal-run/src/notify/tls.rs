//! TLS with the certificates that the system trusts, among them those of a company.

use std::io;
use std::sync::Arc;

use safe_files::off_runtime;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// The system has no certificates of authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the system has no certificates by which servers prove who they are; install ca-certificates, or name a file with SSL_CERT_FILE"
)]
pub struct NoCertificates;

/// The certificates that the system trusts. Reads files.
pub(super) fn trusted_certificates() -> Result<RootCertStore, NoCertificates> {
    let mut trusted = RootCertStore::empty();
    let (_, unreadable) =
        trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if unreadable > 0 {
        tracing::debug!("{unreadable} certificates of the system cannot be read");
    }
    match trusted.is_empty() {
        true => Err(NoCertificates),
        false => Ok(trusted),
    }
}

/// Encrypts a connection to this host, which has to prove that it is the host.
pub(super) async fn encrypt(stream: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
    let trusted = off_runtime::run(trusted_certificates).await;
    let trusted = trusted.map_err(io::Error::other)?;
    let config = config(trusted.map_err(io::Error::other)?).map_err(io::Error::other)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(explained)
}

/// The most frequent errors in words that say what to do.
fn explained(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    match cause {
        Some(Error::InvalidMessage(_)) => io::Error::other("the server does not speak TLS there"),
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => io::Error::other(
            "its certificate is from nobody whom the system trusts; add that of the authority to \
             the system's, or name a file with it in SSL_CERT_FILE",
        ),
        _ => error,
    }
}

fn config(trusted: RootCertStore) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = versions
        .with_root_certificates(trusted)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
