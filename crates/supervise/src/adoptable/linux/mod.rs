//! Adoption, by the means of Linux.

mod descriptors;
mod incoming;
mod keeper;
pub(crate) mod kept;
pub(crate) mod messages;
mod process;

pub(crate) use descriptors::send_descriptor;
pub use keeper::Keeper;
pub use process::{AdoptableProcess, Adopted, adopt, is_supported, spawn_adoptable};
