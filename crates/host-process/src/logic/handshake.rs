//! The first lines of each side of a connection.
//!
//! ```text
//!   client ◄── Challenge ── host
//!          ─── Request ───►       after the file of the challenge was made
//!          ◄── Answer ─────
//!          ◄── MCP ───────►       after Answer::Serving
//! ```

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use codex_protocol::codex::TokenCount;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest first line of a client, in bytes.
pub const LINE_LIMIT: usize = 1 << 20;

/// The longest first line of a host, in bytes. A session takes up to 5 kB, most of it the path
/// of its directory, and a host has up to 1,000 of them. The result of a task has up to some MiB.
pub const ANSWER_LIMIT: usize = 8 << 20;

/// How many open questions of a session a host tells, the oldest first.
pub const MOST_QUESTIONS: usize = 200;

/// A request of a client to a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// To be served.
    Serve(ServeRequest),
    /// To be told about the host.
    Status,
    /// To be told about its sessions.
    Sessions,
    /// To do something with a session.
    Session(SessionRequest),
    /// To do something with a task, in a form that the program knows.
    Task(Value),
    /// To be told what happens, in one answer after the other, until the connection is closed.
    Watch(WatchRequest),
    /// That the host ends.
    Stop,
    /// That the host ends, and the next one continues its turns. A host of an older version refuses.
    Restart,
}

/// A client that wants to be served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServeRequest {
    /// The arguments of its command line, without the name of the program.
    pub args: Vec<String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// What it has found out about its stdin and stdout, in a form that the program knows.
    pub stdio: Value,
    /// An ID that no other client has. It stays the same with the next host.
    pub client: String,
    /// The key of the clients with which it shares an identity. `None` has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_key: Option<String>,
}

/// A request about one session, from a person at a terminal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// The ID of the session, or a prefix of it.
    pub session: String,
    /// What to do.
    pub act: SessionAct,
}

/// The news that a watcher wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WatchRequest {
    /// All sessions, whenever one of them has changed: [`Answer::Sessions`].
    Sessions,
    /// The events of a session as they come: [`SessionAnswer::News`].
    Session {
        /// The ID of the session, or a prefix of it.
        session: String,
        /// The number of the first event.
        from: u64,
    },
}

/// An act on a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SessionAct {
    /// List its open questions.
    Look,
    /// Answer a question.
    Answer {
        /// The ID of the question.
        question: String,
        /// The decision, in Codex's words.
        decision: Value,
        /// The reason, for the session's log.
        reason: Option<String>,
        /// Where the person has decided.
        door: Door,
    },
    /// Add a text to its turn.
    Steer {
        /// The text.
        text: String,
    },
    /// Interrupt its turn.
    Interrupt,
    /// Cancel it.
    Cancel {
        /// Where the person has decided.
        door: Door,
    },
    /// Tell how Codex's own program is opened on it.
    Attach,
    /// Tell its events.
    Events {
        /// The number of the first one.
        from: u64,
    },
}

/// Where a person has decided something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// At a terminal.
    Terminal,
    /// In the web page.
    Page,
}

/// A host's answer to a request about a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SessionAnswer {
    /// The host has no such session.
    Unknown,
    /// It cannot be done.
    Refused {
        /// Why, in words.
        why: String,
    },
    /// It is done.
    Done,
    /// The session with its open questions.
    Found {
        /// Its whole ID.
        session: String,
        /// Its open questions, in a form that the program knows.
        questions: Vec<Value>,
    },
    /// How Codex's own program is opened on the session.
    Attach(AttachAnswer),
    /// Events of the session.
    Events {
        /// The events, oldest first.
        events: Vec<SessionEvent>,
        /// The number of the next one.
        next: u64,
        /// The number of the first event that the log has ever had, as in
        /// [`News`](SessionAnswer::News). An older host does not tell it.
        #[serde(default)]
        first: u64,
        /// Whether a turn runs.
        is_running: bool,
    },
    /// News that the watcher has not received yet.
    News {
        /// The news, oldest first.
        news: Vec<SessionNews>,
        /// The number of the first event that the log has ever had: a host that takes a session over
        /// begins its log anew.
        first: u64,
        /// The number of the next event.
        next: u64,
    },
}

/// An item of news for a watcher of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SessionNews {
    /// An event, whose data have its number.
    Event(SessionEvent),
    /// A prompt, or a text that was added to a turn.
    Prompt {
        /// The number of the first event after it.
        before: u64,
        /// When Codex took it.
        at: SystemTime,
        /// The text.
        text: String,
    },
    /// All changes of files by the running turn, or else the last one, as a unified diff.
    Diff(String),
    /// More of the text of an event.
    More {
        /// The number of the event.
        id: u64,
        /// The text to append.
        text: String,
    },
}

impl SessionNews {
    /// The number of an event; other news have none.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Event(event) => event.data.get("id")?.as_u64(),
            _ => None,
        }
    }
}

/// How Codex's own program is opened on a session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachAnswer {
    /// The program.
    pub program: PathBuf,
    /// The address to which it connects.
    pub address: String,
    /// The secret that it needs there.
    pub token: String,
    /// The ID of the thread.
    pub thread: String,
    /// The working directory of the thread, if it is known.
    pub directory: Option<PathBuf>,
}

