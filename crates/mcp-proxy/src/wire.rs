//! Reads and writes the bytes of messages.

use std::fmt::Display;
use std::io;

use codex_protocol::duplicates;
use codex_protocol::lines::{Framing, LineDecoder};
use codex_protocol::rpc::Message;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest part of a stray line that is logged, in bytes.
const LOGGED: usize = 200;

/// Whether there may be more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Open,
    Ended,
}

/// Reads more bytes of one side.
pub(super) async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    decoder: &mut LineDecoder,
) -> io::Result<Input> {
    let count = reader.read(decoder.space()).await?;
    if count > 0 {
        decoder.filled(count);
        return Ok(Input::Open);
    }
    decoder.end_line();
    Ok(Input::Ended)
}

/// A message as one line. A message that came with a header may have line breaks between its
/// members, which are replaced.
pub(super) fn one_line(mut message: Vec<u8>) -> Vec<u8> {
    for byte in &mut message {
        if *byte == b'\n' {
            *byte = b' ';
        }
    }
    Framing::Lines.frame(message)
}

/// Checks that every reader of a request or a notification gets the same values.
///
/// # Errors
///
/// When an object in the message names a member twice.
pub(super) fn check_members(message: &Message<'_>) -> Result<(), serde_json::Error> {
    match message {
        Message::Request { params, .. } | Message::Notification { params, .. } => {
            params.map_or(Ok(()), |params| duplicates::check(params.get()))
        }
        Message::Response { .. } => Ok(()),
    }
}

/// The parameters of a call of a tool; `None` for any other message.
pub(super) fn call_params<'a>(message: &Message<'a>) -> Option<&'a RawValue> {
    match message {
        Message::Request { method, params, .. } if method == "tools/call" => *params,
        _ => None,
    }
}

pub(super) fn log_stray(line: &[u8], error: &dyn Display) {
    let shown = line.get(..line.len().min(LOGGED)).unwrap_or_default();
    tracing::warn!(
        "codex mcp-server sent a line that is skipped: {error}: {}",
        shown.escape_ascii()
    );
}

#[cfg(test)]
mod tests {
    use crate::wire::*;

    #[test]
    fn message_with_line_breaks_becomes_one_line() {
        let message = b"{\n  \"a\": \"\\n\"\n}".to_vec();
        assert_eq!(one_line(message), b"{   \"a\": \"\\n\" }\n");
    }
}
