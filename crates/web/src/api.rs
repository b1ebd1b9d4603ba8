//! JSON for programs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};
use work_board::AllWork;

use crate::app::App;
use crate::refusal::{NO_SESSION, Refusal};

pub(crate) async fn work(State(app): State<Arc<App>>) -> Result<Json<Value>, Refusal> {
    let AllWork { work, failure } = app.board.work().await;
    match failure {
        Some(failure) => Err(Refusal::Failed(failure)),
        None => Ok(Json(json!({ "work": work }))),
    }
}

pub(crate) async fn session(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let work = app.board.session(&id).ok_or(NO_SESSION)?;
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
