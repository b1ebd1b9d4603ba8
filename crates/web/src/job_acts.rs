//! What is done with jobs and runs.

use std::sync::Arc;

use axum::extract::{Form, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use job_queue::logic::JobId;

use crate::app::App;
use crate::forms::{Done, Fields, answer_of, field, respond};
use crate::refusal::{NO_JOB, Refusal};

async fn find(app: &App, id: &str) -> Result<JobId, Refusal> {
    app.board.jobs.find(id).await?.ok_or(NO_JOB)
}

pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        let job = find(&app, &id).await?;
        let question = field(&fields, "question")?;
        let response = answer_of(&fields)?;
        let jobs = app.board.jobs.service();
        jobs.respond(&job, Some(question), response, None).await?;
        Ok(Done::on(format!("/jobs/{id}"), "Answered."))
    };
    respond(done.await, &headers)
}

pub(crate) async fn steer(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        let job = find(&app, &id).await?;
        let text = field(&fields, "text")?.to_owned();
        app.board.jobs.service().steer(&job, text).await?;
        Ok(Done::on(format!("/jobs/{id}"), "Added to the turn."))
    };
    respond(done.await, &headers)
}

pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let done = async {
        let job = find(&app, &id).await?;
        app.board.jobs.service().cancel(&job).await?;
        Ok(Done::on(format!("/jobs/{id}"), "Cancelled."))
    };
    respond(done.await, &headers)
}
