//! Paths as texts.

/// A path as a text. Bytes that are none are written as `\xNN`, so that files whose
/// names differ in them alone are told apart.
pub fn written(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_utf8_stay_distinct() {
        assert_eq!(written("a b/ü\n".as_bytes()), "a b/ü\n");
        assert_eq!(written(b"a\xff\xfeb"), "a\\xff\\xfeb");
    }
}
