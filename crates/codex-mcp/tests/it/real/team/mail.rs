//! The mail tools, and the membership in the team.

use std::fs::{self, File};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::Signal;
use tokio::time::sleep;

use super::super::assert_error;
use super::{
    call_ok, end_client, identity_directory, inbox, inbox_file, make_team, members, message,
    ok_model, on_both_backends, put_mail, team_directory, wait_until, wait_until_processes_end,
};

#[tokio::test]
async fn mail_is_sent_in_the_name_of_the_server() {
    on_both_backends(ok_model, async |stage, args| {
        let mut client = stage.quiet_client(args).await;
        let to_lead =
            json!({"to": "lead", "message": "Done: $(rm -rf) \"x\"\n", "summary": "Done"});
        let sent = call_ok(&mut client, "atm_send", to_lead).await;
        assert_eq!(sent["to"], "lead@builders");
        let mail = inbox(stage, "lead");
        assert_eq!(mail.len(), 1);
        assert_eq!(mail[0]["from"], "arch");
        assert_eq!(mail[0]["text"], "Done: $(rm -rf) \"x\"\n");
        assert_eq!(mail[0]["summary"], "Done");
        assert_eq!(mail[0]["read"], false);
        assert_eq!(mail[0]["message_id"], sent["message_id"]);

        let to_all = json!({"message": "Hello"});
        let sent = call_ok(&mut client, "atm_broadcast", to_all).await;
        let reached: Vec<&Value> = sent["sent"].as_array().unwrap().iter().collect();
        assert_eq!(reached.len(), 2, "{sent}");
        assert_eq!(inbox(stage, "lead").len(), 2);
        assert_eq!(inbox(stage, "rust-1").len(), 1);
        assert_eq!(inbox(stage, "arch").len(), 0);

        // No argument changes the sender or leads out of the teams' directory.
        for more in [json!({"from": "lead"}), json!({"identity": "lead"})] {
            let mut arguments = json!({"to": "lead", "message": "x"});
            arguments
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let refused = client.call_tool("atm_send", arguments).await;
            assert_error(&refused, "INVALID_ARGUMENT");
        }
        let long = "x".repeat(300);
        for hostile in [
            "../x", "a/b", "a\0b", &long, "😀", "x@../y", "@", "", "lead@a/b",
        ] {
            let arguments = json!({"to": hostile, "message": "x"});
            let refused = client.call_tool("atm_send", arguments).await;
            assert_error(&refused, "INVALID_ARGUMENT");
        }
        for unknown in ["con", "nobody", "lead@elsewhere"] {
            let arguments = json!({"to": unknown, "message": "x"});
            let refused = client.call_tool("atm_send", arguments).await;
            assert_error(&refused, "UNKNOWN_RECIPIENT");
        }
        let directories = fs::read_dir(team_directory(stage).join("..")).unwrap();
        assert_eq!(directories.count(), 1);
        assert_eq!(inbox(stage, "lead").len(), 2);
        end_client(stage, client).await;
    })
    .await;
}

