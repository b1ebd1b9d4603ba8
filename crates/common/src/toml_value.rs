//! Formats values as TOML on one line, for Codex's option `-c KEY=VALUE`.

use serde_json::Value;

/// A JSON value as TOML; `None` for null, which TOML doesn't have. Members that are null are
/// left out.
#[must_use]
pub fn value(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(string) => text(string),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(self::value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .filter_map(|(key, member)| {
                    Some(format!("{} = {}", text(key), self::value(member)?))
                })
                .collect();
            format!("{{{}}}", members.join(", "))
        }
    })
}

/// A string as TOML. JSON's strings are TOML's basic strings except for DEL, which TOML
/// requires to be escaped.
#[must_use]
pub fn text(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_escaped_within_one_line() {
        assert_eq!(
            text("a\"b\\c\n\r\t\0\u{1b}\u{7f}'ß{}"),
            r#""a\"b\\c\n\r\t\u0000\u001b\u007f'ß{}""#
        );
    }

    #[test]
    fn values_are_written_on_one_line() {
        for (given, expected) in [
            (json!("a\n"), Some(r#""a\n""#)),
            (json!(1.5), Some("1.5")),
            (json!(["a,b]", "", 1, null]), Some(r#"["a,b]", "", 1]"#)),
            (
                json!({"a b": {"c": true, "d": null}}),
                Some(r#"{"a b" = {"c" = true}}"#),
            ),
            (json!(null), None),
        ] {
            assert_eq!(value(&given).as_deref(), expected);
        }
    }
}
