//! The messages on the control stream between the guard of an adoptable program and its owner.
//!
//! Each is a line of JSON:
//!
//! ```text
//!   guard ──Challenge──► new owner     on the adoption socket only
//!         ◄──empty line─               after the file of the challenge was made
//!         ──empty line─►               carries the file descriptor of a connection
//!         ──Keep────────►              the values kept so far, if any
//!         ──HandedOver──►              it is the owner from now on
//!         ◄──Keep, Forget─
//!         ◄──Last────────        if no other owner may follow
//!         ──Exit────────►              the program and all below it have ended
//! ```

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::mem;

use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::proof::Challenge;

/// The longest line, in bytes.
pub(crate) const LINE_LIMIT: usize = 64 << 20;

/// A message of an owner to the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OwnerMessage {
    /// Keep a value, in place of an earlier one.
    Keep(KeptValue),
    /// Forget the value of this key.
    Forget(String),
    /// There will be no next owner: end the program with this one.
    Last,
}

/// A message of the guard to an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GuardMessage {
    /// Make this file to become the owner.
    Challenge(Challenge),
    /// A value that an earlier owner had kept.
    Keep(KeptValue),
    /// The end of the handover, after the connection and all values.
    HandedOver,
    /// There is no handover, for this reason.
    Failed(String),
    /// The program and all below it have ended.
    Exit(Exit),
}

/// A value for the next owner.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptValue {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Debug for KeptValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // The value may be secret.
        f.debug_tuple("KeptValue").field(&self.key).finish()
    }
}

/// A message as a line, with its end.
///
/// # Errors
///
/// None for the messages of this module.
pub(crate) fn to_line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Splits a stream of bytes into lines. Longer lines than [`LINE_LIMIT`] are left out, and so are
/// empty ones.
#[derive(Debug)]
pub(crate) struct LineBuffer {
    partial: Vec<u8>,
    limit: usize,
    is_too_long: bool,
}

impl Default for LineBuffer {
    fn default() -> Self {
        Self::new(LINE_LIMIT)
    }
}

impl LineBuffer {
    fn new(limit: usize) -> Self {
        Self {
            partial: Vec::new(),
            limit,
            is_too_long: false,
        }
    }

    /// Adds the next bytes, and passes on each line that ends in them.
    pub(crate) fn push(&mut self, bytes: &[u8], mut pass_on: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (part, after) = rest.split_at(end);
            self.extend(part);
            let line = mem::take(&mut self.partial);
            if !mem::take(&mut self.is_too_long) && !line.is_empty() {
                pass_on(&line);
            }
            rest = after.get(1..).unwrap_or_default();
        }
        self.extend(rest);
    }

    fn extend(&mut self, part: &[u8]) {
        if self.partial.len() + part.len() > self.limit {
            self.is_too_long = true;
        }
        match self.is_too_long {
            true => self.partial = Vec::new(),
            false => self.partial.extend_from_slice(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(message: &impl Serialize) -> String {
        String::from_utf8(to_line(message).unwrap()).unwrap()
    }

    #[test]
    fn messages_have_a_stable_form() {
        let keep = OwnerMessage::Keep(KeptValue {
            key: "k".to_owned(),
            value: "two\nlines".to_owned(),
        });
        let line = json(&keep);
        assert_eq!(
            line,
            "{\"keep\":{\"key\":\"k\",\"value\":\"two\\nlines\"}}\n"
        );
        assert_eq!(serde_json::from_str::<OwnerMessage>(&line).unwrap(), keep);
        let forget = OwnerMessage::Forget("k".to_owned());
        assert_eq!(json(&forget), "{\"forget\":\"k\"}\n");
        assert_eq!(json(&GuardMessage::HandedOver), "\"handed_over\"\n");
        let exit = GuardMessage::Exit(Exit::Code(3));
        assert_eq!(json(&exit), "{\"exit\":{\"code\":3}}\n");
    }

    fn lines(limit: usize, parts: &[&str]) -> Vec<String> {
        let mut buffer = LineBuffer::new(limit);
        let mut lines = Vec::new();
        for part in parts {
            buffer.push(part.as_bytes(), |line| {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
            });
        }
        assert!(buffer.partial.len() <= limit);
        lines
    }

    #[test]
    fn lines_are_put_together() {
        assert_eq!(
            lines(5, &["\na", "b\nc\n", "\nrest"]),
            ["ab", "c"],
            "an unfinished line is no line"
        );
        assert_eq!(lines(5, &["12345\n"]), ["12345"]);
    }

    #[test]
    fn long_line_is_left_out() {
        assert_eq!(lines(5, &["123456\nab\n"]), ["ab"]);
        assert_eq!(lines(5, &["1234", "5678", "9", "0\nab\n"]), ["ab"]);
    }
}
