//! What needs no I/O: which clients share a host, what is said at the beginning of a
//! connection, and which calls of a client are unanswered.

pub mod conversation;
pub mod environment;
pub mod handshake;
