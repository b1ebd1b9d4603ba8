//! Everything that a request may need.

use std::sync::Arc;

use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::auth::Doorkeeper;
use crate::board::Board;
use crate::feed::Feeds;
use crate::hosts::Hosts;
use crate::jobs::JobBoard;
use crate::link::Connect;
use crate::mcp::Forwarder;
use crate::refusal::Refusal;
use crate::work::Work;

/// The session is not known, or no longer.
pub(crate) const NO_SESSION: Refusal =
    Refusal::Missing("such session; it may have ended with its host");

/// The ways to a host.
pub struct Connections {
    /// As a client of the classic tools.
    pub classic: Arc<Connect>,
    /// As a client of the session tools.
    pub sessions: Arc<Connect>,
}

/// Everything that a request may need.
pub(crate) struct App {
    pub(crate) door: Arc<Doorkeeper>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) jobs: Arc<JobBoard>,
    pub(crate) board: Arc<Board>,
    pub(crate) connections: Connections,
    /// What the tools' server says about itself, when it was asked.
    pub(crate) mcp: OnceCell<StreamableHttpService<Forwarder, LocalSessionManager>>,
    pub(crate) closing: CancellationToken,
}

impl App {
    /// The session as work, if a host has it.
    pub(crate) fn session_work(&self, id: &str) -> Option<Work> {
        self.hosts.session(id).map(|live| Work::of_session(&live))
    }
}
