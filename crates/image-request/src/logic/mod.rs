//! Decisions about pictures without I/O.
//!
//! Codex calls the tool `request_image`, prints a marker, and stops. The tool writes the
//! request to a queue; a wrapper around the interactive Codex finds the marker on the screen,
//! ends Codex, and resumes it with the picture.
//!
//! - [`path`]: the paths that may be requested.
//! - [`picture`]: checks that a file is a picture.
//! - [`queue`]: the requests, as the tool writes and the wrapper reads them.
//! - [`contract`]: the texts for Codex.
//! - [`screen`]: whether Codex waits, by the content of its screen.
//! - [`requested`]: the pictures that Codex waits for.
//! - [`machine`]: when Codex is ended and resumed, and when the wrapper gives up.
//! - [`arguments`]: the command lines of Codex.

pub mod arguments;
pub mod contract;
pub mod machine;
pub mod path;
pub mod picture;
pub mod queue;
pub mod requested;
pub mod screen;
