//! Eyes: Codex asks for a picture and gets it.
//!
//! - [`place`]: where pictures may be, and reading them there.
//! - [`queue`]: the file of requests, which the tool writes and the wrapper reads.
//! - [`wrapper`]: Codex in a terminal of its own, inside of the user's, and the loop
//!   between the two. What it does is decided in `core::eyes`.
//! - [`tty`] and [`user_terminal`]: terminals, and putting the user's back.
//! - [`screen`]: what the terminal shows, and `modes` what is switched on in it.
//! - [`signals`]: what the wrapper hears.
//! - [`codex`]: the interactive Codex, begun and resumed.
//! - [`copies`]: the copies of pictures that Codex reads.
//! - [`conversation`]: which conversation a Codex has.
//! - [`settings`]: Codex's settings that a wrapped run adds to.

pub mod codex;
pub mod conversation;
pub mod copies;
pub mod fitted;
mod modes;
pub mod place;
pub mod queue;
pub mod screen;
pub mod settings;
pub mod signals;
pub mod tty;
pub mod user_terminal;
pub mod wrapper;

pub use place::Place;
