//! Sets this program up in the configuration of MCP clients.
//!
//! ```text
//!  client's file ──► ConfigFile ──► logic::plan ──► diff ──► user agrees
//!                                                               │
//!      backup, receipt ◄── Receipts ◄── ConfigFile::replace ◄───┘
//! ```
//!
//! Files are edited, not rewritten: comments, order and unknown members stay
//! ([`logic::document`]). Before a change, the file is copied, and a receipt notes what it was
//! ([`receipts`]). If nobody has edited the file since, removing the entry restores it byte for
//! byte; otherwise, only the entry is taken out.
//!
//! ```
//! use client_setup::logic::clients::Client;
//! use client_setup::logic::entry::WantedEntry;
//! use client_setup::logic::plan;
//!
//! let before = "// Mine.\n{ \"mcpServers\": {} }\n";
//! let wanted = WantedEntry {
//!     command: vec!["codex-mcp".to_owned()],
//!     options: Vec::new(),
//!     env: Vec::new(),
//!     accepts: |_, _| true,
//! };
//! let plan = plan::adding(Client::Cursor, before, None, &wanted, &|_| None)?;
//! assert!(plan.after.starts_with("// Mine.\n"));
//! # Ok::<(), plan::PlanError>(())
//! ```

#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a failed test panics"
    )
)]

pub mod files;
pub mod logic;
pub mod receipts;
