//! The configuration of codex-mcp, with the source of every value.
//!
//! ```text
//!   flag ─► variable ─► role's preset ─► .atm.toml ─► ~/.config/atm/config.toml ─► default
//!                                        repository    user
//!        the first that has a value wins, and the [`Setting`] remembers which it was
//! ```
//!
//! In a file, the settings are in `[plugins.codex-mcp]`. Identity and team are also read from
//! `[core]`, which belongs to the `atm` program. The repository's file is looked for from the
//! working directory up to the top of the repository.
//!
//! Until the user trusts a repository, its file can only narrow the user's own settings. It
//! never chooses the program (`codex_bin`), where jobs are stored, who is notified of
//! sessions, or files outside of the repository, even when it is trusted.
//!
//! [`bounds`] checks what clients ask for against the limits that the operator has set.
//!
//! ```no_run
//! let config = settings::load(settings::Flags::default())?;
//! let sandbox = &config.threads.sandbox;
//! if let Some(sandbox) = sandbox {
//!     println!("{:?}, from {}", sandbox.value, sandbox.source);
//! }
//! # Ok::<(), settings::ConfigError>(())
//! ```
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        reason = "a failed test panics, and a test opens the files that it wrote"
    )
)]

pub mod bound_settings;
pub mod bounds;
pub mod listen_address;
pub mod store_access;
pub mod store_location;

mod alerts;
mod config;
#[cfg(test)]
mod docs;
mod error;
mod explicit_settings;
mod eyes;
mod file;
mod flags;
mod jobs;
mod key;
mod lookup;
#[doc(hidden)]
pub mod parsers;
mod partial;
mod policy;
mod presets;
mod prices;
mod repository;
mod retention;
mod sandbox_warnings;
mod server;
mod show;
mod source;
mod strict;
#[cfg(test)]
mod tests;
mod threads;
mod variables;

pub use alerts::AlertSettings;
pub use bound_settings::BoundSettings;
pub use config::{Config, load, load_in};
pub use error::ConfigError;
pub use explicit_settings::ExplicitSettings;
pub use eyes::EyesSettings;
pub use flags::Flags;
pub use jobs::{CONCURRENCY, DEFAULT_SANDBOX, JobSettings};
pub use lookup::{atm_home, codex_home, user_file};
pub use partial::{PartialConfig, load_partial};
pub use policy::{PolicyName, REPLACED};
pub use prices::PriceSettings;
pub use repository::key_without_effect;
pub use retention::RetentionSettings;
pub use server::{DEFAULT_IDENTITY, TIMEOUTS};
pub use show::{as_json, as_text};
pub use source::{Origin, Setting, Source, Warning};
pub use store_access::{Access, OthersJobs};
pub use store_location::{BadLocation, Location, PostgresUrl};
pub use threads::ThreadDefaults;
