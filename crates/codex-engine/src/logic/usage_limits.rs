//! The usage limits of an account: whether they are used up and until when, in words and as
//! JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use codex_protocol::codex::{ModelLimit, RateLimits, RateWindow};
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
    match is_lifted(limits) {
        true => None,
        false => full_until(limits, now),
    }
}

/// Whether credits lift the limits.
fn is_lifted(limits: &RateLimits) -> bool {
    let credits = limits.credits();
    credits.unlimited || credits.has_credits
}

/// The time until which a limit of the account is full, regardless of credits; `None` if
/// none is, or if no future reset is reported.
#[must_use]
pub fn full_until(limits: &RateLimits, now: SystemTime) -> Option<SystemTime> {
    last_reset_of_full(limits.windows(), now)
}

/// The time until which turns with this model are refused, after one was refused just now; `None`
/// if no full limit with a future reset is reported. A limit that belongs to the model may be
/// listed under another name: it is then found by `reported`, the ID of the limit that Codex
/// reported with the refusal.
#[must_use]
pub fn refused_until(
    limits: &RateLimits,
    model: Option<&str>,
    reported: Option<&str>,
    now: SystemTime,
) -> Option<SystemTime> {
    if let Some(own) = model.and_then(|model| limits.of_model(model)) {
        return last_reset_of_full(own.windows(), now);
    }
    let of_reported = || {
        let mut models = limits.of_models().iter();
        let reported = models.find(|limit| Some(limit.id()) == reported)?;
        last_reset_of_full(reported.windows(), now)
    };
    full_until(limits, now).or_else(of_reported)
}

fn last_reset_of_full(
    windows: impl Iterator<Item = RateWindow>,
    now: SystemTime,
) -> Option<SystemTime> {
    let resets = windows
        .filter(is_full)
        .filter_map(|window| reset(&window, now));
    resets.filter(|&reset| reset > now).max()
}

/// The largest difference between two reported times of the same reset, including the margins that
/// we add to them.
const SAME_RESET: Duration = Duration::from_secs(61 * 60);

/// The time until which no turn with this model can succeed. At exactly 100 % a turn may succeed,
/// unless one was refused until about the same reset. A model that has its own limit is not bound
/// by the account's. If the model's own limit cannot be found by name, any model limit at which a
/// turn was refused counts.
#[must_use]
pub fn unusable_until(
    limits: &RateLimits,
    model: Option<&str>,
    refused: Option<SystemTime>,
    now: SystemTime,
) -> Option<SystemTime> {
    if is_lifted(limits) {
        return None;
    }
    let was_refused = |window: &RateWindow| {
        let reset = reset(window, now);
        reset.is_some_and(|reset| refused.is_some_and(|refused| is_same_reset(refused, reset)))
    };
    let is_closed = |window: &RateWindow| window.used_percent > USED_UP || was_refused(window);
    if let Some(own) = model.and_then(|model| limits.of_model(model)) {
        return last_reset_of_full(own.windows().filter(is_closed), now);
    }
    let of_models = limits.of_models().iter().flat_map(ModelLimit::windows);
    let windows = limits.windows().filter(is_closed);
    last_reset_of_full(windows.chain(of_models.filter(was_refused)), now)
}

fn is_same_reset(one: SystemTime, other: SystemTime) -> bool {
    let (earlier, later) = (one.min(other), one.max(other));
    later
        .duration_since(earlier)
        .is_ok_and(|apart| apart <= SAME_RESET)
}

/// Whether a full limit of the account or of this model has been reset since this report.
#[must_use]
pub fn is_outdated(limits: &RateLimits, model: Option<&str>, now: SystemTime) -> bool {
    let own = model.and_then(|model| limits.of_model(model));
    let own = own.into_iter().flat_map(ModelLimit::windows);
    let mut full = limits.windows().chain(own).filter(is_full);
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
    let credits = limits.credits();
    let credits = match (credits.unlimited, credits.has_credits) {
        (true, _) => Some("credits without a limit"),
        (false, true) => Some("credits are left"),
        (false, false) => None,
    };
    let of_account = limits
        .windows()
        .map(|window| window_in_words(&window, now))
        .chain(credits.map(str::to_owned));
    let of_models = limits.of_models().iter().flat_map(|limit| {
        let in_words = move |window| format!("{}: {}", limit.name(), window_in_words(&window, now));
        limit.windows().map(in_words)
    });
    match of_account.chain(of_models).collect::<Vec<_>>().join("; ") {
        empty if empty.is_empty() => "Codex reports none".to_owned(),
        told => told,
    }
}

