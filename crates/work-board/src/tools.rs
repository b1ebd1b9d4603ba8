//! Calls of the tools, for what only they can do: starting, continuing and forking threads.

use host_process::endpoint::HostEndpoint;
use serde_json::{Value, json};

use crate::hosts::ActError;
use crate::link::{CallError, Connect, HostLink, taken};

/// The codes of errors by which a tool says that its arguments are wrong.
const WRONG: [&str; 4] = [
    "INVALID_ARGUMENT",
    "OUT_OF_BOUNDS",
    "THREAD_NOT_FOUND",
    "COULD_NOT_RUN",
];

/// Calls a tool of this host, or else of the usual one, and returns its structured result.
pub(crate) async fn call(
    connect: &Connect,
    host: Option<HostEndpoint>,
    tool: &str,
    arguments: Value,
) -> Result<Value, ActError> {
    // What the host tells by itself is of no use here.
    let (link, _) = HostLink::open(connect, host)
        .await
        .map_err(ActError::Failed)?;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "codex-mcp", "version": env!("CARGO_PKG_VERSION") },
    });
    link.call("initialize", params).await.map_err(failed)?;
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    link.send(begun).await;
    let params = json!({ "name": tool, "arguments": arguments });
    let mut result = link.call("tools/call", params).await.map_err(failed)?;
    let answered = &result;
    if answered["isError"] == true {
        let text = answered
            .pointer("/content/0/text")
            .and_then(Value::as_str)
            .unwrap_or("the call failed");
        let text = text.to_owned();
        let code = answered.pointer("/structuredContent/error/code");
        return Err(match code.and_then(Value::as_str) {
            Some(code) if WRONG.contains(&code) => ActError::Wrong(text),
            _ => ActError::Refused(text),
        });
    }
    Ok(taken(&mut result, "structuredContent"))
}

fn failed(CallError(error): CallError) -> ActError {
    let error = &error;
    let message = error["message"].as_str().unwrap_or("the call failed");
    ActError::Failed(message.to_owned())
}
