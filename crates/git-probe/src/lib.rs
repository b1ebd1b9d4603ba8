//! Safe queries of a git repository that another party may have written, or may be writing at the
//! moment.
//!
//! A repository may name programs that git would run outside of the sandbox: filters, hooks,
//! `core.fsmonitor` and others. None of them is run here. Git reads the repository through a view,
//! a git directory that we create. The view shares the objects and refs of the repository, and its
//! configuration names no program:
//!
//! ```text
//!  Git ──► invocation: the user's git ──► view: our configuration, no hooks
//!               │                           └── objects and refs of the repository
//!               └── working tree of the repository
//! ```
//!
//! Queries change nothing in the repository, wait for no lock, and fetch nothing. The few commands
//! that do change something ([`Git::in_repository`]) run no hooks and use no filters.
//!
//! The name and branch of a repository are read without the git program:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use git_probe::repository::{Repository, ceilings};
//!
//! if let Some(repository) = Repository::around(Path::new("app"), &ceilings()) {
//!     println!("{}: {:?}", repository.name, repository.head);
//! }
//! ```
//!
//! - `git`: the git program, for one repository.
//! - `layout`: the location of the repository, found without git.
//! - `owner`: whether the repository belongs to the user.
//! - `view`: the git directory that we create over the repository.
//! - `invocation`: starting git.
//! - `setting`: settings as git lists them.
//! - `user_settings`: the user's settings, without those of the repository.
//! - `tree`: the differences from commits, and paths as texts.
//! - `private`: the private git directory of a run, in which Codex commits.
//! - `remote`: the refs of a remote.
//! - `flags`: marks in the index that hide changes.
//! - `submodules`: protects submodules, through which Codex could have programs run.
//! - `bytes`: bytes and paths in JSON.
//!
//! Source: git-config(1), gitattributes(5), git(1) for the variables.
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

mod bytes;
mod error;
#[expect(
    clippy::disallowed_methods,
    reason = "it writes files of our own state, out of Codex's reach"
)]
mod flags;
mod git;
mod invocation;
mod layout;
pub mod logic;
mod owner;
#[doc(hidden)]
pub mod parsers;
mod platform;
#[expect(
    clippy::disallowed_methods,
    reason = "it writes before Codex can, and then only out of its reach"
)]
pub mod private;
#[cfg(test)]
mod real_git;
pub mod remote;
pub mod repository;
mod setting;
#[expect(
    clippy::disallowed_methods,
    reason = "it follows no links in the working tree, and keeps files of our own state"
)]
mod submodules;
mod tree;
mod user_settings;
#[expect(
    clippy::disallowed_methods,
    reason = "it writes files of our own state, out of Codex's reach"
)]
mod view;

pub use error::GitError;
pub use flags::Flags;
pub use git::{Git, Repository};
pub use invocation::{Bounds, ELSEWHERE, until_stopped};
pub use layout::{Layout, LayoutError};
pub use submodules::{Submodules, SubmodulesRecord};
pub use tree::written;
