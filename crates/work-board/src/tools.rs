//! Calls of the tools, for what only they can do: starting, continuing and forking threads.

use host_process::endpoint::HostEndpoint;
use serde_json::{Value, json};

use crate::hosts::ActError;
use crate::link::{CallError, Connect, ConnectOptions, HostLink, taken};

/// The name of this program as a client of the tools.
pub(crate) const CLIENT: &str = "codex-mcp";

/// The codes of errors by which a tool says that its arguments are wrong.
const WRONG: [&str; 4] = [
    "INVALID_ARGUMENT",
    "OUT_OF_BOUNDS",
    "THREAD_NOT_FOUND",
    "COULD_NOT_RUN",
];

/// The code of the error by which a tool says that a turn runs.
const BUSY: &str = "SESSION_BUSY";

/// The parameters of tools whose fields in a form have other names, with those.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("approvalPolicy", "approvals"),
    ("cwd", "directory"),
    ("repo", "directory"),
    ("threadId", "thread"),
];

/// The parameter of `codex_run` whose members are fields of the form themselves.
const CRITERIA: &str = "exit_criteria: ";

/// The error of a tool in the words of the form whose fields were its arguments.
pub(crate) fn about_form(error: ActError) -> ActError {
    match error {
        ActError::Wrong(message) => ActError::Wrong(with_field_names(&message)),
        other => other,
    }
}

/// The message with the names of fields where it names parameters: at its beginning, or in backticks.
fn with_field_names(message: &str) -> String {
    let message = message.strip_prefix(CRITERIA).unwrap_or(message);
    let mut named = message.to_owned();
    for (parameter, field) in OTHER_NAMES {
        let rest = message.strip_prefix(parameter);
        if let Some(rest) = rest.filter(|rest| rest.starts_with(": ")) {
            named = format!("{field}{rest}");
        }
    }
    for (parameter, field) in OTHER_NAMES {
        named = named.replace(&format!("`{parameter}`"), &format!("`{field}`"));
    }
    named
}

/// Calls a tool of this host, or else of the usual one, and returns its structured result.
pub(crate) async fn call(
    connect: &Connect,
    host: Option<HostEndpoint>,
    tool: &str,
    arguments: Value,
) -> Result<Value, ActError> {
    call_as(CLIENT, connect, host, tool, arguments).await
}

/// Calls a tool as the client of this name.
pub(crate) async fn call_as(
    client: &str,
    connect: &Connect,
    host: Option<HostEndpoint>,
    tool: &str,
    arguments: Value,
) -> Result<Value, ActError> {
    let options = ConnectOptions {
        host,
        ..ConnectOptions::default()
    };
    // What the host tells by itself is of no use here.
    let (link, _) = HostLink::open(connect, options)
        .await
        .map_err(ActError::Failed)?;
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": client, "version": env!("CARGO_PKG_VERSION") },
    });
    link.call("initialize", params).await.map_err(failed)?;
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    link.send(begun).await;
    let params = json!({ "name": tool, "arguments": arguments });
    let mut result = link.call("tools/call", params).await.map_err(failed)?;
    match result.get("isError") {
        Some(Value::Bool(true)) => Err(refusal(&result)),
        _ => Ok(taken(&mut result, "structuredContent")),
    }
}

/// The error of a refused call, for a person.
fn refusal(answered: &Value) -> ActError {
    let text = |path| answered.pointer(path).and_then(Value::as_str);
    // The text of the answer is for a model: it has the code, and names other tools.
    let message = text("/structuredContent/error/message").or_else(|| text("/content/0/text"));
    let message = message.unwrap_or("the call failed").to_owned();
    match text("/structuredContent/error/code") {
        Some(code) if WRONG.contains(&code) => ActError::Wrong(message),
        Some(BUSY) => ActError::Busy(message),
        _ => ActError::Refused(message),
    }
}

fn failed(CallError(error): CallError) -> ActError {
    let error = &error;
    let message = error["message"].as_str().unwrap_or("the call failed");
    ActError::Failed(message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_about_a_form_names_its_fields() {
        for (of_tool, of_form) in [
            (
                "there is no directory /x; `repo` names the repository",
                "there is no directory /x; `directory` names the repository",
            ),
            (
                "exit_criteria: commits: \"x\" is no number",
                "commits: \"x\" is no number",
            ),
            (
                "approvalPolicy: it must be one of",
                "approvals: it must be one of",
            ),
            ("threadId: no ID", "thread: no ID"),
            ("sandbox: it must be one of", "sandbox: it must be one of"),
            ("repository /x is bare", "repository /x is bare"),
        ] {
            let error = about_form(ActError::Wrong(of_tool.to_owned()));
            assert_eq!(error.to_string(), of_form);
        }
    }

    #[test]
    fn tool_error_is_shown_without_code_and_hint() {
        let refused = |code: &str| {
            let error =
                json!({ "code": code, "message": "session s was cancelled", "hint": "Call it." });
            refusal(&json!({
                "isError": true,
                "content": [{ "type": "text",
                    "text": format!("Error [{code}]: session s was cancelled. Call it.") }],
                "structuredContent": { "error": error },
            }))
        };
        let cancelled = refused("CANCELLED");
        assert!(matches!(cancelled, ActError::Refused(_)), "{cancelled:?}");
        assert_eq!(cancelled.to_string(), "session s was cancelled");
        let wrong = refused("INVALID_ARGUMENT");
        assert!(matches!(wrong, ActError::Wrong(_)), "{wrong:?}");
        let busy = refused(BUSY);
        assert!(matches!(busy, ActError::Busy(_)), "{busy:?}");
        let bare = refusal(&json!({ "content": [{ "type": "text", "text": "no" }] }));
        assert_eq!(bare.to_string(), "no");
    }
}
