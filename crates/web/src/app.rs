//! Everything that a request may need.

use std::sync::Arc;

use rmcp::transport::StreamableHttpService;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use work_board::WorkBoard;

use crate::auth::Doorkeeper;
use crate::feed::Feeds;
use crate::forwarder::Forwarder;
use crate::lists::Lists;
use crate::mcp_sessions::McpSessions;

/// The service of rmcp.
pub(crate) type McpService = StreamableHttpService<Forwarder, McpSessions>;

/// Everything that a request may need.
pub(crate) struct App {
    pub(crate) door: Arc<Doorkeeper>,
    pub(crate) board: Arc<WorkBoard>,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) lists: Arc<Lists>,
    /// What the tools' server says about itself, when it was asked.
    pub(crate) mcp: OnceCell<McpService>,
    /// Of which each conductor takes one.
    pub(crate) conductors: Arc<Semaphore>,
    /// Of which each page takes one that watches a session.
    pub(crate) watchers: Arc<Semaphore>,
    /// Of which each program takes one that reads the events of a session.
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) closing: CancellationToken,
}
