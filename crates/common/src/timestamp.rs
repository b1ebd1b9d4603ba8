//! Moments, read from the clocks by the shell and passed to the machines.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serializer;

/// The time from 1970 to the last millisecond of the year 9999, the last that RFC 3339 can
/// express.
const LAST: Duration = Duration::from_millis(253_402_300_799_999);

/// The current moment by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock, for durations.
    pub instant: Instant,
    /// The wall clock, for people.
    pub wall: SystemTime,
}

/// The nearest moment that RFC 3339 can express, from 1970 to the year 9999.
#[must_use]
pub fn writable(at: SystemTime) -> SystemTime {
    at.clamp(UNIX_EPOCH, UNIX_EPOCH + LAST)
}

/// The nearest [`writable`] moment as events and results have it: RFC 3339, UTC,
/// milliseconds.
#[must_use]
pub fn timestamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(writable(at)).to_string()
}

/// Writes [`timestamp`] for `serialize_with` of serde.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp(*at))
}

/// The nearest [`writable`] moment for people, to the minute: `2026-11-23 17:28 UTC`.
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
    fn timestamp_is_clamped_to_the_years_1970_to_9999() {
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
