//! Whether what is found under a path is a picture, by its first bytes and its size.

use std::fmt;

use codex_engine::logic::picture_kind::Kind;
use codex_protocol::codex::Release;
use common::text::one_line;
use serde::{Deserialize, Serialize};

use super::path::{PicturePath, SHOWN_PATH};

/// How many bytes a picture can be allowed to have (100 MB): Codex holds all of it in
/// memory, more than once.
const LARGEST: u64 = 100_000_000;

/// How many bytes a picture can have that a tool answers with. Codex tells of the answer in
/// one line, of which we read 16 MiB, and 0.169.0 throws away what an MCP server says in
/// more than that; base64 makes four bytes of three.
const LARGEST_ANSWER: u64 = 12_500_000;

/// The same before [`Release::FIRST_TO_WEIGH_PICTURES`]: all pictures of a conversation
/// together fill the context with 740,000 bytes there, so that Codex sums it up, without
/// the pictures. The model asks for them again then, and again.
const LARGEST_OLD_ANSWER: u64 = 150_000;

/// The longest side of a picture that models see as it is, in pixels.
const LONGEST_SIDE: u32 = 2048;

/// Models see pictures in patches of this side, in pixels, and this many of them.
const PATCH: u32 = 32;
const MOST_PATCHES: u64 = 2500;

/// How much of a reason of the system's is shown, in bytes.
const SHOWN_REASON: usize = 200;

/// How many bytes a picture may have: from 1 to 100 MB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct SizeLimit(u64);

/// Why there can't be such a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("pictures can be limited to 1 to {LARGEST} bytes, not to {0}")]
pub struct BadLimit(pub u64);

impl SizeLimit {
    /// It in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// How many bytes a picture can have that a tool answers with, to a client that is this
/// Codex, if it is one.
#[must_use]
pub fn answer_limit(to: Option<Release>) -> u64 {
    match to {
        Some(release) if release < Release::FIRST_TO_WEIGH_PICTURES => LARGEST_OLD_ANSWER,
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
    // One patch less on the longest side until it fits.
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

/// Why Codex doesn't get a picture, in words for Codex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPicture {
    /// What it asked for.
    pub path: PicturePath,
    /// Why not.
    pub why: Why,
}

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There is nothing of that name.
    Missing {
        /// The directory that was looked in first.
        directory: String,
    },
    /// A link leads out of the repository.
    Outside,
    /// It is a directory, a pipe or the like.
    NotAFile,
    /// It can't be read, for this reason of the system's.
    Unreadable(String),
    /// It can't be given to Codex under this name, for this reason.
    Unfit(String),
    /// It has more bytes than it may have.
    TooLarge {
        /// How many it has.
        size: u64,
        /// How many it may have.
        limit: SizeLimit,
    },
    /// There is something else in it.
    Content(Content),
    /// It can't be decoded, for this reason.
    Damaged(String),
    /// Decoding it would take too much memory.
    TooManyPixels,
}

/// What is in a file that is not the picture that its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// A picture of another kind.
    Other(Kind),
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
            // It begins as in the program that this one replaces.
            Why::Missing { directory } => {
                let directory = one_line(directory, SHOWN_PATH);
                write!(
                    f,
                    "file does not exist: {path}, counted from {directory} on"
                )
            }
            Why::Outside => write!(f, "{path} leads out of the repository, {ask}"),
            Why::NotAFile => write!(f, "{path} is not a regular file, {ask}"),
            Why::Unreadable(reason) | Why::Unfit(reason) => {
                let reason = one_line(reason, SHOWN_REASON);
                write!(f, "{path} can't be attached: {reason}, {ask}")
            }
            Why::TooLarge { size, limit } => write!(
                f,
                "{path} is too large: it has {size} bytes and may have {}, ask for a smaller one",
                limit.bytes()
            ),
            Why::Damaged(reason) => {
                let reason = one_line(reason, SHOWN_REASON);
                write!(f, "{path} can't be decoded: {reason}, {ask}")
            }
            Why::TooManyPixels => write!(
                f,
                "{path} has too many pixels to be decoded, ask for a smaller one"
            ),
            Why::Content(content) => {
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

/// Judges a regular file by its size in bytes and its first [`START`](codex_engine::logic::picture_kind::START) bytes, or all
/// that it has.
///
/// # Errors
///
/// [`BadPicture`] if it is too large, or not of the kind that its name says.
pub fn check(
    path: &PicturePath,
    size: u64,
    start: &[u8],
    limit: SizeLimit,
) -> Result<Kind, BadPicture> {
    let refused = |why| BadPicture {
        path: path.clone(),
        why,
    };
    if size > limit.bytes() {
        return Err(refused(Why::TooLarge { size, limit }));
    }
    let content = match Kind::of_bytes(start) {
        Some(kind) if kind == path.kind() => return Ok(kind),
        Some(other) => Content::Other(other),
        None if start.is_empty() => Content::Nothing,
        None => Content::Unknown,
    };
    Err(refused(Why::Content(content)))
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
    fn every_content_and_extension() {
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
    fn every_other_refusal() {
        let limit = SizeLimit::default();
        let whys = [
            Why::Missing {
                directory: "/home/me/parser".to_owned(),
            },
            Why::Outside,
            Why::NotAFile,
            Why::Unreadable("Permission denied\n(os error 13)".to_owned()),
            Why::Unfit("Codex takes a comma for the end of a name".to_owned()),
            Why::TooLarge {
                size: 20_000_001,
                limit,
            },
            Why::Damaged("unexpected end\nof file".to_owned()),
            Why::TooManyPixels,
        ];
        let path = path("./screens/a.png");
        let told = whys.map(|why| {
            let path = path.clone();
            BadPicture { path, why }.to_string()
        });
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_picture_may_have_as_many_bytes_as_the_limit_says() {
        let limit = SizeLimit::try_from(10).unwrap();
        let (path, start) = (path("a.png"), STARTS[0].1);
        assert!(check(&path, 10, start, limit).is_ok());
        let error = check(&path, 11, start, limit).unwrap_err();
        assert_eq!(error.why, Why::TooLarge { size: 11, limit });
    }

    #[test]
    fn a_limit_is_bounded() {
        assert_eq!(SizeLimit::try_from(0), Err(BadLimit(0)));
        assert_eq!(SizeLimit::try_from(LARGEST).unwrap().bytes(), LARGEST);
        assert!(serde_json::from_str::<SizeLimit>("100000001").is_err());
    }

    #[test]
    fn an_answer_is_no_larger_than_codex_takes() {
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
    fn a_refusal_is_one_line_however_long_the_name_is() {
        let long = format!("{}\u{2028}\u{202e}.png", "ä".repeat(2000));
        let told = BadPicture {
            path: path(&long),
            why: Why::Outside,
        };
        let told = told.to_string();
        assert!(told.len() < 400 && told.contains("… leads out"), "{told}");
    }
}
