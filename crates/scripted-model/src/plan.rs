//! Turns a reply into the actions to send: tools get the names that the request offers.

use crate::patch::Patch;
use crate::reply::{Call, Pause, Reply, Step, Text, Usage};
use crate::request::{Request, Tool};
use crate::shell::{SHELL_TOOLS, Shell};

/// How a request is answered.
#[derive(Debug)]
pub(crate) enum Plan {
    Stream(Vec<Action>),
    Refuse {
        pauses: Vec<Pause>,
        status: u16,
        body: String,
        headers: Vec<(&'static str, String)>,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Pause(Pause),
    Text(Text),
    EndMessage,
    /// The ID of the next call.
    CallId(String),
    Call(ToolCall),
    Usage(Usage),
    Break {
        code: String,
        message: String,
    },
    HangUp,
}

/// A tool call under the name the request offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolCall {
    Function {
        namespace: Option<String>,
        name: String,
        /// JSON.
        arguments: String,
    },
    Freeform {
        name: String,
        input: String,
    },
}

/// Why a reply can't be given to a request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ToolError {
    #[error(
        "the script wants to run a command, but the request has no shell tool: it offers {offered}"
    )]
    Shell { offered: String },
    #[error(
        "the script wants the tool {tool:?} of the MCP server {server:?}, but the request offers \
         {offered}"
    )]
    Mcp {
        server: String,
        tool: String,
        offered: String,
    },
}

/// Plans how `request` is answered with `reply`.
pub(crate) fn plan(reply: Reply, request: &Request) -> Result<Plan, ToolError> {
    let mut actions = Vec::with_capacity(reply.steps.len());
    let mut steps = reply.steps.into_iter().rev().collect::<Vec<_>>();
    while let Some(step) = steps.pop() {
        actions.push(match step {
            Step::With(closure) => {
                steps.extend((closure.0)(request).steps.into_iter().rev());
                continue;
            }
            Step::Refuse {
                status,
                body,
                headers,
            } => {
                return Ok(Plan::Refuse {
                    pauses: pauses(actions),
                    status,
                    body,
                    headers,
                });
            }
            Step::CallId(id) => Action::CallId(id),
            Step::Call(call) => Action::Call(tool_call(call, request)?),
            Step::Pause(pause) => Action::Pause(pause),
            Step::Text(text) => Action::Text(text),
            Step::EndMessage => Action::EndMessage,
            Step::Usage(usage) => Action::Usage(usage),
            Step::Break { code, message } => Action::Break { code, message },
            Step::HangUp => Action::HangUp,
        });
    }
    Ok(Plan::Stream(actions))
}

fn pauses(actions: Vec<Action>) -> Vec<Pause> {
    actions
        .into_iter()
        .filter_map(|action| match action {
            Action::Pause(pause) => Some(pause),
            _ => None,
        })
        .collect()
}

fn tool_call(call: Call, request: &Request) -> Result<ToolCall, ToolError> {
    Ok(match call {
        Call::Function {
            namespace,
            name,
            arguments,
        } => ToolCall::Function {
            namespace,
            name,
            arguments: arguments.to_string(),
        },
        Call::Freeform { name, input } => ToolCall::Freeform { name, input },
        Call::Shell(shell) => shell_call(&shell, request)?,
        Call::Patch(patch) => patch_call(&patch, request)?,
        Call::Mcp {
            server,
            tool,
            arguments,
        } => {
            let offered = mcp_tool(&server, &tool, request)?;
            ToolCall::Function {
                namespace: offered.namespace.map(str::to_owned),
                name: offered.name.to_owned(),
                arguments: arguments.to_string(),
            }
        }
    })
}

fn shell_call(shell: &Shell, request: &Request) -> Result<ToolCall, ToolError> {
    let tool = SHELL_TOOLS
        .iter()
        .find_map(|name| request.tool(name))
        .ok_or_else(|| ToolError::Shell {
            offered: offered(request),
        })?;
    Ok(ToolCall::Function {
        namespace: None,
        name: tool.name.to_owned(),
        arguments: shell.arguments(&tool).to_string(),
    })
}

fn patch_call(patch: &Patch, request: &Request) -> Result<ToolCall, ToolError> {
    match request.tool("apply_patch") {
        Some(tool) if tool.is_freeform() => Ok(ToolCall::Freeform {
            name: tool.name.to_owned(),
            input: patch.text().to_owned(),
        }),
        Some(tool) => Ok(ToolCall::Function {
            namespace: None,
            name: tool.name.to_owned(),
            arguments: serde_json::json!({"input": patch.text()}).to_string(),
        }),
        None => shell_call(&patch.command(), request),
    }
}

