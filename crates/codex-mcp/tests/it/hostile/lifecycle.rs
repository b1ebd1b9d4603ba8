//! The end of the input, SIGTERM and SIGKILL, in every phase of a server.

use serde_json::{Value, json};
use testkit::fake::{Action, Plan};

use crate::trust;

use super::phase::{LifePhase, ends_in_every_phase};
use super::serve::{HANDSHAKE, Serve, stuck, turns};

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
}

impl LifePhase for Phase {
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

    fn is_before_all(self) -> bool {
        matches!(self, Self::Silent)
    }
}

ends_in_every_phase!(PHASES);

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
        let launch = home
            .launch(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .args(args);
        let mut client = testkit::McpClient::start(&launch);
        let exit = client.exited().await;
        assert_eq!(exit.code(), Some(status));
        assert!(client.stderr().contains(words), "{}", client.stderr());
    }
}
