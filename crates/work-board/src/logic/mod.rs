//! What is decided without I/O: what a conversation looks like.

pub mod conversation;
