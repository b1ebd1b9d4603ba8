//! What is decided without I/O: who may do what, and what a conversation looks like.

pub mod access;
pub mod authority;
pub mod conversation;
pub mod throttle;
