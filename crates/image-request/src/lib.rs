//! Pictures of the repository that Codex asks for.
//!
//! Codex calls the tool `request_image` with a path. In threads of codex-mcp, and over MCP, the
//! tool answers with the picture, and the turn continues.
//!
//! Around the interactive Codex, a wrapper can attach the picture to the next prompt instead.
//! Attached pictures are not scaled down, and some users' rules or scripts depend on them. The
//! wrapper ends Codex when it waits for the picture, and resumes it with the picture attached:
//!
//! ```text
//!  user's terminal ◄─► wrapper ◄─► Codex in a terminal of its own
//!                         ▲              │ request_image
//!                         └── queue ◄────┘
//!          Codex waits: it is ended, and resumed with the picture
//! ```
//!
//! Either way, only files in the repository are read, and only those whose contents are a picture:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use image_request::ImageRoot;
//! use image_request::logic::picture::SizeLimit;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let root = ImageRoot::around(Path::new("app"), SizeLimit::default())?;
//! let path = root.path("./screens/login.png")?;
//! match root.read(&path) {
//!     Ok(picture) => println!("{} bytes", picture.len()),
//!     Err(refused) => println!("{refused}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`image_root`]: the directories with pictures, and reading them.
//! - [`queue`]: the file of requests, which the tool writes and the wrapper reads.
//! - [`wrapper`]: runs Codex in a separate terminal inside the user's, with the loop between the
//!   two. [`logic`] decides what it does.
//! - [`tty`] and [`user_terminal`]: terminals, and restoring the user's.
//! - [`screen`]: the content of the terminal, and `modes` the modes that are on in it.
//! - [`signals`]: the signals that the wrapper handles.
//! - [`codex`]: starts and resumes the interactive Codex.
//! - [`copies`]: the copies of pictures that Codex reads.
//! - [`conversation`]: the conversation of a Codex process.
//! - [`codex_settings`]: Codex's settings that a wrapped run extends.
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
