//! Pictures in prompts: checking and copying them.

use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use safe_files::scratch::{self, Scratch};
use safe_files::untrusted_file::{self, Links, ReadError};
use serde::{Deserialize, Serialize};

use crate::logic::picture_kind::{PictureKind, START};

pub use std::fs::{File, OpenOptions};

/// The largest picture that is accepted, in bytes (20 MB).
pub const SIZE_LIMIT: u64 = 20_000_000;

/// The directory of copies, in the state directory.
const PLACE: &str = "images";

/// A picture in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Picture {
    /// The absolute path of a file.
    File(PathBuf),
    /// A data URL.
    Inline(String),
}

/// Why a picture is refused.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The file cannot be read.
    #[error("the image {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The path is not that of a file.
    #[error("the image {} is not a file", .0.display())]
    NotAFile(PathBuf),
    /// The picture is too large.
    #[error("the image {name} has more than {SIZE_LIMIT} bytes")]
    TooLarge {
        /// The name of the picture.
        name: String,
    },
    /// The content is not a picture.
    #[error("{name} is not a PNG, JPEG, GIF or WebP image")]
    NotAPicture {
        /// The name of the picture.
        name: String,
    },
    /// The private copy cannot be written.
    #[error("cannot write the copy of an image for Codex: {0}")]
    Copy(io::Error),
    /// The picture is given by another URL.
    #[error("an image is the path of a file or a data: URL; other URLs are not fetched")]
    OtherUrl,
    /// The data URL is malformed.
    #[error("the data: URL is not `data:image/…;base64,…`: {0}")]
    BadUrl(String),
}

impl Picture {
    /// Parses a path, relative to `cwd`, or a data URL, and checks that it names a
    /// picture now.
    ///
    /// # Errors
    ///
    /// [`PictureError`].
    pub fn named(text: &str, cwd: &Path) -> Result<Self, PictureError> {
        if let Some(rest) = text.strip_prefix("data:") {
            check_inline(rest)?;
            return Ok(Self::Inline(text.to_owned()));
        }
        if text.contains("://") {
            return Err(PictureError::OtherUrl);
        }
        let path = cwd.join(text);
        check_file(&path)?;
        Ok(Self::File(path))
    }
}

/// Private copies of the pictures that Codex opens by path. They ensure that Codex opens the
/// content that was checked, and are removed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct PictureCopies {
    /// The pictures for Codex, in their order.
    pub(crate) pictures: Vec<Picture>,
    _directory: Option<Scratch>,
}

impl PictureCopies {
    /// Checks and copies each picture that is a file.
    ///
    /// # Errors
    ///
    /// [`PictureError`].
    pub(crate) fn make(pictures: &[Picture]) -> Result<Self, PictureError> {
        let is_file = |picture: &Picture| matches!(picture, Picture::File(_));
        let directory = match pictures.iter().any(is_file) {
            true => Some(directory_of_copies().map_err(PictureError::Copy)?),
            false => None,
        };
        let here = directory.as_ref().map_or(Path::new(""), Scratch::path);
        let numbered = pictures.iter().enumerate();
        let copied = numbered.map(|(number, picture)| match picture {
            Picture::File(path) => {
                let bytes = read_file(path)?;
                let copy = here.join((number + 1).to_string());
                write_copy(&copy, path, &bytes).map_err(PictureError::Copy)
            }
            Picture::Inline(_) => Ok(picture.clone()),
        });
        Ok(Self {
            pictures: copied.collect::<Result<_, _>>()?,
            _directory: directory,
        })
    }
}

fn directory_of_copies() -> io::Result<Scratch> {
    Scratch::make(&scratch::place(PLACE)?)
}

/// Writes a copy under the picture's name, since Codex tells the model that name. Replaces commas,
/// since a comma would end the name on Codex's command line.
#[expect(
    clippy::disallowed_methods,
    reason = "a new file in a directory that is ours alone"
)]
fn write_copy(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<Picture> {
    std::fs::create_dir(directory)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let copy = directory.join(name.replace(',', "_"));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&copy)?;
    file.write_all(bytes)?;
    Ok(Picture::File(copy))
}

fn check_file(path: &Path) -> Result<(), PictureError> {
    open_file(path).map(drop)
}

