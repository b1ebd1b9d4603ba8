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

/// The picture of a step. It is read under the same rules under which Codex gets pictures: it must
/// lie in the repository of the session, and be a picture by its first bytes.
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
    let mut root = ImageRoot::around(directory, SizeLimit::default()).ok()?;
    let mut path = path.to_owned();
    // Codex names pictures that it reads itself by their absolute paths. Below the session's
    // directory, there could be another picture with the same relative path.
    if FilePath::new(&path).is_absolute() {
        let top = root.top().to_owned();
        let below = FilePath::new(&path).strip_prefix(&top).ok()?;
        path = below.to_str()?.to_owned();
        root = ImageRoot::around(&top, SizeLimit::default()).ok()?;
    }
    let path = root.path(&path).ok()?;
    let bytes = root.read(&path).ok()?;
    Some((path.kind().media_type(), bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn picture(name: &str) -> Vec<u8> {
        [b"\x89PNG\r\n\x1a\n", name.as_bytes()].concat()
    }

    #[test]
    fn whole_path_is_that_of_the_picture_alone() {
        let made = tempfile::tempdir().unwrap();
        let top = made.path().canonicalize().unwrap();
        let session = top.join("sub");
        fs::create_dir_all(top.join(".git/refs")).unwrap();
        fs::create_dir(top.join(".git/objects")).unwrap();
        fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir(&session).unwrap();
        fs::write(top.join("one.png"), picture("top")).unwrap();
        fs::write(session.join("one.png"), picture("sub")).unwrap();
        let shown = |path: &str| read(&session, path).map(|(_, bytes)| bytes);
        let whole = top.join("one.png").display().to_string();
        assert_eq!(shown(&whole), Some(picture("top")));
        assert_eq!(shown("./one.png"), Some(picture("sub")));
        assert_eq!(shown("/one.png"), None);
    }
}
