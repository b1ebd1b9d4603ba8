//! How much of an account's limits is used: `account/rateLimits/updated` and the answer to
//! `account/rateLimits/read` (0.104.0 to 0.169.0).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The most that is kept of it, in bytes.
const LIMIT: usize = 16 * 1024;

/// The ID of the limit of the account as a whole. Models may have limits of their own.
const GENERAL: &str = "codex";

/// The state of the limits, as Codex tells it: `primary` and `secondary`, each with
/// `usedPercent`, `windowDurationMins` and `resetsAt` (seconds since 1970), and more.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct RateLimits(Map<String, Value>);

/// One of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RateWindow {
    /// How much of it is used, in percent.
    pub used_percent: f64,
    /// For how long it counts, in minutes.
    #[serde(default)]
    pub window_duration_mins: Option<u64>,
    /// When it counts anew, in seconds since 1970.
    #[serde(default)]
    pub resets_at: Option<u64>,
}

/// What an account may use beyond its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Credits {
    /// Whether any are left.
    pub has_credits: bool,
    /// Whether they never run out.
    pub unlimited: bool,
}

impl RateLimits {
    /// Codex's name for the news.
    pub const METHOD: &'static str = "account/rateLimits/updated";

    /// Reads the parameters of the notification, or the answer to the request.
    ///
    /// # Errors
    ///
    /// When they have another shape. Of limits that are too long to be kept nothing is.
    pub fn read(told: &RawValue) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Told<'a> {
            #[serde(borrow)]
            rate_limits: &'a RawValue,
        }
        let Told { rate_limits } = serde_json::from_str(told.get())?;
        match rate_limits.get().len() > LIMIT {
            true => Ok(Self::default()),
            false => Ok(Self(serde_json::from_str(rate_limits.get())?)),
        }
    }

    /// Takes in newer news, which need not tell all again. The limit of a single model is
    /// not that of the account, and is left out.
    pub fn update(&mut self, newer: Self) {
        let limit = newer.0.get("limitId").and_then(Value::as_str);
        if limit.is_some_and(|limit| limit != GENERAL) {
            return;
        }
        let told = newer.0.into_iter().filter(|(_, value)| !value.is_null());
        self.0.extend(told);
    }

    /// What may be used beyond them, if Codex has told.
    #[must_use]
    pub fn credits(&self) -> Credits {
        let told = self.0.get("credits").cloned();
        let read = told.map(serde_json::from_value);
        read.and_then(Result::ok).unwrap_or_default()
    }

    /// The limits, the one over the shorter time first.
    pub fn windows(&self) -> impl Iterator<Item = RateWindow> + '_ {
        let named = ["primary", "secondary"].into_iter();
        named.filter_map(|name| serde_json::from_value(self.0.get(name)?.clone()).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> RateLimits {
        RateLimits::read(&RawValue::from_string(json.to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn newer_limits_replace_what_they_tell() {
        let mut limits = read(
            r#"{"rateLimits":{"primary":{"usedPercent":40,"windowDurationMins":300},
                "secondary":{"usedPercent":7.5},"planType":"plus"}}"#,
        );
        limits.update(read(
            r#"{"rateLimits":{"primary":{"usedPercent":41.0,"windowDurationMins":300},"secondary":null}}"#,
        ));
        let used: Vec<f64> = limits.windows().map(|window| window.used_percent).collect();
        assert_eq!(used, [41.0, 7.5]);
        let first = limits.windows().next().unwrap();
        assert_eq!(first.window_duration_mins, Some(300));
        limits.update(read(
            r#"{"rateLimits":{"limitId":"codex_spark","primary":{"usedPercent":100}}}"#,
        ));
        assert_eq!(limits.windows().next(), Some(first));
        let long = format!(r#"{{"rateLimits":{{"x":"{}"}}}}"#, "x".repeat(LIMIT));
        assert_eq!(read(&long), RateLimits::default());
    }

    #[test]
    fn answer_of_each_release_is_read() {
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
