//! When something happens, as the shell sees it: machines read no clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time from 1970 to the last moment of the year 9999, after which RFC 3339 ends.
const LAST: Duration = Duration::from_millis(253_402_300_799_999);

/// A moment, for measuring and for telling people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For measuring.
    pub instant: Instant,
    /// By the calendar.
    pub wall: SystemTime,
}

/// The nearest moment that can be written down: from 1970 to the year 9999.
#[must_use]
pub fn writable(at: SystemTime) -> SystemTime {
    at.clamp(UNIX_EPOCH, UNIX_EPOCH + LAST)
}

/// A moment as events and results tell it: RFC 3339, UTC, milliseconds. The nearest
/// [`writable`] one.
#[must_use]
pub fn timestamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(writable(at)).to_string()
}

/// A moment as people read it, to the minute: `2026-11-23 17:28 UTC`. The nearest
/// [`writable`] one.
#[must_use]
pub fn minute(at: SystemTime) -> String {
    let written = humantime::format_rfc3339_seconds(writable(at)).to_string();
    let minutes = written.get(..16).unwrap_or(&written);
    format!("{} UTC", minutes.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_beyond_the_calendar_are_written_as_its_ends() {
        let far = UNIX_EPOCH + Duration::from_millis(u64::MAX / 2);
        let second = Duration::from_secs(1);
        for (at, written) in [
            (UNIX_EPOCH - second, "1970-01-01T00:00:00.000Z"),
            (UNIX_EPOCH + LAST, "9999-12-31T23:59:59.999Z"),
            (UNIX_EPOCH + LAST + second, "9999-12-31T23:59:59.999Z"),
            (far, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(timestamp(at), written);
            assert_eq!(minute(at)[..16], written[..16].replace('T', " "));
        }
    }
}
