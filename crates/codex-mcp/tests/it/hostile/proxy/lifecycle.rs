//! The end of the input, SIGTERM and SIGKILL, in every phase of a server.

use serde_json::{Value, json};
use testkit::Signal;
use testkit::fake::{Action, Entry, Event, Plan, Session, Stdio};

use super::super::phase::{LifePhase, ends_in_every_phase};
use super::super::serve::Serve;
use super::{HANDSHAKE, calls, code, left_of, plain, silent, status, stuck};

/// The phase of a server's life.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Silent,
    ChildStarting,
    ChildNeverReads,
    Idle,
    TurnRunning,
    Elicited,
    NobodyWaits,
    CancelIgnored,
    ChildStopped,
    ChildGone,
}

const PHASES: [Phase; 10] = [
    Phase::Silent,
    Phase::ChildStarting,
    Phase::ChildNeverReads,
    Phase::Idle,
    Phase::TurnRunning,
    Phase::Elicited,
    Phase::NobodyWaits,
    Phase::CancelIgnored,
    Phase::ChildStopped,
    Phase::ChildGone,
];

/// A child that ignores requests to end.
fn stubborn(plan: Plan) -> Plan {
    plan.at_start([Action::IgnoreEof, Action::IgnoreSigterm])
}

impl Phase {
    fn plan(self) -> Plan {
        let asks = Action::elicit_approval("touch x");
        match self {
            Self::Silent | Self::Idle => stubborn(Plan::new()),
            Self::ChildStarting => {
                let plan = Plan::new().on("initialize", [Action::Hang]);
                stubborn(plan.on("tools/call", [Action::Hang]))
            }
            Self::ChildNeverReads => Plan::new().at_start([Action::gate("never")]),
            Self::TurnRunning => stubborn(stuck("half")),
            Self::Elicited => stubborn(calls([asks])),
            Self::NobodyWaits => {
                let turn = [Action::StartTurn, asks, Action::Hang];
                stubborn(Plan::new().on("tools/call", turn))
            }
            Self::CancelIgnored => {
                stubborn(stuck("half").on("notifications/cancelled", [Action::Hang]))
            }
            Self::ChildStopped => stuck("half"),
            Self::ChildGone => Plan::new().on("tools/call", [Action::Exit { code: 3 }]),
        }
    }
}

impl LifePhase for Phase {
    async fn reach(self) -> (Serve, Option<Value>) {
        let mut serve = silent(&self.plan(), &[]);
        let capabilities = match self {
            Self::Silent => return (serve, None),
            Self::Elicited => json!({"elicitation": {}}),
            _ => json!({}),
        };
        serve.client.initialize(HANDSHAKE, capabilities).await;
        if matches!(self, Self::Idle) {
            serve.codex().await;
            return (serve, None);
        }
        let call = serve.prompt();
        match self {
            Self::ChildStarting | Self::ChildNeverReads => {
                status(&mut serve).await;
            }
            Self::ChildGone | Self::NobodyWaits => {
                serve.client.result(&call).await;
                return (serve, None);
            }
            Self::Elicited => {
                serve.client.server_request("elicitation/create").await;
                serve.client.ignore("notifications/cancelled");
            }
            _ => {
                serve.fake.wait_for_method("tools/call").await;
            }
        }
        if matches!(self, Self::ChildStopped) {
            serve.kill_codex(Signal::SIGSTOP);
        }
        (serve, Some(call))
    }

    fn is_before_all(self) -> bool {
        matches!(self, Self::Silent)
    }
}

ends_in_every_phase!(PHASES);

/// A server in the middle of a turn that has left four processes running.
async fn with_grandchildren(plan: Plan) -> (Serve, Value, Vec<u32>) {
    let spawn = |session, stdio| Action::SpawnSleep {
        seconds: 600,
        session,
        stdio,
    };
    let turn = [
        Action::StartTurn,
        spawn(Session::Own, Stdio::Null),
        spawn(Session::Own, Stdio::Inherited),
        spawn(Session::Shared, Stdio::Null),
        spawn(Session::Shared, Stdio::Inherited),
    ];
    let mut serve = plain(&plan.on("tools/call", turn), &[]).await;
    let call = serve.prompt();
    let is_spawned = |entry: &Entry| matches!(entry.event, Event::Spawned(_));
    serve.fake.wait_for_nth(4, "a process", is_spawned).await;
    let log = serve.fake.log().into_iter();
    let pids = log.filter_map(|entry| match entry.event {
        Event::Spawned(pid) => Some(pid),
        _ => None,
    });
    (serve, call, pids.collect())
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn commands_end_with_the_server() {
    for plan in [Plan::new(), stubborn(Plan::new())] {
        for signal in [None, Some(Signal::SIGTERM), Some(Signal::SIGKILL)] {
            let (mut serve, call, pids) = with_grandchildren(plan.clone()).await;
            let codex = serve.fake.started();
            match signal {
                None => serve.client.close_stdin(),
                Some(signal) => serve.client.signal(signal),
            }
            let status = serve.client.exited().await;
            assert_eq!(left_of(&codex).await, []);
            assert_eq!(left_of(&pids).await, []);
            if signal == Some(Signal::SIGKILL) {
                serve.client.abandon(&call);
            } else {
                let answer = serve.client.response_so_far(&call).unwrap();
                assert_eq!(code(&answer["result"]), "SHUTTING_DOWN");
            }
            serve.gone(status).await;
        }
    }
}

#[tokio::test]
async fn child_gets_time_to_end_by_itself() {
    let mut serve = plain(&Plan::new(), &[]).await;
    serve.codex().await;
    serve.client.close_stdin();
    let status = serve.client.exited().await;
    let log = serve.fake.log();
    assert!(log.iter().any(|entry| entry.event == Event::Eof), "{log:?}");
    serve.gone(status).await;
}
