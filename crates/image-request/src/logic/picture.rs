//! Checks that a file is a picture, by its first bytes and its size.

use std::fmt;

use codex_engine::logic::picture_kind::PictureKind;
use codex_protocol::codex::Release;
use common::text::one_line;
use serde::{Deserialize, Serialize};

use super::path::{PicturePath, SHOWN_PATH};

/// The largest size limit of a picture, in bytes (100 MB): Codex holds the whole picture in
/// memory, more than once.
const LARGEST: u64 = 100_000_000;

/// The largest picture in the answer of a tool, in bytes. Codex reports the answer in one line, of
/// which we read 16 MiB, and 0.169.0 drops longer messages of an MCP server. Base64 encodes three
/// bytes as four.
const LARGEST_ANSWER: u64 = 12_500_000;

/// The same limit before [`Release::FIRST_WITH_PICTURE_TOKENS`]. In these releases, 740,000 bytes
/// of pictures fill the context of a conversation. Codex then summarizes the conversation without
/// the pictures, and the model asks for them again and again.
const LARGEST_OLD_ANSWER: u64 = 150_000;

/// The longest side of a picture that models see unscaled, in pixels.
const LONGEST_SIDE: u32 = 2048;

/// The side of the square patches in which models see pictures, in pixels, and the most patches.
const PATCH: u32 = 32;
const MOST_PATCHES: u64 = 2500;

/// How much of an error text is shown, in bytes.
const SHOWN_REASON: usize = 200;

/// The size limit of pictures, from 1 byte to 100 MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct SizeLimit(u64);

/// The size limit is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pictures can be limited to 1 to {LARGEST} bytes, not to {0}")]
pub struct BadLimit(pub u64);

impl SizeLimit {
    /// The limit in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// The largest picture in the answer of a tool to this release of Codex, or to another client,
/// in bytes.
#[must_use]
pub fn answer_limit(to: Option<Release>) -> u64 {
    match to {
        Some(release) if release < Release::FIRST_WITH_PICTURE_TOKENS => LARGEST_OLD_ANSWER,
        _ => LARGEST_ANSWER,
    }
}

/// The width and height to which a picture is scaled down for a model; `None` if it fits.
/// Codex 0.145 and later do the same (0.153.4, 0.169.0).
#[must_use]
pub fn size_for_models(width: u32, height: u32) -> Option<(u32, u32)> {
    let patches = |side: u32| u64::from(side.div_ceil(PATCH));
    let fits = |width: u32, height: u32| {
        width.max(height) <= LONGEST_SIDE && patches(width) * patches(height) <= MOST_PATCHES
    };
    if fits(width, height) {
        return None;
    }
    let longest = width.max(height);
    let scaled = |side: u32, to: u32| {
        let rounded =
            (u64::from(side) * u64::from(to) + u64::from(longest / 2)) / u64::from(longest);
        u32::try_from(rounded).unwrap_or(to).max(1)
    };
    // Removes one patch from the longest side until the picture fits.
    let most = longest.min(LONGEST_SIDE).next_multiple_of(PATCH);
    let sides = (1..=most / PATCH).rev().map(|count| count * PATCH);
    sides
        .map(|to| (scaled(width, to), scaled(height, to)))
        .find(|(width, height)| fits(*width, *height))
}

impl Default for SizeLimit {
    /// 20 MB.
    fn default() -> Self {
        Self(20_000_000)
    }
}

impl TryFrom<u64> for SizeLimit {
    type Error = BadLimit;

    fn try_from(bytes: u64) -> Result<Self, BadLimit> {
        match bytes {
            1..=LARGEST => Ok(Self(bytes)),
            _ => Err(BadLimit(bytes)),
        }
    }
}

impl fmt::Display for SizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<SizeLimit> for u64 {
    fn from(limit: SizeLimit) -> Self {
        limit.0
    }
}

/// A picture that Codex does not get. Displayed in words for Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPicture {
    /// The requested path.
    pub path: PicturePath,
    /// The reason.
    pub why: BadPictureReason,
}

