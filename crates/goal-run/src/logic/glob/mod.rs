//! Patterns for paths of a repository.
//!
//! | pattern | matches |
//! | --- | --- |
//! | `*` | any characters of one name, also none; also the dot of a hidden file |
//! | `?` | one character of a name |
//! | `[a-z]`, `[!a-z]` | one character that is, or is not, one of these |
//! | `{a,b}` | either of them; can be nested. Expanded first, as by shells: `*{,x}*` is `**` and `*x*` |
//! | `**` alone between slashes | any directories, also none; at the end everything below |
//! | `\` | escapes the character that follows |
//!
//! Implemented here, as runs need more than matching: the directory to search, the single
//! path of a plain pattern, and no `..` after any brace. `fast-glob` has none of these,
//! compares bytes, and negates patterns that begin with `!`; `globset` depends on a whole
//! engine of regular expressions. A match takes at most as many steps as the product of both
//! lengths, for each alternative of the braces.

mod parser;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest pattern, in bytes.
pub const LENGTH_LIMIT: usize = 1024;

/// The number of patterns to which braces may expand.
pub const ALTERNATIVES_LIMIT: usize = 64;

/// How deep braces may be nested.
pub const DEPTH_LIMIT: usize = 8;

/// A pattern for paths from the top of a repository, separated by `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Glob {
    text: String,
    /// The expansions of the braces: at least one.
    alternatives: Vec<Vec<Part>>,
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGlob {
    /// The pattern is empty.
    #[error("the path is empty; write one relative to the top of the repository, such as src/*.rs")]
    Empty,
    /// It is longer than [`LENGTH_LIMIT`].
    #[error("the path has more than {LENGTH_LIMIT} bytes; write a shorter pattern")]
    TooLong,
    /// It has a NUL, a newline or something of that kind.
    #[error("{0:?} has a control character; write `?` for it")]
    ControlCharacter(String),
    /// It begins with a slash.
    #[error("{0:?} is an absolute path; write it relative to the top of the repository")]
    Absolute(String),
    /// A component is `.`, `..` or empty.
    #[error("{0:?} has `.`, `..` or nothing between slashes; write the path without them")]
    Dots(String),
    /// It ends with a slash.
    #[error("{0:?} is a directory; write {0}** for the files in it")]
    Directory(String),
    /// It names git's own directory.
    #[error("{0:?} is in git's own directory; name files of the project")]
    GitDirectory(String),
    /// `**` is a part of a name.
    #[error("in {0:?}, `**` is not alone between slashes; write **/* for files in any directory")]
    Directories(String),
    /// A bracket is not closed, is empty, has a slash, or has a reversed range.
    #[error(
        "in {0:?}, brackets must hold characters or ranges such as [a-z0-9]; write \\[ for a plain bracket"
    )]
    Brackets(String),
    /// Braces are unbalanced.
    #[error(
        "in {0:?}, braces don't fit together; write {{a,b}} for either, \\{{ for a plain brace"
    )]
    Braces(String),
    /// Braces expand to too many patterns.
    #[error(
        "the braces of {0:?} are nested more than {DEPTH_LIMIT} deep or amount to more than {ALTERNATIVES_LIMIT} patterns; write several criteria"
    )]
    TooMany(String),
    /// There is nothing after the last backslash.
    #[error("{0:?} ends with a backslash; write \\\\ for a plain one")]
    Backslash(String),
}

/// A component between slashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part {
    /// `**`: any directories.
    Directories,
    /// A literal name.
    Plain(String),
    /// A name with wildcards.
    Form(Vec<Token>),
}

/// A part of a name with wildcards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Token {
    Character(char),
    Any,
    Many,
    Class {
        sense: Sense,
        ranges: Vec<(char, char)>,
    },
}

/// Whether a class names the characters that match or those that do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sense {
    In,
    NotIn,
}

