//! How much of an account's limits is used: `account/rateLimits/updated` and the answer to
//! `account/rateLimits/read` (0.104.0 to 0.169.0).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The most JSON that is kept, in bytes.
const LIMIT: usize = 16 * 1024;

/// The ID of the limit of the account as a whole. Models may have limits of their own.
const GENERAL: &str = "codex";

/// The most limits of models that are kept.
const MODEL_LIMITS: usize = 16;

/// The longest ID or name of a model's limit, in bytes.
const NAME_LIMIT: usize = 100;

/// The keys of the limits, the one over the shorter time first.
const WINDOWS: [&str; 2] = ["primary", "secondary"];

/// The key of the credits, which may be used beyond the limits.
const CREDITS: &str = "credits";

/// The state of the limits. It is serialized as that of the account.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct RateLimits {
    /// The limit of the account, as Codex reports it: `primary` and `secondary`, each with
    /// `usedPercent`, `windowDurationMins` and `resetsAt` (seconds since 1970), and more.
    account: Map<String, Value>,
    /// The limits of single models.
    #[serde(skip)]
    models: Vec<ModelLimit>,
}

/// The limit of a single model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelLimit {
    #[serde(rename = "limitId")]
    id: String,
    #[serde(rename = "limitName", default)]
    name: Option<String>,
    #[serde(default)]
    primary: Option<RateWindow>,
    #[serde(default)]
    secondary: Option<RateWindow>,
}

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

/// What a notification has reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedWindows {
    /// Whether it reported windows of the account.
    pub account: bool,
    /// The ID of the limit of a model of which it reported windows.
    pub model: Option<String>,
}

impl ModelLimit {
    /// The ID of the limit.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The model's name if Codex reports it, or else the ID of its limit.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// The limits, the one over the shorter time first.
    pub fn windows(&self) -> impl Iterator<Item = RateWindow> + use<> {
        [self.primary, self.secondary].into_iter().flatten()
    }

    /// Reads the limit of a model; `None` if it is the account's, if it cannot be read, or
    /// if its name is not a short line.
    fn read(reported: Value) -> Option<Self> {
        let limit: Self = serde_json::from_value(reported).ok()?;
        let is_short_line =
            |text: &str| text.len() <= NAME_LIMIT && !text.contains(char::is_control);
        let is_named = is_short_line(&limit.id) && is_short_line(limit.name());
        (is_named && limit.id != GENERAL).then_some(limit)
    }
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
            #[serde(borrow, default)]
            rate_limits_by_limit_id: Option<&'a RawValue>,
        }
        let params: Params<'_> = serde_json::from_str(reported.get())?;
        let mut limits = Self::default();
        if let Some(all) = params.rate_limits_by_limit_id.filter(is_kept) {
            let all: BTreeMap<String, Value> = serde_json::from_str(all.get())?;
            let models = all.into_values().filter_map(ModelLimit::read);
            limits.models = models.take(MODEL_LIMITS).collect();
        }
        if !is_kept(&params.rate_limits) {
            return Ok(limits);
        }
        let reported: Map<String, Value> = serde_json::from_str(params.rate_limits.get())?;
        match reported.get("limitId").and_then(Value::as_str) {
            None | Some(GENERAL) => limits.account = reported,
            Some(_) => limits.keep(ModelLimit::read(Value::Object(reported))),
        }
        Ok(limits)
    }

    /// Merges a newer notification, which contains only what one response of the model
    /// reported: credits and the plan are `null` in it, and keep their values. Both
    /// windows are `null` after a response without limits, and keep their values too; if
    /// only one is `null`, the account has no such limit. The limit of a model is kept
    /// beside those of the account. Windows that cannot be read are ignored, and so are
    /// notifications that would exceed the size limit.
    ///
    /// Returns of what the notification reported windows.
    pub fn update(&mut self, newer: Self) -> ReportedWindows {
        let has_windows = newer.windows().next().is_some();
        let mut reported_windows = ReportedWindows::default();
        for limit in newer.models {
            if limit.windows().next().is_some() {
                reported_windows.model = Some(limit.id.clone());
                self.keep(Some(limit));
            }
        }
        let reported = newer.account.into_iter().filter(|(name, value)| {
            match (WINDOWS.contains(&name.as_str()), value.is_null()) {
                (true, true) => has_windows,
                (true, false) => RateWindow::deserialize(value).is_ok(),
                (false, is_null) => !is_null,
            }
        });
        let mut merged = self.account.clone();
        merged.extend(reported);
        let length = serde_json::to_string(&merged).map_or(usize::MAX, |text| text.len());
        if length <= LIMIT {
            self.account = merged;
            reported_windows.account = has_windows;
        }
        reported_windows
    }

    /// Takes over a response to `account/rateLimits/read`, which contains all of the
    /// limits. Credits that it does not contain keep their value.
    pub fn replace(&mut self, mut read: Self) {
        let known = self.account.remove(CREDITS);
        if !read.contains(CREDITS) {
            let credits = known.map(|known| (CREDITS.to_owned(), known));
            read.account.extend(credits);
        }
        *self = read;
    }

    /// Keeps the limit of a model. Without a name it keeps the known one.
    fn keep(&mut self, limit: Option<ModelLimit>) {
        let Some(mut limit) = limit else { return };
        let known = self.models.iter().position(|known| known.id == limit.id);
        if let Some(known) = known.map(|at| self.models.remove(at)) {
            limit.name = limit.name.or(known.name);
        }
        if self.models.len() == MODEL_LIMITS {
            self.models.remove(0);
        }
        self.models.push(limit);
    }

    fn contains(&self, name: &str) -> bool {
        self.account.get(name).is_some_and(|value| !value.is_null())
    }

    /// The limits of single models.
    #[must_use]
    pub fn of_models(&self) -> &[ModelLimit] {
        &self.models
    }

    /// The limit of the model of this name, if it has its own. Codex reports the model's
    /// name as people write it: `GPT-5.3-Codex-Spark` for `gpt-5.3-codex-spark`.
    #[must_use]
    pub fn of_model(&self, model: &str) -> Option<&ModelLimit> {
        let mut models = self.models.iter();
        models.find(|limit| limit.name().eq_ignore_ascii_case(model))
    }

    /// The credits; none if Codex has not reported them.
    #[must_use]
    pub fn credits(&self) -> Credits {
        let reported = self.account.get(CREDITS).cloned();
        let read = reported.map(serde_json::from_value);
        read.and_then(Result::ok).unwrap_or_default()
    }

    /// The limits of the account, the one over the shorter time first.
    pub fn windows(&self) -> impl Iterator<Item = RateWindow> + '_ {
        WINDOWS
            .into_iter()
            .filter_map(|name| serde_json::from_value(self.account.get(name)?.clone()).ok())
    }
}

