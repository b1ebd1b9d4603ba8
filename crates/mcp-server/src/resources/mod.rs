//! The resources: facts about this server, and guides to its use.
//!
//! The addresses, names and titles are those of the npm package @leo000001/codex-mcp. The texts
//! describe this program, and tests compare them with it.

mod compat_report;
mod errors;
mod server_info;
pub(crate) mod watch;

use std::borrow::Cow;

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents};
use serde_json::json;

use crate::approval_card;
use crate::changing::{Changing, JOBS, MAIL, THREADS};
use crate::server::Server;

/// A resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceName {
    ServerInfo,
    CompatReport,
    Config,
    Gotchas,
    Quickstart,
    Errors,
    /// Listed only if the server has mail.
    Mail,
    /// Listed only if the server keeps a record of its threads.
    Threads,
    /// Listed only if the server has the tools for jobs.
    Jobs,
}

const ALWAYS: [ResourceName; 6] = [
    ResourceName::ServerInfo,
    ResourceName::CompatReport,
    ResourceName::Config,
    ResourceName::Gotchas,
    ResourceName::Quickstart,
    ResourceName::Errors,
];

/// The address, name and description of a resource.
struct ResourceRow {
    uri: &'static str,
    name: &'static str,
    title: &'static str,
    mime: &'static str,
    description: &'static str,
}

const JSON: &str = "application/json";
const MARKDOWN: &str = "text/markdown";

/// The answer to `resources/list`.
pub(super) fn list(server: &Server) -> Vec<Resource> {
    all(server).map(ResourceName::describe).collect()
}

/// The resources that are available.
fn all(server: &Server) -> impl Iterator<Item = ResourceName> {
    let changing = server.changing().into_iter();
    let changing = changing.map(|resource| match resource {
        Changing::Mail(_) => ResourceName::Mail,
        Changing::Threads(_) => ResourceName::Threads,
        Changing::Jobs(_) => ResourceName::Jobs,
    });
    ALWAYS.into_iter().chain(changing)
}

/// Finds a resource by its address.
///
/// # Errors
///
/// "Resource not found", as MCP defines it.
pub(super) fn find(server: &Server, uri: &str) -> Result<ResourceName, ErrorData> {
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

/// The answer to `resources/read`.
///
/// # Errors
///
/// "Resource not found", as MCP defines it.
pub(super) async fn read(server: &Server, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    if uri == approval_card::URI {
        return Ok(approval_card::read());
    }
    let name = find(server, uri)?;
    let text = name.text(server).await?;
    let contents = ResourceContents::text(text, uri).with_mime_type(name.row().mime);
    Ok(ReadResourceResult::new(vec![contents]))
}

impl ResourceName {
    fn row(self) -> ResourceRow {
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
            Self::Threads => (
                THREADS,
                "threads",
                "Threads",
                JSON,
                "This identity's threads, latest first, as codex_threads lists them",
            ),
            Self::Jobs => (
                JOBS,
                "jobs",
                "Jobs",
                JSON,
                "The newest jobs of all clients of this store, as call_jobs lists them",
            ),
            Self::Errors => (
                "codex-mcp:///errors",
                "errors",
                "Errors",
                MARKDOWN,
                "Every error code, and what to do about it",
            ),
        };
        ResourceRow {
            uri,
            name,
            title,
            mime,
            description,
        }
    }

    fn describe(self) -> Resource {
        let ResourceRow {
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
            Self::Mail | Self::Threads | Self::Jobs => self.read_changing(server).await?.into(),
        })
    }

    async fn read_changing(self, server: &Server) -> Result<String, ErrorData> {
        let uri = self.row().uri;
        let all = server.changing();
        let found = all.iter().find(|resource| resource.uri() == uri);
        let missing = || ErrorData::internal_error(format!("this server has no {uri}"), None);
        let content = watch::read(found.ok_or_else(missing)?).await?;
        Ok(format!("{content:#}"))
    }
}

#[cfg(test)]
mod tests;
