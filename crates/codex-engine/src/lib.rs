//! Drives Codex's app-server: threads, turns, questions and events.
//!
//! The [`Engine`] takes plain [commands](command) and performs what the session machines in
//! [`logic`] decide. Below it:
//!
//! ```text
//! Engine ── sessions: one machine for each thread
//!    │
//!    └──── backend: the shared app-server, started on demand
//!             └── app_server: a process, introduced and supervised
//!                    ├── connection: requests, responses, notifications
//!                    └── spawn → guard → codex
//! ```
//!
//! One app-server serves all threads with the same Codex, `CODEX_HOME` and environment.
//! [`confinement`] adds to each thread the settings that keep a repository's programs from
//! running; [`rollouts`] reads Codex's own files of threads, [`picture`] the pictures of a
//! prompt. [`McpServer`] is separate: an older Codex's own MCP server, for the proxy.
//!
//! ```no_run
//! use codex_engine::command::{Prompt, StartThread};
//! use codex_engine::{Engine, EngineError};
//!
//! # async fn example(engine: &Engine) -> Result<(), EngineError> {
//! let opened = engine.start(StartThread::default()).await?;
//! let session = engine.handle(&opened.session)?;
//! engine.prompt(&opened.session, Prompt::text("Fix the failing test")).await?;
//! while session.has_turn() {
//!     session.changed(session.view().revision).await;
//! }
//! # Ok(())
//! # }
//! ```
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

mod access_token;
mod account;
mod adoption;
mod app_server;
mod backend;
pub mod binary;
mod cached_usage;
mod closing;
pub mod command;
pub mod confinement;
mod connection;
mod decisions;
mod effects;
mod engine;
mod entry;
mod error;
mod hub;
#[doc(hidden)]
pub mod in_memory;
pub mod injected_server;
mod kept;
pub mod logic;
mod mcp_server;
mod mcp_servers;
mod mount_targets;
mod observer;
pub mod overrides;
mod own_adoption;
mod pause;
pub mod picture;
mod polling;
mod release;
mod requests;
pub mod rollouts;
mod session_handle;
mod sessions;
mod shared;
mod stderr_log;
mod terminals;
pub mod thread_tools;
mod threads;
mod tool_calls;
pub mod tool_timeout;
mod turns;
mod unloading;
mod usage_limits;
mod web_socket;
mod workspace;

pub use adoption::AdoptionError;
pub use app_server::StartError;
pub use backend::{AppServerStatus, Launch, LaunchError};
pub use cached_usage::LimitsUnknown;
pub use connection::OnDelivered;
pub use engine::{Engine, Options};
pub use error::{ApprovalOutOfBounds, EngineError};
pub use mcp_server::{InstalledCodex, McpServer, NoMcpServer, Pipes};
pub use observer::{Act, EngineObserver, InputKind, NoObserver, PromptRecord};
pub use own_adoption::{LeftAppServer, LeftAppServerError};
pub use pause::{CommandMark, PauseError, Paused};
pub use release::{help, is_known, noted_release, release_of};
pub use session_handle::{AttachRefused, Attachment, EventPage, SessionHandle};
pub use shared::{AppServers, Handover, Predecessor, SharedSession, Shutdown};
pub use thread_tools::{Reply, ThreadTools, ToolInvocation};
pub use unloading::UnloadState;
pub use usage_limits::LimitReached;
pub use workspace::{GitGrant, GrantedSettings, Grants};
