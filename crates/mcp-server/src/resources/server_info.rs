//! `server-info`: the current state of this server.

use std::env::consts::{ARCH, OS};

use rmcp::model::Resource;
use serde_json::{Value, json};

use crate::server::{Server, VERSION};
use crate::tool_sets::Api;
use crate::tools;

pub(super) fn show(server: &Server, resources: &[Resource]) -> Value {
    json!({
        "name": "codex-mcp",
        "version": VERSION,
        "codexCliVersion": server.engine.codex_version(),
        "platform": platform(OS),
        "arch": arch(ARCH),
        "api": api(server.api),
        "stdioMode": server.stdio.mode,
        "supportedApprovalPolicies": allowed("approvalPolicy"),
        "supportedSandboxModes": allowed("sandbox"),
        "supportedEffortLevels": allowed("effort"),
        "activeSessions": server.engine.active_sessions(),
        "resources": resources,
    })
}

/// The value of `--api`.
fn api(api: Api) -> &'static str {
    match api {
        Api::Classic => "classic",
        Api::Sessions => "sessions",
    }
}

/// The values of a parameter, from the schema of the tool that takes it.
fn allowed(parameter: &str) -> Value {
    let tools = tools::list(Api::Sessions);
    let schema = tools.iter().find_map(|tool| {
        let properties = tool.input_schema.get("properties")?;
        properties.get(parameter)?.get("enum")
    });
    schema.cloned().unwrap_or_default()
}

/// The name of the system in Node, as in the npm package.
fn platform(os: &'static str) -> &'static str {
    match os {
        "macos" => "darwin",
        os => os,
    }
}

/// The name of the processor in Node.
fn arch(arch: &'static str) -> &'static str {
    match arch {
        "x86_64" => "x64",
        "x86" => "ia32",
        "aarch64" => "arm64",
        arch => arch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_values_match_the_tool_schemas() {
        assert_eq!(
            allowed("approvalPolicy"),
            json!(["untrusted", "on-failure", "on-request", "never"])
        );
        assert_eq!(
            allowed("sandbox"),
            json!(["read-only", "workspace-write", "danger-full-access"])
        );
        assert_eq!(
            allowed("effort"),
            json!(["none", "minimal", "low", "medium", "high", "xhigh"])
        );
    }

    #[test]
    fn platforms_have_the_names_of_node() {
        assert_eq!((platform("macos"), arch("aarch64")), ("darwin", "arm64"));
        assert_eq!((platform("linux"), arch("x86_64")), ("linux", "x64"));
    }
}
