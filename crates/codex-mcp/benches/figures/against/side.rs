//! One server of the comparison, and a client of it.

use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use testkit::{AppServer, Launch, McpClient};

use crate::fixture::{Fixture, MCP_VERSION, TIME_LIMIT, program};
use crate::model::{ANSWER, PROMPT};

/// The most that is shown of a wrong answer, in characters.
const SHOWN: usize = 200;

/// A server.
pub(super) struct Side {
    pub(super) title: String,
    pub(super) server: Server,
}

/// The kind of a server.
pub(super) enum Server {
    /// codex-mcp, whose clients share a host unless each has a Codex of its own.
    Ours { with_host: bool },
    /// Codex's app-server, spoken to directly.
    Direct,
    /// Another MCP server.
    Mcp(fn(&Fixture) -> Launch, Call),
}

/// The call that hands Codex a prompt.
#[derive(Clone, Copy)]
pub(super) struct Call {
    tool: &'static str,
    /// The parameter for the working directory.
    directory: Option<&'static str>,
}

impl Call {
    pub(super) fn of(tool: &'static str, directory: Option<&'static str>) -> Self {
        Self { tool, directory }
    }
}

/// A client of a running server.
pub(super) enum Client {
    AppServer(AppServer),
    Mcp(Box<McpClient>, Call),
}

impl Side {
    /// Starts the server and waits until `initialize` is answered.
    pub(super) async fn start(&self, fixture: &Fixture) -> Client {
        let (launch, call) = match &self.server {
            Server::Direct => return Client::AppServer(fixture.fresh_direct().await),
            Server::Ours { with_host } => {
                let host = if *with_host { &["--host"][..] } else { &[] };
                let launch = fixture.serve_launch().args(host);
                (launch, Call::of("codex", Some("cwd")))
            }
            Server::Mcp(launch, call) => (launch(fixture), *call),
        };
        let mut client = McpClient::start(&launch);
        client.set_time_limit(TIME_LIMIT);
        for unasked in [
            "codex/event",
            "notifications/message",
            "notifications/progress",
        ] {
            client.ignore(unasked);
        }
        client.initialize(MCP_VERSION, json!({})).await;
        Client::Mcp(Box::new(client), call)
    }

    /// Ends the client, its server and the host.
    pub(super) async fn end(&self, client: Client, fixture: &Fixture) {
        let Server::Ours { with_host } = self.server else {
            // The others get no time to end: some stay when their client is gone.
            return;
        };
        if let Client::Mcp(client, _) = client {
            assert!(client.finish().await.success());
        }
        if with_host {
            let mut stop = Command::new(program());
            stop.args(["host", "stop"]).env_clear();
            let stopped = stop.envs(fixture.home().env()).output().unwrap();
            assert!(stopped.status.success(), "{stopped:?}");
        }
    }
}

impl Client {
    /// Has Codex say hello in a thread of its own, several times at once.
    pub(super) async fn hello(&mut self, fixture: &Fixture, times: usize) {
        match self {
            Self::AppServer(server) => {
                join_all((0..times).map(|_| fixture.hello_direct(server))).await;
            }
            Self::Mcp(client, call) => {
                let mut arguments = json!({"prompt": PROMPT});
                if let Some(directory) = call.directory {
                    arguments[directory] = json!(fixture.work());
                }
                let ask = |_| client.request_tool(call.tool, arguments.clone());
                let calls: Vec<Value> = (0..times).map(ask).collect();
                for call in &calls {
                    said_hello(&client.response(call).await);
                }
            }
        }
    }

    /// The number of tools, and their size in a client's context.
    pub(super) async fn tools(&mut self) -> Option<(usize, usize)> {
        let Self::Mcp(client, _) = self else {
            return None;
        };
        let tools = client.call("tools/list", json!({})).await["tools"].take();
        Some((tools.as_array().unwrap().len(), tools.to_string().len()))
    }
}

fn said_hello(response: &Value) {
    let result = &response["result"];
    let content = result["content"].to_string();
    let is_right = result["isError"] != true && content.contains(ANSWER);
    let shown: String = response.to_string().chars().take(SHOWN).collect();
    assert!(is_right, "the call failed: {shown}");
}

/// The pause after a crowd, in which programs that have done their work end.
pub(super) const SETTLE: Duration = Duration::from_secs(2);
