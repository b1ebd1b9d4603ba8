//! The number of values in a JSON text, counted before it is parsed.
//!
//! A parsed value needs far more memory than its text: `0,` is 2 bytes long and a
//! [`serde_json::Value`] 32, an object of one member about 700. A line within
//! [`DEFAULT_LINE_LIMIT`](crate::lines::DEFAULT_LINE_LIMIT) could take gigabytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use memchr::memchr2;
use serde_json::value::{RawValue, to_raw_value};

/// The most members that an object is expected to have, where its shape is fixed.
const MEMBERS: usize = 50;

/// The member that marks an object of which [`reduced`] has left out members.
pub const MARK: &str = "truncated";

/// Whether a JSON text holds more than `limit` values. Each element of an array, each
/// member of an object, and each array and object themselves count. The count is not
/// reliable for malformed JSON, which no parser turns into values.
#[must_use]
pub fn exceed(json: &[u8], limit: usize) -> bool {
    // Each counted value has at least one byte of its own.
    if json.len() <= limit {
        return false;
    }
    let mut values = 0;
    let mut rest = json;
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'"' => after_string(after),
            b',' | b'[' | b'{' | b':' => {
                values += 1;
                if values > limit {
                    return true;
                }
                after
            }
            _ => after,
        };
    }
    false
}

/// An object without its members of more than `limit / 50` values, if it holds more than `limit`
/// values. Of such a member that is an object itself, only the large members are left out.
/// `"truncated":true` marks each object that has lost one. An object with many small members is not
/// reduced. Anything else with more than `limit` values becomes `null`.
#[must_use]
pub fn reduced(json: &RawValue, limit: usize) -> Cow<'_, RawValue> {
    if !exceed(json.get().as_bytes(), limit) {
        return Cow::Borrowed(json);
    }
    let reduced = without_large(json.get(), limit / MEMBERS, 1);
    Cow::Owned(reduced.unwrap_or_else(|| RawValue::NULL.to_owned()))
}

/// An object without its members of more than `limit` values. Those that are objects are reduced
/// likewise, down to `depth` levels below this one.
fn without_large(json: &str, limit: usize, depth: usize) -> Option<Box<RawValue>> {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(json).ok()?;
    let count = members.len();
    let small = |value: Box<RawValue>| match exceed(value.get().as_bytes(), limit) {
        false => Some(value),
        true => without_large(value.get(), limit, depth.checked_sub(1)?),
    };
    let members = members.into_iter();
    let mut kept: BTreeMap<String, Box<RawValue>> = members
        .filter_map(|(name, value)| Some((name, small(value)?)))
        .collect();
    if kept.len() < count {
        kept.insert(MARK.to_owned(), RawValue::TRUE.to_owned());
    }
    to_raw_value(&kept).ok()
}

/// The text after a string whose opening quote is not part of `text`.
fn after_string(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr2(b'"', b'\\', text) {
        let escape = text.get(at) == Some(&b'\\');
        text = text.get(at + 1 + usize::from(escape)..).unwrap_or_default();
        if !escape {
            return text;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings() {
        for (json, values) in [
            ("[0,0,0]", 3),
            (r#"{"a":[{},{}]}"#, 6),
            (r#"{"a":"[,,,,,,,,{{{{"}"#, 2),
            (r#"["\",,,,,,",1]"#, 2),
            (r#"["\\",1,"\\\",,,"]"#, 3),
            ("7                   ", 0),
        ] {
            assert!(!exceed(json.as_bytes(), values), "{json}");
            if let Some(fewer) = values.checked_sub(1) {
                assert!(exceed(json.as_bytes(), fewer), "{json}");
            }
        }
    }

    #[test]
    fn reduced_object_keeps_small_members() {
        let reduced = |json: &str, limit| {
            let json = RawValue::from_string(json.to_owned()).unwrap();
            reduced(&json, limit).get().to_owned()
        };
        let many = format!("[{}0]", "0,".repeat(200));
        let item = format!(r#"{{"arguments":{{"a":{many}}},"id":"i","result":{many}}}"#);
        let params = format!(r#"{{"item":{item},"threadId":"t"}}"#);
        assert_eq!(reduced(&params, 1000), params);
        assert_eq!(
            reduced(&params, 400),
            r#"{"item":{"id":"i","truncated":true},"threadId":"t"}"#
        );
        assert_eq!(
            reduced(&item, 400),
            r#"{"arguments":{"truncated":true},"id":"i","truncated":true}"#
        );
        assert_eq!(reduced(&many, 100), "null");
    }

    #[test]
    fn malformed_text_is_counted_to_its_end() {
        for json in [r#"["\"#, r#"["abc"#, r"\\\\", "", r#"""""""#] {
            assert!(!exceed(json.as_bytes(), 3), "{json}");
        }
    }
}
