//! Decisions about sessions without I/O and without a clock.
//!
//! A machine gets an input and its time, and returns effects; the rest of the crate
//! performs them.
//!
//! - [`session`]: our live handle on a Codex thread, from prompt to outcome.
//! - [`action`]: questions of Codex, possible decisions, and answers in Codex's form.
//! - [`approval_text`]: questions of Codex as text for the person who answers.
//! - [`form`]: the fields of a question, and the values that people fill in.
//! - [`events`]: the numbered log of a session.
//! - [`work`]: what a turn did, and whether it failed.
//! - [`progress`], [`describe`]: the current step of Codex, in words.
//! - [`usage_limits`]: whether the usage limits of an account are used up, and until when.
//! - [`cost`]: the cost of tokens at the user's prices.
//! - [`review`]: the findings in the text of a review.
//! - [`picture_kind`]: the kinds of pictures that Codex can be shown.

pub mod action;
pub mod approval_text;
pub mod cost;
pub mod describe;
pub mod events;
pub mod form;
pub mod picture_kind;
pub mod progress;
pub mod review;
pub mod session;
pub mod usage_limits;
pub mod work;
