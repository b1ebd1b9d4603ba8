//! Mail tools inside Codex's threads.

use scripted_model::{Reply, Request, Script};
use serde_json::{Value, json};

use super::super::{CodexFixture, on_oldest_and_newest, text};
use super::{inbox, make_team, on_both_backends};

on_oldest_and_newest!(thread_writes_to_its_team_during_a_turn);

fn writing_model() -> Script {
    let answer =
        Reply::with(|request| Reply::say(request.texts().last().copied().unwrap_or_default()));
    Script::new().on("tell them", [Reply::with(send_mail), answer])
}

/// The model's mail to `lead`. The tool is our own, or that of an MCP server where threads have no
/// tools of ours.
pub(in crate::real) fn send_mail(request: &Request) -> Reply {
    let arguments = json!({"to": "lead", "message": "from within"});
    match request.tool("atm_send") {
        Some(_) => Reply::call("atm_send", arguments),
        None => Reply::mcp("codex_mcp_team", "atm_send", arguments),
    }
}

const ARGS: [&str; 4] = ["--identity", "arch", "--team", "builders"];

async fn assert_sends_without_approval(stage: &CodexFixture, args: &[&str], policy: &str) {
    let mut client = stage.quiet_client(args).await;
    let arguments = json!({"prompt": "tell them", "approval-policy": policy});
    let result = client.call_tool("codex", arguments).await;
    let said = text(&result, 0);
    assert!(said.contains("message_id"), "{policy}: {result:#}");
    stage.finish(client).await;
}

/// No approval is asked for, whatever the policy.
async fn thread_writes_to_its_team_during_a_turn(release: &str) {
    let stage = CodexFixture::new(release, writing_model()).await;
    make_team(&stage, &["lead"]);
    for (count, policy) in ["on-request", "never", "untrusted"].into_iter().enumerate() {
        assert_sends_without_approval(&stage, &ARGS, policy).await;
        let mail = inbox(&stage, "lead");
        assert_eq!(mail.len(), count + 1);
        assert_eq!(mail[count]["from"], "arch");
        assert_eq!(mail[count]["text"], "from within");
    }
}

#[tokio::test]
async fn proxied_thread_writes_to_its_team() {
    for release in ["0.104.0", "0.153.4"] {
        let stage = CodexFixture::new(release, writing_model()).await;
        make_team(&stage, &["lead"]);
        let args = [&["--backend", "mcp-server"], ARGS.as_slice()].concat();
        assert_sends_without_approval(&stage, &args, "on-request").await;
        assert_eq!(inbox(&stage, "lead")[0]["from"], "arch");
    }
}

/// A resumed thread has the tools too, and so has one whose caller adds an MCP server.
#[tokio::test]
async fn threads_have_the_team_tools_unless_switched_off() {
    on_both_backends(super::ok_model, async |stage, args| {
        let offered = || {
            let requests = stage.model.requests();
            requests.last().unwrap().tool_names().join(" ")
        };
        let mut server = stage.quiet_client(args).await;
        let own = json!({"mcp_servers": {"mine": {"command": "/bin/false"}}});
        server
            .call_tool("codex", json!({"prompt": "x", "config": own}))
            .await;
        assert!(offered().contains("atm_send"), "{}", offered());
        let begun = server.call_tool("codex", json!({"prompt": "x"})).await;
        let thread = super::super::thread_of(&begun);
        assert!(offered().contains("atm_read"), "{}", offered());
        stage.finish(server).await;

        if args.contains(&"app-server") {
            let mut server = stage.quiet_client(args).await;
            let reply = json!({"prompt": "y", "threadId": thread});
            server.call_tool("codex-reply", reply).await;
            assert!(offered().contains("atm_send"), "{}", offered());
            stage.finish(server).await;
        }

        let mut server = stage
            .quiet_client(&[args, &["--no-team-tools"]].concat())
            .await;
        server.call_tool("codex", json!({"prompt": "x"})).await;
        assert!(!offered().contains("atm_"), "{}", offered());
        let tools: Value = server.call("tools/list", json!({})).await;
        assert!(tools.to_string().contains("atm_send"));
        stage.finish(server).await;
    })
    .await;
}
