//! Jobs: work that is handed to Codex and outlives its client.
//!
//! - [`service`]: jobs as clients have them, [`order`]: what a client wants done.
//! - [`store`]: where jobs are kept.
//! - [`worker`]: who takes them from the store and has Codex do them.
//! - [`call`]: the turn of a job of `call_codex`.
//! - [`question`]: Codex's questions in a job, [`directive`]: what its worker can be told.
//! - [`run`]: jobs that are runs: turns until what was asked for is there.
//! - [`report`]: what is kept of what came of one, [`shown`]: jobs as programs are told
//!   of them, [`activity`]: the step that one is at.
//! - [`host`]: what this machine is called, [`host_key`]: how it knows its own jobs.

pub mod activity;
pub mod call;
pub mod directive;
mod files;
pub mod host;
pub mod host_key;
pub mod order;
pub mod question;
pub mod report;
pub mod run;
pub mod service;
pub mod settings;
pub mod shown;
pub mod store;
pub mod worker;
