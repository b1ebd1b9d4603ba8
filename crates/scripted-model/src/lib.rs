//! A scripted stand-in for the OpenAI Responses API on loopback.
//!
//! Codex talks to it as to any provider, so a demo or a test can run the real
//! Codex without an account, and say beforehand what the model does: talk, run
//! commands, change files, call tools, take its time, fail.
//!
//! ```text
//!  Script ─► ScriptedModel ◄──POST /responses── Codex
//!                  │        ──events──────────►
//!                  └─► requests: what the model got to see
//! ```
//!
//! ```
//! use scripted_model::{Reply, Script, ScriptedModel, Shell};
//!
//! # async fn example() -> Result<(), scripted_model::StartError> {
//! let model = ScriptedModel::start(
//!     Script::new()
//!         .on("create hello.txt", [
//!             Reply::shell("echo hi > hello.txt"),
//!             Reply::say("Done: hello.txt"),
//!         ])
//!         .on("install", [
//!             Reply::shell(Shell::escalated("make install", "May I install it?")),
//!             Reply::with(|request| {
//!                 Reply::say(format!("{} commands ran.", request.tool_outputs().len()))
//!             }),
//!         ])
//!         .otherwise([Reply::say("Hello.")]),
//! )
//! .await?;
//!
//! // Write this to $CODEX_HOME/config.toml and start Codex.
//! let config = model.codex_config();
//!
//! // Afterwards, look at what the model got to see.
//! for request in model.requests() {
//!     assert!(!request.prompt().is_empty());
//! }
//! # Ok(()) }
//! ```
//!
//! # How a reply is chosen
//!
//! Every request carries its whole conversation, and the reply depends on the
//! request alone: the last message a person typed picks the rule, and the number
//! of answers the model has given since picks the reply in it. So any number of
//! conversations run side by side, and a repeated request gets the same reply
//! again. What differs between repetitions has to be a function with a memory
//! ([`Reply::with`], [`Script::by`]).
//!
//! A message that comes while a turn is running (steering) is a new prompt: the
//! rest of the turn follows the rule that fits it. When Codex compacts a
//! conversation it asks with a prompt of its own, for which a rule on
//! `"CONTEXT CHECKPOINT COMPACTION"` can be made.

#![cfg_attr(
    test,
    expect(
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a failed test is meant to panic"
    )
)]

mod conversation;
mod gate;
mod patch;
mod plan;
mod playback;
mod record;
mod reply;
mod request;
mod script;
mod server;
mod shell;
mod sse;

pub use gate::Gate;
pub use patch::Patch;
pub use record::{Recording, Unanswered};
pub use reply::{Reply, Usage};
pub use request::{Request, Tool, ToolOutput};
pub use script::Script;
pub use server::{ScriptedModel, StartError};
pub use shell::Shell;
