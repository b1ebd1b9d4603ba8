//! The HTTP endpoint: MCP at `/mcp`, a JSON interface below `/api`, and the page for people.
//!
//! It is a separate process and an ordinary client of the hosts, so an attack on it over the
//! network does not reach a host.
//!
//! ```text
//!  browser ──page, events──┐                       ┌─ hosts: sessions, watched once
//!  program ──/api──────────┼─► server ─► auth ─► routes ─► feed: conversations, written once
//!  client  ──/mcp──────────┘  (bounds) (who)       ├─ work-board: sessions, jobs
//!                                                  └─ mcp: a client of the host for each session
//! ```
//!
//! - [`logic`] decides without I/O about credentials, names under which the endpoint may be
//!   addressed, and wrong secrets.
//! - The crate `work-board` provides the data to show, and the actions on it.
//! - `page` writes HTML. Texts of others are escaped by maud, and their hidden characters are made
//!   visible.
//! - Each stream is bounded: a browser that reads too slowly misses messages, is told so, and loads
//!   the page again.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//!
//! use web::logic::authority::Authorities;
//!
//! let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
//! let authorities = Authorities::new(address, Vec::new());
//! assert!(authorities.check(Some("localhost:8080"), None).is_ok());
//! assert!(authorities.check(Some("attacker.example:8080"), None).is_err());
//! ```

#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::disallowed_methods,
        clippy::indexing_slicing,
        reason = "a failed test panics"
    )
)]

mod acts;
mod api;
mod app;
mod auth;
mod budget;
mod conductor;
mod decisions;
mod feed;
mod forms;
mod forwarder;
mod host_client;
mod job_acts;
mod lists;
pub mod logic;
mod mcp;
mod mcp_sessions;
mod page;
mod pages;
#[doc(hidden)]
pub mod parsers;
mod pictures;
mod refusal;
mod routes;
mod server;
mod slots;
mod start;
mod store;
mod streams;

pub use routes::serve;
pub use server::Listener;
pub use store::{CredentialStore, StoreError, new_page_host};