/// Whether reported limits are short enough to be kept.
fn is_kept(reported: &&RawValue) -> bool {
    reported.get().len() <= LIMIT
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
        assert_eq!(limits.update(read(nothing)), ReportedWindows::default());
        assert_eq!(limits, known);
        let reported = limits.update(read(
            r#"{"rateLimits":{"limitId":"codex","primary":{"usedPercent":41,
                "windowDurationMins":300},"secondary":null,"credits":null,"planType":null}}"#,
        ));
        assert!(reported.account && reported.model.is_none());
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
        assert!(serde_json::to_string(&limits.account).unwrap().len() <= LIMIT);
        let unreadable = read(r#"{"rateLimits":{"primary":{"usedPercent":41,"resetsAt":-1}}}"#);
        assert_eq!(limits.update(unreadable), ReportedWindows::default());
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
    fn limit_of_a_model_is_kept_beside_the_limit_of_the_account() {
        let mut limits = read(
            r#"{"rateLimits":{"limitId":"codex","primary":{"usedPercent":40}},
                "rateLimitsByLimitId":{
                    "codex":{"limitId":"codex","primary":{"usedPercent":40}},
                    "spark":{"limitId":"spark","limitName":"GPT-Spark",
                        "primary":{"usedPercent":5}},
                    "other":{"limitId":"other","limitName":null,"secondary":null}}}"#,
        );
        let of = |limits: &RateLimits, model: &str| -> Option<Vec<f64>> {
            let windows = limits.of_model(model)?.windows();
            Some(windows.map(|window| window.used_percent).collect())
        };
        assert_eq!(of(&limits, "gpt-spark"), Some(vec![5.0]));
        assert_eq!(of(&limits, "other"), Some(vec![]));
        assert_eq!(of(&limits, "codex"), None);
        // The notification of 0.153.4 and 0.169.0.
        let reported = limits.update(read(
            r#"{"rateLimits":{"limitId":"spark","limitName":null,"primary":
                {"usedPercent":100},"secondary":null,"credits":null,"planType":null}}"#,
        ));
        assert_eq!(reported.model.as_deref(), Some("spark"));
        assert!(!reported.account);
        assert_eq!(of(&limits, "gpt-spark"), Some(vec![100.0]));
        assert_eq!(limits.of_models().last().unwrap().name(), "GPT-Spark");
        assert_eq!(used(&limits), [40.0]);
        // A response without limits.
        limits.update(read(r#"{"rateLimits":{"limitId":"spark"}}"#));
        assert_eq!(of(&limits, "gpt-spark"), Some(vec![100.0]));
        limits.replace(read(r#"{"rateLimits":{"limitId":"codex"}}"#));
        assert_eq!(limits.of_models(), []);
    }

    #[test]
    fn limits_of_models_are_bounded_in_number_and_length() {
        let mut limits = RateLimits::default();
        for number in 0..100 {
            limits.update(read(&format!(
                r#"{{"rateLimits":{{"limitId":"{number}","primary":{{"usedPercent":1}}}}}}"#
            )));
        }
        let kept: Vec<&str> = limits.of_models().iter().map(ModelLimit::name).collect();
        let expected: Vec<String> = (84..100).map(|number: u8| number.to_string()).collect();
        assert_eq!(kept, expected);
        for name in ["x".repeat(NAME_LIMIT + 1), "\u{1b}[2J".to_owned()] {
            let hostile = format!(
                r#"{{"rateLimits":{{"limitId":"a","limitName":{},"primary":{{"usedPercent":1}}}}}}"#,
                Value::from(name)
            );
            assert_eq!(read(&hostile).of_models(), []);
        }
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
