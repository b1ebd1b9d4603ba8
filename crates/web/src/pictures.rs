//! The pictures that Codex looks at.

use std::io::{self, Read};
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use image_request::ImageRoot;
use image_request::image_root::OpenPicture;
use image_request::logic::picture::SizeLimit;
use safe_files::off_runtime;
use work_board::logic::step::StepKind;

use crate::app::App;
use crate::auth::Caller;
use crate::refusal::Refusal;

/// The most pictures that are sent at a time. Each is an open file, of which one piece is in memory.
pub(crate) const MOST_PICTURES: u32 = 64;

/// The length of a piece, in bytes (64 KiB).
const PIECE: usize = 64 * 1024;

const NO_PICTURE: Refusal = Refusal::Missing("such picture");

/// The picture of a step. It is read under the same rules under which Codex gets pictures: it must
/// lie in the repository of the session, and be a picture by its first bytes. It is read at the pace of
/// the client, as it can have many MiB.
pub(crate) async fn of_step(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path((id, step)): Path<(String, u64)>,
) -> Result<Response, Refusal> {
    let live = app.board.hosts.find(&id).await?;
    let directory = live.summary.directory.clone().ok_or(NO_PICTURE)?;
    let feed = app.feeds.feed(&id).await?;
    let path = feed.look(|conversation, _| shown_path(&conversation.step(step)?.kind));
    let path = path.ok_or(NO_PICTURE)?;
    let slot = app.pictures.take(&caller.id).ok_or(Refusal::Busy)?;
    let opening = off_runtime::run(move || open(&directory, &path)).await;
    let opened = opening.map_err(|error| Refusal::Failed(error.to_string()))?;
    let (kind, picture) = opened.ok_or(NO_PICTURE)?;
    let length = picture.size().to_string();
    let pieces = stream::try_unfold(picture.into_reader(), next_piece);
    let body = Body::from_stream(pieces.map(move |piece| {
        let _slot = &slot;
        piece
    }));
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_LENGTH, length),
    ];
    Ok((headers, body).into_response())
}

/// The path of the picture of a step, if Codex has got the picture: one that it was refused is shown to
/// nobody.
fn shown_path(step: &StepKind) -> Option<String> {
    match step {
        StepKind::Picture {
            path,
            is_shown: true,
        } => Some(path.clone()),
        _ => None,
    }
}

/// The next piece of a picture, and the rest; `None` at its end.
async fn next_piece<R: Read + Send + 'static>(mut picture: R) -> io::Result<Option<(Bytes, R)>> {
    let reading = off_runtime::run(move || {
        let mut piece = Vec::with_capacity(PIECE);
        let read = picture.by_ref().take(PIECE as u64).read_to_end(&mut piece);
        read.map(|_| (piece, picture))
    });
    let (piece, rest) = reading.await.map_err(io::Error::other)??;
    Ok((!piece.is_empty()).then(|| (piece.into(), rest)))
}

fn open(directory: &FilePath, path: &str) -> Option<(&'static str, OpenPicture)> {
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
    let picture = root.open(&path).ok()?;
    Some((path.kind().media_type(), picture))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use futures::TryStreamExt;

    use super::*;

    fn picture(name: &str) -> Vec<u8> {
        [b"\x89PNG\r\n\x1a\n", name.as_bytes()].concat()
    }

    #[test]
    fn absolute_path_opens_exactly_that_picture() {
        let made = tempfile::tempdir().unwrap();
        let top = made.path().canonicalize().unwrap();
        let session = top.join("sub");
        fs::create_dir_all(top.join(".git/refs")).unwrap();
        fs::create_dir(top.join(".git/objects")).unwrap();
        fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir(&session).unwrap();
        fs::write(top.join("one.png"), picture("top")).unwrap();
        fs::write(session.join("one.png"), picture("sub")).unwrap();
        let shown = |path: &str| {
            let (_, picture) = open(&session, path)?;
            let mut bytes = Vec::new();
            picture.into_reader().read_to_end(&mut bytes).unwrap();
            Some(bytes)
        };
        let whole = top.join("one.png").display().to_string();
        assert_eq!(shown(&whole), Some(picture("top")));
        assert_eq!(shown("./one.png"), Some(picture("sub")));
        assert_eq!(shown("/one.png"), None);
    }

    #[test]
    fn picture_that_codex_was_refused_is_not_shown() {
        let step = |is_shown| StepKind::Picture {
            path: "one.png".to_owned(),
            is_shown,
        };
        assert_eq!(shown_path(&step(true)).as_deref(), Some("one.png"));
        assert_eq!(shown_path(&step(false)), None);
    }

    #[tokio::test]
    async fn long_picture_is_read_in_pieces() {
        let whole: Vec<u8> = (0..=u8::MAX).cycle().take(2 * PIECE + 1).collect();
        let pieces = stream::try_unfold(io::Cursor::new(whole.clone()), next_piece);
        let pieces: Vec<Bytes> = pieces.try_collect().await.unwrap();
        let lengths: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [PIECE, PIECE, 1]);
        assert_eq!(pieces.concat(), whole);
    }
}
