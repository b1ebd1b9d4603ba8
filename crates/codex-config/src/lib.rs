//! Codex's own configuration, and the directories that the user trusts.
//!
//! Codex reads settings from several layers, and one of them, `.codex/config.toml`, comes with
//! the repository: it can name programs that Codex starts outside of its sandbox. So Codex
//! reads that layer only where the *user* trusts the directory:
//!
//! ```text
//!  command line or call          ┐
//!  repository's .codex/          │ only with trust ── trust: `codex-mcp trust DIR`, or Codex's
//!  profile                       │                    own `projects.DIR.trust_level`
//!  ~/.codex/config.toml          │ layers
//!  Codex's defaults              ┘
//! ```
//!
//! [`layers`] reads the user's layer and lays a repository's over it; [`profile`] is the layer
//! of a profile; [`rules`] finds the rules by which git leaves Codex's sandbox;
//! [`writable_roots`] resolves further writable directories; [`trust`] records what the user
//! trusts, with the hashes of the files that the trust covers, and [`logic::prompt_kind`] names the
//! prompt files among them. [`logic::codex_servers`] recognises the MCP servers that hand work to Codex.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use codex_config::layers::UserConfig;
//!
//! let user = UserConfig::read(Path::new("/home/me/.codex"));
//! // Without a profile and without the repository's layer.
//! let config = user.layers(None, None);
//! println!("{:?}", config.get("model"));
//! ```
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        reason = "a failed test panics, and a test opens the files that it wrote"
    )
)]

mod directory_trust;
pub mod layers;
pub mod logic;
pub mod profile;
pub mod rules;
pub mod trust;
pub mod writable_roots;
