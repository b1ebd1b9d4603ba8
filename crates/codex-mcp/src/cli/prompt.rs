//! Reads a prompt from the command line or stdin.

use std::io::{self, IsTerminal, Read};

/// Why there is no prompt.
#[derive(Debug, thiserror::Error)]
pub(super) enum PromptError {
    #[error(
        "say what Codex is to do: give a prompt, or `-` to type it here and end it with Ctrl-D"
    )]
    Missing,
    #[error("the prompt is empty: say what Codex is to do")]
    Empty,
    #[error("the prompt on stdin {0}")]
    Stdin(String),
}

/// Returns the given prompt, or else reads at most `longest` bytes from stdin.
///
/// # Errors
///
/// [`PromptError`], which says what to do.
pub(super) fn read(given: Option<&str>, longest: usize) -> Result<String, PromptError> {
    let text = match given {
        Some("-") => from_stdin(longest)?,
        Some(text) => text.to_owned(),
        None if io::stdin().is_terminal() => return Err(PromptError::Missing),
        None => from_stdin(longest)?,
    };
    match text.trim().is_empty() {
        true => Err(PromptError::Empty),
        false => Ok(text),
    }
}

fn from_stdin(longest: usize) -> Result<String, PromptError> {
    let cannot = |why: String| PromptError::Stdin(why);
    let most = u64::try_from(longest).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| cannot(format!("cannot be read: {error}")))?;
    if bytes.len() > longest {
        return Err(cannot(format!("has more than {longest} bytes")));
    }
    String::from_utf8(bytes)
        .map_err(|error| cannot(format!("is not UTF-8: {}", error.utf8_error())))
}
