//! Edits a part of a JSON text and leaves every other byte as it is.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use common::json::range_of;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in the order of its text, repeated names included.
pub(super) struct Members<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// `None` if the text is not an object.
    pub(super) fn of(object: &'a str) -> Option<Self> {
        serde_json::from_str(object).ok()
    }

    /// The index of the last member of that name: of two, JavaScript takes the last.
    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().rposition(|(key, _)| key == name)
    }

    /// The value of that name.
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, value) = self.0.get(self.find(name)?)?;
        Some(value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

/// A name that is borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The object with this member replaced or appended. `None` if the text is not an object.
pub(super) fn with_member(object: &str, name: &str, value: &str) -> Option<String> {
    let members = Members::of(object)?;
    match members.get(name) {
        Some(before) => replaced(object, &range_of(object, before.get())?, value),
        None => {
            // A text can always be written.
            let name = serde_json::to_string(name).unwrap_or_default();
            with_appended(object, &format!("{name}: {value}"), "")
        }
    }
}

/// The object without the member. `None` if the text is not an object.
pub(super) fn without_member(object: &str, name: &str) -> Option<String> {
    let Members(members) = Members::of(object)?;
    let is_it = |(key, _): &&(Cow<'_, str>, &RawValue)| key == name;
    match members.iter().filter(is_it).count() {
        0 => Some(object.to_owned()),
        1 => {
            let index = members.iter().position(|(key, _)| key == name)?;
            let values: Vec<&RawValue> = members.iter().map(|(_, value)| *value).collect();
            without(object, &values, index)
        }
        // All members of the name are removed: other programs would use one that was left.
        _ => {
            let others = members.iter().filter(|(key, _)| key != name);
            let others: Vec<String> = others
                .map(|(key, value)| Some(format!("{}:{}", serde_json::to_string(key).ok()?, value)))
                .collect::<Option<_>>()?;
            Some(format!("{{{}}}", others.join(",")))
        }
    }
}

/// An array or object without one of its `values`, and without that value's name.
pub(super) fn without(whole: &str, values: &[&RawValue], index: usize) -> Option<String> {
    let this = range_of(whole, values.get(index)?.get())?;
    let next = values.get(index + 1);
    let range = match (index.checked_sub(1).and_then(|last| values.get(last)), next) {
        // Removed with the comma before it.
        (Some(last), _) => range_of(whole, last.get())?.end..this.end,
        // Removed with the comma behind it.
        (None, Some(_)) => {
            let comma = whole.get(this.end..)?.find(',')?;
            1..this.end.checked_add(comma)?.checked_add(1)?
        }
        (None, None) => 1..whole.len().checked_sub(1)?,
    };
    replaced(whole, &range, "")
}

/// An array or object with an item appended on a line of its own, with this indent. The text has to
/// end with the closing bracket.
pub(super) fn with_appended(whole: &str, item: &str, indent: &str) -> Option<String> {
    let (bracket, _) = whole.char_indices().next_back()?;
    let (inner, close) = whole.split_at_checked(bracket)?;
    let inner = inner.trim_end();
    let mut longer = String::with_capacity(whole.len() + item.len() + 2 * indent.len() + 8);
    longer.push_str(inner);
    if inner.len() > 1 {
        longer.push(',');
    }
    let outer = indent.get(2..).unwrap_or_default();
    for part in ["\n", indent, item, "\n", outer, close] {
        longer.push_str(part);
    }
    Some(longer)
}

/// The text with a range of it replaced.
pub(super) fn replaced(whole: &str, range: &Range<usize>, with: &str) -> Option<String> {
    let (before, after) = (whole.get(..range.start)?, whole.get(range.end..)?);
    Some([before, with, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_is_replaced_in_place_or_appended() {
        for (before, after) in [
            (r#"{ "a" : 1 ,"b":2}"#, r#"{ "a" : true ,"b":2}"#),
            (r#"{"\u0061":null}"#, r#"{"\u0061":true}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":true}"#),
            (r#"{"b":{"a":1}}"#, "{\"b\":{\"a\":1},\n\"a\": true\n}"),
            ("{ }", "{\n\"a\": true\n}"),
        ] {
            assert_eq!(with_member(before, "a", "true").unwrap(), after);
        }
        for odd in ["[]", "1", "\"a\"", "null"] {
            assert_eq!(with_member(odd, "a", "true"), None);
        }
    }

    #[test]
    fn removed_member_takes_its_comma() {
        for (before, after) in [
            (r#"{"a":1}"#, "{}"),
            (r#"{ "a":1, "b":2 }"#, r#"{ "b":2 }"#),
            (r#"{"b":2 , "a":1 }"#, r#"{"b":2 }"#),
            (r#"{"b":2,"a":1,"c":3}"#, r#"{"b":2,"c":3}"#),
            (r#"{"b":2}"#, r#"{"b":2}"#),
            (
                r#"{"a":1, "b":[2, 3],"\u0061":3, "c\"":4}"#,
                r#"{"b":[2, 3],"c\"":4}"#,
            ),
        ] {
            assert_eq!(without_member(before, "a").unwrap(), after);
        }
    }

    #[test]
    fn appended_item_has_its_own_line() {
        assert_eq!(with_appended("[]", "1", "  ").unwrap(), "[\n  1\n]");
        assert_eq!(with_appended("[1\n ]", "2", "  ").unwrap(), "[1,\n  2\n]");
        assert_eq!(
            with_appended("[0]", "1", "    ").unwrap(),
            "[0,\n    1\n  ]"
        );
    }
}
