//! Programs that another process can take over if their owner is killed.
//!
//! The program listens on a loopback port, and its guard has a control stream to the owner:
//!
//! ```text
//!  owner ──control stream──► guard ──► program ──► its commands ──► …
//!     └────── connection to the program's port ──┘
//! ```
//!
//! When the owner is killed (`kill -9`), the control stream ends. The guard keeps the program
//! running for a while ([`ADOPTION_WAIT`] by default), and accepts another owner on its Unix socket, the adoption
//! socket. The new owner gets a fresh connection to the program, and the values that earlier owners
//! have stored in the guard with a [`Keeper`]. Without another owner, the guard ends the tree. An
//! owner that drops its [`AdoptableProcess`] ends the tree at once.
//!
//! Any process can connect to the port, so the program must serve only clients that know a secret.
//! The owner chooses the secret, and stores it in the guard. The guard hands values and a
//! connection only to an owner that belongs to the user, is confined as the guard is, and can write
//! in the directory of the adoption socket (see [`proof`]). The guard has made this connection long
//! before, so that no owner sends the secret to a process that has taken over the port.
//!
//! Adoption is supported on Linux only.
//!
//! [`proof`]: crate::proof

use std::time::Duration;

#[cfg(all(target_os = "linux", not(portable)))]
mod linux;
mod sockets;
#[cfg(not(all(target_os = "linux", not(portable))))]
mod unsupported;

#[cfg(all(target_os = "linux", not(portable)))]
pub use linux::{AdoptableProcess, Adopted, Keeper, adopt, is_supported, spawn_adoptable};
#[cfg(all(target_os = "linux", not(portable)))]
pub(crate) use linux::{kept, messages, send_descriptor};
#[cfg(not(all(target_os = "linux", not(portable))))]
pub use unsupported::{AdoptableProcess, Adopted, Keeper, adopt, is_supported, spawn_adoptable};

pub use sockets::AdoptionSockets;

/// How long a program continues to run without an owner by default.
pub const ADOPTION_WAIT: Duration = Duration::from_secs(30);
