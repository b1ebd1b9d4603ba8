//! The files that a command line of Codex's names.
#![expect(
    clippy::disallowed_methods,
    reason = "new files in a directory that is ours alone"
)]

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::picture::{Picture, PictureCopies, PictureError};

/// Pictures and a schema, as Codex wants them named. What was written for it is
/// gone when this is dropped.
pub(super) struct Files {
    pub(super) images: Vec<PathBuf>,
    pub(super) schema: Option<PathBuf>,
    _copies: PictureCopies,
    _folder: Option<TempDir>,
}

/// Why they can't be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesError {
    #[error("a temporary file for Codex can't be written: {0}")]
    Unwritable(#[from] io::Error),
    #[error(transparent)]
    Image(#[from] PictureError),
    #[error("the data: URL of an image is not in base64: {0}")]
    BadUrl(String),
}

impl Files {
    pub(super) fn write(
        images: &[Picture],
        schema: Option<&Map<String, Value>>,
    ) -> Result<Self, FilesError> {
        let copies = PictureCopies::make(images)?;
        let is_inline = |image: &Picture| matches!(image, Picture::Inline(_));
        let needed = schema.is_some() || images.iter().any(is_inline);
        let folder = needed.then(TempDir::new).transpose()?;
        let place = folder.as_ref().map_or(Path::new(""), TempDir::path);
        let named = copies.pictures.iter().enumerate();
        let images = named.map(|(number, image)| image_file(image, place, number));
        let images = images.collect::<Result<_, _>>()?;
        let schema = match schema {
            Some(schema) => Some(schema_file(schema, place)?),
            None => None,
        };
        Ok(Self {
            images,
            schema,
            _copies: copies,
            _folder: folder,
        })
    }
}

fn image_file(image: &Picture, folder: &Path, number: usize) -> Result<PathBuf, FilesError> {
    match image {
        Picture::File(copy) => Ok(copy.clone()),
        Picture::Inline(url) => {
            let written = folder.join(format!("image-{}", number + 1));
            let data = url.split_once(',').map_or("", |(_, data)| data);
            let bytes = STANDARD.decode(data);
            let bytes = bytes.map_err(|error| FilesError::BadUrl(error.to_string()))?;
            std::fs::write(&written, bytes)?;
            Ok(written)
        }
    }
}

fn schema_file(schema: &Map<String, Value>, folder: &Path) -> Result<PathBuf, FilesError> {
    let path = folder.join("schema.json");
    let text = serde_json::to_vec(schema).map_err(io::Error::from)?;
    std::fs::write(&path, text)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_names_without_commas() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a,b.png");
        let png = b"\x89PNG\r\n\x1a\nodd";
        std::fs::write(&odd, png).unwrap();
        let inline = Picture::Inline(format!("data:image/png;base64,{}", STANDARD.encode("in")));
        let files = Files::write(&[Picture::File(odd.clone()), inline], None).unwrap();
        // What is under the name by now makes no difference.
        std::fs::write(&odd, "other").unwrap();
        let contents: Vec<Vec<u8>> = files
            .images
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect();
        assert_eq!(contents, [png.to_vec(), b"in".to_vec()]);
        let has_comma = |path: &PathBuf| path.to_string_lossy().contains(',');
        assert!(!files.images.iter().any(has_comma));
        let gone = files.images[1].clone();
        drop(files);
        assert!(!gone.exists());

        let absent = Picture::File(folder.path().join("absent.png"));
        assert!(Files::write(&[absent], None).is_err());
    }
}
