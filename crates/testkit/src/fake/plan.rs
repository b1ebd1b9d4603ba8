//! The plan of the fake Codex, which a test writes and the fake reads.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The error code of an overloaded app-server.
const OVERLOADED: i64 = -32001;

/// The rules of the fake Codex. Where no rule fits, it behaves like the real one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    rules: Vec<Rule>,
}

/// The actions for one occasion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    when: Occasion,
    /// Which occasion within one process, from 1; every one if none is named.
    nth: Option<u32>,
    /// Which process, in the order of their starts, from 1; every one if none is
    /// named.
    launch: Option<u32>,
    actions: Vec<Action>,
}

/// An occasion for actions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Occasion {
    /// Before anything is read.
    Start,
    /// On a request or a notification of this method.
    Request(String),
}

/// One action. The actions of a list are done in order; those of different requests run at the
/// same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// All that a well-behaved Codex would do: answer, and run the turn if it is a
    /// request for one.
    Proceed,
    /// The proper answer to the request, and no turn.
    Answer,
    /// The proper answer, twice.
    AnswerTwice,
    /// The first half of the proper answer's line, without a newline.
    HalfAnswer,
    /// Nothing: the request stays without an answer, the process lives on.
    Hang,
    /// An error as the answer.
    Error {
        /// The JSON-RPC error code.
        code: i64,
        /// Its message.
        message: String,
    },
    /// An answer to a request that nobody sent.
    AnswerUnknownId,
    /// The proper answer, under the id of another request, as `codex mcp-server`
    /// does in a thread of which a call was cancelled.
    AnswerUnder {
        /// The other id.
        id: Value,
    },
    /// Announces the turn and shows the prompt.
    StartTurn,
    /// A message of the agent, in several deltas.
    Say {
        /// The message.
        text: String,
    },
    /// Runs a whole turn: a script of `sh` in the thread's directory and in a session of
    /// its own, with the prompt as `$1`. Each line that it prints as a JSON object is an
    /// item. A script that fails makes the turn fail, with what it has written to stderr.
    Run {
        /// The script.
        script: String,
    },
    /// Ends the turn.
    EndTurn(TurnEnd),
    /// A request of the server. The actions after it wait for the answer, which is
    /// in the log. The ids of thread, turn and item are added where the parameters
    /// leave them out.
    Ask {
        /// Its method, known to anybody or not.
        method: String,
        /// Its parameters.
        params: Value,
    },
    /// Several requests of the server at once. The actions after them wait for all
    /// the answers.
    AskTogether(Vec<Question>),
    /// A notification.
    Notify {
        /// Its method, known to anybody or not.
        method: String,
        /// Its parameters. The ids of thread and turn are added where they leave
        /// them out.
        params: Value,
    },
    /// Many message deltas, as fast as they are read.
    Flood {
        /// How many.
        notifications: u64,
    },
    /// One valid message delta on one very long line.
    GiantLine {
        /// The length of the line with its newline.
        bytes: usize,
    },
    /// Bytes on stdout, as they are.
    Write {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A line on stderr.
    WriteStderr {
        /// The line.
        text: String,
    },
    /// Waits until the test opens the gate of this name, see
    /// [`FakeCodex::open_gate`](super::FakeCodex::open_gate).
    Gate {
        /// The name, which becomes part of a file name.
        name: String,
    },
    /// Waits.
    Sleep {
        /// How long.
        milliseconds: u64,
    },
    /// Starts a `sleep` that nobody waits for.
    SpawnSleep {
        /// How long it sleeps.
        seconds: u32,
        /// The session of the process.
        session: Session,
        /// The targets of its stdin, stdout and stderr.
        stdio: Stdio,
    },
    /// From now on SIGTERM is noted in the log and otherwise ignored.
    IgnoreSigterm,
    /// From now on the end of stdin is noted in the log and otherwise ignored.
    IgnoreEof,
    /// Exits.
    Exit {
        /// The exit code.
        code: u8,
    },
    /// Sends itself a signal.
    Kill {
        /// The number of the signal.
        signal: i32,
    },
}

/// How a turn ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TurnEnd {
    /// The turn completed.
    Completed,
    /// The turn was interrupted.
    Interrupted,
    /// The turn failed, with this message.
    Failed(String),
    /// The turn failed, with this message and this `codexErrorInfo`.
    FailedFor(String, Value),
}

/// A request of the server, as in [`Action::Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its method.
    pub method: String,
    /// Its parameters.
    pub params: Value,
}

/// The session of a process that the fake starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Session {
    /// One of its own, as the commands have that the real Codex runs: killing the
    /// process group of the fake leaves it alive.
    Own,
    /// The fake's.
    Shared,
}

/// The stdin, stdout and stderr of a process that the fake starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stdio {
    /// The fake's: its stdout has no end for the reader while the process lives.
    Inherited,
    /// `/dev/null`.
    Null,
}

impl Action {
    /// An answer that says that the server is overloaded.
    #[must_use]
    pub fn overloaded() -> Self {
        Self::Error {
            code: OVERLOADED,
            message: "Server overloaded; retry later.".to_owned(),
        }
    }

