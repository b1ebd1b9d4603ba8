//! Decisions about sessions without I/O and without a clock.
//!
//! A machine takes what happened, and when, and returns what is to be done; the rest of the
//! crate does it.
//!
//! - [`session`]: our live handle on a Codex thread, from prompt to outcome.
//! - [`action`]: what Codex asks, how it may be answered, and the answer in Codex's form.
//! - [`approval_text`]: what Codex asks, as text for the person who answers.
//! - [`events`]: the numbered log of a session.
//! - [`work`]: what a turn did, and whether it failed.
//! - [`progress`], [`describe`]: the step that Codex is at, in words.
//! - [`limits`]: whether the usage limits of an account are used up, and until when.
//! - [`review`]: the findings in the text of a review.
//! - [`picture_kind`]: the kinds of pictures that Codex can be shown.

pub mod action;
pub mod approval_text;
pub mod describe;
pub mod events;
pub mod limits;
pub mod picture_kind;
pub mod progress;
pub mod review;
pub mod session;
pub mod work;
