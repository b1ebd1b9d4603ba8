//! The path of a requested picture in the repository.
//!
//! Only the text is checked here. Links out of the repository, and the content of the file,
//! are checked when the file is opened.

use std::fmt;
use std::str::FromStr;

use codex_engine::logic::picture_kind::PictureKind;
use serde::{Deserialize, Serialize};

/// The longest path, in bytes, as on Linux.
pub const LONGEST_PATH: usize = 4096;

/// How much of a path is shown to Codex and to its user, in bytes.
pub const SHOWN_PATH: usize = 300;

/// Why a path is refused, in words for Codex. The texts of the first four begin as those of
/// the program that this one replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadPath {
    /// The path is empty.
    #[error("path must be a non-empty string: write it as ./directory/name.png")]
    Empty,
    /// The path is absolute.
    #[error("path must be relative to repository root: write it as ./directory/name.png")]
    Absolute,
    /// It has a `..`.
    #[error("path traversal is not allowed: write it from the repository root on, without ..")]
    Traversal,
    /// The path has no extension of a picture.
    #[error("unsupported extension, allowed .png, .jpg, .jpeg, .webp: ask for such a file")]
    Extension,
    /// It is too long.
    #[error("path must have at most {LONGEST_PATH} bytes")]
    TooLong,
    /// It has a line break, an escape or the like.
    #[error("path must not contain control characters")]
    ControlCharacter,
}

/// The path of a picture from the root of the repository, as `./directory/name.png`: without `..`,
/// without empty components, and without `.` except for the first. Nothing else is changed: spaces,
/// quotes and commas are part of a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PicturePath {
    text: String,
    kind: PictureKind,
}

impl PicturePath {
    /// The path as a text, which begins with `./`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The kind of picture by the extension.
    #[must_use]
    pub fn kind(&self) -> PictureKind {
        self.kind
    }
}

impl FromStr for PicturePath {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Self, BadPath> {
        if text.trim().is_empty() {
            return Err(BadPath::Empty);
        }
        if text.len() > LONGEST_PATH {
            return Err(BadPath::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(BadPath::ControlCharacter);
        }
        if text.starts_with('/') {
            return Err(BadPath::Absolute);
        }
        if text.split('/').any(|part| part == "..") {
            return Err(BadPath::Traversal);
        }
        let kind = kind(text).ok_or(BadPath::Extension)?;
        let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
        let parts: Vec<&str> = std::iter::once(".").chain(parts).collect();
        let text = parts.join("/");
        match text.len() > LONGEST_PATH {
            true => Err(BadPath::TooLong),
            false => Ok(Self { text, kind }),
        }
    }
}

/// The kind by the extension of the last part. A name that begins with its only dot has no
/// extension.
fn kind(path: &str) -> Option<PictureKind> {
    let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
    let (stem, extension) = name.rsplit_once('.')?;
    match stem {
        "" => None,
        _ => PictureKind::of_extension(extension),
    }
}

impl fmt::Display for PicturePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

common::string_conversions!(PicturePath);

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_normalized_or_refused() {
        let paths = [
            "a.png",
            "./screens/error.PNG",
            ".//a/./b.jpeg",
            "a..b/..c.webp",
            "-i.jpg",
            "~/a.png",
            "a b'\"$(x),ß\\..\\c.jpg",
            "http://host/a.png",
            "",
            "  ",
            "/etc/a.png",
            "//a.png",
            "../a.png",
            "a/../b.png",
            "./..",
            "..",
            ".",
            "a",
            "a.gif",
            "a.png.txt",
            ".png",
            "a/.png",
            "a.png/",
            "a.png/.",
            "a.png ",
            "a\n.png",
            "a\u{1b}[2J.png",
            "a\0.png",
        ];
        let mut table = String::new();
        for path in paths {
            let made = match path.parse::<PicturePath>() {
                Ok(path) => format!("{path} ({})", path.kind()),
                Err(error) => format!("refused: {error}"),
            };
            writeln!(table, "{:<32} {made}", format!("{path:?}")).unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn path_longer_than_the_limit_is_refused() {
        let long = |length: usize| format!("./{}.png", "a".repeat(length - 6));
        assert!(long(LONGEST_PATH).parse::<PicturePath>().is_ok());
        let error = long(LONGEST_PATH + 1).parse::<PicturePath>();
        assert_eq!(error, Err(BadPath::TooLong));
        let grows = &long(LONGEST_PATH)[2..];
        assert!(grows.parse::<PicturePath>().is_ok());
        let grows = format!("a{grows}");
        assert_eq!(grows.parse::<PicturePath>(), Err(BadPath::TooLong));
    }

    #[test]
    fn paths_in_json_are_checked() {
        let path: PicturePath = serde_json::from_str(r#""a.png""#).unwrap();
        assert_eq!(serde_json::to_string(&path).unwrap(), r#""./a.png""#);
        let error = serde_json::from_str::<PicturePath>(r#""../a.png""#).unwrap_err();
        assert!(error.to_string().contains("traversal"), "{error}");
    }

    proptest! {
        #[test]
        fn accepted_path_stays_in_the_repository_and_is_normalized(
            any in any::<String>(),
            signs in r"([./a\\ ,]{0,6}/){0,4}[./a]{0,3}\.(png|jpg)",
        ) {
            for text in [any, signs] {
                let Ok(path) = text.parse::<PicturePath>() else { continue };
                prop_assert_eq!(path.as_str().parse::<PicturePath>().unwrap(), path.clone());
                let rest = path.as_str().strip_prefix("./").unwrap();
                let bad = |part: &str| matches!(part, "" | "." | "..");
                prop_assert!(!rest.split('/').any(bad));
                let letters = |text: &str| text.replace(['/', '.'], "");
                prop_assert_eq!(letters(rest), letters(&text));
            }
        }
    }
}
