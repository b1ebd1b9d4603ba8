//! The times of messages, in RFC 3339. Some programs write `Z` and others `+00:00`, so times are
//! never compared as texts.

use std::time::{Duration, SystemTime};

/// Parses a time.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let (local, offset) = split(text)?;
    let time = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    match offset {
        Offset::East(ahead) => time.checked_sub(ahead),
        Offset::West(behind) => time.checked_add(behind),
    }
}

/// A time as atm writes it (`chrono::DateTime::to_rfc3339`), in UTC.
#[must_use]
pub(super) fn written(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_nanos(time).to_string();
    text.replace('Z', "+00:00")
}

/// The distance of a local time from UTC.
enum Offset {
    East(Duration),
    West(Duration),
}

fn split(text: &str) -> Option<(&str, Offset)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']) {
        return Some((local, Offset::East(Duration::ZERO)));
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub("+00:00".len())?)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let number = |digits: &str| match digits.len() {
        2 => digits.parse::<u64>().ok(),
        _ => None,
    };
    let apart = Duration::from_secs(number(hours)? * 3600 + number(minutes)? * 60);
    match offset.chars().next()? {
        '+' => Some((local, Offset::East(apart))),
        '-' => Some((local, Offset::West(apart))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_different_offsets_are_equal() {
        let noon = parse("2026-02-18T12:00:00Z").unwrap();
        for text in [
            "2026-02-18T12:00:00.000Z",
            "2026-02-18T12:00:00+00:00",
            "2026-02-18T12:00:00.000000000-00:00",
            "2026-02-18T14:30:00+02:30",
            "2026-02-18T04:00:00.0-08:00",
        ] {
            assert_eq!(parse(text).unwrap(), noon, "{text}");
        }
        assert_eq!(parse(&written(noon)).unwrap(), noon);
        assert_eq!(written(noon), "2026-02-18T12:00:00.000000000+00:00");
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "Z",
            "now",
            "2026-02-18",
            "2026-02-18T12:00:00",
            "2026-02-18T12:00:00+0000",
            "2026-02-18T12:00:00+aa:bb",
            "ééé",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
