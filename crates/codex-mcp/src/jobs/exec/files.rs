//! The files that a command line of Codex's names.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::picture::Picture;

/// Pictures and a schema, as Codex wants them named. What was written for it is
/// gone when this is dropped.
pub(super) struct Files {
    pub(super) images: Vec<PathBuf>,
    pub(super) schema: Option<PathBuf>,
    _folder: Option<TempDir>,
}

/// Why they can't be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesError {
    #[error("a temporary file for Codex can't be written: {0}")]
    Unwritable(#[from] io::Error),
    #[error("the image {} is not there, or not a file", .0.display())]
    NoImage(PathBuf),
    #[error("the data: URL of an image is not in base64: {0}")]
    BadUrl(String),
}

impl Files {
    pub(super) fn write(
        images: &[Picture],
        schema: Option<&Map<String, Value>>,
    ) -> Result<Self, FilesError> {
        let plain = |image: &Picture| matches!(image, Picture::File(path) if is_plain(path));
        let needed = schema.is_some() || !images.iter().all(plain);
        let folder = needed.then(TempDir::new).transpose()?;
        let place = folder.as_ref().map_or(Path::new(""), TempDir::path);
        let named = images.iter().enumerate();
        let images = named.map(|(number, image)| image_file(image, place, number));
        let images = images.collect::<Result<_, _>>()?;
        let schema = match schema {
            Some(schema) => Some(schema_file(schema, place)?),
            None => None,
        };
        Ok(Self {
            images,
            schema,
            _folder: folder,
        })
    }
}

/// Codex takes a comma for the end of a name.
fn is_plain(path: &Path) -> bool {
    !path.to_string_lossy().contains(',')
}

/// Codex goes on without a word if a picture isn't there.
fn image_file(image: &Picture, folder: &Path, number: usize) -> Result<PathBuf, FilesError> {
    let written = folder.join(format!("image-{}", number + 1));
    match image {
        Picture::File(path) if !path.is_file() => Err(FilesError::NoImage(path.clone())),
        Picture::File(path) if is_plain(path) => Ok(path.clone()),
        Picture::File(path) => {
            symlink(path, &written)?;
            Ok(written)
        }
        Picture::Inline(url) => {
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
        std::fs::write(&odd, "odd").unwrap();
        let inline = Picture::Inline(format!("data:image/png;base64,{}", STANDARD.encode("in")));
        let files = Files::write(&[Picture::File(odd), inline], None).unwrap();
        let contents: Vec<String> = files
            .images
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        assert_eq!(contents, ["odd", "in"]);
        assert!(files.images.iter().all(|path| is_plain(path)));
        let gone = files.images[1].clone();
        drop(files);
        assert!(!gone.exists());

        let absent = Picture::File(folder.path().join("absent.png"));
        assert!(Files::write(&[absent], None).is_err());
    }
}
