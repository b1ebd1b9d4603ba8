//! Durable jobs: work that is handed to Codex and outlives its client.
//!
//! ```text
//!  tools, CLI ─► service ─► store ◄── worker ─┬─► call ─► codex_engine ─► Codex
//!                order      SQLite,   claims, ├─► run  ─► goal_run ─► turns until it is done
//!                           Postgres  lease   └─► report: what is kept of a job that has ended
//! ```
//!
//! A job is a row of the [`store`]. A worker claims it with a lease, renews the lease while it
//! works, and writes events and the report. When a worker is lost, its lease ends, and another
//! worker fails the job or tries it again, as [`logic`] decides. Of all that can change a row,
//! only the holder of the lease can change the row of a running job.
//!
//! - [`service`]: jobs as clients have them. [`order`]: what a client wants done.
//! - [`question`]: Codex's questions in a job. [`directive`]: instructions for its worker.
//! - [`shown`]: jobs as JSON. [`activity`]: the step that a job is at.
//! - [`host`]: the name of this machine. [`host_key`]: how it recognises its own jobs.
//! - [`thread_ids`]: threads by the beginning of their ID.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use job_queue::logic::WaitHistory;
//!
//! // A job whose account is used up waits until the limit is reset.
//! let now = SystemTime::now();
//! let reset = now + Duration::from_secs(3600);
//! let waiting = WaitHistory::default().next(Some(reset), now).ok_or("no wait")?;
//! assert!(waiting.wait.until >= reset);
//! # Ok::<(), &str>(())
//! ```
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        reason = "a failed test panics, and a test opens the files that it wrote"
    )
)]

pub mod activity;
pub mod call;
pub mod call_settings;
pub mod directive;
mod files;
pub mod host;
pub mod host_key;
pub mod logic;
pub mod order;
pub mod question;
pub mod report;
pub mod run;
pub mod service;
pub mod shown;
pub mod store;
pub mod thread_ids;
pub mod worker;
