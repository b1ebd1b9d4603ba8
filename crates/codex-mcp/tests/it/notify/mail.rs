//! `mail:` notifiers with the real atm, on the files of Claude Code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use agent_team::{MailClient, Member};
use serde_json::{Value, json};

use super::{LINE, NotifierContext, tell, teller};

/// A home directory with the teams `t`, of `lead`, `rust-1` and `codex`, and `other`, of `lead`.
pub(super) struct MailFixture {
    pub(super) home: tempfile::TempDir,
}

impl MailFixture {
    pub(super) fn new() -> Self {
        let stage = Self {
            home: tempfile::tempdir().unwrap(),
        };
        stage.add("t", &["lead", "rust-1", "codex"]);
        stage.add("other", &["lead"]);
        stage
    }

    fn add(&self, team: &str, members: &[&str]) {
        let members: Vec<Value> = members
            .iter()
            .map(|name| {
                json!({"agentId": format!("{name}@{team}"), "name": name, "model": "m",
                    "agentType": "general-purpose", "joinedAt": 1, "cwd": "/"})
            })
            .collect();
        let config = json!({"name": team, "createdAt": 1, "members": members,
            "leadAgentId": format!("lead@{team}"), "leadSessionId": "s"});
        fs::create_dir_all(self.directory(team).join("inboxes")).unwrap();
        fs::write(self.directory(team).join("config.json"), config.to_string()).unwrap();
    }

    pub(super) fn directory(&self, team: &str) -> PathBuf {
        self.home.path().join(".claude/teams").join(team)
    }

    pub(super) fn teller(&self, identity: Option<&str>, team: Option<&str>) -> NotifierContext {
        let member = identity.map(|identity| Member {
            identity: identity.parse().unwrap(),
            team: team.map(|team| team.parse().unwrap()),
        });
        NotifierContext {
            member,
            ..teller(self.home.path().to_owned(), self.home.path())
        }
    }

    fn inbox(&self, team: &str, agent: &str) -> Vec<Value> {
        let file = self.directory(team).join(format!("inboxes/{agent}.json"));
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }

    /// The lines of an identity's audit log, as (outcome, recipient, summary).
    fn audit(&self, identity: &str) -> Vec<[Value; 3]> {
        let directory = self.home.path().join(".config/atm/codex-sessions");
        let text = fs::read_to_string(directory.join(identity).join("audit.jsonl")).unwrap();
        let lines = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["event"], "atm_send");
            ["outcome", "recipient", "summary"].map(|key| line[key].clone())
        });
        lines.collect()
    }

    /// The messages that the real atm shows an agent.
    fn atm_reads(&self, version: &str, identity: &str, team: &str) -> Vec<Value> {
        let output = Command::new(testkit::atm::binary(version))
            .args(["read", "--json"])
            .current_dir(self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("ATM_HOME", self.home.path())
            .env("ATM_IDENTITY", identity)
            .env("ATM_TEAM", team)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let read: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
        });
        read["messages"].as_array().unwrap().clone()
    }
}

const TEXT: &str = "DONE #7 :: https://github.com/o/r/pull/12\n\nMade:\n\
    - pull request https://github.com/o/r/pull/12\n- file a \"b\" $(c) (added)";

#[tokio::test]
async fn letter_is_in_the_inbox_and_in_the_audit() {
    for version in testkit::atm::versions() {
        let stage = MailFixture::new();
        let teller = stage.teller(Some("codex"), Some("t"));
        tell("mail:lead", &teller).await.unwrap();
        let read = stage.atm_reads(version, "lead", "t");
        assert_eq!(read.len(), 1, "{read:?}");
        assert_eq!(
            (&read[0]["from"], &read[0]["text"]),
            (&json!("codex"), &json!(TEXT))
        );
        assert_eq!(stage.inbox("t", "lead")[0]["summary"], LINE);
        let audit = stage.audit("codex");
        let [outcome, recipient, summary] = &audit[0];
        assert_eq!((outcome, recipient), (&json!("begun"), &json!("lead@t")));
        assert!(summary.as_str().unwrap().starts_with(LINE), "{summary}");
        assert_eq!(audit[1][0], "done");
    }
}

#[tokio::test]
async fn sender_without_an_identity_writes_as_codex_mcp() {
    let stage = MailFixture::new();
    tell("mail:lead@t", &stage.teller(None, None))
        .await
        .unwrap();
    let inbox = stage.inbox("t", "lead");
    assert_eq!((inbox.len(), &inbox[0]["from"]), (1, &json!("codex-mcp")));
    assert_eq!(stage.audit("codex-mcp").len(), 2);
    // The sender has not joined the team.
    let config = fs::read_to_string(stage.directory("t").join("config.json")).unwrap();
    assert!(!config.contains("codex-mcp"), "{config}");

    let error = tell("mail:lead", &stage.teller(None, None))
        .await
        .unwrap_err();
    assert!(error.contains("write mail:lead@TEAM"), "{error}");
}

