//! Names that git reads as commit IDs.

use std::ops::RangeInclusive;

/// The numbers of hexadecimal digits that count as an object ID. Git also accepts shorter ones
/// (from 4 digits on), but these are mostly words.
const ID_DIGITS: RangeInclusive<usize> = 7..=64;

/// Whether git would read the name of a branch or a tag as a commit ID.
#[must_use]
pub fn looks_like_commit_id(name: &str) -> bool {
    let is_id = |text: &str| {
        ID_DIGITS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    // The form of `git describe`.
    is_id(name) || name.rsplit_once("-g").is_some_and(|(_, end)| is_id(end))
}
