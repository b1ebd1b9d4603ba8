//! Pictures of the repository that Codex asks for.
//!
//! Codex calls the tool `request_image`. In a thread of ours, and over MCP, the tool answers
//! with the picture. Around the interactive Codex, whose tools cannot show pictures in every
//! release, a wrapper attaches the picture:
//!
//! ```text
//!  user's terminal ◄─► wrapper ◄─► Codex in a terminal of its own
//!                         ▲              │ request_image
//!                         └── queue ◄────┘
//!          Codex waits: it is ended, and resumed with the picture
//! ```
//!
//! - [`image_root`]: the directories with pictures, and reading them.
//! - [`queue`]: the file of requests, which the tool writes and the wrapper reads.
//! - [`wrapper`]: Codex in a terminal of its own, inside of the user's, and the loop
//!   between the two. [`logic`] decides what it does.
//! - [`tty`] and [`user_terminal`]: terminals, and putting the user's back.
//! - [`screen`]: the content of the terminal, and `modes` the modes that are on in it.
//! - [`signals`]: the signals that the wrapper handles.
//! - [`codex`]: the interactive Codex, begun and resumed.
//! - [`copies`]: the copies of pictures that Codex reads.
//! - [`conversation`]: the conversation of a Codex process.
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
