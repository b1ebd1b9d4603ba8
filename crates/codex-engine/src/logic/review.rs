//! Parses the text of a review.
//!
//! The model answers a review with JSON, which Codex converts into text (0.104.0 to
//! 0.169.0):
//!
//! ```text
//! The parser accepts dates that do not exist.
//!
//! Review comment:
//!
//! - [P1] Check the day of the month — /home/you/app/src/date.rs:12-14
//!   31 February is taken for 3 March.
//! ```
//!
//! The heading of several comments is `Full review comments:`. Codex passes on any other
//! answer unchanged.

use serde::Serialize;

/// The text that Codex makes of a review without an answer.
const WITHOUT_ANSWER: &str = "Review was interrupted. Please re-run /review";

/// The headings above comments.
const HEADINGS: [&str; 2] = ["Review comment:", "Full review comments:"];

/// The separator between the title of a comment and its location.
const BEFORE_PLACE: &str = " — ";

/// A review.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Review {
    /// The reviewer's judgement as a whole.
    pub summary: String,
    /// The requested changes, in the reviewer's order.
    pub comments: Vec<Comment>,
}

/// A change that the reviewer requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comment {
    /// One line, with the priority as the model writes it (`[P0]` to `[P3]`).
    pub title: String,
    /// A file and its lines, as `PATH:FIRST-LAST`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The full text.
    pub body: String,
}

/// Whether Codex's text of a review says that the model has answered nothing.
#[must_use]
pub fn is_missing(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with(WITHOUT_ANSWER)
}

impl Review {
    /// Parses Codex's text of a review.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let heading = HEADINGS.iter().find_map(|heading| {
            let at = text.find(heading)?;
            let before = text.get(..at)?;
            // A heading is a line of its own.
            let begins = before.is_empty() || before.ends_with('\n');
            let after = text.get(at + heading.len()..)?;
            (begins && (after.is_empty() || after.starts_with('\n'))).then_some((before, after))
        });
        match heading {
            Some((summary, comments)) => Self {
                summary: summary.trim().to_owned(),
                comments: comments_in(comments),
            },
            None => Self {
                summary: text.trim().to_owned(),
                comments: Vec::new(),
            },
        }
    }
}

fn comments_in(text: &str) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    for line in text.lines() {
        if let Some(first) = line.strip_prefix("- ") {
            comments.push(comment(first));
        } else if let Some(last) = comments.last_mut() {
            if !last.body.is_empty() {
                last.body.push('\n');
            }
            last.body.push_str(line.strip_prefix("  ").unwrap_or(line));
        }
    }
    for comment in &mut comments {
        comment.body.truncate(comment.body.trim_end().len());
    }
    comments
}

fn comment(first: &str) -> Comment {
    let (title, place) = match first.rsplit_once(BEFORE_PLACE) {
        Some((title, place)) => (title, Some(place.to_owned())),
        None => (first, None),
    };
    Comment {
        title: title.to_owned(),
        place,
        body: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read_with_their_places() {
        let text = "Two faults.\n\nFull review comments:\n\n- [P1] Bad — /a b/f.rs:1-2\n  It \
                    breaks.\n\n  Always.\n\n- [P3] Nit\n  x";
        let review = Review::read(text);
        assert_eq!(review.summary, "Two faults.");
        let comments: Vec<_> = review
            .comments
            .iter()
            .map(|one| (one.title.as_str(), one.place.as_deref(), one.body.as_str()))
            .collect();
        assert_eq!(
            comments,
            [
                ("[P1] Bad", Some("/a b/f.rs:1-2"), "It breaks.\n\nAlways."),
                ("[P3] Nit", None, "x"),
            ]
        );
    }

    #[test]
    fn text_without_comments_is_the_summary() {
        for text in [
            "Fine.",
            "",
            "The words Review comment: within a line.",
            "- a list\n- of words",
        ] {
            let review = Review::read(text);
            assert_eq!(review.summary, text);
            assert!(review.comments.is_empty());
        }
        let nothing_under_heading = Review::read("Review comment:");
        assert!(nothing_under_heading.comments.is_empty());
    }
}
