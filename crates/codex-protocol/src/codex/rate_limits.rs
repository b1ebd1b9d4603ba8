//! How much of an account's limits is used: `account/rateLimits/updated` (0.104.0 to
//! 0.169.0).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The most that is kept of it, in bytes.
const LIMIT: usize = 16 * 1024;

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
}

impl RateLimits {
    /// Codex's name for the news.
    pub const METHOD: &'static str = "account/rateLimits/updated";

    /// Reads the parameters of the notification.
    ///
    /// # Errors
    ///
    /// When they have another shape. Of limits that are too long to be kept nothing is.
    pub fn read(params: &RawValue) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params {
            rate_limits: Map<String, Value>,
        }
        if params.get().len() > LIMIT {
            return Ok(Self::default());
        }
        let Params { rate_limits } = serde_json::from_str(params.get())?;
        Ok(Self(rate_limits))
    }

    /// Takes in newer news, which need not tell all again.
    pub fn update(&mut self, newer: Self) {
        let told = newer.0.into_iter().filter(|(_, value)| !value.is_null());
        self.0.extend(told);
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
        let long = format!(r#"{{"rateLimits":{{"x":"{}"}}}}"#, "x".repeat(LIMIT));
        assert_eq!(read(&long), RateLimits::default());
    }
}
