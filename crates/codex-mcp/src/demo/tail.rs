//! The end of a program's output, for error messages.

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much is kept, in bytes.
const KEPT: usize = 2048;

/// Reads to the end and keeps the last part.
pub(super) async fn last_words(mut stream: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&kept).trim().to_owned(),
            Ok(count) => {
                kept.extend_from_slice(chunk.get(..count).unwrap_or_default());
                kept.drain(..kept.len().saturating_sub(KEPT));
            }
        }
    }
}

/// A program's output as the end of an error message.
pub(super) fn quoted_output(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!("\nIt said:\n{words}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_output_keeps_its_end() {
        let text = format!("{}the end\n", "x".repeat(3 * KEPT));
        let words = last_words(text.as_bytes()).await;
        assert!(words.ends_with("xthe end"));
        assert_eq!(words.len(), KEPT - 1);
    }
}