fn window_in_words(window: &RateWindow, now: SystemTime) -> String {
    let used = used(window);
    match reset(window, now) {
        Some(reset) => format!("{used}, reset at {}", minute(reset)),
        None => used,
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
/// "usedUpUntil", "models": [{"name", "windows"}]}`. Unknown values are `null`.
#[must_use]
pub fn as_json(limits: &RateLimits, now: SystemTime) -> Value {
    let windows = limits.windows().map(|window| window_as_json(&window, now));
    let of_models = limits.of_models().iter().map(|limit| {
        let windows = limit.windows().map(|window| window_as_json(&window, now));
        json!({ "name": limit.name(), "windows": windows.collect::<Vec<_>>() })
    });
    json!({
        "windows": windows.collect::<Vec<_>>(),
        "usedUpUntil": used_up_until(limits, now).map(timestamp),
        "models": of_models.collect::<Vec<_>>(),
    })
}

fn window_as_json(window: &RateWindow, now: SystemTime) -> Value {
    json!({
        "usedPercent": window.used_percent,
        "windowMinutes": window.window_duration_mins,
        "resetsAt": reset(window, now).map(timestamp),
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
            let until = unusable_until(&limits(&told), None, refused.map(at), at(NOW));
            assert_eq!(until, expected.map(at), "{told}, {refused:?}");
        }
    }

    fn with_model(account: &Value, model: &Value) -> RateLimits {
        let spark = json!({ "limitId": "x", "limitName": "GPT-Spark", "primary": model });
        let read = json!({ "rateLimits": { "limitId": "codex", "primary": account },
            "rateLimitsByLimitId": { "x": spark } });
        RateLimits::read(&to_raw_value(&read).unwrap()).unwrap()
    }

    #[test]
    fn model_with_a_limit_of_its_own_does_not_wait_for_the_account() {
        let (soon, later) = (NOW + 60, NOW + 600);
        let exceeded = with_model(&window(101.0, soon), &window(5.0, later));
        for (model, expected) in [
            (None, Some(soon)),
            (Some("gpt-other"), Some(soon)),
            (Some("gpt-spark"), None),
        ] {
            let until = unusable_until(&exceeded, model, None, at(NOW));
            assert_eq!(until, expected.map(at), "{model:?}");
        }
        let used_up = with_model(&window(42.0, soon), &window(101.0, later));
        let until = unusable_until(&used_up, Some("gpt-spark"), None, at(NOW));
        assert_eq!(until, Some(at(later)));
    }

    #[test]
    fn refused_turn_is_refused_until_the_limit_of_its_model_is_reset() {
        let (soon, later) = (NOW + 60, NOW + 600);
        let (free, full) = (|reset| window(42.0, reset), |reset| window(100.0, reset));
        let spark = Some("gpt-spark");
        for (account, model, name, reported, expected) in [
            (free(soon), full(later), spark, None, Some(later)),
            (full(soon), full(later), spark, None, Some(later)),
            (full(soon), free(later), spark, None, None),
            // The name of the model is not known.
            (free(soon), full(later), None, Some("x"), Some(later)),
            (free(soon), full(later), Some("gpt-other"), None, None),
            (full(soon), full(later), None, Some("x"), Some(soon)),
            (free(soon), free(later), None, Some("x"), None),
        ] {
            let limits = with_model(&account, &model);
            let until = refused_until(&limits, name, reported, at(NOW));
            assert_eq!(until, expected.map(at), "{account}, {model}, {name:?}");
        }
    }

    #[test]
    fn model_without_a_known_name_waits_for_the_limit_at_which_it_was_refused() {
        let later = NOW + 5 * 3600;
        let limits = with_model(&window(42.0, NOW + 60), &window(100.0, later));
        for (refused, expected) in [
            (None, None),
            (Some(NOW + 60), None),
            (Some(later + 1), Some(later)),
        ] {
            let until = unusable_until(&limits, None, refused.map(at), at(NOW));
            assert_eq!(until, expected.map(at), "{refused:?}");
        }
    }

    #[test]
    fn limits_of_models_are_formatted_with_their_names() {
        let limits = with_model(&window(42.0, NOW), &json!({ "usedPercent": 7 }));
        let words = in_words(&limits, at(NOW));
        assert!(words.ends_with("; GPT-Spark: 7 % used"), "{words}");
        let model = &as_json(&limits, at(NOW))["models"][0];
        assert_eq!(model["name"], "GPT-Spark");
        assert_eq!(model["windows"][0]["usedPercent"], 7.0);
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
            is_outdated(&told, None, at(NOW))
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
                "models": [],
            })
        );
        assert_eq!(in_words(&limits(&json!({})), at(NOW)), "Codex reports none");
    }
}
