//! Programs that another process can take over when their owner was killed.
//!
//! The program listens on a Unix socket, and its guard has a control stream to the owner:
//!
//! ```text
//!  owner ──control stream──► guard ──► program ──► its commands ──► …
//!     └──────── connection to the program's socket ──┘
//! ```
//!
//! When the owner dies without a word (`kill -9`), the control stream ends. The guard keeps the
//! program running for [`ADOPTION_WAIT`], and accepts another owner on a socket of its own, the
//! adoption socket. The new owner gets a fresh connection to the program, and the values that the
//! earlier owners had the guard [keep](Keeper). Without another owner the guard ends the tree. An
//! owner that drops its [`AdoptableProcess`] ends the tree at once.
//!
//! Whoever connects to the program's socket may have it run anything outside of the sandbox. So
//! once the program listens, the guard removes the socket from its directory, and makes all
//! connections itself, through a file descriptor; if it finds that another process has connected
//! before, it ends the tree. It hands a connection only to an owner that belongs to the user, is
//! confined as the guard is, and can write beside the adoption socket (see [`proof`]).
//!
//! Only Linux has what this takes.
//!
//! [`proof`]: crate::proof

use std::path::PathBuf;
use std::time::Duration;

#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
mod incoming;
#[cfg(target_os = "linux")]
mod keeper;
#[cfg(target_os = "linux")]
pub(crate) mod kept;
#[cfg(target_os = "linux")]
pub(crate) mod messages;
#[cfg(target_os = "linux")]
mod process;
#[cfg(not(target_os = "linux"))]
mod unsupported;

#[cfg(target_os = "linux")]
pub(crate) use descriptors::send_descriptor;
#[cfg(target_os = "linux")]
pub use keeper::Keeper;
#[cfg(target_os = "linux")]
pub use process::{AdoptableProcess, Adopted, adopt, is_supported, spawn_adoptable};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{AdoptableProcess, Adopted, Keeper, adopt, is_supported, spawn_adoptable};

/// How long a program without an owner runs on.
pub const ADOPTION_WAIT: Duration = Duration::from_secs(30);

/// The sockets of an adoptable program. Both paths are absolute, no other program uses them, and
/// only the user can use their directories (mode 0700).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Where the program listens, at most 100 bytes. The guard removes the file once it does.
    pub socket: PathBuf,
    /// The adoption socket, on which the guard listens.
    pub adoption: PathBuf,
}
