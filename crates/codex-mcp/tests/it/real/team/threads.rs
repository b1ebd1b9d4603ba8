//! What Codex's own threads can do: write to the team in the middle of a turn.

use scripted_model::{Reply, Script};
use serde_json::{Value, json};

use super::super::{Stage, on_each_release, text};
use super::{client, inbox, make_team, on_both_backends};

on_each_release!(a_thread_writes_to_its_team_in_the_middle_of_a_turn);

fn writes() -> Script {
    Script::new().on(
        "tell them",
        [
            Reply::with(|request| {
                let arguments = json!({"to": "lead", "message": "from within"});
                // As a tool of the client's, or of an MCP server where there is no client
                // that could offer any.
                match request.tool("atm_send") {
                    Some(_) => Reply::call("atm_send", arguments),
                    None => Reply::mcp("codex_mcp_team", "atm_send", arguments),
                }
            }),
            Reply::with(|request| Reply::say(request.texts().last().copied().unwrap_or_default())),
        ],
    )
}

const ARGS: [&str; 4] = ["--identity", "arch", "--team", "builders"];

async fn asks_nobody(stage: &Stage, args: &[&str], policy: &str) {
    let mut client = client(stage, args).await;
    let arguments = json!({"prompt": "tell them", "approval-policy": policy});
    let result = client.call_tool("codex", arguments).await;
    let said = text(&result, 0);
    assert!(said.contains("message_id"), "{policy}: {result:#}");
    stage.finish(client).await;
}

/// With nobody to ask, whatever the policy.
async fn a_thread_writes_to_its_team_in_the_middle_of_a_turn(release: &str) {
    let stage = Stage::new(release, writes()).await;
    make_team(&stage, &["lead"]);
    for (count, policy) in ["on-request", "never", "untrusted"].into_iter().enumerate() {
        asks_nobody(&stage, &ARGS, policy).await;
        let mail = inbox(&stage, "lead");
        assert_eq!(mail.len(), count + 1);
        assert_eq!(mail[count]["from"], "arch");
        assert_eq!(mail[count]["text"], "from within");
    }
}

#[tokio::test]
async fn a_thread_behind_the_proxy_writes_too() {
    for release in ["0.104.0", "0.153.4"] {
        let stage = Stage::new(release, writes()).await;
        make_team(&stage, &["lead"]);
        let args = [&["--backend", "mcp-server"], ARGS.as_slice()].concat();
        asks_nobody(&stage, &args, "on-request").await;
        assert_eq!(inbox(&stage, "lead")[0]["from"], "arch");
    }
}

/// Also one that is taken up after a restart, and one whose caller has brought a
/// server of its own.
#[tokio::test]
async fn every_thread_has_the_tools_unless_they_are_not_wanted() {
    on_both_backends(super::says_ok, async |stage, args| {
        let offered = || {
            let requests = stage.model.requests();
            requests.last().unwrap().tool_names().join(" ")
        };
        let mut server = client(stage, args).await;
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
            let mut server = client(stage, args).await;
            let reply = json!({"prompt": "y", "threadId": thread});
            server.call_tool("codex-reply", reply).await;
            assert!(offered().contains("atm_send"), "{}", offered());
            stage.finish(server).await;
        }

        let mut server = client(stage, &[args, &["--no-team-tools"]].concat()).await;
        server.call_tool("codex", json!({"prompt": "x"})).await;
        assert!(!offered().contains("atm_"), "{}", offered());
        let tools: Value = server.call("tools/list", json!({})).await;
        assert!(tools.to_string().contains("atm_send"));
        stage.finish(server).await;
    })
    .await;
}
