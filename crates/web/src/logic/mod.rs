//! Decisions without I/O: who may do what.

pub mod access;
pub mod authority;
pub mod throttle;
