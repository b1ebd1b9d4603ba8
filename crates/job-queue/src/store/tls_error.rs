//! Errors of TLS to PostgreSQL.

/// An error of TLS, with its remedy.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error(
        "its server offers no TLS, which sslmode={0} requires. Turn TLS on there (ssl = on); where \
         nobody on the way can read or change the jobs, write sslmode=disable into the URL"
    )]
    NotOffered(&'static str),
    #[error(
        "the certificate of its server is signed by no CA that is trusted ({roots}). If the server \
         is the right one, name its CA with sslrootcert=FILE in the URL; sslmode=require would \
         take any server for it"
    )]
    Issuer { roots: String },
    #[error(
        "the server at {host} has a certificate for another name ({error}). Write a name of the \
         certificate into the URL, or sslmode=verify-ca if all servers of the CA are trusted"
    )]
    Name { host: String, error: String },
    #[error("the certificate of its server is refused: {0}. Renew it")]
    Certificate(String),
    #[error("TLS with its server fails: {0}")]
    Handshake(String),
    #[error("{parameter} of its URL cannot be used: {error}")]
    File {
        parameter: &'static str,
        error: String,
    },
    #[error(
        "the system has no CA certificates. Install ca-certificates, or name the CA of the server \
         with sslrootcert=FILE in the URL"
    )]
    NoRoots,
}