#[tokio::test]
async fn letter_to_another_team_names_the_source_team() {
    let stage = MailFixture::new();
    let teller = stage.teller(Some("codex"), Some("t"));
    tell("mail:lead@other", &teller).await.unwrap();
    let inbox = stage.inbox("other", "lead");
    assert_eq!(
        (&inbox[0]["from"], &inbox[0]["source_team"]),
        (&json!("codex"), &json!("t"))
    );
}

#[tokio::test]
async fn open_mail_client_is_used() {
    let stage = MailFixture::new();
    let teller = stage.teller(Some("codex"), Some("t"));
    let member = teller.member.as_ref().unwrap();
    let mail_client = MailClient::of(member, stage.home.path(), teller.audit_limit);
    let teller = NotifierContext {
        member: None,
        mail_client: mail_client.unwrap(),
        ..teller
    };
    tell("mail:lead", &teller).await.unwrap();
    assert_eq!(stage.inbox("t", "lead")[0]["from"], "codex");
}

#[tokio::test]
async fn audit_log_of_the_sender_is_bounded() {
    let stage = MailFixture::new();
    let teller = NotifierContext {
        audit_limit: 1000,
        ..stage.teller(Some("codex"), Some("t"))
    };
    for _ in 0..5 {
        tell("mail:lead", &teller).await.unwrap();
    }
    let older = ".config/atm/codex-sessions/codex/audit.jsonl.1";
    assert!(stage.home.path().join(older).exists());
}

#[tokio::test]
async fn missing_inbox_directory_is_created_and_a_missing_team_is_not() {
    let stage = MailFixture::new();
    fs::remove_dir(stage.directory("t").join("inboxes")).unwrap();
    let teller = stage.teller(Some("codex"), Some("t"));
    tell("mail:lead", &teller).await.unwrap();
    assert_eq!(stage.inbox("t", "lead").len(), 1);

    for member in [Some("codex"), None] {
        let teller = stage.teller(member, member.map(|_| "t"));
        let error = tell("mail:lead@nowhere", &teller).await.unwrap_err();
        assert!(error.starts_with("there is no team nowhere"), "{error}");
    }
    let lost = stage.teller(Some("codex"), Some("lost"));
    let error = tell("mail:lead", &lost).await.unwrap_err();
    assert!(error.starts_with("there is no team lost"), "{error}");
    for team in ["nowhere", "lost"] {
        assert!(!stage.directory(team).exists());
    }
}

#[tokio::test]
async fn agent_outside_the_team_gets_no_inbox() {
    let stage = MailFixture::new();
    let teller = stage.teller(Some("codex"), Some("t"));
    let error = tell("mail:nobody", &teller).await.unwrap_err();
    assert_eq!(
        error,
        "team t has no member nobody; its members are: lead, rust-1, codex"
    );
    let inboxes = fs::read_dir(stage.directory("t").join("inboxes")).unwrap();
    assert_eq!(inboxes.count(), 0);
    assert_eq!(stage.audit("codex")[1][0], "failed");
}

#[tokio::test]
async fn letter_is_not_sent_without_a_home_or_an_audit() {
    let nobody = teller(PathBuf::new(), Path::new("/"));
    let error = tell("mail:lead@t", &nobody).await.unwrap_err();
    assert!(error.contains("neither ATM_HOME nor HOME"), "{error}");

    let stage = MailFixture::new();
    fs::write(stage.home.path().join(".config"), "in the way").unwrap();
    let teller = stage.teller(Some("codex"), Some("t"));
    let error = tell("mail:lead", &teller).await.unwrap_err();
    assert!(error.contains("nothing was done"), "{error}");
    assert!(!stage.directory("t").join("inboxes/lead.json").exists());
}

#[tokio::test]
async fn lock_of_another_writer_is_waited_for_up_to_the_timeout() {
    let stage = MailFixture::new();
    let inbox = stage.directory("t").join("inboxes/lead.json");
    fs::write(&inbox, "[]").unwrap();
    // Claude Code's lock.
    fs::create_dir(inbox.with_extension("json.lock")).unwrap();
    let mut teller = stage.teller(Some("codex"), Some("t"));
    teller.timeouts.mail = Duration::from_secs(2);
    let error = tell("mail:lead", &teller).await.unwrap_err();
    assert!(error.contains("not sent within 2 s"), "{error}");
}
