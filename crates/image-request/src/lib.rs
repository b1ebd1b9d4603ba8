//! Codex asks for a picture of the repository and gets it.
//!
//! Codex calls the tool `request_image`. In a thread of ours, and over MCP, the tool answers
//! with the picture. Around the interactive Codex, whose tools cannot show pictures in every
//! release, a wrapper does it:
//!
//! ```text
//!  user's terminal ◄─► wrapper ◄─► Codex in a terminal of its own
//!                         ▲              │ request_image
//!                         └── queue ◄────┘
//!          Codex waits: it is ended, and resumed with the picture
//! ```
//!
//! - [`image_root`]: where pictures may be, and reading them there.
//! - [`queue`]: the file of requests, which the tool writes and the wrapper reads.
//! - [`wrapper`]: Codex in a terminal of its own, inside of the user's, and the loop
//!   between the two. [`logic`] decides what it does.
//! - [`tty`] and [`user_terminal`]: terminals, and putting the user's back.
//! - [`screen`]: what the terminal shows, and `modes` what is switched on in it.
//! - [`signals`]: what the wrapper hears.
//! - [`codex`]: the interactive Codex, begun and resumed.
//! - [`copies`]: the copies of pictures that Codex reads.
//! - [`conversation`]: which conversation a Codex has.
//! - [`codex_settings`]: Codex's settings that a wrapped run adds to.
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

pub mod codex;
pub mod codex_settings;
pub mod conversation;
pub mod copies;
pub mod fitted;
pub mod image_root;
pub mod logic;
mod modes;
pub mod queue;
pub mod screen;
pub mod signals;
pub mod tty;
pub mod user_terminal;
pub mod wrapper;

pub use image_root::ImageRoot;