impl Debug for AttachAnswer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // No log may have the token.
        f.debug_struct("AttachAnswer")
            .field("program", &self.program)
            .field("address", &self.address)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionEvent {
    /// When it happened.
    pub at: SystemTime,
    /// The line that people see, if any.
    pub words: Option<String>,
    /// Its data, as `codex_check` has them.
    pub data: Value,
}

/// The answer of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The client is served from now on.
    Serving,
    /// The client is not served.
    Refused {
        /// Why, in words.
        why: String,
    },
    /// The state of the host.
    Status(HostStatus),
    /// The sessions of the host.
    Sessions(Vec<SessionSummary>),
    /// About a session.
    Session(SessionAnswer),
    /// About a task, in a form that the program knows.
    Task(Value),
    /// The host ends now.
    Stopping,
    /// The host ends now, and the next one takes over its sessions.
    HandingOver,
    /// The host does not restart, as turns would end.
    Busy {
        /// The ID of its process.
        pid: u32,
        /// How many turns.
        turns: usize,
    },
}

/// The state of a host. One of a newer version may say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// The ID of its process.
    pub pid: u32,
    /// The version of its program.
    pub version: String,
    /// How long it has been running.
    pub uptime: Duration,
    /// How many clients it serves.
    pub clients: usize,
}

/// A session of a host. One of a newer version may say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Its ID.
    pub session: String,
    /// The ID of its thread.
    pub thread: String,
    /// The beginning of its first prompt, in one line without hidden characters.
    pub title: Option<String>,
    /// Its state, as `codex_session` has it.
    pub state: String,
    /// When it began.
    pub created: SystemTime,
    /// The current step of its turn, if one runs.
    pub step: Option<StepSummary>,
    /// The tokens of its thread, if Codex has reported them.
    pub tokens: Option<u64>,
    /// The same tokens with their model. A host of an older version tells none.
    pub usage: Option<ModelUsage>,
    /// The IDs of its open questions.
    pub questions: Vec<String>,
    /// When each of them is declined unless somebody answers. It changes when a client shows them.
    #[serde(default)]
    pub expiries: Vec<SystemTime>,
    /// Its working directory, if it is known.
    pub directory: Option<PathBuf>,
    /// The bounds under which it began, as a digest. A host of an older version tells none.
    #[serde(default)]
    pub bounds: String,
}

/// The tokens of a thread that has used one known model only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// The model: up to 200 bytes of text that Codex has reported.
    pub model: String,
    /// The tokens.
    pub tokens: TokenCount,
}

/// The current step of a turn. A host of a newer version may say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSummary {
    /// A description: one line without hidden characters.
    pub words: String,
    /// When it began.
    pub since: SystemTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_stable_form() {
        let request = Request::Serve(ServeRequest {
            args: vec!["serve".to_owned()],
            directory: "/work".into(),
            stdio: Value::Null,
            client: "c".to_owned(),
            identity_key: None,
        });
        let json = serde_json::to_string(&request).unwrap();
        assert_eq!(
            json,
            r#"{"serve":{"args":["serve"],"directory":"/work","stdio":null,"client":"c"}}"#
        );
        assert_eq!(serde_json::from_str::<Request>(&json).unwrap(), request);
        for (answer, json) in [
            (Answer::Serving, r#""serving""#),
            (Answer::HandingOver, r#""handing_over""#),
            (
                Answer::Busy { pid: 7, turns: 2 },
                r#"{"busy":{"pid":7,"turns":2}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&answer).unwrap(), json);
        }
        let json = serde_json::to_string(&Request::Restart).unwrap();
        assert_eq!(json, r#""restart""#);
        assert!(serde_json::from_str::<Request>(r#"{"format":"/"}"#).is_err());
    }

    #[test]
    fn unknown_members_of_a_newer_host_are_ignored() {
        let status = Answer::Status(HostStatus {
            pid: 7,
            version: "9.0.0".to_owned(),
            uptime: Duration::from_secs(1),
            clients: 2,
        });
        let sessions = Answer::Sessions(vec![SessionSummary {
            session: "sess_1".to_owned(),
            thread: "t".to_owned(),
            title: None,
            state: "running".to_owned(),
            created: SystemTime::UNIX_EPOCH,
            step: Some(StepSummary {
                words: "reads".to_owned(),
                since: SystemTime::UNIX_EPOCH,
            }),
            tokens: None,
            usage: Some(ModelUsage {
                model: "m".to_owned(),
                tokens: TokenCount::default(),
            }),
            questions: Vec::new(),
            expiries: Vec::new(),
            directory: None,
            bounds: "b".to_owned(),
        }]);
        for (answer, objects) in [(status, 1), (sessions, 3)] {
            let mut newer = serde_json::to_string(&answer).unwrap();
            for first in ["\"pid\"", "\"session\"", "\"words\"", "\"model\""] {
                newer = newer.replace(first, &format!("\"new\":1,{first}"));
            }
            assert_eq!(newer.matches("\"new\"").count(), objects);
            assert_eq!(serde_json::from_str::<Answer>(&newer).unwrap(), answer);
        }
    }

    #[test]
    fn session_of_an_older_host_has_no_usage() {
        let json = r#"{"session":"s","thread":"t","title":null,"state":"idle",
            "created":{"secs_since_epoch":0,"nanos_since_epoch":0},"step":null,"tokens":7,
            "questions":[],"directory":null}"#;
        let summary: SessionSummary = serde_json::from_str(json).unwrap();
        assert_eq!((summary.tokens, summary.usage), (Some(7), None));
    }
}
