//! Durations for people.

use std::ops::RangeInclusive;
use std::time::Duration;

use common::duration;

/// Parses the duration of a flag within a range.
pub(super) fn duration_within(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| duration::check(duration::parse(text)?, &range)
}

/// A duration in at most two units.
pub(super) fn took(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{seconds}.{}s", time.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_durations_are_shown_finer_than_long_ones() {
        let told = |millis| took(Duration::from_millis(millis));
        let expected = ["0.0s", "9.9s", "10s", "1m01s", "59m59s", "30h05m"];
        let times = [49, 9_999, 10_999, 61_000, 3_599_000, 108_300_000];
        assert_eq!(times.map(told), expected);
    }
}
