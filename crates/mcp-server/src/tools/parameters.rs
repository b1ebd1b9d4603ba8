//! Parameters that several tools share. Each is checked when it is parsed.

use std::time::Duration;

use codex_engine::command::LONGEST_WAIT;
use codex_protocol::codex::ApprovalPolicy;
use common::nearest::folded;
use common::serde_error::in_plain_words;
use rmcp::model::JsonObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use settings::{PolicyName, REPLACED};

use super::parameter_names::{resolved, unknown};
use super::schema::{OneOf, sent_as};
use crate::code::Code;
use crate::error::ToolError;
use crate::server::Server;

/// Parses the arguments of a tool, under any of their names. The error names the wrong argument and
/// the reason.
pub(super) fn arguments<T: DeserializeOwned>(given: JsonObject) -> Result<T, ToolError> {
    let given = Value::Object(resolved::<T>(given)?);
    serde_path_to_error::deserialize(given).map_err(|error| {
        let place = error.path().to_string();
        let inner = error.inner().to_string();
        let message = match (unknown_field(&place, &inner), place.as_str()) {
            (Some(unknown), _) => unknown,
            (None, ".") => in_json_terms(&inner),
            (None, place) => format!("{place}: {}", in_json_terms(&inner)),
        };
        ToolError::new(Code::InvalidArgument, message)
    })
}

/// Turns serde's error about an unknown field into advice: where the parameter belongs, or which
/// one was meant.
fn unknown_field(place: &str, error: &str) -> Option<String> {
    let (name, expected) = error.strip_prefix("unknown field `")?.split_once("`, ")?;
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let same = |parameter: &&&str| folded(parameter) == folded(name);
    let misplaced = MISPLACED
        .iter()
        .filter(|(home, _)| known.contains(home))
        .find_map(|(home, parameters)| Some((home, parameters.iter().find(same)?)));
    if let Some((home, parameter)) = misplaced {
        return Some(format!("`{parameter}` belongs into `{home}`"));
    }
    let within = place.strip_suffix(name).unwrap_or(place);
    let within = within.trim_end_matches('.');
    Some(unknown(
        name,
        Some(within).filter(|within| !within.is_empty()),
        &known,
    ))
}

/// An error of serde in JSON's terms instead of Rust's.
fn in_json_terms(error: &str) -> String {
    if error.starts_with("unknown variant ") {
        return in_plain_words(error);
    }
    let mut text = error.to_owned();
    for (rust, json) in [
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("invalid type: map", "invalid type: object"),
        ("invalid type: sequence", "invalid type: list"),
    ] {
        text = text.replace(rust, json);
    }
    text
}

/// Parameters that callers often place next to the object that they belong in.
const MISPLACED: [(&str, &[&str]); 2] = [
    (
        "advanced",
        &[
            "baseInstructions",
            "developerInstructions",
            "personality",
            "summary",
            "config",
            "ephemeral",
            "outputSchema",
            "images",
            "approvalTimeoutMs",
            "stallTimeoutMs",
        ],
    ),
    (
        "pollOptions",
        &[
            "includeEvents",
            "includeActions",
            "includeResult",
            "maxBytes",
        ],
    ),
];

/// A text that is not blank, such as a prompt.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct NonBlankText(pub(super) String);

sent_as!(String: NonBlankText);

impl TryFrom<String> for NonBlankText {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.trim().is_empty() {
            return Err("must not be empty");
        }
        Ok(Self(text))
    }
}

/// An approval policy by any of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Policy(PolicyName);

sent_as!(OneOf<PolicyName>: Policy);

impl Policy {
    /// The policy by its current name in Codex. The first time that a replaced policy is given, a
    /// warning is added.
    pub(super) fn today(self, server: &Server, warnings: &mut Vec<String>) -> ApprovalPolicy {
        if self.0 == PolicyName::OnFailure && server.first_on_failure() {
            tracing::warn!("{REPLACED}");
            warnings.push(format!("{REPLACED}."));
        }
        self.0.today()
    }
}

/// A number of events or bytes, or the number of an event. Some clients write all numbers with a
/// fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "serde_json::Number")]
pub(super) struct Count(pub(super) u64);

/// The largest whole number that every client can write exactly (2^53 - 1).
const LARGEST: u64 = (1 << 53) - 1;

impl TryFrom<serde_json::Number> for Count {
    type Error = String;

    fn try_from(number: serde_json::Number) -> Result<Self, Self::Error> {
        let whole = match number.as_u64() {
            Some(whole) => Some(whole),
            // `{:.0}` of a float without a fraction is the number itself.
            None => number
                .as_f64()
                .filter(|float| float.fract() == 0.0)
                .and_then(|float| format!("{float:.0}").parse().ok()),
        };
        whole
            .filter(|whole| *whole <= LARGEST)
            .map(Self)
            .ok_or_else(|| format!("must be a whole number from 0 to {LARGEST}, not {number}"))
    }
}

/// A time to wait, at most [`LONGEST_WAIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Count")]
pub(super) struct Wait(pub(super) Duration);

impl TryFrom<Count> for Wait {
    type Error = String;

    fn try_from(Count(milliseconds): Count) -> Result<Self, Self::Error> {
        let wait = Duration::from_millis(milliseconds);
        match wait <= LONGEST_WAIT {
            true => Ok(Self(wait)),
            false => Err(format!(
                "must be at most {} milliseconds, not {milliseconds}",
                LONGEST_WAIT.as_millis()
            )),
        }
    }
}

/// A time limit: a [`Wait`] that is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Wait")]
pub(super) struct TimeLimit(pub(super) Duration);

sent_as!(u64: Count, Wait, TimeLimit);

impl TryFrom<Wait> for TimeLimit {
    type Error = &'static str;

    fn try_from(Wait(limit): Wait) -> Result<Self, Self::Error> {
        match limit.is_zero() {
            true => Err("must be at least 1 millisecond"),
            false => Ok(Self(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn counts_must_be_whole_and_not_negative() {
        for (given, count) in [
            (json!(0), 0),
            (json!(7), 7),
            (json!(7.0), 7),
            (json!(1e3), 1000),
        ] {
            assert_eq!(read::<Count>(given).unwrap(), Count(count));
        }
        for bad in [
            json!(-1),
            json!(0.5),
            json!(1e300),
            json!(u64::MAX),
            json!("1"),
            json!(-0.5),
        ] {
            assert!(read::<Count>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn waits_are_bounded() {
        assert_eq!(read::<Wait>(json!(0)).unwrap().0, Duration::ZERO);
        assert!(read::<Wait>(json!(86_400_000)).is_ok());
        assert!(
            read::<Wait>(json!(86_400_001))
                .unwrap_err()
                .contains("at most 86400000")
        );
        assert!(
            read::<TimeLimit>(json!(0))
                .unwrap_err()
                .contains("at least 1")
        );
    }
}
