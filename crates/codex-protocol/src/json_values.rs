//! The number of values in a JSON text, counted before it is parsed.
//!
//! A parsed value needs far more memory than its text: `0,` is 2 bytes long and a
//! [`serde_json::Value`] 32, an object of one member about 700. A line within
//! [`DEFAULT_LINE_LIMIT`](crate::lines::DEFAULT_LINE_LIMIT) could take gigabytes.

use memchr::memchr2;

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
    fn malformed_text_is_counted_to_its_end() {
        for json in [r#"["\"#, r#"["abc"#, r"\\\\", "", r#"""""""#] {
            assert!(!exceed(json.as_bytes(), 3), "{json}");
        }
    }
}
