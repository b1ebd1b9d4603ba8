//! Delivery to web servers: a webhook gets a JSON object, a topic of ntfy gets the line.
//!
//! Redirects are not followed, as they could lead into another network.

use std::env;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use common::secrets::mask;
use common::text::one_line;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use supervise::spawn::NTFY_TOKEN;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::connect::{AddressScope, connect};
use super::{Notification, NotifierContext, tls};
use crate::logic::headline::Headline;
use crate::logic::web_address::{NTFY, WebAddress};

/// The `User-Agent` of our requests.
const AGENT: &str = concat!("codex-mcp/", env!("CARGO_PKG_VERSION"));

/// The longest head of an answer, in bytes.
const LONGEST_HEAD: usize = 16 * 1024;

/// How much of the body of an error is read, in bytes.
const READ: usize = 4096;

/// How long the body of an error may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// How much of the body of an error is shown, in bytes.
const SHOWN: usize = 200;

/// The shortest part of a path that counts as a secret, in bytes.
const SECRET: usize = 4;

/// Why a web server has not got a notification. No message shows the path of its address.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// There is no connection.
    #[error("{host}, port {port}, cannot be reached: {error}")]
    Unreachable {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The cause.
        error: io::Error,
    },
    /// The connection cannot be encrypted, or the server cannot prove who it is.
    #[error("no encrypted connection to {host}, port {port}: {error}")]
    Tls {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The cause.
        error: io::Error,
    },
    /// The exchange broke off.
    #[error("{host} did not answer as a web server does: {error}")]
    Http {
        /// The host.
        host: String,
        /// The cause.
        error: hyper::Error,
    },
    /// The request cannot be written.
    #[error("the request for {host} cannot be written: {error}")]
    Request {
        /// The host.
        host: String,
        /// The cause.
        error: hyper::http::Error,
    },
    /// The server names another address.
    #[error(
        "{host} answered {status}, and redirects are not followed; write the address to which it leads"
    )]
    Redirect {
        /// The host.
        host: String,
        /// The status.
        status: StatusCode,
    },
    /// The server refused.
    #[error("{host} answered {status}{words}")]
    Refused {
        /// The host.
        host: String,
        /// The status.
        status: StatusCode,
        /// The beginning of its answer.
        words: String,
    },
    /// The server took too long.
    #[error("{host} did not answer within {} s", after.as_secs_f64())]
    TimedOut {
        /// The host.
        host: String,
        /// The time limit.
        after: Duration,
    },
    /// The token is invalid.
    #[error(transparent)]
    Token(#[from] BadToken),
}

/// The token for ntfy cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the variable {NTFY_TOKEN} has characters that no token has; write TOKEN for {NTFY}, and HOST=TOKEN for another server"
)]
pub struct BadToken;

/// Sends the object that commands get, and the line as its member `text`.
pub(super) async fn send_json(
    address: &WebAddress,
    notification: Notification<'_>,
    context: &NotifierContext,
) -> Result<(), WebError> {
    let mut object = match notification.result {
        Value::Object(members) => members.clone(),
        other => [("result".to_owned(), other.clone())].into_iter().collect(),
    };
    object.insert("text".to_owned(), json!(notification.line));
    let request = post(address).header(CONTENT_TYPE, "application/json");
    deliver(address, request, Value::Object(object).to_string(), context).await
}

/// Publishes the line in a topic. Source: <https://docs.ntfy.sh/publish/>.
pub(super) async fn publish(
    address: &WebAddress,
    line: &str,
    context: &NotifierContext,
) -> Result<(), WebError> {
    let Headline {
        title,
        is_urgent,
        tag,
    } = Headline::of(line);
    let priority = match is_urgent {
        true => "high",
        false => "default",
    };
    let mut request = post(address)
        .header(CONTENT_TYPE, "text/plain; charset=utf-8")
        .header(HeaderName::from_static("title"), title)
        .header(HeaderName::from_static("priority"), priority)
        .header(HeaderName::from_static("tags"), tag);
    if let Some(token) = token(address, context)? {
        request = request.header(AUTHORIZATION, token);
    }
    deliver(address, request, line.to_owned(), context).await
}

/// Checks that the token for ntfy, if there is one, can be sent.
pub(super) fn check_token() -> Result<(), BadToken> {
    match env::var_os(NTFY_TOKEN) {
        Some(set) => authorization(set.to_str().ok_or(BadToken)?).map(drop),
        None => Ok(()),
    }
}

