//! Which address does what.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{ConnectInfo, DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Json, Router};
use codex_engine::logic::action::Decision;
use host_process::logic::handshake::{Door, SessionAct};
use job_queue::service::{Response as Answer, decision_for};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use tower_service::Service as _;

use crate::app::{App, Connections, NO_SESSION};
use crate::auth::{self, Caller, Doorkeeper};
use crate::board::Board;
use crate::feed::Feeds;
use crate::hosts::Hosts;
use crate::jobs::JobBoard;
use crate::logic::authority::Authorities;
use crate::mcp::{self, Forwarder};
use crate::page::layout::{SCRIPT, STYLE};
use crate::page::{home, job, login, session};
use crate::refusal::Refusal;
use crate::store::CredentialStore;
use crate::work::AllWork;
use crate::{server, streams, tools};

/// The longest form, in bytes.
const LONGEST_FORM: usize = 256 * 1024;

/// The longest message of an MCP client, in bytes (4 MiB).
const LONGEST_MESSAGE: usize = 4 << 20;

/// How long a session of MCP may be silent: as long as a question may be open.
const SESSION_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a client may be silent while it sends a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Only our own script and style sheet, no frame, and nothing from anywhere else.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; \
     base-uri 'none'";

/// Serves until `closing` is cancelled. `state` is the state directory.
pub async fn serve(
    listener: TcpListener,
    (state, authorities): (PathBuf, Authorities),
    jobs: JobBoard,
    connections: Connections,
    closing: CancellationToken,
) {
    let hosts = Arc::new(Hosts::new(state.clone()));
    let jobs = Arc::new(jobs);
    let board = Arc::new(Board::new(Arc::clone(&hosts), Arc::clone(&jobs)));
    let app = Arc::new(App {
        door: Arc::new(Doorkeeper::new(CredentialStore::new(&state), authorities)),
        feeds: Arc::new(Feeds::new(Arc::clone(&hosts))),
        hosts: Arc::clone(&hosts),
        jobs,
        board: Arc::clone(&board),
        connections,
        mcp: OnceCell::new(),
        closing: closing.clone(),
    });
    tokio::spawn(closing.clone().run_until_cancelled_owned(hosts.follow()));
    tokio::spawn(closing.clone().run_until_cancelled_owned(board.follow()));
    server::serve(listener, routes(app), closing).await;
}

fn routes(app: Arc<App>) -> Router {
    let known = Router::new()
        .route("/", get(work_page))
        .route("/events", get(streams::work))
        .route("/sessions", post(start))
        .route("/sessions/{id}", get(session_page))
        .route("/sessions/{id}/events", get(streams::of_session))
        .route("/sessions/{id}/answer", post(answer_session))
        .route("/sessions/{id}/prompt", post(prompt))
        .route("/sessions/{id}/interrupt", post(interrupt))
        .route("/sessions/{id}/cancel", post(cancel_session))
        .route("/sessions/{id}/fork", post(fork))
        .route("/jobs/{id}", get(job_page))
        .route("/jobs/{id}/events", get(streams::of_job))
        .route("/jobs/{id}/answer", post(answer_job))
        .route("/jobs/{id}/steer", post(steer_job))
        .route("/jobs/{id}/cancel", post(cancel_job))
        .route("/api/work", get(work_list))
        .route("/api/sessions/{id}", get(conversation))
        .route("/mcp", any(mcp_request))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app.door),
            auth::check_caller,
        ));
    Router::new()
        .route("/login", get(sign_in_page).post(sign_in))
        .route(
            SCRIPT,
            get(|| asset("text/javascript", include_str!("assets/page.js"))),
        )
        .route(
            STYLE,
            get(|| asset("text/css", include_str!("assets/page.css"))),
        )
        .merge(known)
        .fallback(|headers: HeaderMap| async move {
            Refusal::Missing("such page").for_request(&headers)
        })
        .layer(DefaultBodyLimit::max(LONGEST_FORM))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app.door),
            auth::check_origin,
        ))
        .layer(middleware::from_fn(guard))
        .layer(RequestBodyLimitLayer::new(LONGEST_MESSAGE))
        .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
        .with_state(app)
}

/// Adds what tells a browser to trust nothing but this page.
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

#[derive(Debug, Deserialize)]
struct Code {
    code: Option<String>,
}

async fn sign_in_page(Query(Code { code }): Query<Code>) -> Html<String> {
    Html(login::sign_in(code.as_deref(), None).into_string())
}

async fn sign_in(
    State(app): State<Arc<App>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Form(Code { code }): Form<Code>,
) -> Response {
    match app.door.sign_in(from.ip(), code.unwrap_or_default()).await {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response(),
        Err(refusal) => refusal.for_request(&headers),
    }
}

