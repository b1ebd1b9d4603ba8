//! The routes: the handler of each address.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{self, Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use common::text::escape_json;
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use work_board::WorkBoard;

use crate::app::App;
use crate::auth::{self, AccessControl};
use crate::budget::{self, Budget};
use crate::feed::Feeds;
use crate::lists::Lists;
use crate::logic::authority::Authorities;
use crate::page::layout::{self, endpoint_mark};
use crate::refusal::Refusal;
use crate::server::Listener;
use crate::slots::SlotPool;
use crate::store::CredentialStore;
use crate::{acts, api, conductor, job_acts, mcp, pages, pictures, server, streams};

/// The longest form, in bytes.
const LONGEST_FORM: usize = 256 * 1024;

/// The longest form of a caller that is not signed in, in bytes.
const LONGEST_LOGIN: usize = 4 * 1024;

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a reason for a refusal is read, in bytes.
const LONGEST_REASON: usize = 4096;

/// Allows only our own scripts and style sheet. No frames, and nothing from other origins.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; \
     base-uri 'none'";

/// Serves until `closing` is cancelled. `state` is the state directory.
pub async fn serve(
    listener: Listener,
    (state, authorities): (PathBuf, Authorities),
    board: WorkBoard,
    closing: CancellationToken,
) {
    let board = Arc::new(board);
    let lists = Arc::new(Lists::new(Arc::clone(&board)));
    let following = Arc::clone(&board).follow();
    let app = Arc::new(App {
        access: Arc::new(AccessControl::new(
            CredentialStore::new(&state),
            authorities,
        )),
        feeds: Arc::new(Feeds::new(Arc::clone(&board), streams::MOST_WATCHERS)),
        board,
        lists: Arc::clone(&lists),
        mcp: OnceCell::new(),
        conductors: SlotPool::new(conductor::MOST_CONDUCTORS),
        watchers: SlotPool::new(streams::MOST_WATCHERS),
        readers: SlotPool::new(api::MOST_READERS),
        pictures: SlotPool::new(pictures::MOST_PICTURES),
        closing: closing.clone(),
    });
    tokio::spawn(closing.clone().run_until_cancelled_owned(following));
    tokio::spawn(closing.clone().run_until_cancelled_owned(lists.follow()));
    let conductors = Arc::clone(&app.conductors);
    server::serve(listener, routes(app), closing).await;
    conductor::until_closed(&conductors).await;
}

fn routes(app: Arc<App>) -> Router {
    let known = Router::new()
        .route("/", get(pages::work))
        .route("/events", get(streams::work))
        .route("/endpoint", get(|| async { endpoint_mark() }))
        .route("/sessions", post(acts::start))
        .route("/sessions/{id}", get(pages::session))
        .route("/sessions/{id}/events", get(streams::of_session))
        .route("/sessions/{id}/answer", post(acts::answer))
        .route("/sessions/{id}/prompt", post(acts::prompt))
        .route("/sessions/{id}/interrupt", post(acts::interrupt))
        .route("/sessions/{id}/cancel", post(acts::cancel))
        .route("/sessions/{id}/fork", post(acts::fork))
        .route("/jobs/{id}", get(pages::job))
        .route("/jobs/{id}/events", get(streams::of_job))
        .route("/jobs/{id}/answer", post(job_acts::answer))
        .route("/jobs/{id}/steer", post(job_acts::steer))
        .route("/sessions/{id}/pictures/{step}", get(pictures::of_step))
        .route("/jobs/{id}/cancel", post(job_acts::cancel))
        .route("/jobs/{id}/retry", post(job_acts::retry))
        .route("/runs", post(job_acts::start_run))
        .route("/threads", get(pages::threads).post(acts::resume))
        .route("/mail", get(pages::mail).post(acts::send_mail))
        .route("/api/work", get(api::work))
        .route("/api/sessions/{id}", get(api::session))
        .route("/api/sessions/{id}/events", get(api::session_events))
        .route("/api/jobs/{id}", get(api::job))
        .route("/api/threads", get(api::threads))
        .route("/api/mail", get(api::mail))
        .route("/api/conductor", any(conductor::connect));
    // `mcp` bounds its messages, and rmcp answers those that it refuses.
    let known = in_bounds(known, LONGEST_FORM)
        .route("/mcp", any(mcp::respond))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app.access),
            auth::check_caller,
        ));
    let unknown = Router::new()
        .route("/login", get(pages::sign_in_form).post(pages::sign_in))
        .route("/logout", post(pages::sign_out))
        .route(
            &layout::asset("page.js"),
            get(|| asset("text/javascript", include_str!("assets/page.js"))),
        )
        .route(
            &layout::asset("connection.js"),
            get(|| asset("text/javascript", include_str!("assets/connection.js"))),
        )
        .route(
            &layout::asset("page.css"),
            get(|| asset("text/css", include_str!("assets/page.css"))),
        );
    let all = in_bounds(unknown, LONGEST_LOGIN)
        .merge(known)
        .fallback(|headers: HeaderMap| async move {
            Refusal::Missing("such page").for_request(&headers)
        })
        .layer(middleware::from_fn_with_state(Budget::new(), budget::bound))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app.access),
            auth::check_origin,
        ));
    guarded(all).with_state(app)
}

