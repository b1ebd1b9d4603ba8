//! Objects that name a member twice.
//!
//! Of such members, some parsers take the first and others the last, so that the value
//! that was checked may not be the value that is used (RFC 8259, section 4).

use std::collections::HashSet;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Checks that no object in a JSON text, at any level, names a member twice.
///
/// # Errors
///
/// If an object does, or if the text is nested too deep to be read.
pub fn check(json: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str(json).map(|Unique| ())
}

/// A value in which no object names a member twice.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Unique, A::Error> {
        while seq.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if names.contains(&name) {
                let twice = format!("the member {name:?} is there twice");
                return Err(A::Error::custom(twice));
            }
            names.insert(name);
            map.next_value::<Unique>()?;
        }
        Ok(Unique)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_members_are_found_at_any_level() {
        for json in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"b":2,"\u0061":3}"#,
            r#"[{"x":{"a":{"b":1,"b":2}}}]"#,
            r#"{"":0,"":0}"#,
        ] {
            let found = check(json).unwrap_err().to_string();
            assert!(found.contains("is there twice"), "{json}: {found}");
        }
        for json in [
            r#"{"a":{"a":[{"a":1},{"a":1}]},"A":"a","b":null,"c":true,"d":-1,"e":1.5}"#,
            "7",
            "[]",
        ] {
            assert!(check(json).is_ok(), "{json}");
        }
    }

    #[test]
    fn text_that_is_nested_too_deep_is_an_error() {
        let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
        assert!(check(&deep).is_err());
    }
}
