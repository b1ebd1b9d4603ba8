//! Mail in both directions, with each real release of atm.

use std::fs;
use std::path::Path;

use agent_team::mail::{JoinOutcome, LeaveOutcome, Membership, MessageId};
use serde_json::{Value, json};

use super::{TeamFixture, codex, content, name, team, texts, write_plainly};

fn for_each_atm(test: impl Fn(&TeamFixture, &str)) {
    for version in testkit::atm::versions() {
        test(&TeamFixture::new(), version);
    }
}

#[test]
fn atm_reads_our_messages_in_order() {
    for_each_atm(|stage, version| {
        let id = stage.send("lead", "one");
        assert_eq!(stage.atm_reads(version, "lead"), ["one"]);
        stage.send("lead", "two\n\"quoted\" 😀");
        stage.send("lead", "three");
        assert_eq!(
            stage.atm_reads(version, "lead"),
            ["two\n\"quoted\" 😀", "three"]
        );
        assert_eq!(stage.atm_reads(version, "lead"), [] as [&str; 0]);

        let stored = stage.stored("lead.json");
        assert_eq!(stored[0]["message_id"], id);
        assert!(stored.iter().all(|message| message["read"] == true));
        // A message that atm has shown is read for us too.
        assert_eq!(stage.read_and_mark("lead"), [] as [&str; 0]);
    });
}

#[test]
fn messages_of_atm_are_read_and_marked() {
    for_each_atm(|stage, version| {
        let sent = stage.atm(
            version,
            "atm",
            &["send", "codex", "hello", "--summary", "short"],
        );
        assert_eq!(sent["outcome"], "success");
        stage.atm(version, "atm", &["send", "codex", "again"]);
        let unread = stage.unread("codex");
        let first = &unread.messages[0];
        assert_eq!(first.message, "hello");
        assert_eq!(first.from, "atm");
        assert_eq!(first.summary.as_deref(), Some("short"));
        assert_eq!(first.message_id.as_deref(), sent["message_id"].as_str());

        let pending = stage.mail_store.pending(&name("codex"), &team()).unwrap();
        assert_eq!(pending.senders, [("atm".to_owned(), 2)]);
        let receipts = &unread.receipts[..1];
        let marked = stage
            .mail_store
            .mark_read(&name("codex"), &team(), receipts);
        assert_eq!(marked.unwrap(), 1);
        let left = stage.atm(
            version,
            "codex",
            &["read", "--no-since-last-seen", "--no-mark"],
        );
        let left = left["messages"].as_array().unwrap();
        assert_eq!(texts(left), ["again"]);
    });
}

#[test]
fn broadcast_reaches_all_members() {
    for_each_atm(|stage, version| {
        let sent = stage
            .mail_store
            .broadcast(&codex(), &team(), &content("all"))
            .unwrap();
        let sent: Vec<(String, Option<MessageId>)> = sent
            .into_iter()
            .map(|(to, sent)| (to.to_string(), sent.ok()))
            .collect();
        assert_eq!(sent.len(), 2);
        for (to, id) in sent {
            assert!(id.is_some());
            assert_eq!(stage.atm_reads(version, &to), ["all"]);
        }
        stage.atm(version, "atm", &["broadcast", "to all"]);
        assert_eq!(stage.read_and_mark("codex"), ["to all"]);
    });
}

#[test]
fn unknown_fields_of_messages_are_kept() {
    for_each_atm(|stage, version| {
        let inbox = stage.inbox("lead.json");
        let claude = json!({"from": "b", "text": "{\"type\":\"idle\"}", "color": "blue",
            "timestamp": "2026-02-18T10:00:00.000Z", "read": false, "new": {"a": [1, null]}});
        write_plainly(&inbox, claude.clone());
        stage.send("lead", "ours");
        stage.atm(version, "atm", &["send", "lead", "theirs"]);
        assert_eq!(
            stage.read_and_mark("lead"),
            ["{\"type\":\"idle\"}", "ours", "theirs"]
        );
        stage.send("lead", "more");
        let stored = stage.stored("lead.json");
        let mut expected = claude;
        expected["read"] = json!(true);
        assert_eq!(stored[0], expected);
        // atm shows our message as the newest: the time stamps agree.
        assert_eq!(stage.atm_reads(version, "lead").last().unwrap(), "more");
    });
}

#[test]
fn messages_that_atm_refuses_are_read() {
    for_each_atm(|stage, version| {
        let inbox = stage.inbox("codex.json");
        fs::write(&inbox, "").unwrap();
        // An empty file is an error for atm until we have written to it.
        stage.send("codex", "first");
        stage.atm(version, "atm", &["send", "codex", "second"]);
        write_plainly(&inbox, json!({"from": "new", "content": "third"}));
        write_plainly(&inbox, json!("malformed"));
        assert_eq!(stage.read_and_mark("codex"), ["first", "second", "third"]);
        assert_eq!(stage.stored("codex.json")[3], "malformed");
    });
}

#[test]
fn member_is_known_to_atm_from_join_to_leave() {
    for_each_atm(|stage, version| {
        let note = stage.home.path().join("note");
        let agent = name("joiner");
        let membership = Membership {
            agent: &agent,
            model: "gpt",
            cwd: Path::new("/work"),
        };
        let before = stage.config();
        let joined = stage
            .mail_store
            .join(&team(), &membership, &note, || true)
            .unwrap();
        assert_eq!(joined, JoinOutcome::Added);
        stage.atm(version, "atm", &["send", "joiner", "welcome"]);
        // atm does not add that we are away; it rewrites the sender's own entry.
        assert_eq!(stage.read_and_mark("joiner"), ["welcome"]);
        stage.atm(version, "joiner", &["send", "lead", "hi"]);
        let members = stage.atm(version, "lead", &["members"]);
        assert!(members.to_string().contains("joiner"), "{members}");

        assert_eq!(
            stage.mail_store.leave(&note).unwrap(),
            LeaveOutcome::Removed
        );
        let mut after = stage.config();
        // atm itself marked the sender as active when it sent.
        let sender = after["members"][2].as_object_mut().unwrap();
        sender.remove("isActive");
        sender.remove("lastActive");
        assert_eq!(after, before);
    });
}

#[test]
fn inactive_member_is_inactive_again_after_leaving() {
    for_each_atm(|stage, version| {
        let set = |active: Value| {
            let mut config = stage.config();
            config["members"][1]["isActive"] = active;
            fs::write(stage.team().join("config.json"), config.to_string()).unwrap();
        };
        set(json!(false));
        let note = stage.home.path().join("note");
        let agent = name("codex");
        let membership = Membership {
            agent: &agent,
            model: "gpt",
            cwd: Path::new("/work"),
        };
        let joined = stage
            .mail_store
            .join(&team(), &membership, &note, || true)
            .unwrap();
        assert_eq!(joined, JoinOutcome::Present);
        assert_eq!(stage.config()["members"][1]["isActive"], true);
        stage.atm(version, "atm", &["send", "codex", "while there"]);
        assert_eq!(stage.read_and_mark("codex"), ["while there"]);
        assert_eq!(
            stage.mail_store.leave(&note).unwrap(),
            LeaveOutcome::Restored
        );
        assert_eq!(stage.config()["members"][1]["isActive"], false);
        assert_eq!(stage.config()["members"][1]["unknown"]["kept"], "codex");
    });
}
