//! Tests of TLS with real servers, their own CA, and attackers on the way.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use testkit::certificates::Authority;
use testkit::postgres::Network;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::counting::number;
use super::*;

const ANYBODY: &str = "host all all 127.0.0.1/32 trust";

/// Opens a store, and returns whether its connections have TLS.
async fn has_tls(url: &str) -> Result<bool, StoreError> {
    let stage = TestStore::at(url);
    let store = JobStore::open(&stage.location, &stage.access()).await?;
    store.submit(&new_job("p")).await?;
    let sql = "SELECT CAST(CASE WHEN ssl THEN 1 ELSE 0 END AS BIGINT) AS n FROM pg_stat_ssl \
               WHERE pid = pg_backend_pid()";
    Ok(number(&store, sql).await == 1)
}

/// Checks that a URL leads to a connection with or without TLS.
async fn connects(url: &str, with_tls: bool) {
    let found = has_tls(url).await;
    assert_eq!(
        found.unwrap_or_else(|error| panic!("{url}: {error}")),
        with_tls,
        "{url}"
    );
}

/// Checks that a URL is refused with this message.
async fn is_refused(url: &str, message: &str) {
    let error = has_tls(url).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Untrusted { .. }),
        "{url}: {error:?}"
    );
    assert!(!error.is_retryable());
    let error = error.to_string();
    assert!(error.contains(message), "{url}: {error}");
    assert!(!error.contains("sesame"), "{error}");
}

/// A server of TLS and its CA.
struct TlsServer {
    server: Postgres,
    authority: Authority,
}

impl TlsServer {
    fn start(names: &str) -> Self {
        let authority = Authority::new();
        let certificate = authority.issue("db", names);
        let network = Network {
            admitted: ANYBODY,
            certificate: Some(&certificate),
        };
        let server = Postgres::start_on_tcp(Durability::Unsynced, &network);
        let _ = server.database("jobs");
        Self { server, authority }
    }

    fn url(&self, host: &str, parameters: &str) -> String {
        let rest = format!("jobs?{parameters}");
        self.server.url("postgres:sesame", host, &rest)
    }

    /// A URL that trusts this CA.
    fn trusting(&self, authority: &Authority, host: &str, mode: &str) -> String {
        let roots = authority.path();
        let parameters = format!("{mode}&sslrootcert={}", roots.display());
        self.url(host, &parameters)
    }
}

#[test]
fn server_is_verified_as_sslmode_says() {
    let here = TlsServer::start("DNS:localhost");
    let other = Authority::new();
    let own = &here.authority;
    block_on(async {
        for (authority, host, mode) in [
            (own, "localhost", "sslmode=verify-full"),
            (own, "127.0.0.1", "sslmode=verify-ca"),
            (own, "127.0.0.1", "sslmode=require"),
            (&other, "127.0.0.1", "sslmode=prefer"),
        ] {
            connects(&here.trusting(authority, host, mode), true).await;
        }
        for (authority, host, mode, message) in [
            (own, "127.0.0.1", "sslmode=verify-full", "another name"),
            (own, "0.0.0.0", "", "another name"),
            (
                &other,
                "localhost",
                "sslmode=verify-full",
                "signed by no CA",
            ),
            (&other, "localhost", "sslmode=verify-ca", "signed by no CA"),
            (&other, "localhost", "sslmode=require", "signed by no CA"),
        ] {
            is_refused(&here.trusting(authority, host, mode), message).await;
        }
        // No public CA has signed the certificate.
        is_refused(
            &here.url("localhost", "sslmode=verify-full"),
            "of the system",
        )
        .await;
        // Not a loopback address, but one of this machine: verify-full is the default.
        is_refused(&here.url("0.0.0.0", ""), "signed by no CA").await;

        // The controls: without protection, the same connections come about.
        for (host, mode, with_tls) in [
            ("0.0.0.0", "sslmode=require", true),
            ("0.0.0.0", "sslmode=disable", false),
            ("localhost", "sslmode=require", true),
            ("localhost", "sslmode=allow", false),
            ("localhost", "", true),
        ] {
            connects(&here.url(host, mode), with_tls).await;
        }
    });
}

#[test]
fn listener_works_through_tls() {
    let here = TlsServer::start("DNS:localhost");
    let url = here.trusting(&here.authority, "localhost", "sslmode=verify-full");
    block_on(conformance::watcher_is_woken_by_changes(&TestStore::at(
        &url,
    )));
}