    /// A line that is neither JSON nor UTF-8.
    #[must_use]
    pub fn garbage() -> Self {
        Self::Write {
            bytes: b"\xff\xfe{garbage\x00\xc3(\n".to_vec(),
        }
    }

    /// Asks whether this command may run.
    #[must_use]
    pub fn ask_approval(command: &str) -> Self {
        let Question { method, params } = Question::approval(command);
        Self::Ask { method, params }
    }

    /// Asks whether this command may run, as `codex mcp-server` does.
    #[must_use]
    pub fn elicit_approval(command: &str) -> Self {
        let Question { method, params } = Question::elicitation(command);
        Self::Ask { method, params }
    }

    /// Waits until the test opens this gate.
    #[must_use]
    pub fn gate(name: &str) -> Self {
        Self::Gate {
            name: name.to_owned(),
        }
    }

    /// A message of the agent.
    #[must_use]
    pub fn say(text: &str) -> Self {
        Self::Say {
            text: text.to_owned(),
        }
    }
}

impl Question {
    /// An approval request for a command.
    #[must_use]
    pub fn approval(command: &str) -> Self {
        Self {
            method: "item/commandExecution/requestApproval".to_owned(),
            params: json!({
                "kind": "command",
                "startedAtMs": 0,
                "environmentId": "local",
                "reason": "the plan says so",
                "command": command,
                "commandActions": [{"type": "unknown", "command": command}],
                "availableDecisions": ["accept", "cancel"],
            }),
        }
    }

    /// The approval request of `codex mcp-server` for a command.
    #[must_use]
    pub fn elicitation(command: &str) -> Self {
        Self {
            method: "elicitation/create".to_owned(),
            params: json!({
                "message": format!("Allow Codex to run `{command}`?"),
                "requestedSchema": {"type": "object", "properties": {}},
                "codex_elicitation": "exec-approval",
                "codex_call_id": format!("call-{command}"),
                "codex_command": ["/bin/sh", "-c", command],
                "codex_cwd": "/",
                "codex_parsed_cmd": [{"type": "unknown", "cmd": command}],
            }),
        }
    }
}

impl Plan {
    /// A Codex that behaves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The actions before anything is read.
    #[must_use]
    pub fn at_start(self, actions: impl Into<Vec<Action>>) -> Self {
        self.rule(Occasion::Start, actions)
    }

    /// The actions on a request or notification of this method, in place of those of a
    /// well-behaved Codex. Of several rules that fit, the last one given counts.
    #[must_use]
    pub fn on(self, method: &str, actions: impl Into<Vec<Action>>) -> Self {
        self.rule(Occasion::Request(method.to_owned()), actions)
    }

    /// Lets the last rule hold for one occasion within a process only, from 1.
    ///
    /// # Panics
    /// If there is no rule yet.
    #[must_use]
    pub fn nth(mut self, nth: u32) -> Self {
        self.rules.last_mut().unwrap().nth = Some(nth);
        self
    }

    /// Lets the last rule hold in one process only, by the order of their starts,
    /// from 1: the first crashes and the one started after it behaves.
    ///
    /// # Panics
    /// If there is no rule yet.
    #[must_use]
    pub fn in_launch(mut self, launch: u32) -> Self {
        self.rules.last_mut().unwrap().launch = Some(launch);
        self
    }

    fn rule(mut self, when: Occasion, actions: impl Into<Vec<Action>>) -> Self {
        self.rules.push(Rule {
            when,
            nth: None,
            launch: None,
            actions: actions.into(),
        });
        self
    }

    /// The actions for an occasion; `None` where no rule fits.
    pub(super) fn actions(&self, when: &Occasion, nth: u32, launch: u32) -> Option<&[Action]> {
        self.rules
            .iter()
            .rev()
            .find(|rule| {
                rule.when == *when
                    && rule.nth.is_none_or(|wanted| wanted == nth)
                    && rule.launch.is_none_or(|wanted| wanted == launch)
            })
            .map(|rule| rule.actions.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_matching_rule_counts() {
        let plan = Plan::new()
            .on("turn/start", [Action::Hang])
            .on("turn/start", [Action::Exit { code: 3 }])
            .nth(2)
            .in_launch(1);
        let turn = Occasion::Request("turn/start".to_owned());

        assert_eq!(plan.actions(&turn, 1, 1), Some([Action::Hang].as_slice()));
        assert_eq!(
            plan.actions(&turn, 2, 1),
            Some([Action::Exit { code: 3 }].as_slice())
        );
        assert_eq!(plan.actions(&turn, 2, 2), Some([Action::Hang].as_slice()));
        assert_eq!(plan.actions(&Occasion::Start, 1, 1), None);
    }

    #[test]
    fn plan_survives_serialization() {
        let plan = Plan::new()
            .at_start([Action::IgnoreSigterm, Action::IgnoreEof])
            .on("initialize", [Action::garbage(), Action::overloaded()])
            .on(
                "turn/start",
                [
                    Action::Answer,
                    Action::ask_approval("true"),
                    Action::EndTurn(TurnEnd::Failed("no".to_owned())),
                ],
            );

        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }
}