/// The token for this server. No other server gets it: clients may name any.
fn token(address: &WebAddress, context: &NotifierContext) -> Result<Option<HeaderValue>, BadToken> {
    let mut of_context = context.env.iter().rev();
    let of_context = of_context.find(|(name, _)| name == NTFY_TOKEN);
    let set = match of_context {
        Some((_, set)) => set.clone(),
        None => env::var_os(NTFY_TOKEN).unwrap_or_default(),
    };
    let set = set.to_str().ok_or(BadToken)?;
    let (server, token) = set.split_once('=').unwrap_or((NTFY, set));
    match server == address.authority() && !token.is_empty() {
        true => authorization(token).map(Some),
        false => Ok(None),
    }
}

fn authorization(token: &str) -> Result<HeaderValue, BadToken> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| BadToken)?;
    value.set_sensitive(true);
    Ok(value)
}

fn post(address: &WebAddress) -> Builder {
    Request::post(address.secret_path())
        .header(HOST, address.authority())
        .header(USER_AGENT, AGENT)
}

async fn deliver(
    address: &WebAddress,
    request: Builder,
    body: String,
    context: &NotifierContext,
) -> Result<(), WebError> {
    let host = || address.host().to_owned();
    let request = request.body(body);
    let request = request.map_err(|error| WebError::Request {
        host: host(),
        error,
    })?;
    let after = context.timeouts.web;
    let answered = timeout(after, ask(address, request)).await;
    let (status, body) = answered.map_err(|_| WebError::TimedOut {
        host: host(),
        after,
    })??;
    match status {
        status if status.is_success() => Ok(()),
        status if status.is_redirection() => Err(WebError::Redirect {
            host: host(),
            status,
        }),
        status => Err(WebError::Refused {
            host: host(),
            status,
            words: words(&body, address),
        }),
    }
}

/// Sends the request. Returns the status, and of an error the beginning of the body.
async fn ask(
    address: &WebAddress,
    request: Request<String>,
) -> Result<(StatusCode, Vec<u8>), WebError> {
    let (host, port) = (address.host().to_owned(), address.port());
    let scope = match address.is_encrypted() {
        true => AddressScope::Anywhere,
        false => AddressScope::Loopback,
    };
    let stream = match connect(&host, port, scope).await {
        Ok(stream) => stream,
        Err(error) => return Err(WebError::Unreachable { host, port, error }),
    };
    let answered = match address.is_encrypted() {
        true => match tls::encrypt(stream, &host).await {
            Ok(stream) => exchange(stream, request).await,
            Err(error) => return Err(WebError::Tls { host, port, error }),
        },
        false => exchange(stream, request).await,
    };
    answered.map_err(|error| WebError::Http { host, error })
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<String>,
) -> Result<(StatusCode, Vec<u8>), hyper::Error> {
    let mut client = http1::Builder::new();
    client.max_buf_size(LONGEST_HEAD);
    let (mut sender, connection) = client.handshake(TokioIo::new(stream)).await?;
    let mut connection = pin!(connection);
    let mut answer = pin!(async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        Ok(match status.is_success() {
            true => (status, Vec::new()),
            false => (status, beginning(response).await),
        })
    });
    let mut is_open = true;
    loop {
        tokio::select! {
            answer = &mut answer => return answer,
            // The end of the connection shows in the answer.
            _ = &mut connection, if is_open => is_open = false,
        }
    }
}

async fn beginning(response: Response<Incoming>) -> Vec<u8> {
    let mut body = response.into_body();
    let mut read = Vec::new();
    let reading = async {
        while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let data = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
            let data: &[u8] = data;
            let room = READ.saturating_sub(read.len()).min(data.len());
            read.extend_from_slice(data.get(..room).unwrap_or_default());
            if read.len() >= READ {
                break;
            }
        }
    };
    // The part that has arrived by then is enough.
    let _ = timeout(BODY_TIMEOUT, reading).await;
    read
}

/// The body of an error in one line, to be appended to a sentence. A server that repeats a part of
/// the address is not quoted.
fn words(body: &[u8], address: &WebAddress) -> String {
    let text = String::from_utf8_lossy(body);
    let mut parts = address.secret_path().split(['/', '?', '&', '=']);
    let repeats = parts.any(|part| part.len() >= SECRET && text.contains(part));
    match one_line(&mask(&text), SHOWN).as_str() {
        "" => String::new(),
        _ if repeats => "; its answer repeats the address, so it is not shown".to_owned(),
        line => format!(": {line}"),
    }
}
