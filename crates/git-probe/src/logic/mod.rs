//! Decisions about git without I/O.

pub mod commit_id;
pub mod git_state;
pub(crate) mod ref_name;