/// Bounds the forms of these routes, and escapes their JSON.
fn in_bounds<S: Clone + Send + Sync + 'static>(routes: Router<S>, form: usize) -> Router<S> {
    routes
        .layer(DefaultBodyLimit::max(form))
        .layer(middleware::map_response(refused_in_json))
        .layer(middleware::map_response(with_escaped_json))
}

/// Adds the layers that apply to all requests and responses, including refused ones.
fn guarded<S: Clone + Send + Sync + 'static>(routes: Router<S>) -> Router<S> {
    routes
        .layer(middleware::from_fn(check_length))
        .layer(middleware::from_fn(guard))
        .layer(middleware::map_request(in_time))
}

/// Refuses a body that is announced as too long before reading any of it. The handlers that read a
/// body bound one of unknown length.
async fn check_length(request: Request, next: Next) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    match length.is_some_and(|length| length > mcp::LONGEST_MESSAGE as u64) {
        true => Refusal::TooLong(mcp::LONGEST_MESSAGE).into_response(),
        false => next.run(request).await,
    }
}

/// Makes the body of a request fail if it does not arrive in time, however slowly it comes.
async fn in_time(request: Request) -> Request {
    let until = Instant::now() + BODY_TIMEOUT;
    request.map(|body| {
        let parts = body.into_data_stream();
        Body::from_stream(stream::unfold(Some(parts), move |parts| async move {
            let mut parts = parts?;
            match timeout_at(until, parts.next()).await {
                Ok(part) => Some((part?.map_err(io::Error::other), Some(parts))),
                Err(_) => Some((Err(io::ErrorKind::TimedOut.into()), None)),
            }
        }))
    })
}

/// Converts a refusal of axum, such as of a form that is too long, to the format of all errors.
async fn refused_in_json(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_ours = kind.is_some_and(|kind| !kind.as_bytes().starts_with(b"text/plain"));
    let (mut parts, body) = response.into_parts();
    if is_ours || !parts.status.is_client_error() {
        return Response::from_parts(parts, body);
    }
    let words = body::to_bytes(body, LONGEST_REASON).await;
    let words = words.unwrap_or_default();
    let words = match words.is_empty() {
        true => parts.status.canonical_reason().unwrap_or("refused").into(),
        false => String::from_utf8_lossy(&words),
    };
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, json!({ "error": words }).to_string().into())
}