fn read_file(path: &Path) -> Result<Vec<u8>, PictureError> {
    let (file, mut bytes) = open_file(path)?;
    // The file may have grown since its size was checked.
    let read = file.take(SIZE_LIMIT).read_to_end(&mut bytes);
    read.map_err(|error| PictureError::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    match u64::try_from(bytes.len()).is_ok_and(|length| length <= SIZE_LIMIT) {
        true => Ok(bytes),
        false => Err(PictureError::TooLarge {
            name: path.display().to_string(),
        }),
    }
}

/// Opens a picture and checks its first bytes, which are returned with the file.
fn open_file(path: &Path) -> Result<(File, Vec<u8>), PictureError> {
    let unreadable = |error| PictureError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let opened = untrusted_file::open(path, Links::Followed);
    let mut file = opened.map_err(|error| match error {
        ReadError::Io { error, .. } => unreadable(error),
        _ => PictureError::NotAFile(path.to_owned()),
    })?;
    let name = || path.display().to_string();
    if file.metadata().map_err(unreadable)?.len() > SIZE_LIMIT {
        return Err(PictureError::TooLarge { name: name() });
    }
    let mut start = Vec::with_capacity(START);
    let read = Read::by_ref(&mut file)
        .take(START as u64)
        .read_to_end(&mut start);
    read.map_err(unreadable)?;
    match is_picture(&start) {
        true => Ok((file, start)),
        false => Err(PictureError::NotAPicture { name: name() }),
    }
}

fn check_inline(url: &str) -> Result<(), PictureError> {
    let bad = |why: &str| PictureError::BadUrl(why.to_owned());
    let (kind, data) = url.split_once(',').ok_or_else(|| bad("it has no comma"))?;
    if !kind.starts_with("image/") {
        return Err(bad("its type is not an image"));
    }
    if !kind.ends_with(";base64") {
        return Err(bad("it is not in base64"));
    }
    let name = "the data: URL".to_owned();
    let size = data.len() / 4 * 3;
    if u64::try_from(size).is_ok_and(|size| size > SIZE_LIMIT) {
        return Err(PictureError::TooLarge { name });
    }
    let bytes = STANDARD.decode(data);
    let bytes = bytes.map_err(|error| PictureError::BadUrl(error.to_string()))?;
    match is_picture(&bytes) {
        true => Ok(()),
        false => Err(PictureError::NotAPicture { name }),
    }
}

/// Checks the first bytes. Source of GIF's signature: its specification (89a), 17.
fn is_picture(start: &[u8]) -> bool {
    PictureKind::of_bytes(start).is_some()
        || [b"GIF87a", b"GIF89a"]
            .iter()
            .any(|gif| start.starts_with(*gif))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIXEL: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    #[test]
    fn file_must_hold_a_picture() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        std::fs::write(here.join("a.png"), PIXEL).unwrap();
        std::fs::write(here.join("text.png"), "hello").unwrap();
        std::fs::write(here.join("empty.png"), "").unwrap();
        let large = File::create(here.join("large.png")).unwrap();
        large.set_len(SIZE_LIMIT + 1).unwrap();

        let picture = Picture::named("a.png", here).unwrap();
        assert_eq!(picture, Picture::File(here.join("a.png")));
        for (name, expected) in [
            ("text.png", "is not a PNG"),
            ("empty.png", "is not a PNG"),
            ("absent.png", "cannot be read"),
            (".", "is not a file"),
            ("large.png", "more than 20000000 bytes"),
            ("https://example.org/a.png", "are not fetched"),
        ] {
            let error = Picture::named(name, here).unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }

    #[test]
    fn data_url_must_hold_a_picture() {
        let here = Path::new("/");
        let url = format!("data:image/png;base64,{}", STANDARD.encode(PIXEL));
        assert_eq!(
            Picture::named(&url, here).unwrap(),
            Picture::Inline(url.clone())
        );
        for (url, expected) in [
            ("data:image/png;base64", "no comma"),
            ("data:text/plain;base64,aGVsbG8=", "not an image"),
            ("data:image/png,hello", "not in base64"),
            ("data:image/png;base64,%%%", "Invalid"),
            ("data:image/png;base64,aGVsbG8=", "is not a PNG"),
        ] {
            let error = Picture::named(url, here).unwrap_err().to_string();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
