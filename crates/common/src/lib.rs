//! Text, durations, terminal output and [locking](sync), shared by all parts of codex-mcp.
//!
//! Much of what codex-mcp prints, logs and stores was written by somebody else: a model, a
//! repository, another agent. Three rules apply to all of it, and this crate has their only
//! implementations:
//!
//! ```text
//!  text of others ─► secrets ─► text ─► output ─► terminal
//!                    (masked)   (bounded, visible)
//! ```
//!
//! 1. **Bounded.** [`text::BoundedText`] cuts between characters and marks the cut.
//! 2. **Visible.** [`text::visible`] escapes control and formatting characters, so that a
//!    text can neither move the cursor nor hide a part of itself. [`output`] applies it to
//!    everything that is printed.
//! 3. **Without credentials.** [`secrets`] masks tokens and passwords that it recognises, and
//!    errors of [`toml_error`] do not quote the file.
//!
//! ```
//! use common::text::one_line;
//!
//! assert_eq!(one_line("two\nlines", 20), "two lines");
//! ```
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a failed test panics"))]

pub mod duration;
pub mod json;
pub mod nearest;
pub mod output;
pub mod secrets;
pub mod serde_error;
pub mod sync;
pub mod text;
pub mod timestamp;
pub mod toml_error;
pub mod toml_value;
