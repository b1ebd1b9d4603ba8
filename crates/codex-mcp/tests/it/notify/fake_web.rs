//! A web server on loopback that answers each request in the same way, and keeps the requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use testkit::wait::wait_for;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate of the server with TLS. No system trusts it.
pub(crate) const CERTIFICATE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/notify/localhost.pem");

const KEY: &[u8] = include_bytes!("key.pem");

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct WebRequest {
    /// The first line.
    pub(crate) line: String,
    /// The headers, with names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl WebRequest {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// The answer to each request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// These bytes; then the connection is closed.
    Bytes(String),
    /// These bytes, then this piece again and again.
    Endless(String, &'static str),
    /// None.
    Silence,
}

impl Answer {
    /// A status line with headers, and a body.
    pub(crate) fn with(head: &str, body: &str) -> Self {
        let length = body.len();
        Self::Bytes(format!(
            "HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    pub(crate) fn ok() -> Self {
        Self::with("200 OK", "ok")
    }
}

pub(crate) struct WebServer {
    port: u16,
    requests: Arc<Mutex<Vec<WebRequest>>>,
}

impl WebServer {
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::serve(answer, None).await
    }

    /// A server that speaks TLS, with [`CERTIFICATE`].
    pub(crate) async fn with_tls(answer: Answer) -> Self {
        let certificate = CertificateDer::from_pem_file(CERTIFICATE).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Self::serve(answer, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, kept, tls) = (answer.clone(), Arc::clone(&kept), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        // A client that does not trust the server breaks off.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                converse(stream, &answer, &kept).await;
                            }
                        }
                        None => converse(stream, &answer, &kept).await,
                    }
                });
            }
        });
        Self { port, requests }
    }

    /// An address on the server, with this scheme.
    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://127.0.0.1:{}/{path}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<WebRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits for `count` requests.
    pub(crate) async fn wait_for_requests(&self, count: usize) -> Vec<WebRequest> {
        wait_for("requests", async || {
            let requests = self.requests();
            (requests.len() >= count).then_some(requests)
        })
        .await
    }
}

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &Answer,
    kept: &Mutex<Vec<WebRequest>>,
) {
    let Some(request) = read(&mut stream).await else {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        return;
    };
    kept.lock().unwrap().push(request);
    match answer {
        Answer::Bytes(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Answer::Endless(begin, piece) => {
            let _ = stream.write_all(begin.as_bytes()).await;
            while stream.write_all(piece.as_bytes()).await.is_ok() {}
        }
        Answer::Silence => {
            // Until the client leaves.
            let _ = stream.read(&mut [0]).await;
        }
    }
}

/// The first byte of a TLS connection. Source: RFC 8446, 5.1.
const HANDSHAKE: u8 = 22;

/// Reads a request; `None` if the peer breaks off or speaks TLS.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<WebRequest> {
    let mut bytes = Vec::new();
    loop {
        if let Some(request) = parsed(&bytes) {
            return Some(request);
        }
        let count = stream.read_buf(&mut bytes).await.ok()?;
        if count == 0 || bytes.first() == Some(&HANDSHAKE) {
            return None;
        }
    }
}

fn parsed(bytes: &[u8]) -> Option<WebRequest> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or("0", String::as_str);
    let length: usize = length.parse().ok()?;
    (body.len() >= length).then(|| WebRequest {
        line,
        headers,
        body: body.to_owned(),
    })
}