impl Glob {
    /// Whether the pattern matches a path from the top of the repository.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        self.matches_names(&names)
    }

    /// Whether the pattern matches a path or one of its directories.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        (1..=names.len()).any(|count| self.matches_names(names.get(..count).unwrap_or_default()))
    }

    /// The path, if the pattern is a plain one.
    #[must_use]
    pub fn plain(&self) -> Option<String> {
        let [parts] = self.alternatives.as_slice() else {
            return None;
        };
        let names: Option<Vec<&str>> = parts.iter().map(Part::plain).collect();
        Some(names?.join("/"))
    }

    /// The directory that contains every possible match; empty for the top.
    #[must_use]
    pub fn directory(&self) -> String {
        let mut directories = self.alternatives.iter().map(|parts| {
            let within = parts.split_last().map_or(&[][..], |(_, before)| before);
            within.iter().map_while(Part::plain).collect::<Vec<_>>()
        });
        let mut common = directories.next().unwrap_or_default();
        for directory in directories {
            let pairs = common.iter().zip(&directory);
            let length = pairs.take_while(|(one, other)| one == other).count();
            common.truncate(length);
        }
        common.join("/")
    }

    /// Whether a directory can contain a match, at any depth.
    #[must_use]
    pub fn leads_into(&self, directory: &str) -> bool {
        let names: Vec<&str> = directory.split('/').collect();
        let leads = |parts: &Vec<Part>| leads_into(parts, &names);
        self.alternatives.iter().any(leads)
    }

    /// The pattern as it was written, without a leading `./`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn matches_names(&self, names: &[&str]) -> bool {
        let is_directories = |part: &Part| matches!(part, Part::Directories);
        let fit = |parts: &Vec<Part>| {
            matches(parts, names, is_directories, |part, name| {
                part.matches(name)
            })
        };
        self.alternatives.iter().any(fit)
    }
}

impl Part {
    fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(name) => Some(name),
            Self::Directories | Self::Form(_) => None,
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Directories => true,
            Self::Plain(plain) => plain == name,
            Self::Form(tokens) => {
                let characters: Vec<char> = name.chars().collect();
                let is_many = |token: &Token| matches!(token, Token::Many);
                matches(tokens, &characters, is_many, |token, character| {
                    token.matches(*character)
                })
            }
        }
    }
}

/// Whether parts are left for entries of the directory with these names.
fn leads_into(parts: &[Part], names: &[&str]) -> bool {
    let mut rest = parts.iter();
    let mut names = names.iter();
    loop {
        match (rest.next(), names.next()) {
            // The rest may match at any depth.
            (Some(Part::Directories), _) => return true,
            (next, None) => return next.is_some(),
            (Some(part), Some(name)) if part.matches(name) => {}
            (_, Some(_)) => return false,
        }
    }
}

impl Token {
    fn matches(&self, character: char) -> bool {
        match self {
            Self::Character(wanted) => *wanted == character,
            Self::Any | Self::Many => true,
            Self::Class { sense, ranges } => {
                let mut ranges = ranges.iter();
                let found = ranges.any(|(low, high)| (*low..=*high).contains(&character));
                found == (*sense == Sense::In)
            }
        }
    }
}

/// Whether a pattern matches all of a text, where some of its parts match any number of items. Only
/// the last such part is ever retried at another position: any further item that an earlier part
/// could take, the last part can take as well.
fn matches<P, T>(
    pattern: &[P],
    text: &[T],
    takes_many: impl Fn(&P) -> bool,
    takes: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut part, mut item) = (0, 0);
    let mut last_many = None;
    while let Some(next) = text.get(item) {
        match (pattern.get(part), last_many) {
            (Some(many), _) if takes_many(many) => {
                part += 1;
                last_many = Some((part, item));
            }
            (Some(one), _) if takes(one, next) => {
                part += 1;
                item += 1;
            }
            (_, Some((after, taken))) => {
                (part, item) = (after, taken + 1);
                last_many = Some((after, item));
            }
            (_, None) => return false,
        }
    }
    let mut rest = pattern.iter().skip(part);
    rest.all(takes_many)
}

impl FromStr for Glob {
    type Err = BadGlob;

    fn from_str(text: &str) -> Result<Self, BadGlob> {
        parser::parse(text)
    }
}

common::string_conversions!(Glob);

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
