//! `codex-mcp serve --backend mcp-server`: a `codex mcp-server` that misbehaves,
//! and clients that do.

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

/// A server whose client has said nothing yet, and minds no news.
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

/// What `codex_status` tells. It also tells that all that was sent before has been
/// taken in, also when Codex takes nothing in.
async fn status(serve: &mut Serve) -> Value {
    let mut result = serve.client.call_tool("codex_status", json!({})).await;
    result["structuredContent"].take()
}

/// The final message of a call that went well.
fn content(result: &Value) -> &str {
    assert_ne!(result["isError"], true, "{result:#}");
    result["structuredContent"]["content"].as_str().unwrap()
}

/// A call that does this between the start of its turn and its end.
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

/// A plan whose calls do this between the start of their turns and their ends.
fn calls(actions: impl IntoIterator<Item = Action>) -> Plan {
    Plan::new().on("tools/call", call(actions))
}

/// A plan whose calls hang, having said this.
fn stuck(said: &str) -> Plan {
    Plan::new().on("tools/call", [Action::StartTurn, Action::say(said)])
}

/// Waits until the client was told something in the turn of a call, and with it
/// the router.
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
