//! Durable jobs: work for Codex that outlives the client that submits it.
//!
//! ```text
//!  tools, CLI ─► service ─► store ◄── worker ─┬─► call ─► codex_engine ─► Codex
//!                spec       SQLite,   claims, ├─► run  ─► goal_run ─► turns until it is done
//!                           Postgres  lease   └─► report: the stored result of a job
//! ```
//!
//! A job is a row of the [`store`]. A worker claims it with a lease, renews the lease while it
//! works, and writes events and the report. When a worker is lost, its lease ends, and another
//! worker fails the job or runs it again, as [`logic`] decides. Only the holder of the lease can
//! change the row of a running job.
//!
//! - [`service`]: submits, lists, shows and cancels jobs. [`spec`]: the specification of a job.
//! - [`submitter`]: checks and completes the specifications of jobs, and the parts of runs that are the same.
//! - [`question`]: Codex's questions in a job. [`directive`]: directives to its worker.
//! - [`job_json`]: jobs as JSON. [`activity`]: the current step of a job.
//! - [`machine`]: the name of this machine, and the key that signs its jobs.
//! - [`thread_ids`]: resolves threads by ID prefix.
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
pub mod event_line;
mod files;
pub mod job_json;
pub mod logic;
pub mod machine;
pub mod question;
pub mod report;
pub mod run;
pub mod service;
pub mod spec;
pub mod store;
pub mod submitter;
pub mod thread_ids;
pub mod worker;
