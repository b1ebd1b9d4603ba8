//! The table of all targets.

use crate::{
    app_server, client_files, config, event_log, framing, git, globs, host_lines, http, inbox,
    json_rpc, registry, roster, router, screen, text,
};

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of the directory of its corpus.
    pub name: &'static str,
    /// The subject of the test.
    pub about: &'static str,
    /// Tests one input. Panics when a promise is broken.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run }
}

/// All targets, by their names.
pub const TARGETS: &[Target] = &[
    target(
        "app-server",
        "messages of the app-server, and the session that they lead to",
        app_server::run,
    ),
    target(
        "client-files",
        "configuration files of clients, edited in place",
        client_files::run,
    ),
    target("config", "settings, and the values in them", config::run),
    target(
        "event-log",
        "the event log, against a naive one",
        event_log::run,
    ),
    target(
        "framing",
        "lines and messages with headers, in pieces",
        framing::run,
    ),
    target("git", "outputs of git", git::run),
    target("globs", "patterns for paths, against globset", globs::run),
    target(
        "host-lines",
        "messages through a relay, across hosts",
        host_lines::run,
    ),
    target("http", "parameters and headers of HTTP requests", http::run),
    target("inbox", "inboxes of agents", inbox::run),
    target(
        "json-rpc",
        "JSON-RPC envelopes, against parsed values",
        json_rpc::run,
    ),
    target("registry", "the registry of threads", registry::run),
    target("roster", "the members of a team", roster::run),
    target(
        "router",
        "the router of the old backend, against a ledger of requests",
        router::run,
    ),
    target("screen", "the terminal of the wrapper", screen::run),
    target("text", "visible, bounded and masked texts", text::run),
];

/// The target with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