#[tokio::test]
async fn mail_is_read_in_an_envelope_and_marked_after_delivery() {
    on_both_backends(ok_model, async |stage, args| {
        let long = "ä".repeat(5000);
        let mail = [
            message(
                "lead",
                "first",
                Some("6a2f41a3-c54c-4e3f-8c6f-5b1f3e0f6d01"),
            ),
            message("lead", "no name", None),
            message(
                "rust-1",
                &long,
                Some("6a2f41a3-c54c-4e3f-8c6f-5b1f3e0f6d02"),
            ),
        ];
        put_mail(stage, "arch", &mail);
        let mut client = stage.quiet_client(args).await;
        let pending = call_ok(&mut client, "atm_pending_count", json!({})).await;
        let senders = json!([{"from": "lead", "count": 2}, {"from": "rust-1", "count": 1}]);
        assert_eq!(pending, json!({"count": 3, "senders": senders}));
        let status = call_ok(&mut client, "codex_status", json!({})).await;
        assert_eq!(status["pendingMail"], 3);
        assert_eq!(inbox(stage, "arch"), mail, "counting marks no mail");

        let asked = json!({"max_messages": 2, "mark_as_read": false});
        let peeked = call_ok(&mut client, "atm_read", asked).await;
        assert_eq!(peeked["remaining"], 1);
        assert_eq!(peeked["messages"][0]["from"], "lead");
        assert_eq!(peeked["messages"][0]["message"], "first");
        assert_eq!(peeked["messages"][0]["timestamp"], "2026-02-18T10:00:00Z");
        assert_eq!(peeked["messages"][1]["message"], "no name");
        assert_eq!(inbox(stage, "arch"), mail);

        let read = call_ok(&mut client, "atm_read", json!({})).await;
        assert_eq!(read["remaining"], 0);
        let cut = read["messages"][2]["message"].as_str().unwrap();
        assert!(cut.starts_with("ää") && cut.chars().count() < 4300, "{cut}");
        assert!(
            cut.contains("5000"),
            "the cut text states the original length"
        );
        let all_read = || inbox(stage, "arch").iter().all(|one| one["read"] == true);
        wait_until("all mail is marked as read", all_read).await;
        for (before, after) in mail.iter().zip(inbox(stage, "arch")) {
            assert_eq!(after["color"], before["color"]);
            assert_eq!(after["text"], before["text"]);
        }
        let nothing = call_ok(&mut client, "atm_read", json!({})).await;
        assert_eq!(nothing, json!({"messages": [], "remaining": 0}));
        for wrong in [
            json!({"max_messages": 0}),
            json!({"max_message_length": -1}),
        ] {
            let refused = client.call_tool("atm_read", wrong).await;
            assert_error(&refused, "INVALID_ARGUMENT");
        }
        end_client(stage, client).await;
    })
    .await;
}

/// Between the delivery of an answer and the mark in the inbox there is a moment, which the lock
/// extends until the client is killed.
#[tokio::test]
async fn unmarked_mail_is_delivered_again() {
    on_both_backends(ok_model, async |stage, args| {
        let mail = [message("lead", "important", None)];
        put_mail(stage, "arch", &mail);
        let lock = File::create(inbox_file(stage, "arch").with_extension("lock")).unwrap();
        lock.lock().unwrap();
        for _ in 0..2 {
            let mut client = stage.quiet_client(args).await;
            let read = call_ok(&mut client, "atm_read", json!({})).await;
            assert_eq!(read["messages"][0]["message"], "important");
            client.signal(Signal::SIGKILL);
            client.exited().await;
            drop(client);
            wait_until_processes_end(stage).await;
            assert_eq!(inbox(stage, "arch"), mail);
        }
        drop(lock);
        let mut client = stage.quiet_client(args).await;
        let read = call_ok(&mut client, "atm_read", json!({})).await;
        assert_eq!(read["messages"][0]["message"], "important");
        let is_read = || inbox(stage, "arch")[0]["read"] == true;
        wait_until("the mail is marked as read", is_read).await;
        end_client(stage, client).await;
    })
    .await;
}

#[tokio::test]
async fn unread_answer_marks_no_mail() {
    on_both_backends(ok_model, async |stage, args| {
        // The answer is longer than a pipe holds.
        let text = "x".repeat(90_000);
        let mail: Vec<Value> = (0..20).map(|_| message("lead", &text, None)).collect();
        put_mail(stage, "arch", &mail);
        let mut client = stage.quiet_client(args).await;
        client.stop_reading().await;
        let asked = json!({"max_messages": 20, "max_message_length": 100_000});
        client.request_tool("atm_read", asked);
        // The second audit line says that the mail was read, and the answer is on its way.
        let audit = identity_directory(stage, "arch").join("audit.jsonl");
        let lines = || fs::read_to_string(&audit).unwrap_or_default();
        let both = || lines().matches("\"atm_read\"").count() == 2;
        wait_until("both calls of atm_read", both).await;
        client.signal(Signal::SIGKILL);
        client.exited().await;
        drop(client);
        wait_until_processes_end(stage).await;
        assert_eq!(inbox(stage, "arch"), mail);
    })
    .await;
}

