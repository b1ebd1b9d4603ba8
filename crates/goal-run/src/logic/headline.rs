//! The headline of a notification, for receivers that show more than its line.

/// The parts that a receiver shows in addition to the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headline {
    /// The title: ASCII, as it is sent in a header too.
    pub title: &'static str,
    /// Whether a person is needed.
    pub is_urgent: bool,
    /// The emoji of ntfy. Source: the list of emojis in ntfy's documentation.
    pub tag: &'static str,
}

impl Headline {
    /// The headline of a line, by its first word.
    #[must_use]
    pub fn of(line: &str) -> Self {
        let (title, is_urgent, tag) = match line.split(' ').next() {
            Some("APPROVAL") => ("Codex waits for an answer", true, "question"),
            Some("STALLED") => ("Codex is silent", true, "hourglass_flowing_sand"),
            Some("BLOCKED") => ("Codex is blocked", false, "warning"),
            Some("DONE") => ("Codex is done", false, "white_check_mark"),
            _ => ("A turn of Codex has ended", false, "checkered_flag"),
        };
        Self {
            title,
            is_urgent,
            tag,
        }
    }
}
