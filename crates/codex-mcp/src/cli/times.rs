//! Times, as people say them.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::duration;

/// A flag's duration within a range.
pub(super) fn duration_within(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| duration::check(duration::parse(text)?, &range)
}

/// How long ago something was, in the unit that people would use.
pub(super) fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The same in a sentence.
pub(super) fn ago(time: Duration) -> String {
    format!("{} ago", age(time))
}

/// How long something took, in two units at most.
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
    fn times_are_in_the_unit_that_people_use() {
        let told = |seconds| ago(Duration::from_secs(seconds));
        let expected = [
            "0s ago", "59s ago", "1m ago", "1h ago", "1d ago", "400d ago",
        ];
        let times = [0, 59, 60, 3600, 86_400, 400 * 86_400];
        assert_eq!(times.map(told), expected);
    }

    #[test]
    fn short_times_are_told_finely_and_long_ones_are_not() {
        let told = |millis| took(Duration::from_millis(millis));
        let expected = ["0.0s", "9.9s", "10s", "1m01s", "59m59s", "30h05m"];
        let times = [49, 9_999, 10_999, 61_000, 3_599_000, 108_300_000];
        assert_eq!(times.map(told), expected);
    }
}