/// Why Codex does not get a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadPictureReason {
    /// The file does not exist.
    Missing {
        /// The directory that was searched first.
        directory: String,
    },
    /// A link leads out of the repository.
    Outside,
    /// The path is a directory, a pipe or the like.
    NotAFile,
    /// The file cannot be read, with the system's error.
    Unreadable(String),
    /// The picture cannot be given to Codex under this name, for this reason.
    Unfit(String),
    /// The file is too large.
    TooLarge {
        /// Its size, in bytes.
        size: u64,
        /// The size limit.
        limit: SizeLimit,
    },
    /// The content is not the expected kind of picture.
    Content(Content),
    /// The picture cannot be decoded, for this reason.
    Damaged(String),
    /// Decoding it would take too much memory.
    TooManyPixels,
}

/// The content of a file that does not match its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// A picture of another kind.
    Other(PictureKind),
    /// Something else.
    Unknown,
}

impl std::error::Error for BadPicture {}

impl fmt::Display for BadPicture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, why } = self;
        let kind = path.kind();
        let path = one_line(path.as_str(), SHOWN_PATH);
        let ask = "ask for another file";
        match why {
            // The text begins as in the program that this one replaces.
            BadPictureReason::Missing { directory } => {
                let directory = one_line(directory, SHOWN_PATH);
                write!(f, "file does not exist: {path}, relative to {directory}")
            }
            BadPictureReason::Outside => write!(f, "{path} leads out of the repository, {ask}"),
            BadPictureReason::NotAFile => write!(f, "{path} is not a regular file, {ask}"),
            BadPictureReason::Unreadable(reason) | BadPictureReason::Unfit(reason) => {
                let reason = one_line(reason, SHOWN_REASON);
                write!(f, "{path} cannot be attached: {reason}, {ask}")
            }
            BadPictureReason::TooLarge { size, limit } => write!(
                f,
                "{path} is too large: it has {size} bytes and may have {}, ask for a smaller one",
                limit.bytes()
            ),
            BadPictureReason::Damaged(reason) => {
                let reason = one_line(reason, SHOWN_REASON);
                write!(f, "{path} cannot be decoded: {reason}, {ask}")
            }
            BadPictureReason::TooManyPixels => write!(
                f,
                "{path} has too many pixels to be decoded, ask for a smaller one"
            ),
            BadPictureReason::Content(content) => {
                let found = match content {
                    Content::Nothing => "the file is empty".to_owned(),
                    Content::Other(other) => format!("it is a {other} picture under that name"),
                    Content::Unknown => "it holds something else".to_owned(),
                };
                write!(f, "{path} is not a {kind} picture: {found}, {ask}")
            }
        }
    }
}

