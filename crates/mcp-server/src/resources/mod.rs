//! What a client can read: about this server, and how to use it.
//!
//! The addresses, names and titles are those of the npm package codex-mcp. The
//! texts speak of this program, and tests hold them to it.

mod compat_report;
mod errors;
mod mail;
mod server_info;

use std::borrow::Cow;

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents};
use serde_json::json;

use crate::notices::MAIL;
use crate::server::Server;

/// A resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    ServerInfo,
    CompatReport,
    Config,
    Gotchas,
    Quickstart,
    Errors,
    /// Only where there is some.
    Mail,
}

const ALWAYS: [Name; 6] = [
    Name::ServerInfo,
    Name::CompatReport,
    Name::Config,
    Name::Gotchas,
    Name::Quickstart,
    Name::Errors,
];

/// What is said about a resource.
struct Row {
    uri: &'static str,
    name: &'static str,
    title: &'static str,
    mime: &'static str,
    description: &'static str,
}

const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";

/// What `resources/list` answers.
pub(super) fn list(server: &Server) -> Vec<Resource> {
    all(server).map(Name::describe).collect()
}

/// Those that there are.
fn all(server: &Server) -> impl Iterator<Item = Name> {
    let mail = server.mail_client().map(|_| Name::Mail);
    ALWAYS.into_iter().chain(mail)
}

/// Sees whether there is a resource.
///
/// # Errors
///
/// That there is no such resource, as MCP wants it said.
pub(super) fn find(server: &Server, uri: &str) -> Result<Name, ErrorData> {
    let found = all(server).find(|name| name.row().uri == uri);
    found.ok_or_else(|| {
        let known: Vec<&str> = all(server).map(|name| name.row().uri).collect();
        let message = format!(
            "there is no resource {uri:?}; there are {}",
            known.join(", ")
        );
        ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
    })
}

/// What `resources/read` answers.
///
/// # Errors
///
/// That there is no such resource, as MCP wants it said.
pub(super) async fn read(server: &Server, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let name = find(server, uri)?;
    let text = name.text(server).await?;
    let contents = ResourceContents::text(text, uri).with_mime_type(name.row().mime);
    Ok(ReadResourceResult::new(vec![contents]))
}

impl Name {
    fn row(self) -> Row {
        let (uri, name, title, mime, description) = match self {
            Self::ServerInfo => (
                "codex-mcp:///server-info",
                "server_info",
                "Server Info",
                JSON,
                "This server as it is now: versions, tools, what parameters may be",
            ),
            Self::CompatReport => (
                "codex-mcp:///compat-report",
                "compat_report",
                "Compat Report",
                JSON,
                "For programs: which features of the session tools can be counted on",
            ),
            Self::Config => (
                "codex-mcp:///config",
                "config",
                "Config Guide",
                MARKDOWN,
                "Every parameter, its default, and its key in config.toml",
            ),
            Self::Gotchas => (
                "codex-mcp:///gotchas",
                "gotchas",
                "Gotchas",
                MARKDOWN,
                "What is easily overlooked: cursors, approvals, limits, clean-up",
            ),
            Self::Quickstart => (
                "codex-mcp:///quickstart",
                "quickstart",
                "Quickstart",
                MARKDOWN,
                "From the first call to the result, with calls to copy",
            ),
            Self::Mail => (
                MAIL,
                "mail",
                "Mail",
                JSON,
                "How much unread mail there is, and from whom",
            ),
            Self::Errors => (
                "codex-mcp:///errors",
                "errors",
                "Errors",
                MARKDOWN,
                "Every error code, and what to do about it",
            ),
        };
        Row {
            uri,
            name,
            title,
            mime,
            description,
        }
    }

    fn describe(self) -> Resource {
        let Row {
            uri,
            name,
            title,
            mime,
            description,
        } = self.row();
        Resource::new(uri, name)
            .with_title(title)
            .with_description(description)
            .with_mime_type(mime)
    }

    async fn text(self, server: &Server) -> Result<Cow<'static, str>, ErrorData> {
        Ok(match self {
            Self::ServerInfo => format!("{:#}", server_info::show(server, &list(server))).into(),
            Self::CompatReport => format!("{:#}", compat_report::show(server)).into(),
            Self::Config => include_str!("config.md").into(),
            Self::Gotchas => include_str!("gotchas.md").into(),
            Self::Quickstart => include_str!("quickstart.md").into(),
            Self::Errors => errors::text().into(),
            Self::Mail => format!("{:#}", mail::show(server).await?).into(),
        })
    }
}

#[cfg(test)]
mod tests;
