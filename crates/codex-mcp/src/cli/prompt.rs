//! Reads a prompt or a message from the command line or stdin.

use std::io::{self, IsTerminal, Read};

/// The kind of text that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// What Codex is to do.
    Prompt,
    /// A message to Codex while it works.
    Message,
}

impl Text {
    fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Message => "message",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Prompt => "say what Codex is to do",
            Self::Message => "say what Codex should know",
        }
    }
}

/// Why there is no prompt or message.
#[derive(Debug, thiserror::Error)]
pub(super) enum PromptError {
    #[error("{}: give a {}, or `-` to type it here and end it with Ctrl-D", .0.advice(), .0.name())]
    Missing(Text),
    #[error("the {} is empty: {}", .0.name(), .0.advice())]
    Empty(Text),
    #[error("the {} on stdin {why}", text.name())]
    Stdin { text: Text, why: String },
}

/// Returns the given prompt, or else reads at most `longest` bytes from stdin.
///
/// # Errors
///
/// [`PromptError`], which says what to do.
pub(super) fn read(given: Option<&str>, longest: usize) -> Result<String, PromptError> {
    read_text(Text::Prompt, given, longest)
}

/// Like [`read`], for a message to Codex while it works.
///
/// # Errors
///
/// [`PromptError`], which says what to do.
pub(super) fn read_message(given: Option<&str>, longest: usize) -> Result<String, PromptError> {
    read_text(Text::Message, given, longest)
}

fn read_text(text: Text, given: Option<&str>, longest: usize) -> Result<String, PromptError> {
    let typed = || from_stdin(longest).map_err(|why| PromptError::Stdin { text, why });
    let words = match given {
        Some("-") => typed()?,
        Some(words) => words.to_owned(),
        None if io::stdin().is_terminal() => return Err(PromptError::Missing(text)),
        None => typed()?,
    };
    match words.trim().is_empty() {
        true => Err(PromptError::Empty(text)),
        false => Ok(words),
    }
}

/// The text on stdin, or why there is none.
fn from_stdin(longest: usize) -> Result<String, String> {
    let most = u64::try_from(longest).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() > longest {
        return Err(format!("has more than {longest} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| format!("is not UTF-8: {}", error.utf8_error()))
}
