//! Values as they are written after `-c KEY=`, which Codex reads as TOML.

/// A text. JSON's strings are TOML's basic strings but for DEL, which TOML wants
/// escaped.
pub(super) fn text(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json.replace('\u{7f}', "\\u007f")
}

/// An array of texts.
pub(super) fn texts(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| text(item)).collect();
    format!("[{}]", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_ends_it_or_breaks_the_line() {
        assert_eq!(
            text("a\"b\\c\n\r\t\0\u{1b}\u{7f}'ß{}"),
            r#""a\"b\\c\n\r\t\u0000\u001b\u007f'ß{}""#
        );
        let items = ["a,b]".to_owned(), String::new()];
        assert_eq!(texts(&items), r#"["a,b]", ""]"#);
    }
}
