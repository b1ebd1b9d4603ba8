//! The choice between Codex's app-server and its mcp-server.

use codex_engine::binary::{self, CodexBinary, NoCodex};
use codex_engine::{NoMcpServer, noted_release};
use codex_protocol::codex::Release;
use mcp_server::Api;
use settings::Config;

/// The value of `--backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum BackendChoice {
    /// The app-server, or `codex mcp-server` if npm has installed a Codex that is too old
    /// for it (before 0.72).
    Auto,
    /// `codex app-server`: every tool, and one Codex for all threads.
    AppServer,
    /// `codex mcp-server`, passed through unchanged, for clients that rely on its
    /// `codex/event` notifications. Codex 0.154 and later do not have it.
    McpServer,
}

/// The server of Codex that is used.
#[derive(Debug)]
pub(super) enum Backend {
    AppServer,
    /// The binary, and its release if npm recorded one.
    McpServer(CodexBinary, Option<Release>),
}

impl Backend {
    /// The value of `--backend` that selects it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::AppServer => "app-server",
            Self::McpServer(..) => "mcp-server",
        }
    }
}

/// The reason why the chosen backend cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackendError {
    #[error(
        "{0}. Install the last Codex with an mcp-server, `npm install -g @openai/codex@0.153.4`, or \
         name one with --codex-bin."
    )]
    NoCodex(#[from] NoCodex),
    #[error(transparent)]
    NoMcpServer(#[from] NoMcpServer),
    #[error(
        "`--tools` without `sessions` needs the app-server: codex mcp-server has the tools codex and \
         codex-reply in any case. Add `sessions`, or use another --backend or Codex."
    )]
    ToolsNeedAppServer,
    #[error(
        "`--api sessions` needs the app-server. Leave out `--backend mcp-server`, or `--api sessions`."
    )]
    SessionsNeedAppServer,
    #[error(
        "`--api sessions` needs the app-server of Codex {} or newer, and this is Codex {release}. \
         Update it with `npm install -g @openai/codex`.",
        Release::FIRST_APP_SERVER
    )]
    TooOldForSessions { release: Release },
}

/// Chooses the backend that the user named, or else the one that the installed release supports.
/// The release is read from npm's files, as running Codex to ask for it would make the client wait.
/// A Codex that npm did not install counts as new enough; a missing server is reported when it is
/// started.
pub(super) fn choose(
    choice: BackendChoice,
    api: Api,
    config: &Config,
) -> Result<Backend, BackendError> {
    if choice == BackendChoice::AppServer {
        return Ok(Backend::AppServer);
    }
    let codex = match (binary::find(config.chosen_codex()), choice) {
        (Ok(codex), _) => codex,
        // Codex may be installed while we run; until then, calls report that it is missing.
        (Err(_), BackendChoice::Auto) => return Ok(Backend::AppServer),
        (Err(error), _) => return Err(error.into()),
    };
    let release = noted_release(&codex);
    let server = server_of(choice, api, release)?;
    if let (BackendChoice::Auto, Server::Mcp, Some(release)) = (choice, server, release) {
        tracing::info!("Codex {release} is too old for its app-server; using its mcp-server");
    }
    Ok(match server {
        Server::App => Backend::AppServer,
        Server::Mcp => Backend::McpServer(codex, release),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    App,
    Mcp,
}

/// A Codex of unknown release counts as supporting the choice.
fn server_of(
    choice: BackendChoice,
    api: Api,
    release: Option<Release>,
) -> Result<Server, BackendError> {
    match (choice, release) {
        (BackendChoice::Auto, Some(release)) if release < Release::FIRST_APP_SERVER => match api {
            Api::Classic => Ok(Server::Mcp),
            Api::Sessions => Err(BackendError::TooOldForSessions { release }),
        },
        (BackendChoice::Auto | BackendChoice::AppServer, _) => Ok(Server::App),
        (BackendChoice::McpServer, Some(release))
            if release >= Release::FIRST_WITHOUT_MCP_SERVER =>
        {
            Err(NoMcpServer {
                release: Some(release),
            }
            .into())
        }
        (BackendChoice::McpServer, _) => match api {
            Api::Classic => Ok(Server::Mcp),
            Api::Sessions => Err(BackendError::SessionsNeedAppServer),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_decides_the_backend_of_auto() {
        use {Api::*, BackendChoice::*};
        let (old, both, new) = (
            Release::new(0, 66, 0),
            Release::new(0, 153, 4),
            Release::new(0, 154, 0),
        );
        for (choice, api, release, expected) in [
            (Auto, Classic, Some(old), Some(Server::Mcp)),
            (Auto, Sessions, Some(old), None),
            (Auto, Classic, Some(both), Some(Server::App)),
            (Auto, Classic, Some(new), Some(Server::App)),
            (Auto, Classic, None, Some(Server::App)),
            (AppServer, Classic, Some(old), Some(Server::App)),
            (McpServer, Classic, Some(old), Some(Server::Mcp)),
            (McpServer, Classic, Some(both), Some(Server::Mcp)),
            (McpServer, Classic, None, Some(Server::Mcp)),
            (McpServer, Sessions, Some(both), None),
            (McpServer, Classic, Some(new), None),
        ] {
            let server = server_of(choice, api, release).ok();
            assert_eq!(server, expected, "{choice:?} {api:?} {release:?}");
        }
    }
}
