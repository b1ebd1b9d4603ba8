//! Actions on sessions.

use std::sync::Arc;

use agent_team::logic::BadName;
use axum::extract::{Form, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use host_process::logic::handshake::{Door, SessionAct};
use work_board::{NewSession, Prompted};

use crate::app::App;
use crate::forms::{ANSWER, Fields, FormResponse, answer_of, check_names, field, respond};
use crate::refusal::Refusal;

pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        check_names(&fields, &ANSWER)?;
        let question = field(&fields, "question")?;
        let response = answer_of(&fields)?;
        app.board
            .answer(&id, question, response, Door::Page)
            .await?;
        Ok(FormResponse::on(format!("/sessions/{id}"), "Answered."))
    };
    respond(done.await, &headers)
}

pub(crate) async fn prompt(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        check_names(&fields, &["text"])?;
        let text = field(&fields, "text")?.to_owned();
        let words = match app.board.prompt(&id, text).await? {
            Prompted::Steered => "Added to the turn.",
            Prompted::Sent => "Sent.",
        };
        Ok(FormResponse::on(format!("/sessions/{id}"), words))
    };
    respond(done.await, &headers)
}

pub(crate) async fn interrupt(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let words = "Codex was told to interrupt the turn.";
    act(&app, &id, SessionAct::Interrupt, words, &headers).await
}

pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let words = "The session has ended.";
    let cancel = SessionAct::Cancel { door: Door::Page };
    act(&app, &id, cancel, words, &headers).await
}

async fn act(
    app: &App,
    id: &str,
    act: SessionAct,
    words: &'static str,
    headers: &HeaderMap,
) -> Response {
    let done = app.board.hosts.act(id, act).await;
    let done = done.map(|()| FormResponse::on(format!("/sessions/{id}"), words));
    respond(done.map_err(Into::into), headers)
}

pub(crate) async fn fork(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let forked = app.board.fork(&id).await;
    respond(forked.map(begun).map_err(Into::into), &headers)
}

pub(crate) async fn start(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        check_names(&fields, &["prompt", "directory", "sandbox", "approvals"])?;
        let text = |name| field(&fields, name).map(str::to_owned);
        let new = NewSession {
            prompt: text("prompt")?,
            directory: text("directory")?,
            sandbox: text("sandbox")?,
            approvals: text("approvals")?,
        };
        Ok(begun(app.board.start(new).await?))
    };
    respond(done.await, &headers)
}

pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        check_names(&fields, &["thread", "directory"])?;
        let thread = field(&fields, "thread")?;
        let directory = field(&fields, "directory").ok();
        Ok(begun(app.board.resume(thread, directory).await?))
    };
    respond(done.await, &headers)
}

pub(crate) async fn send_mail(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        check_names(&fields, &["to", "text"])?;
        let to = field(&fields, "to")?.parse();
        let to = to.map_err(|error: BadName| Refusal::Wrong(error.to_string()))?;
        let text = field(&fields, "text")?.to_owned();
        app.board.mail.send(to, text).await?;
        Ok(FormResponse::elsewhere("/mail".to_owned(), "Sent."))
    };
    respond(done.await, &headers)
}

/// The page of a session that has just begun.
fn begun(id: String) -> FormResponse {
    FormResponse::elsewhere(format!("/sessions/{id}"), "Begun.")
}