async fn work_page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Html<String> {
    let work = app.board.work().await;
    Html(home::page(caller.scope, &work, SystemTime::now()).into_string())
}

async fn session_page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let page = async {
        let work = app.session_work(&id).ok_or(NO_SESSION)?;
        let feed = app.feeds.feed(&id).await?;
        let now = SystemTime::now();
        let page = feed.look(|conversation, latest| {
            session::page(caller.scope, &work, conversation, latest, now)
        });
        Ok(Html(page.into_string()))
    };
    page.await
        .map_err(|refusal: Refusal| refusal.for_request(&headers))
        .into_response()
}

async fn job_page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let shown = app.jobs.job(&id).await.map_err(Refusal::from);
    match shown.and_then(|shown| shown.ok_or(Refusal::Missing("such job"))) {
        Ok(shown) => {
            Html(job::page(caller.scope, &shown, SystemTime::now()).into_string()).into_response()
        }
        Err(refusal) => refusal.for_request(&headers),
    }
}

async fn work_list(State(app): State<Arc<App>>) -> Result<Json<Value>, Refusal> {
    let AllWork { work, failure } = app.board.work().await;
    match failure {
        Some(failure) => Err(Refusal::Failed(failure)),
        None => Ok(Json(json!({ "work": work }))),
    }
}

async fn conversation(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let work = app.session_work(&id).ok_or(NO_SESSION)?;
    let feed = app.feeds.feed(&id).await?;
    Ok(Json(feed.look(|conversation, _| {
        let steps: Vec<_> = conversation.steps().collect();
        json!({
            "work": work,
            "steps": steps,
            "plan": conversation.plan(),
            "diff": conversation.diff(),
            "tokens": conversation.tokens(),
        })
    })))
}

/// What was done: JSON for the script and for programs, the page again for a form without script.
struct Done {
    words: &'static str,
    /// The page on which to go on.
    address: String,
    /// Whether the script has to go there.
    is_elsewhere: bool,
}

impl Done {
    fn on(address: String, words: &'static str) -> Self {
        Self {
            words,
            address,
            is_elsewhere: false,
        }
    }

    fn for_request(self, headers: &HeaderMap) -> Response {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok());
        if accept.is_some_and(|accept| accept.contains("text/html")) {
            return Redirect::to(&self.address).into_response();
        }
        let address = self.is_elsewhere.then_some(self.address);
        Json(json!({ "done": self.words, "address": address })).into_response()
    }
}

fn respond(done: Result<Done, Refusal>, headers: &HeaderMap) -> Response {
    match done {
        Ok(done) => done.for_request(headers),
        Err(refusal) => refusal.for_request(headers),
    }
}

/// The fields of a form. Those of an answer are named `answer.FIELD`.
type Fields = HashMap<String, String>;

fn field<'a>(fields: &'a Fields, name: &'static str) -> Result<&'a str, Refusal> {
    let value = fields.get(name).map(String::as_str).unwrap_or_default();
    match value.trim().is_empty() {
        true => Err(Refusal::Wrong(format!("the field {name:?} is missing"))),
        false => Ok(value),
    }
}

/// The response that a form makes: a decision in Codex's form, or the answers to a question.
fn answer_of(fields: &Fields) -> Result<Answer, Refusal> {
    let decision = field(fields, "decision")?;
    if decision == "submit" {
        let named = fields.iter();
        let named = named.filter_map(|(name, text)| Some((name.strip_prefix("answer.")?, text)));
        let answers = named.map(|(name, text)| (name.to_owned(), text.as_str().into()));
        return Ok(Answer::Decision(Decision::Submit(Map::from_iter(answers))));
    }
    let decision = serde_json::from_str(decision);
    let decision = decision.map_err(|error| Refusal::Wrong(format!("not a decision: {error}")))?;
    Ok(Answer::Decision(decision))
}

/// The decision of a response that [`answer_of`] has made.
fn decision_of(response: Answer) -> Option<Decision> {
    match response {
        Answer::Decision(decision) => Some(decision),
        Answer::Rule | Answer::Words(_) | Answer::Text(_) => None,
    }
}

async fn answer_session(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        let question = field(&fields, "question")?.to_owned();
        let response = answer_of(&fields)?;
        let live = app.hosts.session(&id).ok_or(NO_SESSION)?;
        let open = live.questions.iter().find(|one| one.id == question);
        let decision = match open {
            Some(open) => decision_for(&question, &open.question, response)
                .map(Some)
                .map_err(|error| Refusal::Wrong(error.to_string()))?,
            // The host knows more: that it is open, or how it was closed, and by whom.
            None => decision_of(response),
        };
        let act = SessionAct::Answer {
            question,
            decision: json!(decision),
            reason: None,
            door: Door::Page,
        };
        app.hosts.act(&id, act).await?;
        Ok(Done::on(format!("/sessions/{id}"), "Answered."))
    };
    respond(done.await, &headers)
}

