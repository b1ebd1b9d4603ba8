//! Client libraries: rmcp with each handshake of MCP and without one, and the official TypeScript
//! library.

use std::process::Stdio;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, Implementation, ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, RequestContext, RunningService, serve_client_with_lifecycle,
};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use scripted_model::{Reply, Script, Shell};
use serde_json::json;
use tokio::process::{Child, Command};

use super::typescript::TypeScriptClient;
use super::{CodexFixture, assert_completed, assert_error, thread_of};

/// A client that accepts all elicitations.
struct AcceptingClient {
    version: ProtocolVersion,
}

impl ClientHandler for AcceptingClient {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("library", "1"))
            .with_protocol_version(self.version.clone())
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        assert!(matches!(
            request,
            ElicitRequestParams::FormElicitationParams { .. }
        ));
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({})))
    }
}

async fn connect(
    stage: &CodexFixture,
    version: ProtocolVersion,
) -> (RunningService<RoleClient, AcceptingClient>, Child) {
    let mut server = Command::from(stage.home.command(env!("CARGO_BIN_EXE_codex-mcp")))
        .arg("serve")
        .env(
            "CODEX_MCP_CODEX_BIN",
            testkit::codex::native_binary(&stage.release),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let streams = (server.stdout.take().unwrap(), server.stdin.take().unwrap());
    let mode = if version.has_initialize() {
        ClientLifecycleMode::Initialize
    } else {
        ClientLifecycleMode::Discover {
            preferred_versions: vec![version.clone()],
        }
    };
    let client = serve_client_with_lifecycle(AcceptingClient { version }, streams, mode)
        .await
        .unwrap();
    (client, server)
}

async fn assert_works_with(version: ProtocolVersion) {
    let script = Script::new()
        .on(
            "touch",
            [
                Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
                Reply::say("done"),
            ],
        )
        .otherwise([Reply::say("back")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let (client, mut server) = connect(&stage, version).await;
    let tools = client.list_all_tools().await.unwrap();
    assert_eq!(tools.len(), 13);

    let call = |name: &'static str, arguments: serde_json::Value| {
        CallToolRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone())
    };
    let arguments =
        json!({"prompt": "touch", "sandbox": "read-only", "approval-policy": "on-request"});
    let done = client.call_tool(call("codex", arguments)).await.unwrap();
    let structured = done.structured_content.unwrap();
    assert_eq!(structured["content"], "done", "{structured:#}");
    assert!(stage.file("made.txt").exists());

    let arguments = json!({"prompt": "more", "threadId": structured["threadId"]});
    let back = client
        .call_tool(call("codex-reply", arguments))
        .await
        .unwrap();
    assert_eq!(back.structured_content.unwrap()["content"], "back");

    client.cancel().await.unwrap();
    assert!(server.wait().await.unwrap().success());
    stage.stop_own_hosts().await;
    assert_eq!(stage.home.processes(), []);
}

#[tokio::test]
async fn rmcp_works_with_the_handshake_of_2024_11_05() {
    assert_works_with(ProtocolVersion::V_2024_11_05).await;
}

#[tokio::test]
async fn rmcp_works_with_the_handshake_of_2025_06_18() {
    assert_works_with(ProtocolVersion::V_2025_06_18).await;
}

#[tokio::test]
async fn rmcp_works_with_the_handshake_of_2025_11_25() {
    assert_works_with(ProtocolVersion::V_2025_11_25).await;
}

#[tokio::test]
async fn rmcp_works_without_a_handshake_2026_07_28() {
    assert_works_with(ProtocolVersion::V_2026_07_28).await;
}

#[tokio::test]
async fn typescript_library_accepts_results_and_errors() {
    let script = Script::new()
        .on(
            "touch",
            [
                Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
                Reply::say("done"),
            ],
        )
        .on("limit", [Reply::fail(429, "{}")])
        .otherwise([Reply::say("back")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let mut client = TypeScriptClient::start(&stage, &[], &[]).await;
    assert_eq!(client.tools.len(), 13);
    let touch = json!({"prompt": "touch", "sandbox": "read-only", "approval-policy": "on-request"});
    let touched = client.call("codex", touch).await;
    assert_completed(&touched, "done");
    let more = json!({"prompt": "more", "threadId": thread_of(&touched)});
    assert_completed(&client.call("codex-reply", more).await, "back");
    let limited = client.call("codex", json!({"prompt": "limit"})).await;
    assert_error(&limited, "RATE_LIMITED");
    let empty = client.call("codex", json!({"prompt": ""})).await;
    assert_error(&empty, "INVALID_ARGUMENT");
    client.finish().await;
    assert!(stage.file("made.txt").exists());
}
