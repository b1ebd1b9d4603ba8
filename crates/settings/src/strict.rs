//! Values that serde's own code reads too leniently: it takes a list for a struct, and a blank text.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A table. A list, as of `[[plugins.codex-mcp]]`, is refused.
#[derive(Default)]
pub(super) struct Table<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(TableVisitor(PhantomData))
    }
}

struct TableVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
    type Value = Table<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Table)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Table<T>, A::Error> {
        let message = "it must be a table, with one pair of brackets around its name";
        Err(A::Error::custom(message))
    }
}

/// Reads a table of tables.
pub(super) fn tables<'de, D, K, T>(from: D) -> Result<BTreeMap<K, T>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Ord,
    T: Deserialize<'de>,
{
    let tables = BTreeMap::<K, Table<T>>::deserialize(from)?.into_iter();
    Ok(tables.map(|(name, Table(table))| (name, table)).collect())
}

/// Reads a text that is not blank.
pub(super) fn text<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: From<String>,
{
    let text = String::deserialize(from)?;
    match text.trim().is_empty() {
        true => Err(D::Error::custom("it must not be empty")),
        false => Ok(Some(T::from(text))),
    }
}