#[tokio::test]
async fn server_is_a_team_member_while_it_runs() {
    on_both_backends(ok_model, async |stage, args| {
        let names = || -> Vec<String> {
            let members = members(stage).into_iter();
            members
                .map(|one| one["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let mut first = stage.quiet_client(args).await;
        call_ok(&mut first, "atm_read", json!({})).await;
        assert_eq!(names(), ["lead", "rust-1", "arch"]);
        assert_eq!(members(stage)[2]["isActive"], true);
        assert_eq!(members(stage)[0]["made_up"], json!([1.50]));
        let mut second = stage.quiet_client(args).await;
        call_ok(&mut second, "atm_read", json!({})).await;
        assert_eq!(names(), ["lead", "rust-1", "arch", "arch-2"]);
        assert!(first.finish().await.success());
        end_client(stage, second).await;
        assert_eq!(names(), ["lead", "rust-1"]);

        // A member that was in the team before is restored, even after the server was killed.
        make_team(stage, &["lead", "arch"]);
        let mut config: Value = serde_json::from_str(
            &fs::read_to_string(team_directory(stage).join("config.json")).unwrap(),
        )
        .unwrap();
        config["members"][1]["isActive"] = false.into();
        fs::write(
            team_directory(stage).join("config.json"),
            config.to_string(),
        )
        .unwrap();
        let mut killed = stage.quiet_client(args).await;
        call_ok(&mut killed, "atm_read", json!({})).await;
        assert_eq!(members(stage)[1]["isActive"], true);
        killed.signal(Signal::SIGKILL);
        killed.exited().await;
        drop(killed);
        wait_until_processes_end(stage).await;
        assert_eq!(members(stage)[1]["isActive"], true);
        let mut next = stage.quiet_client(args).await;
        call_ok(&mut next, "atm_read", json!({})).await;
        end_client(stage, next).await;
        assert_eq!(members(stage)[1]["isActive"], false);
    })
    .await;
}

#[tokio::test]
async fn subscriber_is_notified_of_new_mail() {
    let stage = super::CodexFixture::new(testkit::codex::newest(), ok_model()).await;
    make_team(&stage, &["lead", "arch"]);
    let mut client = stage
        .quiet_client(&["--identity", "arch", "--team", "builders"])
        .await;
    let uri = json!({"uri": "codex-mcp:///mail"});
    client.call("resources/subscribe", uri.clone()).await;
    put_mail(&stage, "arch", &[message("lead", "new", None)]);
    let news = client.notification("notifications/resources/updated").await;
    assert_eq!(news["params"]["uri"], uri["uri"]);
    let read = client.call("resources/read", uri.clone()).await;
    let text = read["contents"][0]["text"].as_str().unwrap();
    let shown: Value = serde_json::from_str(text).unwrap();
    assert_eq!(shown["count"], 1);
    client.call("resources/unsubscribe", uri.clone()).await;
    // An inbox that is unreadable for a while does not end the subscription.
    fs::write(inbox_file(&stage, "arch"), "garbage").unwrap();
    client.call("resources/subscribe", uri.clone()).await;
    put_mail(&stage, "arch", &[message("lead", "newer", None)]);
    client.notification("notifications/resources/updated").await;
    client.call("resources/unsubscribe", uri).await;
    end_client(&stage, client).await;
}

/// A member that was removed from the team joins again before it sends.
#[tokio::test]
async fn sender_is_in_the_team_and_a_stopped_server_is_not() {
    on_both_backends(ok_model, async |stage, args| {
        let before = fs::read_to_string(team_directory(stage).join("config.json")).unwrap();
        let mut client = stage.quiet_client(args).await;
        call_ok(&mut client, "atm_pending_count", json!({})).await;
        fs::write(team_directory(stage).join("config.json"), &before).unwrap();
        let letter = json!({"to": "lead", "message": "x"});
        call_ok(&mut client, "atm_send", letter).await;
        assert!(members(stage).iter().any(|one| one["name"] == "arch"));
        end_client(stage, client).await;
        assert!(members(stage).iter().all(|one| one["name"] != "arch"));
    })
    .await;
}

/// The members of killed servers are removed.
#[tokio::test]
async fn stale_members_are_removed_by_the_next_server() {
    on_both_backends(ok_model, async |stage, args| {
        let mut servers = Vec::new();
        for _ in 0..2 {
            let mut server = stage.quiet_client(args).await;
            call_ok(&mut server, "atm_read", json!({})).await;
            servers.push(server);
        }
        for mut server in servers {
            server.signal(Signal::SIGKILL);
            server.exited().await;
        }
        wait_until_processes_end(stage).await;
        assert_eq!(members(stage).len(), 4);
        // A server outside of any team removes them too.
        let alone: Vec<&str> = args[..4].to_vec();
        let mut server = stage.quiet_client(&alone).await;
        call_ok(&mut server, "codex_threads", json!({})).await;
        assert_eq!(members(stage).len(), 2);
        end_client(stage, server).await;
    })
    .await;
}

/// While another process holds the locks, calls that do not need them are answered, and the server
/// ends on SIGTERM.
#[tokio::test]
async fn held_lock_blocks_only_the_calls_that_need_it() {
    on_both_backends(ok_model, async |stage, args| {
        let mut client = stage.quiet_client(args).await;
        call_ok(&mut client, "atm_pending_count", json!({})).await;
        let directory = identity_directory(stage, "arch");
        let locks = [
            inbox_file(stage, "lead").with_extension("lock"),
            directory.join("audit.lock"),
            directory.join("registry.arch.lock"),
        ];
        let held = locks.map(|path| {
            let file = File::create(path).unwrap();
            file.lock().unwrap();
            file
        });
        for _ in 0..6 {
            let stuck = client.request_tool("atm_send", json!({"to": "lead", "message": "x"}));
            client.abandon(&stuck);
        }
        call_ok(&mut client, "codex", json!({"prompt": "x"})).await;
        call_ok(&mut client, "atm_pending_count", json!({})).await;
        call_ok(&mut client, "codex_status", json!({})).await;
        let sent = inbox(stage, "lead").len();
        client.signal(Signal::SIGTERM);
        client.exited().await;
        assert_eq!(sent, 0, "mail was sent while the locks were held");
        drop(held);
    })
    .await;
}

/// A host lives on when a client has gone. What then still waits for the lock of the team adds no
/// member, and the identity stays claimed meanwhile.
#[tokio::test]
async fn client_that_has_left_its_host_does_not_join_later() {
    let stage = super::CodexFixture::new(testkit::codex::newest(), ok_model()).await;
    make_team(&stage, &["lead"]);
    let held = File::create(team_directory(&stage).join("config.lock")).unwrap();
    held.lock().unwrap();
    let args = ["--host", "--identity", "arch", "--team", "builders"];
    let client = stage.quiet_client(&args).await;
    let claim = identity_directory(&stage, "arch").join("identity.lock");
    assert!(claim.exists());
    assert!(client.finish().await.success());
    wait_until("the identity is free", || !claim.exists()).await;
    drop(held);
    // A join that still waited would take some milliseconds now.
    sleep(Duration::from_secs(1)).await;
    assert!(members(&stage).iter().all(|one| one["name"] != "arch"));
    stage.stop_hosts().await;
    wait_until_processes_end(&stage).await;
}

/// A server without a team offers mail tools neither to clients nor to the model.
#[tokio::test]
async fn server_without_a_team_has_no_mail_tools() {
    let stage = super::CodexFixture::new(testkit::codex::newest(), ok_model()).await;
    let mut client = stage.quiet_client(&[]).await;
    let tools = client.call("tools/list", json!({})).await.to_string();
    assert!(!tools.contains("atm_"), "{tools}");
    call_ok(&mut client, "codex", json!({"prompt": "x"})).await;
    let offered = stage.model.requests()[0].tool_names().join(" ");
    assert!(!offered.contains("atm_"), "{offered}");
    stage.finish(client).await;
}
