//! The registry of threads, and the audit.

use std::fs;

use scripted_model::{Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::wait::wait_for;
use testkit::{McpClient, Signal};

use super::super::{CodexFixture, assert_completed, structured, thread_of};
use super::{
    call_ok, identity_directory, message, ok_model, on_both_backends, put_mail,
    wait_until_processes_end,
};

/// Polls a session with these arguments until it is idle.
async fn wait_until_idle(server: &mut McpClient, poll: &Value) {
    wait_for("the session is idle", async || {
        let state = call_ok(server, "codex_check", poll.clone()).await;
        (state["status"] == "idle").then_some(())
    })
    .await;
}

fn registry(stage: &CodexFixture) -> Value {
    let file = identity_directory(stage, "arch").join("registry.arch.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

fn audit(stage: &CodexFixture) -> Vec<Value> {
    let text = fs::read_to_string(identity_directory(stage, "arch").join("audit.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[tokio::test]
async fn thread_is_in_the_registry_with_its_details() {
    on_both_backends(ok_model, async |stage, args| {
        let mut server = stage.quiet_client(args).await;
        let arguments = json!({"prompt": "x", "sandbox": "read-only", "tag": "the first"});
        let begun = server.call_tool("codex", arguments).await;
        let thread = thread_of(&begun);
        let listed = call_ok(&mut server, "codex_threads", json!({})).await;
        assert_eq!(listed["identity"], "arch");
        assert_eq!(listed["total"], 1);
        let work = stage.home.work();
        let entry = &registry(stage)["threads"][0];
        assert_eq!(entry["thread_id"], thread);
        assert_eq!(entry["identity"], "arch");
        assert_eq!(entry["team"], "builders");
        assert_eq!(entry["repo_root"], work.display().to_string());
        assert_eq!(entry["repo_name"], "work");
        assert_eq!(entry["branch"], "main");
        assert_eq!(entry["cwd"], work.display().to_string());
        assert_eq!(entry["status"], "active");
        assert_eq!(entry["tag"], "the first");
        assert_eq!(entry["sandbox"], "read-only");
        assert_eq!(entry["turns"], 1);
        let shown = &listed["threads"][0];
        for key in ["thread_id", "status", "tag", "cwd", "branch", "last_active"] {
            assert_eq!(shown[key], entry[key], "{key}");
        }
        let reply = json!({"prompt": "y", "threadId": thread});
        server.call_tool("codex-reply", reply).await;
        call_ok(&mut server, "codex_threads", json!({})).await;
        let entry = &registry(stage)["threads"][0];
        assert_eq!(entry["turns"], 2);
        assert!(entry["last_active"].as_str() >= entry["started_at"].as_str());

        // The next server of the identity closes the entry of a killed one.
        server.signal(Signal::SIGKILL);
        server.exited().await;
        drop(server);
        wait_until_processes_end(stage).await;
        assert_eq!(registry(stage)["threads"][0]["status"], "active");
        let mut server = stage.quiet_client(args).await;
        let listed = call_ok(&mut server, "codex_threads", json!({})).await;
        assert_eq!(listed["threads"][0]["thread_id"], thread);
        assert_eq!(listed["threads"][0]["status"], "interrupted");
        stage.finish(server).await;
    })
    .await;
}

/// The server sets the settings of a thread again after a restart; older releases would forget
/// them.
#[tokio::test]
async fn thread_keeps_its_settings_over_a_restart() {
    for release in ["0.104.0", "0.153.4", testkit::codex::newest()] {
        let script = Script::new()
            .on(
                "write",
                [Reply::shell("echo x > made.txt"), Reply::say("done")],
            )
            .otherwise([Reply::say("ok")]);
        let config = "sandbox_mode = \"danger-full-access\"\napproval_policy = \"never\"\n";
        let stage = CodexFixture::with_config(release, script, "").await;
        let file = stage.home.codex_home().join("config.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{config}{text}")).unwrap();
        let directory = stage.file("below");
        fs::create_dir(&directory).unwrap();
        let mut server = stage.quiet_client(&["--identity", "arch"]).await;
        let arguments = json!({"prompt": "x", "sandbox": "read-only", "cwd": directory});
        let thread = thread_of(&server.call_tool("codex", arguments).await);
        stage.finish(server).await;
        let mut server = stage.quiet_client(&["--identity", "arch"]).await;
        let reply = json!({"prompt": "write", "threadId": thread});
        let done = server.call_tool("codex-reply", reply).await;
        assert_completed(&done, "done");
        assert!(!directory.join("made.txt").exists(), "{release}");
        stage.finish(server).await;
    }
}

#[tokio::test]
async fn calls_are_audited_before_and_after() {
    on_both_backends(ok_model, async |stage, args| {
        let mut server = stage.quiet_client(args).await;
        let secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD";
        let prompt = format!("use {secret} and {}", "long ".repeat(100));
        let begun = server.call_tool("codex", json!({"prompt": prompt})).await;
        let thread = thread_of(&begun);
        let reply = json!({"prompt": "go on", "threadId": thread});
        server.call_tool("codex-reply", reply).await;
        let letter = json!({"to": "lead", "message": "token=hunter2hunter2hunter2"});
        call_ok(&mut server, "atm_send", letter).await;
        let nobody = json!({"to": "nobody", "message": "x"});
        server.call_tool("atm_send", nobody).await;
        call_ok(&mut server, "atm_read", json!({})).await;
        let spoofed = json!({"to": "lead", "message": "x", "from": "lead"});
        server.call_tool("atm_send", spoofed).await;
        stage.finish(server).await;

        let lines = audit(stage);
        let begun: Vec<&Value> = lines
            .iter()
            .filter(|line| line["outcome"] == "begun")
            .collect();
        let events: Vec<&Value> = begun.iter().map(|line| &line["event"]).collect();
        assert_eq!(
            events,
            ["codex", "codex_reply", "atm_send", "atm_send", "atm_read"]
        );
        for line in &begun {
            let of_call = lines.iter().filter(|other| other["id"] == line["id"]);
            assert_eq!(of_call.count(), 2, "{line}");
            assert_eq!(line["identity"], "arch");
            assert_eq!(line["team"], "builders");
            assert!(line["ts"].as_str().unwrap().ends_with('Z'));
        }
        assert_eq!(begun[1]["thread_id"], thread);
        assert_eq!(begun[2]["recipient"], "lead@builders");
        let refused: Vec<&Value> = lines
            .iter()
            .filter(|line| line["outcome"] == "refused")
            .collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0]["event"], "atm_send");
        let failed: Vec<&Value> = lines
            .iter()
            .filter(|line| line["outcome"] == "failed")
            .collect();
        assert_eq!(failed.len(), 1);
        assert!(failed[0]["error"].as_str().unwrap().contains("nobody"));
        let all = json!(lines).to_string();
        assert!(!all.contains("abcdefghijklmnop"), "{all}");
        assert!(!all.contains("hunter2"), "{all}");
        let summary = begun[0]["summary"].as_str().unwrap();
        assert!(
            summary.starts_with("use ") && summary.chars().count() <= 201,
            "{summary}"
        );
    })
    .await;
}

#[tokio::test]
async fn approvals_forks_and_cancellations_are_audited() {
    let script = Script::new()
        .on(
            "touch",
            [
                Reply::shell(Shell::escalated("touch made.txt", "it is needed")),
                Reply::say("done"),
            ],
        )
        .otherwise([Reply::say("ok")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let args = ["--identity", "arch", "--approval-timeout", "1"];
    let mut server = stage.quiet_client(&args).await;
    let arguments = json!({"prompt": "touch it", "approval-policy": "on-request"});
    let asked = server.call_tool("codex", arguments).await;
    let asked = structured(&asked);
    let (thread, session) = (&asked["threadId"], &asked["sessionId"]);
    let request = &asked["actions"][0]["requestId"];
    let decline = json!({"action": "respond_permission", "sessionId": session,
        "requestId": request, "decision": "decline"});
    call_ok(&mut server, "codex_check", decline).await;
    let wait = json!({"action": "poll", "sessionId": session, "waitMs": 30000});
    wait_until_idle(&mut server, &wait).await;
    let forked = json!({"action": "fork", "sessionId": session});
    let forked = call_ok(&mut server, "codex_session", forked).await;

    // Nobody answers the next question.
    let again = json!({"prompt": "touch it", "threadId": thread});
    server.call_tool("codex-reply", again).await;
    wait_until_idle(&mut server, &wait).await;
    for session in [session, &forked["sessionId"]] {
        let cancel = json!({"action": "cancel", "sessionId": session});
        call_ok(&mut server, "codex_session", cancel).await;
    }
    // Nobody holds them any more.
    let listed = call_ok(&mut server, "codex_threads", json!({})).await;
    let listed = listed["threads"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(
        listed
            .iter()
            .all(|thread| thread["status"] == "interrupted"),
        "{listed:?}"
    );
    stage.finish(server).await;

    let lines = audit(&stage);
    let found = |event: &str| {
        let lines = lines.iter().filter(|line| line["event"] == event);
        lines.cloned().collect::<Vec<Value>>()
    };
    let approvals = found("approval");
    let outcomes: Vec<_> = approvals
        .iter()
        .map(|line| {
            (
                line["decision"].as_str().unwrap(),
                line["outcome"].as_str().unwrap(),
                line["decided_by"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            ("decline", "done", "client"),
            ("decline", "timed_out", "nobody")
        ]
    );
    for line in &approvals {
        assert_eq!(line["thread_id"], *thread);
        let question = line["summary"].as_str().unwrap();
        assert!(question.contains("touch made.txt"), "{question}");
    }
    let new = forked["threadId"].as_str().unwrap();
    assert!(found("fork")[0]["summary"].as_str().unwrap().contains(new));
    let cancelled: Vec<_> = found("cancel")
        .iter()
        .map(|line| line["thread_id"].clone())
        .collect();
    assert_eq!(cancelled, [thread.clone(), new.into()]);
}

#[tokio::test]
async fn read_messages_are_audited() {
    on_both_backends(ok_model, async |stage, args| {
        put_mail(
            stage,
            "arch",
            &[
                message("lead", "one", Some("m-1")),
                message("lead", "two", None),
            ],
        );
        let mut server = stage.quiet_client(args).await;
        call_ok(&mut server, "atm_read", json!({})).await;
        stage.finish(server).await;
        let lines = audit(stage);
        let read = lines
            .iter()
            .find(|line| line["event"] == "atm_read" && line["outcome"] == "done")
            .unwrap();
        assert_eq!(read["count"], 2);
        assert_eq!(
            read["messages"],
            json!([{"from": "lead", "id": "m-1"}, {"from": "lead"}])
        );
    })
    .await;
}