async fn prompt(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        let text = field(&fields, "text")?.to_owned();
        let work = app.session_work(&id).ok_or(NO_SESSION)?;
        let words = match work.step {
            Some(_) => {
                app.hosts.act(&id, SessionAct::Steer { text }).await?;
                "Added to the turn."
            }
            None => {
                let arguments = json!({ "sessionId": id, "prompt": text });
                tools::call(&*app.connections.sessions, "codex_reply", arguments).await?;
                "Sent."
            }
        };
        Ok(Done::on(format!("/sessions/{id}"), words))
    };
    respond(done.await, &headers)
}

async fn interrupt(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let done = app.hosts.act(&id, SessionAct::Interrupt).await;
    let done = done.map(|()| Done::on(format!("/sessions/{id}"), "The turn is being interrupted."));
    respond(done.map_err(Refusal::from), &headers)
}

async fn cancel_session(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let done = app.hosts.act(&id, SessionAct::Cancel).await;
    let done = done.map(|()| Done::on(format!("/sessions/{id}"), "The session has ended."));
    respond(done.map_err(Refusal::from), &headers)
}

async fn fork(State(app): State<Arc<App>>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let arguments = json!({ "action": "fork", "sessionId": id });
    let forked = tools::call(&*app.connections.sessions, "codex_session", arguments).await;
    let begun = async { begun(&app, &forked?).await };
    respond(begun.await, &headers)
}

async fn start(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        let arguments = json!({
            "prompt": field(&fields, "prompt")?,
            "cwd": field(&fields, "directory")?,
            "sandbox": field(&fields, "sandbox")?,
            "approvalPolicy": field(&fields, "approvals")?,
        });
        let started = tools::call(&*app.connections.sessions, "codex", arguments).await?;
        begun(&app, &started).await
    };
    respond(done.await, &headers)
}

/// The page of a session that has just begun, when there is one.
async fn begun(app: &App, answer: &Value) -> Result<Done, Refusal> {
    let id = answer["sessionId"].as_str();
    let id = id.ok_or_else(|| Refusal::Failed("the host has named no session".to_owned()))?;
    app.hosts.until_there(id).await;
    Ok(Done {
        words: "Begun.",
        address: format!("/sessions/{id}"),
        is_elsewhere: true,
    })
}

async fn answer_job(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        let job = app
            .jobs
            .find(&id)
            .await?
            .ok_or(Refusal::Missing("such job"))?;
        let question = field(&fields, "question")?;
        let response = answer_of(&fields)?;
        let jobs = app.jobs.service();
        jobs.respond(&job, Some(question), response, None).await?;
        Ok(Done::on(format!("/jobs/{id}"), "Answered."))
    };
    respond(done.await, &headers)
}

async fn steer_job(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        let job = app
            .jobs
            .find(&id)
            .await?
            .ok_or(Refusal::Missing("such job"))?;
        let text = field(&fields, "text")?.to_owned();
        app.jobs.service().steer(&job, text).await?;
        Ok(Done::on(format!("/jobs/{id}"), "Added to the turn."))
    };
    respond(done.await, &headers)
}

async fn cancel_job(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let done = async {
        let job = app
            .jobs
            .find(&id)
            .await?
            .ok_or(Refusal::Missing("such job"))?;
        app.jobs.service().cancel(&job).await?;
        Ok(Done::on(format!("/jobs/{id}"), "Cancelled."))
    };
    respond(done.await, &headers)
}

/// A message of an MCP client. Its token must be one that may decide: a tool may do anything.
async fn mcp_request(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    if let Err(refusal) = caller.must_decide() {
        return refusal.into_response();
    }
    let service = app.mcp.get_or_try_init(|| mcp_service(&app)).await;
    match service {
        // It answers each failure itself.
        Ok(service) => match service.clone().call(request).await {
            Ok(response) => response.into_response(),
            Err(never) => match never {},
        },
        Err(why) => Refusal::Failed(why).into_response(),
    }
}

async fn mcp_service(
    app: &App,
) -> Result<StreamableHttpService<Forwarder, LocalSessionManager>, String> {
    let connect = Arc::clone(&app.connections.classic);
    let about = mcp::about(&*connect).await?;
    let new = move || Ok(Forwarder::new(Arc::clone(&connect), about.clone()));
    // Host and Origin were checked before, also for names that only we know.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(LONGEST_MESSAGE)
        .with_cancellation_token(app.closing.child_token());
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION_LIFE);
    Ok(StreamableHttpService::new(new, Arc::new(sessions), config))
}
