//! With the real program atm, on the files of Claude Code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use agent_team::{MailClient, Member};
use serde_json::{Value, json};

use super::{LINE, Teller, tell, teller};

/// A home directory with the teams `t`, of `lead` and `codex`, and `other`, of `lead`.
struct Stage {
    home: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self {
            home: tempfile::tempdir().unwrap(),
        };
        stage.add("t", &["lead", "codex"]);
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

    fn directory(&self, team: &str) -> PathBuf {
        self.home.path().join(".claude/teams").join(team)
    }

    fn teller(&self, identity: Option<&str>, team: Option<&str>) -> Teller {
        let member = identity.map(|identity| Member {
            identity: identity.parse().unwrap(),
            team: team.map(|team| team.parse().unwrap()),
        });
        Teller {
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

    /// What the real atm shows an agent.
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
async fn the_letter_is_in_the_inbox_as_atm_reads_it_and_in_the_audit() {
    for version in testkit::atm::versions() {
        let stage = Stage::new();
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
async fn who_has_no_name_writes_as_codex_mcp() {
    let stage = Stage::new();
    tell("mail:lead@t", &stage.teller(None, None))
        .await
        .unwrap();
    let inbox = stage.inbox("t", "lead");
    assert_eq!((inbox.len(), &inbox[0]["from"]), (1, &json!("codex-mcp")));
    assert_eq!(stage.audit("codex-mcp").len(), 2);
    // It has not joined.
    let config = fs::read_to_string(stage.directory("t").join("config.json")).unwrap();
    assert!(!config.contains("codex-mcp"), "{config}");

    let error = tell("mail:lead", &stage.teller(None, None))
        .await
        .unwrap_err();
    assert!(error.contains("write mail:lead@TEAM"), "{error}");
}

#[tokio::test]
async fn another_team_learns_from_which_one_it_comes() {
    let stage = Stage::new();
    let teller = stage.teller(Some("codex"), Some("t"));
    tell("mail:lead@other", &teller).await.unwrap();
    let inbox = stage.inbox("other", "lead");
    assert_eq!(
        (&inbox[0]["from"], &inbox[0]["source_team"]),
        (&json!("codex"), &json!("t"))
    );
}

#[tokio::test]
async fn a_desk_that_is_open_is_used() {
    let stage = Stage::new();
    let teller = stage.teller(Some("codex"), Some("t"));
    let mail_client = MailClient::of(teller.member.as_ref().unwrap(), stage.home.path());
    let teller = Teller {
        member: None,
        mail_client: mail_client.unwrap(),
        ..teller
    };
    tell("mail:lead", &teller).await.unwrap();
    assert_eq!(stage.inbox("t", "lead")[0]["from"], "codex");
}

#[tokio::test]
async fn a_missing_directory_of_inboxes_is_made_and_a_missing_team_is_not() {
    let stage = Stage::new();
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
async fn an_agent_that_is_not_in_the_team_gets_no_inbox() {
    let stage = Stage::new();
    let teller = stage.teller(Some("codex"), Some("t"));
    let error = tell("mail:nobody", &teller).await.unwrap_err();
    assert_eq!(
        error,
        "team t has no member nobody; its members are: lead, codex"
    );
    let inboxes = fs::read_dir(stage.directory("t").join("inboxes")).unwrap();
    assert_eq!(inboxes.count(), 0);
    assert_eq!(stage.audit("codex")[1][0], "failed");
}

#[tokio::test]
async fn without_a_home_or_an_audit_nothing_is_sent() {
    let nobody = teller(PathBuf::new(), Path::new("/"));
    let error = tell("mail:lead@t", &nobody).await.unwrap_err();
    assert!(error.contains("neither ATM_HOME nor HOME"), "{error}");

    let stage = Stage::new();
    fs::write(stage.home.path().join(".config"), "in the way").unwrap();
    let teller = stage.teller(Some("codex"), Some("t"));
    let error = tell("mail:lead", &teller).await.unwrap_err();
    assert!(error.contains("nothing was sent"), "{error}");
    assert!(!stage.directory("t").join("inboxes/lead.json").exists());
}

#[tokio::test]
async fn locks_of_others_are_not_waited_for_longer_than_asked() {
    let stage = Stage::new();
    let inbox = stage.directory("t").join("inboxes/lead.json");
    fs::write(&inbox, "[]").unwrap();
    // As Claude Code locks it.
    fs::create_dir(inbox.with_extension("json.lock")).unwrap();
    let mut teller = stage.teller(Some("codex"), Some("t"));
    teller.patience.mail = Duration::from_secs(2);
    let error = tell("mail:lead", &teller).await.unwrap_err();
    assert!(error.contains("not sent within 2 s"), "{error}");
}
