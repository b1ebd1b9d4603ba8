//! The usage limits of an account: whether they are used up and until when, in words and as
//! JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use codex_protocol::codex::{RateLimits, RateWindow};
use common::timestamp::{minute, timestamp};
use serde_json::{Value, json};

/// The percentage at which a limit counts as used up. Codex rounds to whole percents
/// (0.104.0 to 0.169.0): at 100 a little may be left, and above it nothing is.
const USED_UP: f64 = 100.0;

/// The furthest reset that is plausible: a little more than the longest window, a month.
const FURTHEST_RESET: Duration = Duration::from_secs(32 * 24 * 60 * 60);

/// The time until which the account is used up; `None` if it is not, or if no future
/// reset is reported. Credits lift its limits.
#[must_use]
pub fn used_up_until(limits: &RateLimits, now: SystemTime) -> Option<SystemTime> {
    let credits = limits.credits();
    if credits.unlimited || credits.has_credits {
        return None;
    }
    full_until(limits, now)
}

/// The time until which a limit of the account is full, regardless of credits; `None` if
/// none is, or if no future reset is reported.
#[must_use]
pub fn full_until(limits: &RateLimits, now: SystemTime) -> Option<SystemTime> {
    let full = limits.windows().filter(is_full);
    let resets = full.filter_map(|window| reset(&window, now));
    resets.filter(|&reset| reset > now).max()
}

/// The largest difference between two reports of the same reset, with the margins added
/// to it.
const SAME_RESET: Duration = Duration::from_secs(61 * 60);

/// The time until which no turn can succeed. At 100 % one may, unless a turn was refused
/// until about the same reset.
#[must_use]
pub fn unusable_until(
    limits: &RateLimits,
    refused: Option<SystemTime>,
    now: SystemTime,
) -> Option<SystemTime> {
    used_up_until(limits, now)?;
    let was_refused = |reset| refused.is_some_and(|refused| is_same_reset(refused, reset));
    let resets = limits.windows().filter(is_full).filter_map(|window| {
        let reset = reset(&window, now).filter(|&reset| reset > now)?;
        (window.used_percent > USED_UP || was_refused(reset)).then_some(reset)
    });
    resets.max()
}

fn is_same_reset(one: SystemTime, other: SystemTime) -> bool {
    let (earlier, later) = (one.min(other), one.max(other));
    later
        .duration_since(earlier)
        .is_ok_and(|apart| apart <= SAME_RESET)
}

/// Whether a full limit has been reset since this report.
#[must_use]
pub fn is_outdated(limits: &RateLimits, now: SystemTime) -> bool {
    let mut full = limits.windows().filter(is_full);
    full.any(|window| reset(&window, now).is_some_and(|reset| reset <= now))
}

fn is_full(window: &RateWindow) -> bool {
    window.used_percent >= USED_UP
}

/// The reset of a limit, if it is plausible.
fn reset(window: &RateWindow, now: SystemTime) -> Option<SystemTime> {
    let reset = UNIX_EPOCH.checked_add(Duration::from_secs(window.resets_at?))?;
    (reset <= now.checked_add(FURTHEST_RESET)?).then_some(reset)
}

/// The limits in words: `42 % of 5h used, reset at 2026-11-23 17:28 UTC; …`.
#[must_use]
pub fn in_words(limits: &RateLimits, now: SystemTime) -> String {
    let windows = limits.windows().map(|window| {
        let used = used(&window);
        match reset(&window, now) {
            Some(reset) => format!("{used}, reset at {}", minute(reset)),
            None => used,
        }
    });
    let windows: Vec<String> = windows.collect();
    let credits = limits.credits();
    let credits = match (credits.unlimited, credits.has_credits) {
        (true, _) => Some("credits without a limit"),
        (false, true) => Some("credits are left"),
        (false, false) => None,
    };
    let told = windows.into_iter().chain(credits.map(str::to_owned));
    match told.collect::<Vec<_>>().join("; ") {
        empty if empty.is_empty() => "Codex reports none".to_owned(),
        told => told,
    }
}

/// How much of a limit is used: `42 % of 5h used`.
#[must_use]
pub fn used(window: &RateWindow) -> String {
    let used = format!("{:.0} %", window.used_percent);
    match window.window_duration_mins {
        Some(minutes) => {
            let time = Duration::from_secs(minutes.saturating_mul(60));
            format!("{used} of {} used", humantime::format_duration(time))
        }
        None => format!("{used} used"),
    }
}

