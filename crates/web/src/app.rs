//! Everything that a request may need.

use std::sync::Arc;

use rmcp::transport::StreamableHttpService;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use work_board::WorkBoard;

use crate::auth::AccessControl;
use crate::feed::Feeds;
use crate::forwarder::Forwarder;
use crate::lists::Lists;
use crate::mcp_sessions::McpSessions;

/// The service of rmcp, and its sessions.
pub(crate) struct Mcp {
    pub(crate) service: StreamableHttpService<Forwarder, McpSessions>,
    pub(crate) sessions: Arc<McpSessions>,
}

/// Everything that a request may need.
pub(crate) struct App {
    pub(crate) access: Arc<AccessControl>,
    pub(crate) board: Arc<WorkBoard>,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) lists: Arc<Lists>,
    /// Made for the first message of an MCP client.
    pub(crate) mcp: OnceCell<Mcp>,
    /// Of which each conductor takes one.
    pub(crate) conductors: Arc<Semaphore>,
    /// Of which each page takes one that watches a session.
    pub(crate) watchers: Arc<Semaphore>,
    /// Of which each program takes one that reads the events of a session.
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) closing: CancellationToken,
}