#[test]
fn address_is_verified_by_the_addresses_of_the_certificate() {
    let here = TlsServer::start("DNS:db,IP:0.0.0.0");
    block_on(async {
        connects(&here.trusting(&here.authority, "0.0.0.0", ""), true).await;
    });
}

/// Answers that the server has no TLS, and passes the rest on.
async fn strip_tls(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let mut first = [0; 8];
                client.read_exact(&mut first).await.unwrap();
                match first == SSL_REQUEST {
                    true => client.write_all(b"N").await.unwrap(),
                    false => server.write_all(&first).await.unwrap(),
                }
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    own
}

#[test]
fn attacker_who_strips_tls_is_found_out() {
    let here = TlsServer::start("DNS:localhost");
    block_on(async {
        let port = strip_tls(here.server.port()).await;
        let roots = here.authority.path();
        let url = |host: &str, mode: &str| {
            let roots = roots.display();
            format!("postgres://postgres:sesame@{host}:{port}/jobs?{mode}&sslrootcert={roots}")
        };
        for mode in ["verify-full", "verify-ca", "require"] {
            let url = url("localhost", &format!("sslmode={mode}"));
            is_refused(&url, "offers no TLS").await;
        }
        is_refused(
            &url("0.0.0.0", ""),
            "offers no TLS, which sslmode=verify-full",
        )
        .await;
        // The control: who accepts plain text does not notice.
        connects(&url("localhost", "sslmode=prefer"), false).await;
        connects(&url("0.0.0.0", "sslmode=disable"), false).await;
    });
}

#[test]
fn sslmode_allow_and_prefer_follow_the_server() {
    let mut here = TlsServer::start("DNS:localhost");
    let admit = |here: &mut TlsServer, lines: &str| {
        here.server.stop();
        here.server.admit(lines);
        here.server.start_again();
    };
    let both = ["sslmode=allow", "sslmode=prefer"];
    for (lines, with_tls) in [
        ("hostssl all all 127.0.0.1/32 trust", true),
        ("hostnossl all all 127.0.0.1/32 trust", false),
    ] {
        admit(&mut here, lines);
        for mode in both {
            block_on(connects(&here.url("localhost", mode), with_tls));
        }
    }
    admit(&mut here, "hostssl all all 127.0.0.1/32 reject");
    for mode in both {
        let error = block_on(has_tls(&here.url("localhost", mode))).unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    }
}

#[test]
fn client_certificate_is_sent() {
    let mut here = TlsServer::start("DNS:localhost");
    let roots = here.authority.path();
    // The server reads it as its own user.
    let readable = std::env::temp_dir().join(format!("ca-{}.crt", here.server.port()));
    fs::copy(&roots, &readable).unwrap();
    here.server.set("ssl_ca_file", readable.to_str().unwrap());
    here.server.stop();
    here.server.admit("hostssl all all 127.0.0.1/32 cert");
    here.server.start_again();
    let client = here.authority.issue("postgres", "DNS:client");
    let with = |certificate: &str| {
        let mode = format!("sslmode=verify-full{certificate}");
        here.trusting(&here.authority, "localhost", &mode)
    };
    let files = format!(
        "&sslcert={}&sslkey={}",
        client.certificate.display(),
        client.key.display()
    );
    block_on(async {
        connects(&with(&files), true).await;
        let error = has_tls(&with("")).await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
        fs::set_permissions(&client.key, Permissions::from_mode(0o644)).unwrap();
        is_refused(&with(&files), "chmod 600").await;
    });
    fs::remove_file(readable).unwrap();
}

/// Beside the CA of `sslrootcert`, sqlx would trust those of this crate.
#[test]
fn sqlx_trusts_no_public_ca() {
    assert!(webpki_roots::TLS_SERVER_ROOTS.is_empty());
}

#[test]
fn unusable_root_certificate_is_named() {
    let here = TlsServer::start("DNS:localhost");
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.crt");
    fs::write(&empty, "nothing").unwrap();
    let missing = directory.path().join("missing.crt");
    block_on(async {
        for path in [empty, missing] {
            let path = path.display();
            let mode = format!("sslmode=verify-full&sslrootcert={path}");
            is_refused(&here.url("localhost", &mode), &path.to_string()).await;
        }
    });
}
