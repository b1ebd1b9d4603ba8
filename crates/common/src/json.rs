//! Merges JSON objects, removes members that are null, writes enums as their words, paths as texts
//! and checked texts as strings, and finds parts of a text.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use serde_json::Value;

/// The object without members that are null.
pub fn without_nulls(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.retain(|_, value| !value.is_null());
    }
    value
}

/// The members of both objects, those of `over` where both have one, without
/// members that are null.
pub fn merged(mut under: Value, over: Value) -> Value {
    if let (Some(under), Value::Object(over)) = (under.as_object_mut(), over) {
        under.extend(over);
    }
    without_nulls(under)
}

/// The word of a value that is serialized as a string, such as a variant of an enum; `None` for any
/// other value.
pub fn as_word(value: impl Serialize) -> Option<String> {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => Some(word),
        _ => None,
    }
}

/// Serializes a path as a text, with U+FFFD for what is not UTF-8: serde itself refuses such a path,
/// and with it the whole value.
pub fn lossy_path<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(to)
}

/// Converts checked texts to strings and back, for serde's `try_from = "String"` and
/// `into = "String"`: by `FromStr`, and by `Display`.
#[macro_export]
macro_rules! string_conversions {
    ($($name:ident),*) => { $(
        impl TryFrom<String> for $name {
            type Error = <Self as ::std::str::FromStr>::Err;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(checked: $name) -> Self {
                checked.to_string()
            }
        }
    )* };
}

/// The range of a part that is borrowed from the whole; `None` if it is not borrowed from it.
pub fn range_of(whole: &(impl AsRef<[u8]> + ?Sized), part: &str) -> Option<Range<usize>> {
    let whole = whole.as_ref();
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn path_that_is_not_utf8_is_serialized() {
        let path = Path::new(OsStr::from_bytes(b"/a\xff")).to_owned();
        let json = lossy_path(&Some(path), serde_json::value::Serializer);
        assert_eq!(json.unwrap(), "/a\u{fffd}");
    }
}