/// The limits for programs: `{"windows": [{"usedPercent", "windowMinutes", "resetsAt"}],
/// "usedUpUntil"}`. Unknown values are `null`.
#[must_use]
pub fn as_json(limits: &RateLimits, now: SystemTime) -> Value {
    let windows = limits.windows().map(|window| {
        json!({
            "usedPercent": window.used_percent,
            "windowMinutes": window.window_duration_mins,
            "resetsAt": reset(&window, now).map(timestamp),
        })
    });
    json!({
        "windows": windows.collect::<Vec<_>>(),
        "usedUpUntil": used_up_until(limits, now).map(timestamp),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn limits(json: &Value) -> RateLimits {
        RateLimits::read(&to_raw_value(&json!({ "rateLimits": json })).unwrap()).unwrap()
    }

    fn window(used: f64, resets_at: u64) -> Value {
        json!({ "usedPercent": used, "windowDurationMins": 300, "resetsAt": resets_at })
    }

    fn until(json: &Value) -> Option<SystemTime> {
        used_up_until(&limits(json), at(NOW))
    }

    #[test]
    fn account_is_used_up_until_the_last_of_its_full_limits_is_reset() {
        let (soon, later) = (NOW + 60, NOW + 600);
        for (primary, secondary, expected) in [
            (window(100.0, soon), Value::Null, Some(soon)),
            (window(100.0, soon), window(101.5, later), Some(later)),
            (window(100.0, soon), window(99.9, later), Some(soon)),
            (window(99.9, soon), window(5.0, later), None),
            (window(100.0, NOW), Value::Null, None),
            (json!({ "usedPercent": 100 }), Value::Null, None),
            (window(100.0, u64::MAX), Value::Null, None),
            (window(100.0, NOW + 40 * 86_400), Value::Null, None),
        ] {
            let told = json!({ "primary": primary, "secondary": secondary });
            assert_eq!(until(&told), expected.map(at), "{told}");
        }
    }

    #[test]
    fn turn_is_tried_at_100_percent_unless_one_was_refused() {
        let hours = |hours: u64| NOW + hours * 3600;
        let full = |used| json!({ "primary": window(used, hours(5)) });
        let both =
            json!({ "primary": window(101.0, hours(2)), "secondary": window(100.0, hours(9)) });
        for (told, refused, expected) in [
            (full(100.0), None, None),
            (full(100.0), Some(hours(5) + 1), Some(hours(5))),
            (full(100.0), Some(hours(3)), None),
            (full(101.0), None, Some(hours(5))),
            (full(99.0), Some(hours(5)), None),
            (both.clone(), None, Some(hours(2))),
            (both, Some(hours(9)), Some(hours(9))),
        ] {
            let until = unusable_until(&limits(&told), refused.map(at), at(NOW));
            assert_eq!(until, expected.map(at), "{told}, {refused:?}");
        }
    }

    #[test]
    fn credits_lift_the_limits() {
        for (has, unlimited, lifted) in [
            (false, false, false),
            (true, false, true),
            (false, true, true),
        ] {
            let credits = json!({ "hasCredits": has, "unlimited": unlimited, "balance": "0" });
            let told = json!({ "primary": window(100.0, NOW + 60), "credits": credits });
            assert_eq!(until(&told).is_none(), lifted, "{told}");
            let full = full_until(&limits(&told), at(NOW));
            assert_eq!(
                full,
                Some(at(NOW + 60)),
                "a refused turn had no use of them"
            );
        }
    }

    #[test]
    fn limits_are_outdated_once_a_full_one_is_reset() {
        let outdated = |used, resets_at| {
            let told = limits(&json!({ "primary": window(used, resets_at) }));
            is_outdated(&told, at(NOW))
        };
        assert!(outdated(100.0, NOW));
        assert!(!outdated(100.0, NOW + 1));
        assert!(!outdated(42.0, NOW));
    }

    #[test]
    fn limits_are_formatted_in_words_and_as_json() {
        let told = limits(&json!({
            "primary": window(100.0, NOW + 60),
            "secondary": { "usedPercent": 7.5 },
        }));
        assert_eq!(
            in_words(&told, at(NOW)),
            "100 % of 5h used, reset at 1970-01-12 13:47 UTC; 8 % used"
        );
        assert_eq!(
            as_json(&told, at(NOW)),
            json!({
                "windows": [
                    { "usedPercent": 100.0, "windowMinutes": 300,
                        "resetsAt": "1970-01-12T13:47:40.000Z" },
                    { "usedPercent": 7.5, "windowMinutes": null, "resetsAt": null },
                ],
                "usedUpUntil": "1970-01-12T13:47:40.000Z",
            })
        );
        assert_eq!(in_words(&limits(&json!({})), at(NOW)), "Codex reports none");
    }
}
