//! The end of the input, SIGTERM and SIGKILL, in every phase of a server.

use futures::future::join_all;
use serde_json::{Value, json};
use testkit::Signal;
use testkit::fake::{Action, Plan};

use crate::trust;

use super::serve::{HANDSHAKE, Serve, code, stuck, turns};

/// The phase of a server's life.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Silent,
    CodexStarting,
    Idle,
    ThreadBeginning,
    TurnBeginning,
    TurnRunning,
    Asking,
    Elicited,
    InterruptIgnored,
}

const PHASES: [Phase; 9] = [
    Phase::Silent,
    Phase::CodexStarting,
    Phase::Idle,
    Phase::ThreadBeginning,
    Phase::TurnBeginning,
    Phase::TurnRunning,
    Phase::Asking,
    Phase::Elicited,
    Phase::InterruptIgnored,
];

impl Phase {
    fn plan(self) -> Plan {
        let asking = || turns([Action::ask_approval("touch x")]);
        match self {
            Self::Silent | Self::Idle => Plan::new(),
            Self::CodexStarting => Plan::new().on("initialize", [Action::Hang]),
            Self::ThreadBeginning => Plan::new().on("thread/start", [Action::Hang]),
            Self::TurnBeginning => Plan::new().on("turn/start", [Action::Hang]),
            Self::TurnRunning => stuck("half"),
            Self::Asking | Self::Elicited => asking(),
            Self::InterruptIgnored => stuck("half").on("turn/interrupt", [Action::Hang]),
        }
    }

    /// The last request to Codex in this phase.
    fn last_request(self) -> Option<&'static str> {
        match self {
            Self::Silent | Self::Idle => None,
            Self::CodexStarting => Some("initialize"),
            Self::ThreadBeginning => Some("thread/start"),
            _ => Some("turn/start"),
        }
    }

    /// Brings a server to this phase. Returns the open call, if there is one.
    async fn reach(self) -> (Serve, Option<Value>) {
        let mut serve = Serve::start(&self.plan());
        if matches!(self, Self::Silent) {
            return (serve, None);
        }
        let capabilities = match self {
            Self::Elicited => json!({"elicitation": {}}),
            _ => json!({}),
        };
        serve.client.initialize(HANDSHAKE, capabilities).await;
        if matches!(self, Self::Idle) {
            serve.codex().await;
            return (serve, None);
        }
        let call = serve.prompt();
        if let Some(method) = self.last_request() {
            serve.fake.wait_for_method(method).await;
        }
        serve.settled().await;
        match self {
            Self::Asking => {
                let result = serve.client.result(&call).await;
                assert_eq!(result["structuredContent"]["status"], "waiting_approval");
                (serve, None)
            }
            Self::Elicited => {
                serve.client.server_request("elicitation/create").await;
                serve.client.ignore("notifications/cancelled");
                (serve, Some(call))
            }
            _ => (serve, Some(call)),
        }
    }

    /// Ends a server in this phase: an open call is answered, and no process is left.
    async fn end(self, signal: Option<Signal>) {
        let (mut serve, call) = self.reach().await;
        match signal {
            None => serve.client.close_stdin(),
            Some(signal) => serve.client.signal(signal),
        }
        let status = serve.client.exited().await;
        let expected = match signal {
            Some(Signal::SIGINT) => 130,
            _ => 0,
        };
        assert!(
            status.code() == Some(expected) || self.is_before_all(),
            "{self:?}: {status}"
        );
        if let Some(call) = call {
            let answer = serve.client.response_so_far(&call);
            let answer = answer.unwrap_or_else(|| unanswered(self, &serve));
            assert_eq!(code(&answer["result"]), "SHUTTING_DOWN", "{self:?}");
        }
        serve.gone(status).await;
    }

    /// A signal may arrive before the program has installed its handlers.
    fn is_before_all(self) -> bool {
        matches!(self, Self::Silent)
    }

    async fn kill(self) {
        let (serve, call) = self.reach().await;
        serve.kill(call.as_slice()).await;
    }
}

fn unanswered(phase: Phase, serve: &Serve) -> Value {
    panic!("{phase:?}: no answer\n{}", serve.client.stderr())
}

#[tokio::test]
async fn end_of_input_ends_everything_in_every_phase() {
    join_all(PHASES.map(|phase| phase.end(None))).await;
}

#[tokio::test]
async fn sigterm_ends_everything_in_every_phase() {
    join_all(PHASES.map(|phase| phase.end(Some(Signal::SIGTERM)))).await;
}

#[tokio::test]
async fn sigint_ends_everything_in_every_phase() {
    join_all(PHASES.map(|phase| phase.end(Some(Signal::SIGINT)))).await;
}

#[tokio::test]
async fn killed_server_leaves_no_process_in_any_phase() {
    join_all(PHASES.map(Phase::kill)).await;
}

#[tokio::test]
async fn wrong_command_line_and_configuration_are_explained() {
    for (args, file, status, words) in [
        (&["--timeout", "0"][..], "", 2, "between 1s and 1d"),
        (&["--no-such-flag"], "", 2, "--no-such-flag"),
        (
            &[],
            "[plugins.codex-mcp]\nrequest_timeout_secs = 0\n",
            1,
            "request_timeout_secs",
        ),
        (&[], "not toml", 1, ".atm.toml"),
    ] {
        let home = testkit::Home::new("");
        if !file.is_empty() {
            std::fs::write(home.work().join(".atm.toml"), file).unwrap();
            trust(&home, &home.work());
        }
        let launch = testkit::Launch::new(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .args(args)
            .envs(home.env())
            .current_dir(home.work());
        let mut client = testkit::McpClient::start(&launch);
        let exit = client.exited().await;
        assert_eq!(exit.code(), Some(status));
        assert!(client.stderr().contains(words), "{}", client.stderr());
    }
}
