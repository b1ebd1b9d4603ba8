//! Durations as people write them: on the command line, in settings files and in variables.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The accepted forms, for error messages.
const FORMS: &str = "a number of seconds, such as 90, or a duration such as 90s, 2m, 12h or 7d";

/// The longest accepted duration, 100 years (of 365.25 days). Callers add durations to the present
/// time, and `Instant` panics when the sum overflows.
const LONGEST: Duration = Duration::from_secs(100 * 31_557_600);

/// Reads a duration of at most 100 years. A number without a unit is a number of seconds.
///
/// # Errors
///
/// A message that names the accepted forms.
pub fn parse(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<u64>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text),
    };
    match parsed {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        Ok(_) => Err(format!("{text:?} is longer than 100 years; write {FORMS}")),
        Err(_) => Err(format!("{text:?} is not a duration; write {FORMS}")),
    }
}

/// Refuses a duration that is out of range.
///
/// # Errors
///
/// A message that names the range.
pub fn check(value: Duration, range: &RangeInclusive<Duration>) -> Result<Duration, String> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(format!(
            "it must be between {} and {}",
            in_one_unit(*range.start()),
            in_one_unit(*range.end())
        )),
    }
}

/// A duration of whole seconds, in the largest unit of [`FORMS`] in which it is a whole number.
fn in_one_unit(time: Duration) -> String {
    let seconds = time.as_secs();
    let mut units = [("d", 86_400), ("h", 3600), ("m", 60)].into_iter();
    let fits = |length: u64| seconds >= length && seconds.is_multiple_of(length);
    let unit = units.find(|(_, length)| fits(*length));
    let (unit, length) = unit.unwrap_or(("s", 1));
    format!("{}{unit}", seconds / length)
}

/// An age in its largest unit: seconds, minutes, hours or days.
pub fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// An age followed by "ago".
pub fn ago(time: Duration) -> String {
    format!("{} ago", age(time))
}

/// A duration in a settings file or a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetDuration(pub Duration);

impl<'de> Deserialize<'de> for SetDuration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SetDurationVisitor)
    }
}

struct SetDurationVisitor;

impl Visitor<'_> for SetDurationVisitor {
    type Value = SetDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMS)
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<SetDuration, E> {
        Ok(SetDuration(Duration::from_secs(seconds)))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<SetDuration, E> {
        let seconds = u64::try_from(seconds);
        seconds
            .map_err(|_| E::custom("a duration cannot be negative"))
            .and_then(|seconds| self.visit_u64(seconds))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SetDuration, E> {
        parse(text).map(SetDuration).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn age_is_shown_in_its_largest_unit() {
        let told = |seconds| ago(Duration::from_secs(seconds));
        let expected = [
            "0s ago", "59s ago", "1m ago", "1h ago", "1d ago", "400d ago",
        ];
        let times = [0, 59, 60, 3600, 86_400, 400 * 86_400];
        assert_eq!(times.map(told), expected);
    }

    #[test]
    fn duration_is_a_number_of_seconds_or_has_a_unit() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("2m", 120), ("1h", 3600), ("0", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("50ms"), Ok(Duration::from_millis(50)));
        for text in ["soon", "", "-1", "1.5", "2x"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("such as 90s, 2m"), "{text}: {error}");
        }
    }

    #[test]
    fn duration_over_100_years_is_refused() {
        let after = |duration| Instant::now().checked_add(duration);
        // The control.
        assert_eq!(after(Duration::from_secs(u64::MAX)), None);
        for text in ["100y", "3155760000"] {
            let duration = parse(text).unwrap();
            assert!(after(duration).is_some(), "{text}");
        }
        for text in ["18446744073709551615", "3155760001", "100y 1ns"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("longer than 100 years"), "{text}: {error}");
            assert!(error.contains("such as 90s, 2m"), "{text}: {error}");
        }
    }

    #[test]
    fn set_duration_is_a_number_or_a_text() {
        let read = |json: &str| serde_json::from_str::<SetDuration>(json);
        assert_eq!(read("90").unwrap().0, Duration::from_secs(90));
        assert_eq!(read("\"2m\"").unwrap().0, Duration::from_secs(120));
        for json in ["-1", "1.5", "\"soon\"", "true"] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains("duration"), "{json}: {error}");
        }
    }

    #[test]
    fn duration_out_of_range_is_refused_with_the_range() {
        for (seconds, words) in [
            ([1, 86_400], "1s and 1d"),
            ([60, 100], "1m and 100s"),
            ([0, 7200], "0s and 2h"),
            ([90, 36_525 * 86_400], "90s and 36525d"),
        ] {
            let [start, end] = seconds.map(Duration::from_secs);
            let error = check(end + Duration::from_secs(1), &(start..=end)).unwrap_err();
            assert_eq!(error, format!("it must be between {words}"));
        }
    }
}
