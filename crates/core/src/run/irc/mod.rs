//! Telling a channel of IRC something.
//!
//! - [`address`]: which channel, and where.

pub mod address;
