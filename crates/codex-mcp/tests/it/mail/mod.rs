//! Mail in files that others write too, with the real `atm` programs.

mod concurrency;
mod interop;
pub(crate) mod killed;
mod locks;
mod writer;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_team::logic::inbox::unread::ReadLimits;
use agent_team::logic::{AgentName, TeamName};
use agent_team::mail::{MailError, MailStore, MessageContent, Sender, Unread};
use serde_json::{Value, json};

/// How often mail is marked as read: on a busy machine, many writers can keep the lock for longer
/// than one wait (5 s), and a client calls again then.
const TRIES: usize = 10;

/// A home directory with a team `t` of `lead`, `codex` and `atm`.
struct TeamFixture {
    home: tempfile::TempDir,
    mail_store: MailStore,
}

impl TeamFixture {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mail_store = MailStore::new(home.path());
        let stage = Self { home, mail_store };
        let members: Vec<Value> = ["lead", "codex", "atm"]
            .iter()
            .map(|name| {
                json!({"agentId": format!("{name}@t"), "name": name, "agentType": "general-purpose",
                    "model": "m", "joinedAt": 1, "cwd": "/", "unknown": {"kept": name}})
            })
            .collect();
        let config = json!({"name": "t", "createdAt": 1, "leadAgentId": "lead@t",
            "leadSessionId": "s", "members": members, "unknown": ["kept"]});
        fs::create_dir_all(stage.team().join("inboxes")).unwrap();
        fs::write(stage.team().join("config.json"), config.to_string()).unwrap();
        stage
    }

    fn team(&self) -> PathBuf {
        self.home.path().join(".claude/teams/t")
    }

    fn inbox(&self, file: &str) -> PathBuf {
        self.team().join("inboxes").join(file)
    }

    /// The messages in an inbox.
    fn stored(&self, file: &str) -> Vec<Value> {
        serde_json::from_slice(&fs::read(self.inbox(file)).unwrap()).unwrap()
    }

    fn config(&self) -> Value {
        serde_json::from_slice(&fs::read(self.team().join("config.json")).unwrap()).unwrap()
    }

    /// Sends as `codex`.
    fn send(&self, to: &str, text: &str) -> String {
        let sent = self
            .mail_store
            .send(&codex(), &name(to), &team(), &content(text));
        sent.unwrap().to_string()
    }

    fn unread(&self, agent: &str) -> Unread {
        let limits = ReadLimits {
            max_messages: 10,
            max_length: 4096,
        };
        self.mail_store
            .unread(&name(agent), &team(), limits)
            .unwrap()
    }

    /// Reads the unread messages and marks them as read.
    fn read_and_mark(&self, agent: &str) -> Vec<String> {
        let unread = self.unread(agent);
        let mark = || {
            self.mail_store
                .mark_read(&name(agent), &team(), &unread.receipts)
        };
        let is_busy = |marked: &Result<_, _>| matches!(marked, Err(MailError::Busy { .. }));
        let mut tries = std::iter::repeat_with(mark).take(TRIES);
        let marked = tries.find(|marked| !is_busy(marked));
        // `None`: others have kept the lock all the time.
        assert_eq!(marked.unwrap().unwrap(), unread.messages.len());
        let messages = unread.messages.into_iter();
        messages.map(|envelope| envelope.message).collect()
    }

    /// Runs a real atm as a member of the team and returns its JSON.
    fn atm(&self, version: &str, identity: &str, args: &[&str]) -> Value {
        let output = Command::new(testkit::atm::binary(version))
            .args(args)
            .arg("--json")
            .current_dir(self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("ATM_HOME", self.home.path())
            .env("ATM_IDENTITY", identity)
            .env("ATM_TEAM", "t")
            .output()
            .unwrap();
        let [out, err] = [&output.stdout, &output.stderr].map(|out| String::from_utf8_lossy(out));
        assert!(
            output.status.success(),
            "atm {version} {args:?}: {out}{err}"
        );
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// The texts of the messages that an atm shows for the first time, which marks them as read.
    /// (0.45.2 shows a message again and again until it is acknowledged.)
    fn atm_reads(&self, version: &str, identity: &str) -> Vec<String> {
        let read = self.atm(version, identity, &["read"]);
        let messages = read["messages"].as_array().unwrap().iter();
        let new = messages.filter(|message| message["read"] == false);
        new.map(|message| text(&message["text"])).collect()
    }
}

/// Appends a message to the inbox and writes the file in place, as a peer does under its own lock.
fn write_plainly(inbox: &Path, message: Value) {
    let text = fs::read_to_string(inbox).unwrap_or_else(|_| "[]".into());
    let mut messages: Vec<Value> = serde_json::from_str(&text).unwrap();
    messages.push(message);
    fs::write(inbox, serde_json::to_string_pretty(&messages).unwrap()).unwrap();
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn texts(messages: &[Value]) -> Vec<String> {
    messages
        .iter()
        .map(|message| text(&message["text"]))
        .collect()
}

fn name(name: &str) -> AgentName {
    name.parse().unwrap()
}

fn team() -> TeamName {
    "t".parse().unwrap()
}

fn sender(identity: &str) -> Sender {
    Sender {
        identity: name(identity),
        team: Some(team()),
    }
}

fn codex() -> Sender {
    sender("codex")
}

fn content(text: &str) -> MessageContent {
    MessageContent {
        text: text.to_owned(),
        summary: None,
    }
}
