//! The MCP project's own conformance suite and inspector against `/mcp`.

use serde_json::Value;
use testkit::conformance::{inspect, scenario};

use super::web;

/// The scenarios for any server, or for what this one has.
///
/// The suite has others. `logging-set-level` is for servers with logging, which this one has not. The
/// rest asks for tools, resources and prompts with certain names and answers (`test_simple_text` and
/// the like), which only a server made for the suite has: `tools-call-*`, `resources-read-*`,
/// `resources-templates-read`, `resources-subscribe`, `resources-unsubscribe`, `prompts-get-*`,
/// `completion-complete`, `elicitation-*`, `json-schema-2020-12`, `server-sse-polling`.
const SCENARIOS: [&str; 7] = [
    "server-initialize",
    "ping",
    "tools-list",
    "dns-rebinding-protection",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
];

#[tokio::test]
async fn scenarios_of_the_conformance_suite_pass() {
    let web = web().await;
    let token = web.run(&["token", "the suite"]).await;
    let home = web.stage.home.home();
    for name in SCENARIOS {
        let output = scenario(name, web.address, &token, &home).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {text}");
        assert!(text.contains("0 failed, 0 warnings"), "{name}: {text}");
    }
    // The control: without a token, the suite sees that nothing works.
    let output = scenario("tools-list", web.address, "wrong", &home).await;
    assert!(!output.status.success());
    web.finish().await;
}

#[tokio::test]
async fn inspector_lists_and_calls_the_tools() {
    let web = web().await;
    let token = web.run(&["token", "the inspector"]).await;
    let home = web.stage.home.home();
    let run = async |args: &[&str]| {
        let output = inspect(web.address, &token, args, &home).await;
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let listed = run(&["--method", "tools/list", "--strict"]).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "codex"), "{listed}");
    let called = run(&["--method", "tools/call", "--tool-name", "codex_status"]).await;
    let content = &called["result"]["structuredContent"];
    assert_eq!(content["codex"]["state"], "ready", "{called:#}");
    let listed = run(&["--method", "tools/list", "--protocol-era", "modern"]).await;
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    web.finish().await;
}
