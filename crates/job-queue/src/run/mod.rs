//! Runs as jobs: what a client wants of one, and what is kept of what came of it.
//!
//! - [`order`]: checked where it is given, and kept with the job.
//! - [`result`]: what callers are told.

pub mod order;
pub mod result;
