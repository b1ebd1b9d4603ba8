//! Decisions about pictures without I/O.
//!
//! Codex calls the tool `request_image`, says that it waits, and stops. The tool
//! writes the request to a queue; a wrapper around the interactive Codex finds the
//! words on the screen, ends Codex, and resumes it with the picture.
//!
//! - [`path`]: what may be asked for.
//! - [`picture`]: whether what is found there is a picture.
//! - [`queue`]: the requests, as the tool writes and the wrapper reads them.
//! - [`contract`]: what Codex is told.
//! - [`screen`]: whether Codex waits, by what its screen shows.
//! - [`wanted`]: which pictures it waits for.
//! - [`machine`]: when Codex is ended and resumed, and when the wrapper gives up.
//! - [`arguments`]: the command lines of Codex.

pub mod arguments;
pub mod contract;
pub mod machine;
pub mod path;
pub mod picture;
pub mod queue;
pub mod screen;
pub mod wanted;
