//! When something happens, as the shell sees it: machines read no clock.

use std::time::{Instant, SystemTime};

/// A moment, for measuring and for telling people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For measuring.
    pub instant: Instant,
    /// By the calendar.
    pub wall: SystemTime,
}

/// A moment as events and results tell it: RFC 3339, UTC, milliseconds.
#[must_use]
pub fn timestamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// A moment as people read it, to the minute: `2026-11-23 17:28 UTC`.
#[must_use]
pub fn minute(at: SystemTime) -> String {
    let written = humantime::format_rfc3339_seconds(at).to_string();
    let minutes = written.get(..16).unwrap_or(&written);
    format!("{} UTC", minutes.replace('T', " "))
}
