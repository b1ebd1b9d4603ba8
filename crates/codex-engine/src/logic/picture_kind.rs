//! The kinds of pictures that Codex accepts, determined by the extension or the first
//! bytes.

use std::fmt;

/// The number of leading bytes that determine the kind of a picture.
pub const START: usize = 12;

/// The kinds of pictures that Codex accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PictureKind {
    /// Portable Network Graphics.
    Png,
    /// JPEG.
    Jpeg,
    /// WebP.
    WebP,
}

impl PictureKind {
    /// The kind of a file with this extension, in large or small letters, without the
    /// dot.
    #[must_use]
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "png" => Some(Self::Png),
            "jpg" | "jpeg" => Some(Self::Jpeg),
            "webp" => Some(Self::WebP),
            _ => None,
        }
    }

    /// The kind of a file with this beginning; [`START`] bytes are enough. Source of the
    /// signatures: PNG, 5.2; JPEG (ITU-T T.81), B.1.1.3, and the marker that follows; RFC
    /// 9649, 2.4.
    #[must_use]
    pub fn of_bytes(start: &[u8]) -> Option<Self> {
        if start.starts_with(b"\x89PNG\r\n\x1a\n") {
            return Some(Self::Png);
        }
        if start.starts_with(b"\xff\xd8\xff") {
            return Some(Self::Jpeg);
        }
        let is_webp = start.starts_with(b"RIFF") && start.get(8..START) == Some(b"WEBP");
        is_webp.then_some(Self::WebP)
    }

    /// Its media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::WebP => "image/webp",
        }
    }
}

impl fmt::Display for PictureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::WebP => "WebP",
        })
    }
}
