//! Decisions without I/O: where clients have their configuration, what belongs there, and how a
//! file changes.

pub mod clients;
pub mod document;
pub mod entry;
pub mod plan;
pub mod removal;
