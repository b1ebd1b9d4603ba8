//! Parsers for values on the command line.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use codex_config::profile::ProfileName;
use common::nearest::nearest;
use goal_run::logic::criteria::{BadCriterion, Criterion};
use image_request::logic::picture::SizeLimit;
use job_queue::logic::JobState;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as ValueError, StrDeserializer};
use strum::VariantNames;

/// Parses one of several words of Codex's.
pub(super) fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + VariantNames + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(T::VARIANTS).try_map(|text| word::<T>(&text))
}

/// Parses one of several words of ours.
pub(super) fn one_of_words<T>() -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>
        + VariantNames
        + Clone
        + Send
        + Sync
        + 'static,
{
    PossibleValuesParser::new(T::VARIANTS).try_map(|text| text.parse::<T>())
}

/// Parses a value of Codex's.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, ValueError> {
    T::deserialize(StrDeserializer::new(text))
}

/// Parses the state of a job.
pub(super) fn job_state() -> impl TypedValueParser<Value = JobState> {
    PossibleValuesParser::new(<JobState as VariantNames>::VARIANTS)
        .try_map(|word| word.parse::<JobState>())
}

pub(super) fn profile(text: &str) -> Result<ProfileName, String> {
    ProfileName::try_from(text.to_owned()).map_err(|error| error.to_string())
}

/// Parses a criterion of a run.
pub(super) fn criterion(text: &str) -> Result<Criterion, String> {
    text.parse().map_err(|error| match error {
        BadCriterion::Unknown(_) => match meant(text) {
            Some(kind) => format!("{error}. Did you mean `{kind}`?"),
            None => error.to_string(),
        },
        error => error.to_string(),
    })
}

/// The nearest known kind of criterion. Earlier programs had `pr-opened?`.
fn meant(text: &str) -> Option<&'static str> {
    let kind = text.split('=').next().unwrap_or_default();
    let kind = kind.trim_start_matches(':').trim_end_matches('?');
    match kind.replace('-', "_").as_str() {
        "pr_opened" => Some("pr"),
        kind => nearest(kind, Criterion::VARIANTS),
    }
}

/// Parses a whole number within a range.
pub(super) fn number_within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text: &str| {
        let number = text
            .parse::<T>()
            .ok()
            .filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("it is not a number from {least} to {most}"))
    }
}

/// Parses the size limit of pictures.
pub(super) fn size_limit(text: &str) -> Result<SizeLimit, String> {
    let bytes: u64 = text
        .parse()
        .map_err(|_| "it must be a number of bytes, such as 20000000".to_owned())?;
    SizeLimit::try_from(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_within_its_range() {
        let parse = number_within(0..=10_u32);
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("10"), Ok(10));
        for wrong in ["11", "-1", "x", "", "99999999999"] {
            let error = parse(wrong).unwrap_err();
            assert_eq!(error, "it is not a number from 0 to 10", "{wrong}");
        }
    }

    #[test]
    fn wrong_criterion_suggests_the_nearest() {
        for (text, kind) in [
            ("pr-opened?", "pr"),
            (":pr-opened?", "pr"),
            ("comits=1", "commits"),
            ("file=*.md", "files"),
            ("diff-within=src", "diff_within"),
        ] {
            let error = criterion(text).unwrap_err();
            assert!(
                error.contains(&format!("Did you mean `{kind}`?")),
                "{text}: {error}"
            );
        }
        assert!(!criterion("xyz").unwrap_err().contains("Did you mean"));
        // Every kind that is offered is indeed a kind.
        for &kind in Criterion::VARIANTS {
            let known = !matches!(kind.parse::<Criterion>(), Err(BadCriterion::Unknown(_)));
            assert!(known, "{kind}");
        }
    }
}
