//! How much of an account's limits is used: `account/rateLimits/updated` and the answer to
//! `account/rateLimits/read` (0.104.0 to 0.169.0).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The most JSON that is kept, in bytes.
const LIMIT: usize = 16 * 1024;

/// The ID of the limit of the account as a whole. Models may have limits of their own.
const GENERAL: &str = "codex";

/// The keys of the limits, the one over the shorter time first.
const WINDOWS: [&str; 2] = ["primary", "secondary"];

/// The key of the credits, which may be used beyond the limits.
const CREDITS: &str = "credits";

/// The state of the limits, as Codex reports it: `primary` and `secondary`, each with
/// `usedPercent`, `windowDurationMins` and `resetsAt` (seconds since 1970), and more.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct RateLimits(Map<String, Value>);

/// One of the limits, over a window of time.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RateWindow {
    /// The used part of the limit, in percent.
    pub used_percent: f64,
    /// The length of the window, in minutes.
    #[serde(default)]
    pub window_duration_mins: Option<u64>,
    /// When the limit is reset, in seconds since 1970.
    #[serde(default)]
    pub resets_at: Option<u64>,
}

/// The credits that an account may use beyond its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Credits {
    /// Whether any are left.
    pub has_credits: bool,
    /// Whether they never run out.
    pub unlimited: bool,
}

impl RateLimits {
    /// The method of the notification.
    pub const METHOD: &'static str = "account/rateLimits/updated";

