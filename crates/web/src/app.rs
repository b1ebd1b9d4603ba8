//! The shared state that requests use.

use std::sync::Arc;

use rmcp::transport::StreamableHttpService;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use work_board::WorkBoard;

use crate::auth::AccessControl;
use crate::feed::Feeds;
use crate::forwarder::Forwarder;
use crate::lists::Lists;
use crate::mcp_sessions::McpSessions;
use crate::slots::SlotPool;

/// The service of rmcp, with its sessions.
pub(crate) struct Mcp {
    pub(crate) service: StreamableHttpService<Forwarder, McpSessions>,
    pub(crate) sessions: Arc<McpSessions>,
}

/// The shared state that requests use.
pub(crate) struct App {
    pub(crate) access: Arc<AccessControl>,
    pub(crate) board: Arc<WorkBoard>,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) lists: Arc<Lists>,
    /// Created for the first message of an MCP client.
    pub(crate) mcp: OnceCell<Mcp>,
    pub(crate) conductors: Arc<SlotPool>,
    /// The slots of pages that watch a session.
    pub(crate) watchers: Arc<SlotPool>,
    /// The slots of programs that read the events of a session.
    pub(crate) readers: Arc<SlotPool>,
    /// The slots of pictures that are being sent.
    pub(crate) pictures: Arc<SlotPool>,
    pub(crate) closing: CancellationToken,
}
