//! A JSON object as raw members in their order.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of an object, each as it was written.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl Members<'_> {
    /// The value of a member, as JSON.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut members = self.0.iter();
        let (_, value) = members.find(|(other, _)| other == name)?;
        Some(value)
    }

    /// Removes a member.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(other, _)| other != name);
    }

    /// Sets a member to a JSON text, in its place or at the end.
    pub(super) fn set(&mut self, name: &str, json: String) {
        let mut members = self.0.iter_mut();
        match members.find(|(other, _)| other == name) {
            Some((_, value)) => *value = json.into(),
            None => self.0.push((name.to_owned().into(), json.into())),
        }
    }
}

impl fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (place, (name, value)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let name = Value::from(&**name);
            write!(f, "{comma}{name}:{value}")?;
        }
        f.write_str("}")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<(Cow<'de, str>, Cow<'de, str>)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((name.into(), value.get().into()));
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Reader).map(Self)
    }
}
