//! The pictures that Codex looks at.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use image_request::ImageRoot;
use image_request::logic::picture::SizeLimit;
use safe_files::off_runtime;
use work_board::logic::step::StepKind;

use crate::app::App;
use crate::refusal::{NO_SESSION, Refusal};

const NO_PICTURE: Refusal = Refusal::Missing("such picture");

/// The picture of a step. It is read under the rules under which Codex gets pictures: it lies in the
/// repository of the session, and is a picture by its first bytes.
pub(crate) async fn of_step(
    State(app): State<Arc<App>>,
    Path((id, step)): Path<(String, u64)>,
) -> Result<Response, Refusal> {
    let live = app.board.hosts.session(&id).ok_or(NO_SESSION)?;
    let directory = live.summary.directory.clone().ok_or(NO_PICTURE)?;
    let feed = app.feeds.feed(&id).await?;
    let path = feed.look(|conversation, _| match &conversation.step(step)?.kind {
        StepKind::Picture { path, .. } => Some(path.clone()),
        _ => None,
    });
    let path = path.ok_or(NO_PICTURE)?;
    let reading = off_runtime::run(move || read(&directory, &path)).await;
    let read = reading.map_err(|error| Refusal::Failed(error.to_string()))?;
    let (kind, bytes) = read.ok_or(NO_PICTURE)?;
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, kind)], bytes).into_response())
}

fn read(directory: &FilePath, path: &str) -> Option<(&'static str, Vec<u8>)> {
    let root = ImageRoot::around(directory, SizeLimit::default()).ok()?;
    // Codex names pictures that it reads itself by their whole path.
    let path = match FilePath::new(path).strip_prefix(root.top()) {
        Ok(below) => below.to_str()?,
        Err(_) => path,
    };
    let path = root.path(path).ok()?;
    let bytes = root.read(&path).ok()?;
    Some((path.kind().media_type(), bytes))
}