/// Checks a regular file by its size in bytes and its first
/// [`START`](codex_engine::logic::picture_kind::START) bytes, or all of them if it has fewer.
///
/// # Errors
///
/// [`BadPicture`] if the file is too large, or not of the kind of its extension.
pub fn check(
    path: &PicturePath,
    size: u64,
    start: &[u8],
    limit: SizeLimit,
) -> Result<PictureKind, BadPicture> {
    let refused = |why| BadPicture {
        path: path.clone(),
        why,
    };
    if size > limit.bytes() {
        return Err(refused(BadPictureReason::TooLarge { size, limit }));
    }
    let content = match PictureKind::of_bytes(start) {
        Some(kind) if kind == path.kind() => return Ok(kind),
        Some(other) => Content::Other(other),
        None if start.is_empty() => Content::Nothing,
        None => Content::Unknown,
    };
    Err(refused(BadPictureReason::Content(content)))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    const STARTS: [(&str, &[u8]); 8] = [
        ("PNG", b"\x89PNG\r\n\x1a\n\0\0\0\r"),
        ("JPEG", b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01"),
        ("WebP", b"RIFF\x24\0\0\0WEBP"),
        ("WAV", b"RIFF\x24\0\0\0WAVE"),
        ("GIF", b"GIF89a\x01\0\x01\0\0\0"),
        ("text", b"not a picture"),
        ("half a PNG", b"\x89PNG\r\n"),
        ("nothing", b""),
    ];

    fn path(text: &str) -> PicturePath {
        text.parse().unwrap()
    }

    #[test]
    fn contents_are_judged_by_extension() {
        let mut table = String::new();
        for name in ["a.png", "a.JPG", "a.jpeg", "a.webp"] {
            writeln!(table, "{name}").unwrap();
            for (what, start) in STARTS {
                let judged = match check(&path(name), 12, start, SizeLimit::default()) {
                    Ok(kind) => kind.media_type().to_owned(),
                    Err(error) => error.to_string(),
                };
                writeln!(table, "  {what:<12} {judged}").unwrap();
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn refusals_are_described() {
        let limit = SizeLimit::default();
        let whys = [
            BadPictureReason::Missing {
                directory: "/home/me/parser".to_owned(),
            },
            BadPictureReason::Outside,
            BadPictureReason::NotAFile,
            BadPictureReason::Unreadable("Permission denied\n(os error 13)".to_owned()),
            BadPictureReason::Unfit("Codex takes a comma for the end of a name".to_owned()),
            BadPictureReason::TooLarge {
                size: 20_000_001,
                limit,
            },
            BadPictureReason::Damaged("unexpected end\nof file".to_owned()),
            BadPictureReason::TooManyPixels,
        ];
        let path = path("./screens/a.png");
        let told = whys.map(|why| {
            let path = path.clone();
            BadPicture { path, why }.to_string()
        });
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn picture_of_exactly_the_limit_is_accepted() {
        let limit = SizeLimit::try_from(10).unwrap();
        let (path, start) = (path("a.png"), STARTS[0].1);
        assert!(check(&path, 10, start, limit).is_ok());
        let error = check(&path, 11, start, limit).unwrap_err();
        assert_eq!(error.why, BadPictureReason::TooLarge { size: 11, limit });
    }

    #[test]
    fn size_limit_is_bounded() {
        assert_eq!(SizeLimit::try_from(0), Err(BadLimit(0)));
        assert_eq!(SizeLimit::try_from(LARGEST).unwrap().bytes(), LARGEST);
        assert!(serde_json::from_str::<SizeLimit>("100000001").is_err());
    }

    #[test]
    fn answer_limit_depends_on_the_release() {
        for (codex, most) in [
            (Some(Release::new(0, 104, 0)), 150_000),
            (Some(Release::new(0, 105, 0)), 12_500_000),
            (None, 12_500_000),
        ] {
            assert_eq!(answer_limit(codex), most);
        }
    }

    /// The sizes are those that Codex 0.169.0 makes, but for a few pixels.
    #[test]
    fn picture_is_scaled_to_what_models_see() {
        for (from, to) in [
            ((1, 1), None),
            ((2048, 1248), None),
            ((1024, 1301), None),
            ((1600, 1600), None),
            ((2048, 2047), Some((1600, 1599))),
            ((4000, 2999), Some((1824, 1368))),
            ((9000, 8999), Some((1600, 1600))),
            ((1024, 2603), Some((806, 2048))),
            ((1_000_000, 1), Some((2048, 1))),
            ((1601, 1600), Some((1600, 1599))),
        ] {
            assert_eq!(size_for_models(from.0, from.1), to, "{from:?}");
        }
    }

    #[test]
    fn refusal_of_a_long_name_is_one_line() {
        let long = format!("{}\u{2028}\u{202e}.png", "ä".repeat(2000));
        let told = BadPicture {
            path: path(&long),
            why: BadPictureReason::Outside,
        };
        let told = told.to_string();
        assert!(told.len() < 400 && told.contains("… leads out"), "{told}");
    }
}
