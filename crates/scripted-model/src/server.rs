//! The HTTP side: a loopback server that lives as long as its handle.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::plan::{Plan, ToolError, plan};
use crate::playback::{Playback, stopped};
use crate::record::{Record, Unanswered};
use crate::reply::Pause;
use crate::request::Request;
use crate::script::{ReplyError, Script};

/// The name of the model in [`ScriptedModel::codex_config`].
const MODEL: &str = "mock-model";

/// How many connections may wait to be accepted. With the default a burst of a
/// few hundred overflows the queue, and some of it is delayed by a second or
/// reset. 4096 is Linux's own limit (`net.core.somaxconn`) since 5.4.
const BACKLOG: u32 = 4096;

/// A running model. Dropping it stops the server and breaks off the responses
/// it is in the middle of; [`stop`](Self::stop) also waits for that.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    record: Arc<Record>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The model could not start.
#[derive(Debug, thiserror::Error)]
#[error("the scripted model can't listen on 127.0.0.1: {0}")]
pub struct StartError(#[from] io::Error);

/// Why a request got no answer from the script.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Reply(#[from] ReplyError),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("the script answers with the HTTP status {0}, which does not exist: use 100 to 999")]
    Status(u16),
}

struct Server {
    script: Script,
    record: Arc<Record>,
    stop: watch::Receiver<bool>,
    /// Tells the responses of this server from those of an earlier one that a
    /// resumed conversation still holds.
    started: u128,
}

impl ScriptedModel {
    /// Starts a model on a free port of 127.0.0.1, on the current tokio runtime.
    ///
    /// # Errors
    /// When no port can be opened.
    pub async fn start(script: Script) -> Result<Self, StartError> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let record = Arc::new(Record::new(script.recording));
        let (stop, stop_seen) = watch::channel(false);
        let server = Arc::new(Server {
            script,
            record: Arc::clone(&record),
            stop: stop_seen.clone(),
            started: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_micros()),
        });
        let task = tokio::spawn(serve(listener, router(server), stop_seen));
        Ok(Self {
            address,
            record,
            stop,
            task,
        })
    }

    /// The base URL to give to Codex, ending in `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// A `config.toml` for `CODEX_HOME` that makes Codex use this model, without
    /// an account. All of it stands at the top level, so more keys and tables
    /// can be appended.
    pub fn codex_config(&self) -> String {
        format!(
            "model = \"{MODEL}\"\n\
             model_provider = \"mock\"\n\
             model_providers.mock.name = \"mock\"\n\
             model_providers.mock.base_url = \"{}\"\n\
             model_providers.mock.wire_api = \"responses\"\n\
             model_providers.mock.requires_openai_auth = false\n\
             model_providers.mock.supports_websockets = false\n",
            self.base_url()
        )
    }

    /// The requests so far, oldest first, as far as they are
    /// [kept](crate::Recording).
    pub fn requests(&self) -> Vec<Request> {
        self.record.requests()
    }

    /// How many requests there have been, kept or not.
    pub fn request_count(&self) -> usize {
        self.record.count()
    }

    /// Waits until there have been `count` requests.
    pub async fn requested(&self, count: usize) {
        self.record.reached(count).await;
    }

    /// The requests the script had no answer to, at most the newest 100.
    pub fn unanswered(&self) -> Vec<Unanswered> {
        self.record.unanswered()
    }

    /// Stops the model and waits until its connections are closed.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // It fails only if the runtime is shutting down, when all is closed too.
        let _ = (&mut self.task).await;
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) {
    // Without this, small paced deltas wait for the acknowledgement of earlier
    // ones. It is only about speed, so a failure changes nothing.
    let listener = listener.tap_io(|connection| {
        let _ = connection.set_nodelay(true);
    });
    // The server handles its own accept errors and never returns one.
    let _ = axum::serve(listener, router)
        .with_graceful_shutdown(async move { stopped(&mut stop).await })
        .await;
}

fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/v1/responses", post(respond))
        .route("/v1/models", get(models))
        .fallback(not_found)
        .method_not_allowed_fallback(not_found)
        // Conversations with pictures are larger than the default of 2 MB.
        .layer(DefaultBodyLimit::disable())
        .with_state(server)
}

async fn respond(State(server): State<Arc<Server>>, body: Bytes) -> Response {
    let request = match serde_json::from_slice(&body) {
        Ok(body) => Request::new(body),
        Err(error) => {
            let message = format!("the request is not JSON: {error}");
            return refusal(StatusCode::BAD_REQUEST, &message);
        }
    };
    let number = server.record.note(&request);
    match server.answer(&request, number).await {
        Ok(response) => response,
        Err(problem) => {
            let reason = problem.to_string();
            let response = refusal(StatusCode::BAD_REQUEST, &reason);
            server
                .record
                .note_unanswered(Unanswered { request, reason });
            response
        }
    }
}

impl Server {
    async fn answer(&self, request: &Request, number: usize) -> Result<Response, Problem> {
        match plan(self.script.reply(request)?, request)? {
            Plan::Stream(actions) => {
                let response_id = format!("{:x}_{number}", self.started);
                let playback = Playback::new(actions, response_id);
                let body = Body::from_stream(playback.into_body(self.stop.clone()));
                let content = (header::CONTENT_TYPE.as_str(), "text/event-stream");
                let more = self.script.headers.iter().copied();
                let headers = AppendHeaders([content].into_iter().chain(more));
                Ok((headers, body).into_response())
            }
            Plan::Refuse {
                pauses,
                status,
                body,
                headers,
            } => {
                let status = StatusCode::from_u16(status).map_err(|_| Problem::Status(status))?;
                self.wait(&pauses).await;
                let content = (header::CONTENT_TYPE.as_str(), "application/json".to_owned());
                let headers = AppendHeaders([content].into_iter().chain(headers));
                Ok((status, headers, body).into_response())
            }
        }
    }

    async fn wait(&self, pauses: &[Pause]) {
        let mut stop = self.stop.clone();
        for pause in pauses {
            tokio::select! {
                () = stopped(&mut stop) => return,
                () = pause.pass() => {}
            }
        }
    }
}

/// The list in OpenAI's form, and an empty one in Codex's own: it then uses what
/// it knows about models.
async fn models() -> Json<Value> {
    Json(json!({
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "script"}],
        "models": [],
    }))
}

async fn not_found(method: Method, uri: Uri) -> Response {
    let message = format!(
        "the scripted model has no {method} {}: it has POST /v1/responses and GET /v1/models",
        uri.path()
    );
    refusal(StatusCode::NOT_FOUND, &message)
}

/// An error in the form the API uses.
fn refusal(status: StatusCode, message: &str) -> Response {
    let error = json!({"error": {
        "message": message,
        "type": "invalid_request_error",
        "code": "unscripted",
    }});
    (status, Json(error)).into_response()
}
