//! Fuzz targets: functions that read arbitrary bytes, and panic when codex-mcp breaks a promise.
//!
//! ```text
//!   fuzz/corpus/TARGET/*  ──► tests/corpora.rs      stable compiler, every run of the tests
//!                         └─► cargo xtask fuzz      libFuzzer, nightly compiler, as long as wanted
//!   one input             ──► cargo run -p fuzz-targets -- TARGET FILE
//! ```
//!
//! A target compares what it tests with a [model](event_log), with another implementation
//! ([`globs`]), or with itself: in other pieces ([`framing`]), written and read again ([`registry`]),
//! done and undone ([`screen`]). Inputs are texts where somebody has to read them.
//!
//! ```
//! use fuzz_targets::find;
//!
//! let target = find("globs").unwrap();
//! (target.run)(b"src/**/*.rs\nsrc/logic/mod.rs");
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a broken promise panics"
)]

pub mod app_server;
pub mod client_files;
pub mod config;
pub mod event_log;
pub mod framing;
pub mod git;
pub mod globs;
pub mod host_lines;
pub mod http;
pub mod inbox;
mod input;
pub mod json_rpc;
pub mod registry;
pub mod roster;
pub mod router;
pub mod screen;
mod target;
pub mod text;

pub use target::{TARGETS, Target, find};
