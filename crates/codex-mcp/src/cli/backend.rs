//! Which of Codex's servers is used.

use codex_engine::binary::{self, CodexBinary, NoCodex};
use codex_engine::{NoMcpServer, noted_release};
use codex_protocol::codex::Release;
use mcp_server::Api;
use settings::Config;

/// How to talk to Codex, as the user wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Wanted {
    /// The app-server, or `codex mcp-server` where npm has installed a Codex that is
    /// too old for that (before 0.72).
    Auto,
    /// `codex app-server`: every tool, and one Codex for all threads.
    AppServer,
    /// `codex mcp-server`, passed through as it is, for clients that rely on what
    /// only it sends: `codex/event` notifications. Codex 0.154 and later have none.
    McpServer,
}

/// How to talk to Codex.
#[derive(Debug)]
pub(super) enum Chosen {
    AppServer,
    /// Of this Codex, whose release is known if npm notes it.
    McpServer(CodexBinary, Option<Release>),
}

impl Chosen {
    /// As `--backend` takes it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::AppServer => "app-server",
            Self::McpServer(..) => "mcp-server",
        }
    }
}

/// Why it can't be had as the user wants it.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoBackend {
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
    NoChoice,
    #[error(
        "`--api sessions` needs the app-server. Leave out `--backend mcp-server`, or `--api sessions`."
    )]
    NoSessions,
    #[error(
        "`--api sessions` needs the app-server of Codex {} or newer, and this is Codex {release}. \
         Update it with `npm install -g @openai/codex`.",
        Release::FIRST_APP_SERVER
    )]
    TooOldForSessions { release: Release },
}

/// Chooses what the user wants, or what the Codex at hand can do as npm notes its
/// release. Codex itself is not asked: the client would wait for it. One that npm did not
/// install is taken for new enough, and what it can't do is told when it is to start.
pub(super) fn choose(wanted: Wanted, api: Api, config: &Config) -> Result<Chosen, NoBackend> {
    if wanted == Wanted::AppServer {
        return Ok(Chosen::AppServer);
    }
    let codex = match (binary::find(config.chosen_codex()), wanted) {
        (Ok(codex), _) => codex,
        // It may come while we run; calls tell that it isn't there.
        (Err(_), Wanted::Auto) => return Ok(Chosen::AppServer),
        (Err(error), _) => return Err(error.into()),
    };
    let release = noted_release(&codex);
    let server = server_of(wanted, api, release)?;
    if let (Wanted::Auto, Server::Mcp, Some(release)) = (wanted, server, release) {
        tracing::info!("Codex {release} is too old for its app-server; using its mcp-server");
    }
    Ok(match server {
        Server::App => Chosen::AppServer,
        Server::Mcp => Chosen::McpServer(codex, release),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    App,
    Mcp,
}

/// A Codex that doesn't tell its release counts as having what is wanted.
fn server_of(wanted: Wanted, api: Api, release: Option<Release>) -> Result<Server, NoBackend> {
    match (wanted, release) {
        (Wanted::Auto, Some(release)) if release < Release::FIRST_APP_SERVER => match api {
            Api::Classic => Ok(Server::Mcp),
            Api::Sessions => Err(NoBackend::TooOldForSessions { release }),
        },
        (Wanted::Auto | Wanted::AppServer, _) => Ok(Server::App),
        (Wanted::McpServer, Some(release)) if release >= Release::FIRST_WITHOUT_MCP_SERVER => {
            Err(NoMcpServer {
                release: Some(release),
            }
            .into())
        }
        (Wanted::McpServer, _) => match api {
            Api::Classic => Ok(Server::Mcp),
            Api::Sessions => Err(NoBackend::NoSessions),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_decides_where_the_user_does_not() {
        use {Api::*, Wanted::*};
        let (old, both, new) = (
            Release::new(0, 66, 0),
            Release::new(0, 153, 4),
            Release::new(0, 154, 0),
        );
        for (wanted, api, release, expected) in [
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
            let server = server_of(wanted, api, release).ok();
            assert_eq!(server, expected, "{wanted:?} {api:?} {release:?}");
        }
    }
}
