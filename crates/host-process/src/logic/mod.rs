//! Pure decisions about hosts.
//!
//! - [`environment`]: which clients share a host.
//! - [`handshake`]: the first messages of a connection.
//! - [`conversation`]: the state of a client that the next host needs.
//! - [`subscriptions`]: the part of it that a client over HTTP has too.

pub mod conversation;
pub mod environment;
pub mod handshake;
pub mod subscriptions;
