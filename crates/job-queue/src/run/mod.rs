//! Runs as jobs.
//!
//! - [`spec`]: the specification of a run, checked at submission and stored with the job.
//! - [`result`]: the result of a run for its caller.

pub mod result;
pub mod spec;
