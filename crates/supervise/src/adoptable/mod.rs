//! Programs that another process can take over when their owner was killed.
//!
//! The program listens on a loopback port, and its guard has a control stream to the owner:
//!
//! ```text
//!  owner ──control stream──► guard ──► program ──► its commands ──► …
//!     └────── connection to the program's port ──┘
//! ```
//!
//! When the owner dies without a word (`kill -9`), the control stream ends. The guard keeps the
//! program running for [`ADOPTION_WAIT`], and accepts another owner on a Unix socket of its own,
//! the adoption socket. The new owner gets a fresh connection to the program, and the values that
//! the earlier owners had the guard [keep](Keeper). Without another owner the guard ends the tree.
//! An owner that drops its [`AdoptableProcess`] ends the tree at once.
//!
//! Any process can connect to the port, so the program must serve only those that know a secret.
//! The owner chooses the secret, and has the guard keep it. The guard hands values and a
//! connection only to an owner that belongs to the user, is confined as the guard is, and can
//! write beside the adoption socket (see [`proof`]). It has made the
//! connection long before, so that no owner sends the secret to a process that has taken over the
//! port.
//!
//! Only Linux has what this takes.
//!
//! [`proof`]: crate::proof

use std::time::Duration;

#[cfg(all(target_os = "linux", not(portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(portable))))]
mod unsupported;

#[cfg(all(target_os = "linux", not(portable)))]
pub use linux::{AdoptableProcess, Adopted, Keeper, adopt, is_supported, spawn_adoptable};
#[cfg(all(target_os = "linux", not(portable)))]
pub(crate) use linux::{kept, messages, send_descriptor};
#[cfg(not(all(target_os = "linux", not(portable))))]
pub use unsupported::{AdoptableProcess, Adopted, Keeper, adopt, is_supported, spawn_adoptable};

/// How long a program without an owner runs on.
pub const ADOPTION_WAIT: Duration = Duration::from_secs(30);