/// Finds an MCP server's tool: in the namespace `mcp__SERVER` (Codex 0.153.4 and
/// 0.169.0) or `mcp__SERVER__` (0.130.0), where dashes in the server's name are
/// underscores, or by the flat name `mcp__SERVER__TOOL` (0.104.0), where they stay.
fn mcp_tool<'a>(server: &str, tool: &str, request: &'a Request) -> Result<Tool<'a>, ToolError> {
    let namespace = underscored(&format!("mcp__{server}"));
    let flat = underscored(&format!("mcp__{server}__{tool}"));
    request
        .tools()
        .into_iter()
        .find(|offered| match offered.namespace {
            Some(name) => name.trim_end_matches('_') == namespace && offered.name == tool,
            None => underscored(offered.name) == flat,
        })
        .ok_or_else(|| ToolError::Mcp {
            server: server.to_owned(),
            tool: tool.to_owned(),
            offered: offered(request),
        })
}

fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

fn offered(request: &Request) -> String {
    let names = request.tool_names();
    if names.is_empty() {
        return "no tools".to_owned();
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn offering(tools: Value) -> Request {
        Request::new(json!({ "tools": tools }))
    }

    fn call(reply: Reply, tools: Value) -> ToolCall {
        match plan(reply, &offering(tools)) {
            Ok(Plan::Stream(actions)) => match actions.as_slice() {
                [Action::Call(call)] => call.clone(),
                other => panic!("not one call: {other:?}"),
            },
            other => panic!("not a stream: {other:?}"),
        }
    }

    fn function(namespace: Option<&str>, name: &str, arguments: Value) -> ToolCall {
        ToolCall::Function {
            namespace: namespace.map(Into::into),
            name: name.into(),
            arguments: arguments.to_string(),
        }
    }

    #[test]
    fn command_uses_the_offered_shell() {
        let older = json!([{"type": "function", "name": "shell"}]);
        assert_eq!(
            call(Reply::shell("ls"), older),
            function(None, "shell", json!({"command": ["bash", "-lc", "ls"]}))
        );
        let newer = json!([{"type": "function", "name": "exec_command"}]);
        assert_eq!(
            call(Reply::shell("ls"), newer),
            function(None, "exec_command", json!({"cmd": "ls"}))
        );
    }

    #[test]
    fn command_without_a_shell_names_the_offered_tools() {
        let request = offering(json!([{"type": "web_search"}]));
        let problem = plan(Reply::shell("ls"), &request).unwrap_err();
        assert_eq!(
            problem,
            ToolError::Shell {
                offered: "web_search".into()
            }
        );
    }

    #[test]
    fn patch_prefers_the_tool_to_the_shell() {
        let patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n";
        let tools = json!([
            {"type": "function", "name": "exec_command"},
            {"type": "custom", "name": "apply_patch"},
        ]);
        assert_eq!(
            call(Reply::patch(patch), tools),
            ToolCall::Freeform {
                name: "apply_patch".into(),
                input: patch.into()
            }
        );
        let tools = json!([{"type": "function", "name": "exec_command"}]);
        let command = format!("apply_patch <<'EOF'\n{patch}EOF\n");
        assert_eq!(
            call(Reply::patch(patch), tools),
            function(None, "exec_command", json!({ "cmd": command }))
        );
    }

    #[test]
    fn mcp_tool_is_found_under_every_name() {
        let reply = || Reply::mcp("our-server", "ask", json!({}));
        for namespace in ["mcp__our_server", "mcp__our_server__"] {
            let tools = json!([{"type": "namespace", "name": namespace, "tools": [
                {"type": "function", "name": "ask"},
            ]}]);
            assert_eq!(
                call(reply(), tools),
                function(Some(namespace), "ask", json!({}))
            );
        }
        for flat in ["mcp__our_server__ask", "mcp__our-server__ask"] {
            let tools = json!([{"type": "function", "name": flat}]);
            assert_eq!(call(reply(), tools), function(None, flat, json!({})));
        }
    }

    #[test]
    fn refusal_keeps_only_the_pauses_before_it() {
        let gate = crate::Gate::new();
        let reply = Reply::say("lost").then(Reply::fail(500, "no").behind(&gate));
        match plan(reply, &offering(json!([]))) {
            Ok(Plan::Refuse { pauses, status, .. }) => {
                assert_eq!((pauses.len(), status), (1, 500));
            }
            other => panic!("not a refusal: {other:?}"),
        }
    }

    #[test]
    fn function_is_called_at_its_turn() {
        let request = Request::new(json!({"input": "hello"}));
        let reply = Reply::with(|request| Reply::say(request.prompt()));
        match plan(reply, &request) {
            Ok(Plan::Stream(actions)) => {
                assert!(matches!(
                    actions.as_slice(),
                    [Action::Text(_), Action::EndMessage]
                ));
            }
            other => panic!("not a stream: {other:?}"),
        }
    }
}
