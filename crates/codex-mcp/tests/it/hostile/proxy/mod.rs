//! `codex-mcp serve --backend mcp-server`: a misbehaving `codex mcp-server`, and misbehaving
//! clients.

mod approvals;
mod backpressure;
mod cancellation;
mod choice;
mod deaths;
mod framing;
mod input;
mod lifecycle;
mod long;
mod noise;
mod start;

use serde_json::{Value, json};
use testkit::Launch;
use testkit::fake::{Action, Plan, TurnEnd, VERSION};

use super::serve::{HANDSHAKE, Serve, code, is_answer, left_of, message, thread};

/// The last release with an MCP server.
const LAST: &str = "0.153.4";

fn through(launch: Launch, args: &[&str]) -> Launch {
    launch
        .args(["--backend", "mcp-server"])
        .args(args)
        .env(VERSION, LAST)
}

/// A server whose client has sent nothing yet, and ignores notifications.
fn silent(plan: &Plan, args: &[&str]) -> Serve {
    let mut serve = Serve::start_with(plan, |launch| through(launch, args));
    serve.client.ignore("codex/event");
    let changed = "notifications/tools/list_changed";
    serve.client.ignore(changed);
    serve
}

/// A server whose client can't be asked anything.
async fn plain(plan: &Plan, args: &[&str]) -> Serve {
    let mut serve = silent(plan, args);
    serve.client.initialize(HANDSHAKE, json!({})).await;
    serve
}

/// A server whose client can be asked.
async fn eliciting(plan: &Plan, args: &[&str]) -> Serve {
    let mut serve = silent(plan, args);
    let capabilities = json!({"elicitation": {}});
    serve.client.initialize(HANDSHAKE, capabilities).await;
    serve
}

/// The answer of `codex_status`. It also proves that the server has read all earlier input, even
/// if Codex reads nothing.
async fn status(serve: &mut Serve) -> Value {
    let mut result = serve.client.call_tool("codex_status", json!({})).await;
    result["structuredContent"].take()
}

/// The final message of a successful call.
fn content(result: &Value) -> &str {
    assert_ne!(result["isError"], true, "{result:#}");
    result["structuredContent"]["content"].as_str().unwrap()
}

/// A call with these actions between the start and the end of its turn.
fn call(actions: impl IntoIterator<Item = Action>) -> Vec<Action> {
    [Action::StartTurn]
        .into_iter()
        .chain(actions)
        .chain(end("done"))
        .collect()
}

/// The end of a call.
fn end(said: &str) -> [Action; 3] {
    let completed = Action::EndTurn(TurnEnd::Completed);
    [Action::say(said), completed, Action::Answer]
}

/// A plan whose calls have these actions between the start and the end of their turns.
fn calls(actions: impl IntoIterator<Item = Action>) -> Plan {
    Plan::new().on("tools/call", call(actions))
}

/// A plan whose calls hang after this message.
fn stuck(said: &str) -> Plan {
    Plan::new().on("tools/call", [Action::StartTurn, Action::say(said)])
}

/// Waits until the client, and with it the router, got this text in the turn of a call.
async fn said(serve: &mut Serve, words: &str) {
    let waited = serve.client.wait_for(words, |message| {
        message["method"] == "codex/event" && message["params"]["msg"]["message"] == words
    });
    waited.await;
}

fn write(bytes: &[u8]) -> Action {
    Action::Write {
        bytes: bytes.to_vec(),
    }
}