    /// Reads the parameters of the notification, or the answer to the request.
    ///
    /// # Errors
    ///
    /// If they have another shape. Limits that are too long are read as none.
    pub fn read(reported: &RawValue) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            rate_limits: &'a RawValue,
        }
        let Params { rate_limits } = serde_json::from_str(reported.get())?;
        match rate_limits.get().len() > LIMIT {
            true => Ok(Self::default()),
            false => Ok(Self(serde_json::from_str(rate_limits.get())?)),
        }
    }

    /// Merges a newer notification, which contains only what one response of the model
    /// reported: credits and the plan are `null` in it, and keep their values. Both
    /// windows are `null` after a response without limits, and keep their values too; if
    /// only one is `null`, the account has no such limit. Notifications of a model's own
    /// limit are ignored, and so are windows that cannot be read and notifications that
    /// would exceed the size limit.
    ///
    /// Returns whether the notification reported the account's windows.
    pub fn update(&mut self, newer: Self) -> bool {
        if !newer.is_of_the_account() {
            return false;
        }
        let has_windows = newer.windows().next().is_some();
        let reported = newer.0.into_iter().filter(|(name, value)| {
            match (WINDOWS.contains(&name.as_str()), value.is_null()) {
                (true, true) => has_windows,
                (true, false) => RateWindow::deserialize(value).is_ok(),
                (false, is_null) => !is_null,
            }
        });
        let mut merged = self.0.clone();
        merged.extend(reported);
        let length = serde_json::to_string(&merged).map_or(usize::MAX, |text| text.len());
        if length > LIMIT {
            return false;
        }
        self.0 = merged;
        has_windows
    }

    /// Takes over a response to `account/rateLimits/read`, which contains all of the
    /// account's limits. Credits that it does not contain keep their value.
    pub fn replace(&mut self, mut read: Self) {
        if !read.is_of_the_account() {
            read.0.retain(|name, _| !WINDOWS.contains(&name.as_str()));
        }
        let credits = self.0.remove(CREDITS).filter(|_| !read.contains(CREDITS));
        read.0
            .extend(credits.map(|known| (CREDITS.to_owned(), known)));
        *self = read;
    }

    fn is_of_the_account(&self) -> bool {
        let limit = self.0.get("limitId").and_then(Value::as_str);
        limit.is_none_or(|limit| limit == GENERAL)
    }

    fn contains(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// The credits; none if Codex has not reported them.
    #[must_use]
    pub fn credits(&self) -> Credits {
        let reported = self.0.get(CREDITS).cloned();
        let read = reported.map(serde_json::from_value);
        read.and_then(Result::ok).unwrap_or_default()
    }

    /// The limits, the one over the shorter time first.
    pub fn windows(&self) -> impl Iterator<Item = RateWindow> + '_ {
        WINDOWS
            .into_iter()
            .filter_map(|name| serde_json::from_value(self.0.get(name)?.clone()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> RateLimits {
        RateLimits::read(&RawValue::from_string(json.to_owned()).unwrap()).unwrap()
    }

    fn used(limits: &RateLimits) -> Vec<f64> {
        limits.windows().map(|window| window.used_percent).collect()
    }

    /// The notifications of 0.104.0, 0.153.4 and 0.169.0.
    #[test]
    fn update_changes_only_the_reported_windows() {
        let mut limits = read(
            r#"{"rateLimits":{"limitId":"codex","primary":{"usedPercent":40,"windowDurationMins":300},
                "secondary":{"usedPercent":7.5},"credits":{"hasCredits":true,"unlimited":false},
                "planType":"plus"}}"#,
        );
        let known = limits.clone();
        // A response without limits.
        let nothing = r#"{"rateLimits":{"limitId":"codex","limitName":null,"primary":null,
            "secondary":null,"credits":null,"planType":null}}"#;
        assert!(!limits.update(read(nothing)));
        // The limit of one model.
        assert!(!limits.update(read(
            r#"{"rateLimits":{"limitId":"codex_spark","primary":{"usedPercent":100}}}"#,
        )));
        assert_eq!(limits, known);
        assert!(limits.update(read(
            r#"{"rateLimits":{"limitId":"codex","primary":{"usedPercent":41,
                "windowDurationMins":300},"secondary":null,"credits":null,"planType":null}}"#,
        )));
        assert_eq!(used(&limits), [41.0]);
        assert!(limits.credits().has_credits && limits.contains("planType"));
        let long = format!(r#"{{"rateLimits":{{"x":"{}"}}}}"#, "x".repeat(LIMIT));
        assert_eq!(read(&long), RateLimits::default());
    }

    #[test]
    fn many_updates_stay_within_the_size_limit() {
        let mut limits = read(r#"{"rateLimits":{"primary":{"usedPercent":40}}}"#);
        for number in 0..100 {
            let filler = "x".repeat(LIMIT / 2);
            limits.update(read(&format!(
                r#"{{"rateLimits":{{"x{number}":"{filler}"}}}}"#
            )));
        }
        assert!(serde_json::to_string(&limits).unwrap().len() <= LIMIT);
        assert!(!limits.update(read(
            r#"{"rateLimits":{"primary":{"usedPercent":41,"resetsAt":-1}}}"#,
        )));
        assert_eq!(used(&limits), [40.0]);
    }

    #[test]
    fn response_replaces_everything_but_missing_credits() {
        let mut limits = read(
            r#"{"rateLimits":{"primary":{"usedPercent":100},"secondary":{"usedPercent":7},
                "credits":{"hasCredits":true}}}"#,
        );
        limits.replace(read(
            r#"{"rateLimits":{"limitId":"codex","primary":{"usedPercent":3},"secondary":null,
                "credits":null}}"#,
        ));
        assert_eq!(used(&limits), [3.0]);
        assert!(limits.credits().has_credits);
        limits.replace(read(
            r#"{"rateLimits":{"limitId":"codex","primary":null,"credits":{"hasCredits":false}}}"#,
        ));
        assert_eq!(used(&limits), [0.0; 0]);
        assert!(!limits.credits().has_credits);
        limits.replace(read(
            r#"{"rateLimits":{"limitId":"codex_spark","primary":{"usedPercent":100}}}"#,
        ));
        assert_eq!(used(&limits), [0.0; 0]);
    }

    #[test]
    fn rate_limits_response_is_read() {
        let limits = read(
            r#"{"rateLimits":{"limitId":"codex","limitName":null,"primary":{"usedPercent":42,
                "windowDurationMins":300,"resetsAt":1795411687},"secondary":null,
                "credits":{"hasCredits":false,"unlimited":true,"balance":"0"},"planType":"pro",
                "rateLimitReachedType":null,"normalModelSlug":"m"},"rateLimitsByLimitId":{},
                "accountId":"a","ordinaryUsageAllowed":true}"#,
        );
        let windows: Vec<RateWindow> = limits.windows().collect();
        let expected = RateWindow {
            used_percent: 42.0,
            window_duration_mins: Some(300),
            resets_at: Some(1_795_411_687),
        };
        assert_eq!(windows, [expected]);
        let credits = Credits {
            has_credits: false,
            unlimited: true,
        };
        assert_eq!(limits.credits(), credits);
        assert_eq!(read(r#"{"rateLimits":{}}"#).credits(), Credits::default());
    }
}
