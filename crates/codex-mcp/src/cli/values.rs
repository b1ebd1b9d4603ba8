//! Values on the command line, most of them Codex's.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use codex_mcp_core::eyes::picture::SizeLimit;
use serde::de::DeserializeOwned;
use serde::de::value::{Error as ValueError, StrDeserializer};

use crate::engine::profile::ProfileName;

/// One of several words of Codex's.
pub(super) fn one_of<T>(all: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(all).try_map(|text| word::<T>(&text))
}

/// A value of Codex's by its word.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, ValueError> {
    T::deserialize(StrDeserializer::new(text))
}

pub(super) fn profile(text: &str) -> Result<ProfileName, String> {
    ProfileName::try_from(text.to_owned()).map_err(|error| error.to_string())
}

/// How many bytes a picture may have.
pub(super) fn size_limit(text: &str) -> Result<SizeLimit, String> {
    let bytes: u64 = text
        .parse()
        .map_err(|_| "it must be a number of bytes, such as 20000000".to_owned())?;
    SizeLimit::try_from(bytes).map_err(|error| error.to_string())
}
