//! Mail of an agent that has kept 10,000 messages, beside the program atm doing the
//! same, as a process of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use agent_team::logic::inbox::unread::ReadLimits;
use agent_team::logic::{AgentName, TeamName};
use agent_team::mail::{MailStore, MessageContent, Sender, Unread};
use serde_json::{Value, json};

use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

const STORED: usize = 10_000;
const UNREAD: usize = 10;

/// In seconds.
const SEND: f64 = 0.025;
const READ: f64 = 0.025;
const PENDING: f64 = 0.010;

/// The agents with full inboxes, one for each side.
const OURS: &str = "ours";
const THEIRS: &str = "theirs";

pub(crate) fn measure(rounds: u16) -> Vec<Row> {
    let mail_client = MailFixture::new();
    let look = ["read", THEIRS, "--no-since-last-seen", "--no-mark"];
    let read = ["read", THEIRS, "--no-since-last-seen"];
    let send = ["send", THEIRS, "hello", "--summary", "hello"];
    let pair = |figure, most, ours: &dyn Fn(), theirs: &[&str]| {
        mail_client.compare(figure, most, rounds, ours, &|| mail_client.atm(theirs))
    };
    vec![
        pair(
            "counting unread of 10,000",
            PENDING,
            &|| mail_client.count(),
            &["inbox"],
        ),
        pair(
            "reading 10 unread of 10,000",
            READ,
            &|| drop(mail_client.unread()),
            &look,
        ),
        pair(
            "reading them, and marking",
            READ + SEND,
            &|| mail_client.mark(),
            &read,
        ),
        pair(
            "sending to one with 10,000",
            SEND,
            &|| mail_client.send(),
            &send,
        ),
    ]
}

fn version() -> &'static str {
    testkit::atm::versions().last().unwrap()
}

/// A home with the two inboxes.
struct MailFixture {
    home: tempfile::TempDir,
    mail_store: MailStore,
    team: TeamName,
    full: String,
}

impl MailFixture {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mail_store = MailStore::new(home.path());
        let team = home.path().join(".claude/teams/t");
        fs::create_dir_all(team.join("inboxes")).unwrap();
        let member = |name: &str| {
            json!({"agentId": format!("{name}@t"), "name": name, "agentType": "general-purpose",
                "model": "m", "joinedAt": 1, "cwd": "/"})
        };
        let config = json!({"name": "t", "createdAt": 1, "leadAgentId": "ours@t",
            "leadSessionId": "s", "members": [member(OURS), member(THEIRS)]});
        fs::write(team.join("config.json"), config.to_string()).unwrap();
        let messages: Vec<Value> = (0..STORED).map(message).collect();
        let mail_client = Self {
            home,
            mail_store,
            team: "t".parse().unwrap(),
            full: serde_json::to_string_pretty(&messages).unwrap(),
        };
        mail_client.fill();
        mail_client
    }

    fn compare(
        &self,
        figure: &'static str,
        most: f64,
        rounds: u16,
        ours: &dyn Fn(),
        theirs: &dyn Fn(),
    ) -> Row {
        let seconds = |work: &dyn Fn()| {
            self.fill();
            let begin = Instant::now();
            work();
            begin.elapsed().as_secs_f64()
        };
        // The first of each reads programs from the disk.
        seconds(ours);
        seconds(theirs);
        let (mut own, mut direct) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(seconds(ours));
            direct.push(seconds(theirs));
        }
        let peer = format!("direct: atm {}, with the start of its process", version());
        Row {
            figure,
            unit: Unit::Seconds,
            ours: Summary::of(own),
            direct: Some(Summary::of(direct)),
            target: Target::AtMost(most),
            notes: vec![peer],
        }
    }

    fn fill(&self) {
        for name in [OURS, THEIRS] {
            fs::write(self.inbox(name), &self.full).unwrap();
        }
    }

    fn inbox(&self, name: &str) -> PathBuf {
        let inboxes = self.home.path().join(".claude/teams/t/inboxes");
        inboxes.join(format!("{name}.json"))
    }

    fn send(&self) {
        let sender = Sender {
            identity: agent(THEIRS),
            team: Some(self.team.clone()),
        };
        let content = MessageContent {
            text: "hello".to_owned(),
            summary: Some("hello".to_owned()),
        };
        let sent = self
            .mail_store
            .send(&sender, &agent(OURS), &self.team, &content);
        sent.unwrap();
    }

    fn unread(&self) -> Unread {
        let limits = ReadLimits {
            max_messages: UNREAD,
            max_length: 4096,
        };
        let unread = self.mail_store.unread(&agent(OURS), &self.team, limits);
        let unread = unread.unwrap();
        assert_eq!(unread.messages.len(), UNREAD);
        unread
    }

    /// As a tool does it: read, hand over, mark.
    fn mark(&self) {
        let unread = self.unread();
        let marked = self
            .mail_store
            .mark_read(&agent(OURS), &self.team, &unread.receipts);
        assert_eq!(marked.unwrap(), UNREAD);
    }

    fn count(&self) {
        let pending = self.mail_store.pending(&agent(OURS), &self.team).unwrap();
        assert_eq!(pending.count, UNREAD);
    }

    fn atm(&self, args: &[&str]) {
        let status = Command::new(testkit::atm::binary(version()))
            .args(args)
            .current_dir(self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("ATM_HOME", self.home.path())
            .env("ATM_IDENTITY", OURS)
            .env("ATM_TEAM", "t")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "atm {args:?}: {status}");
    }
}

fn agent(name: &str) -> AgentName {
    name.parse().unwrap()
}

/// As atm writes them; the last are unread.
fn message(number: usize) -> Value {
    json!({
        "from": "somebody",
        "text": format!("Message {number}: the tests of the second part pass now, please go on."),
        "timestamp": format!("2026-02-18T10:00:00.{number:09}+00:00"),
        "read": number < STORED - UNREAD,
        "summary": format!("Message {number}"),
        "message_id": format!("00000000-0000-4000-8000-{number:012}"),
    })
}
