//! Actions on jobs and runs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Form, Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use codex_engine::logic::action::DecidedBy;
use host_process::logic::handshake::Door;
use job_queue::logic::{JobId, JobState};
use job_queue::service::NewAnswer;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use work_board::{NewRun, Resubmitted};

use crate::app::App;
use crate::forms::{ANSWER, Fields, FormResponse, answer_of, check_names, field, respond};
use crate::refusal::{NO_JOB, Refusal};

/// The fields of a form that starts a run.
const RUN: [&str; 13] = [
    "task",
    "directory",
    "sandbox",
    "files",
    "commits",
    "branch",
    "issue_comment",
    "command",
    "diff_within",
    "clean",
    "pushed",
    "pr",
    "review",
];

/// How long the answer about a submitted run waits for Codex to tell whether it has a login. A client
/// that has to wait longer may take the run for lost, and submit it again.
const LOGIN_LIMIT: Duration = Duration::from_secs(2);

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
        check_names(&fields, &ANSWER)?;
        let job = find(&app, &id).await?;
        let question = field(&fields, "question")?;
        let response = answer_of(&fields)?;
        let jobs = app.board.jobs.service();
        let given = NewAnswer::new(response, DecidedBy::Page);
        jobs.respond(&job, Some(question), given).await?;
        Ok(FormResponse::on(format!("/jobs/{id}"), "Answered."))
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
        check_names(&fields, &["text"])?;
        let job = find(&app, &id).await?;
        let text = field(&fields, "text")?.to_owned();
        app.board.jobs.service().steer(&job, text).await?;
        Ok(FormResponse::on(
            format!("/jobs/{id}"),
            "Added to the turn.",
        ))
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
        let outcome = app.board.jobs.service().cancel(&job).await?;
        match outcome.new_status() {
            JobState::Cancelled => Ok(FormResponse::on(format!("/jobs/{id}"), "Cancelled.")),
            _ => Err(Refusal::Conflict(outcome.message())),
        }
    };
    respond(done.await, &headers)
}

pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let done = async {
        let job = id.parse().map_err(|_| NO_JOB)?;
        let Resubmitted { job, warning } = app.board.retry(job, Door::Page).await?;
        Ok(match warning {
            Some(warning) => FormResponse::elsewhere(
                format!("/jobs/{job}"),
                format!("Submitted, but {warning}."),
            ),
            None => submitted(job.as_str()),
        })
    };
    respond(done.await, &headers)
}

pub(crate) async fn start_run(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Form(fields): Form<Fields>,
) -> Response {
    let done = async {
        check_names(&fields, &RUN)?;
        let text = |name| field(&fields, name).map(str::to_owned);
        let new = NewRun {
            task: text("task")?,
            directory: text("directory")?,
            sandbox: text("sandbox")?,
            criteria: criteria(&fields)?,
        };
        let login = timeout(LOGIN_LIMIT, app.board.missing_login());
        let (run, login) = tokio::join!(app.board.start_run(new), login);
        let run = run?;
        Ok(match login.ok().flatten() {
            Some(login) => FormResponse::elsewhere(
                format!("/jobs/{run}"),
                format!(
                    "Submitted. Codex has no login, without which the run will fail: run `{login}`, \
                     then submit it again."
                ),
            ),
            None => submitted(&run),
        })
    };
    respond(done.await, &headers)
}

/// The criteria of a form, as the tool `codex_run` takes them.
pub(crate) fn criteria(fields: &Fields) -> Result<Map<String, Value>, Refusal> {
    let mut criteria = Map::new();
    for name in ["files", "diff_within"] {
        if let Ok(lines) = field(fields, name) {
            let globs = lines.lines().map(str::trim);
            let globs: Vec<&str> = globs.filter(|line| !line.is_empty()).collect();
            criteria.insert(name.to_owned(), json!(globs));
        }
    }
    for name in ["commits", "branch", "issue_comment", "command"] {
        if let Ok(text) = field(fields, name) {
            criteria.insert(name.to_owned(), json!(text.trim()));
        }
    }
    for name in ["clean", "pushed", "pr", "review"] {
        if is_checked(fields, name)? {
            criteria.insert(name.to_owned(), json!(true));
        }
    }
    Ok(criteria)
}

/// Whether a checkbox is checked; programs can also say that it is not.
fn is_checked(fields: &Fields, name: &str) -> Result<bool, Refusal> {
    match fields.get(name).map(String::as_str) {
        Some("on" | "yes" | "true" | "1") => Ok(true),
        None | Some("" | "off" | "no" | "false" | "0") => Ok(false),
        Some(other) => Err(Refusal::Wrong(format!(
            "{name}: it must be `on`, or left out, not {other:?}"
        ))),
    }
}

/// The page of a job that was just submitted.
fn submitted(id: &str) -> FormResponse {
    FormResponse::elsewhere(format!("/jobs/{id}"), "Submitted.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_becomes_criteria() {
        let form = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let pairs = pairs.map(|&(name, value)| (name.to_owned(), value.to_owned()));
            criteria(&pairs.collect())
        };
        let found = form(&[
            ("files", "src/*.rs\n\n docs/** "),
            ("diff_within", "src"),
            ("commits", " 2@main "),
            ("branch", "feature/x"),
            ("issue_comment", "owner/repo#1"),
            ("command", " "),
            ("clean", "on"),
            ("review", "no"),
        ]);
        let expected = json!({ "files": ["src/*.rs", "docs/**"], "diff_within": ["src"],
            "commits": "2@main", "branch": "feature/x", "issue_comment": "owner/repo#1",
            "clean": true });
        assert_eq!(json!(found.unwrap()), expected);
        assert_eq!(form(&[]).unwrap(), Map::new());
        assert!(form(&[("clean", "perhaps")]).is_err());
    }
}
