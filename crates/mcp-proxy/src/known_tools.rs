//! The tools that `codex mcp-server` is assumed to have until it has listed them itself.

use codex_protocol::codex::Release;
use mcp_server::tools::schema::{object, tool};
use rmcp::model::Tool;
use serde_json::{Map, Value, json};

/// The first release that is assumed to have only the parameters of 0.153.4. Earlier releases have
/// more.
const FEWER_PARAMETERS: Release = Release::new(0, 150, 0);

/// The first release that is known to name the thread in its results; 0.74.0 does not.
const TELLS_THREADS: Release = Release::new(0, 104, 0);

/// The tools of releases 0.66.0, 0.104.0 and 0.153.4 (the last with these tools), with our own
/// descriptions.
pub(super) fn known_tools(release: Option<Release>) -> [Tool; 2] {
    let before = |first| release.is_some_and(|release| release < first);
    let begin = match before(FEWER_PARAMETERS) {
        true => codex_with_more(),
        false => codex(&["on-request", "never"]),
    };
    let reply = match before(TELLS_THREADS) {
        true => codex_reply(&["conversationId"]),
        false => codex_reply(&["threadId", "conversationId"]),
    };
    let described = |name, title, description, input: Value| {
        let tool = tool(name, title, description, input);
        match before(TELLS_THREADS) {
            true => tool,
            false => tool.with_raw_output_schema(object(output())),
        }
    };
    [
        described(
            "codex",
            "Codex",
            "Begins a thread with Codex, a coding agent, and waits for its final message.",
            begin,
        ),
        described(
            "codex-reply",
            "Codex Reply",
            "Continues a Codex thread and waits for the final message.",
            reply,
        ),
    ]
}

/// The schema of `codex` that also has profiles and older policies, and allows unknown parameters.
fn codex_with_more() -> Value {
    let mut input = codex(&["untrusted", "on-failure", "on-request", "never"]);
    if let Some(properties) = input.pointer_mut("/properties")
        && let Some(properties) = properties.as_object_mut()
    {
        let profile = json!({ "type": "string", "description": "A profile of Codex's config." });
        properties.insert("profile".to_owned(), profile);
    }
    if let Some(input) = input.as_object_mut() {
        input.remove("additionalProperties");
    }
    input
}

fn codex(policies: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": {
            "prompt": { "type": "string", "description": "What Codex is to do." },
            "cwd": { "type": "string", "description": "Directory to work in; a relative one is relative to the server's." },
            "sandbox": { "type": "string", "enum": ["read-only", "workspace-write", "danger-full-access"], "description": "What commands may touch." },
            "approval-policy": { "type": "string", "enum": policies, "description": "When Codex asks before it runs something." },
            "model": { "type": "string", "description": "Another model than the configured one." },
            "config": { "type": "object", "additionalProperties": true, "description": "Overrides of config.toml, by its keys." },
            "base-instructions": { "type": "string", "description": "Replaces Codex's own instructions." },
            "developer-instructions": { "type": "string", "description": "Added as a developer message." },
            "compact-prompt": { "type": "string", "description": "Used when the conversation is compacted." },
        },
        "required": ["prompt"],
        "additionalProperties": false,
    })
}

/// The tool `codex-reply`. `names` are the parameters that name the thread; if there is only one,
/// it is required.
fn codex_reply(names: &[&str]) -> Value {
    let mut properties = Map::new();
    let prompt = json!({ "type": "string", "description": "What to say next." });
    properties.insert("prompt".to_owned(), prompt);
    for name in names {
        let thread =
            json!({ "type": "string", "description": "The thread, as codex answered it." });
        properties.insert((*name).to_owned(), thread);
    }
    let required = match names {
        [name] => vec![*name, "prompt"],
        _ => vec!["prompt"],
    };
    json!({ "type": "object", "properties": properties, "required": required })
}

fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "threadId": { "type": "string" },
            "content": { "type": "string" },
        },
        "required": ["threadId", "content"],
    })
}