/// Escapes the hidden characters in JSON and in events, whose data is JSON. A program may print them
/// to a terminal, which some of them control, and where others change the order of the text.
async fn with_escaped_json(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.map(HeaderValue::as_bytes).unwrap_or_default();
    if kind.starts_with(b"text/event-stream") {
        return response.map(|body| {
            // A chunk is a whole event, so it ends with a whole character.
            let events = body.into_data_stream();
            Body::from_stream(events.map(|event| event.map(escaped)))
        });
    }
    if !kind.starts_with(b"application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let json = match body::to_bytes(body, usize::MAX).await {
        Ok(json) => json,
        Err(error) => return Refusal::Failed(error.to_string()).into_response(),
    };
    let length = json.len();
    let escaped = escaped(json);
    if escaped.len() != length {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Response::from_parts(parts, escaped.into())
}

fn escaped(json: Bytes) -> Bytes {
    let escaped = match std::str::from_utf8(&json).map(escape_json) {
        Ok(Cow::Owned(escaped)) => Some(escaped),
        Ok(Cow::Borrowed(_)) | Err(_) => None,
    };
    escaped.map_or(json, Bytes::from)
}

/// Adds the headers that tell a browser to trust nothing but this page.
async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed: [(HeaderName, &'static str); 5] = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // With `no-referrer`, browsers would name no origin for our own forms.
        (header::REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let nothing_kept = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(nothing_kept);
    response
}

async fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let kept = "private, max-age=60";
    (
        [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, kept)],
        text,
    )
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::http::StatusCode;
    use axum::response::sse::Event;
    use common::text::is_hidden;
    use serde_json::Value;
    use tower_service::Service as _;

    use super::*;

    async fn send(mut routes: Router, method: &str, length: usize, body: Body) -> Response {
        let request = Request::builder()
            .method(method)
            .uri("/form")
            .header(header::CONTENT_LENGTH, length)
            .body(body);
        let Ok(response) = routes.call(request.unwrap()).await;
        response
    }

    #[tokio::test]
    async fn refusal_of_axum_is_json_and_keeps_its_headers() {
        let form = post(|text: String| async move { text });
        let routes = guarded(in_bounds(Router::new().route("/form", form), LONGEST_FORM));
        let long = || Body::from(vec![b'x'; LONGEST_FORM + 1]);
        let too_long = StatusCode::PAYLOAD_TOO_LARGE;
        for (method, length, body, status) in [
            ("GET", 0, Body::empty(), StatusCode::METHOD_NOT_ALLOWED),
            ("POST", LONGEST_FORM + 1, long(), too_long),
            ("POST", mcp::LONGEST_MESSAGE + 1, Body::empty(), too_long),
        ] {
            let refused = send(routes.clone(), method, length, body).await;
            assert_eq!(refused.status(), status);
            let headers = refused.headers().clone();
            for (name, value) in [
                (header::CONTENT_TYPE, "application/json"),
                (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CACHE_CONTROL, "no-store"),
            ] {
                assert_eq!(headers.get(&name).unwrap(), value, "{status} {name}");
            }
            let is_method = status == StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(headers.contains_key(header::ALLOW), is_method);
            let body = body::to_bytes(refused.into_body(), LONGEST_REASON).await;
            let error: Value = serde_json::from_slice(&body.unwrap()).unwrap();
            assert!(error["error"].is_string(), "{error}");
        }
    }

    #[tokio::test]
    async fn hidden_characters_are_escaped_in_json_and_events() {
        let hostile = || json!({ "text": "\u{9b}31m \u{202e} é" });
        let event = move || async move {
            let data = hostile().to_string();
            streams::sse(stream::iter([Event::default().id("7").data(data)]))
        };
        let routes = Router::new()
            .route("/json", get(move || async move { Json(hostile()) }))
            .route(
                "/refused",
                get(|| async { Refusal::Wrong("\u{9b}".to_owned()) }),
            )
            .route("/event", get(event))
            // The control: the page shows hidden characters in its own way.
            .route("/text", get(|| async { "\u{202e}" }));
        let routes: Router = guarded(in_bounds(routes, LONGEST_FORM));
        let read = async |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty());
            let Ok(response) = routes.clone().call(request.unwrap()).await;
            let body = body::to_bytes(response.into_body(), LONGEST_REASON).await;
            String::from_utf8(body.unwrap().to_vec()).unwrap()
        };
        let is_escaped = |text: &str| !text.contains(|one: char| one != '\n' && is_hidden(one));
        let json = read("/json").await;
        assert!(is_escaped(&json), "{json:?}");
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), hostile());
        let refused = read("/refused").await;
        assert!(is_escaped(&refused), "{refused:?}");
        let event = read("/event").await;
        assert!(is_escaped(&event), "{event:?}");
        let data = event.strip_prefix("id: 7\ndata: ").unwrap();
        assert_eq!(serde_json::from_str::<Value>(data).unwrap(), hostile());
        assert_eq!(read("/text").await, "\u{202e}");
    }

    #[tokio::test]
    async fn body_within_the_bound_is_taken() {
        let form = post(|text: String| async move { text.len().to_string() });
        let routes = guarded(in_bounds(Router::new().route("/form", form), LONGEST_FORM));
        let body = Body::from(vec![b'x'; LONGEST_FORM]);
        let taken = send(routes, "POST", LONGEST_FORM, body).await;
        assert_eq!(taken.status(), StatusCode::OK);
    }
}
