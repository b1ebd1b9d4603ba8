//! No process outlives `serve`, whatever it does and however `serve` ends.

use testkit::Signal;
use testkit::fake::{Action, Entry, Event, Plan, Session, Stdio};

use super::serve::{Serve, code, left_of, stuck};

fn spawn(session: Session, stdio: Stdio) -> Action {
    Action::SpawnSleep {
        seconds: 600,
        session,
        stdio,
    }
}

fn spawning() -> [Action; 4] {
    [
        spawn(Session::Own, Stdio::Null),
        spawn(Session::Own, Stdio::Inherited),
        spawn(Session::Shared, Stdio::Null),
        spawn(Session::Shared, Stdio::Inherited),
    ]
}

/// What the fake has started so far.
fn spawned(serve: &Serve) -> Vec<u32> {
    let log = serve.fake.log().into_iter();
    log.filter_map(|entry| match entry.event {
        Event::Spawned(pid) => Some(pid),
        _ => None,
    })
    .collect()
}

/// A server in the middle of a turn that has left four processes running.
async fn with_grandchildren(plan: Plan) -> (Serve, serde_json::Value, Vec<u32>) {
    let turn = [Action::Answer, Action::StartTurn]
        .into_iter()
        .chain(spawning())
        .collect::<Vec<_>>();
    let mut serve = Serve::plain(&plan.on("turn/start", turn)).await;
    let call = serve.prompt();
    let is_spawned = |entry: &Entry| matches!(entry.event, Event::Spawned(_));
    serve.fake.wait_for_nth(4, "a process", is_spawned).await;
    let pids = spawned(&serve);
    assert_eq!(pids.len(), 4);
    (serve, call, pids)
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn commands_in_own_sessions_end_with_the_input() {
    let (mut serve, call, pids) = with_grandchildren(Plan::new()).await;
    serve.client.close_stdin();
    assert_eq!(code(&serve.client.result(&call).await), "SHUTTING_DOWN");
    serve.client.exited().await;
    assert_eq!(left_of(&pids).await, []);
    serve.finish().await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn commands_in_own_sessions_end_on_sigterm() {
    let (mut serve, call, pids) = with_grandchildren(Plan::new()).await;
    serve.client.signal(Signal::SIGTERM);
    assert_eq!(code(&serve.client.result(&call).await), "SHUTTING_DOWN");
    serve.client.exited().await;
    assert_eq!(left_of(&pids).await, []);
    serve.finish().await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn commands_in_own_sessions_end_when_serve_is_killed() {
    let (mut serve, call, pids) = with_grandchildren(Plan::new()).await;
    serve.client.signal(Signal::SIGKILL);
    assert_eq!(left_of(&pids).await, []);
    serve.kill(&[call]).await;
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn commands_end_with_the_codex_that_ran_them() {
    let (mut serve, call, pids) = with_grandchildren(Plan::new()).await;
    serve.kill_codex(Signal::SIGKILL);
    assert_eq!(code(&serve.client.result(&call).await), "CODEX_DIED");
    assert_eq!(left_of(&pids).await, []);
    serve.finish().await;
}

#[tokio::test]
async fn codex_that_ignores_shutdown_is_killed() {
    let plan = Plan::new().at_start([Action::IgnoreSigterm, Action::IgnoreEof]);
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
        assert!(
            serve
                .fake
                .log()
                .iter()
                .any(|entry| entry.event == Event::Sigterm)
        );
        if signal == Some(Signal::SIGKILL) {
            serve.client.abandon(&call);
        } else {
            assert_eq!(
                code(&serve.client.response_so_far(&call).unwrap()["result"]),
                "SHUTTING_DOWN"
            );
        }
        serve.gone(status).await;
    }
}

/// Codex writes its rollouts before it ends; SIGTERM would end it at once.
#[tokio::test]
async fn slow_codex_ends_by_itself() {
    // The interrupt arrives up to 1 s before the input is closed.
    let milliseconds = 2500;
    let plan = stuck("half")
        .at_start([Action::IgnoreSigterm, Action::IgnoreEof])
        .on(
            "turn/interrupt",
            [Action::Sleep { milliseconds }, Action::Exit { code: 0 }],
        );
    let mut serve = Serve::plain(&plan).await;
    let call = serve.prompt();
    serve.fake.wait_for_method("turn/start").await;
    serve.settled().await;
    serve.client.close_stdin();
    assert_eq!(code(&serve.client.result(&call).await), "SHUTTING_DOWN");
    let status = serve.client.exited().await;
    let log = serve.fake.log();
    let was_terminated = log.iter().any(|entry| entry.event == Event::Sigterm);
    assert!(!was_terminated, "{log:#?}");
    serve.gone(status).await;
}

#[tokio::test]
async fn codex_given_up_before_it_answers_is_killed() {
    let plan = Plan::new()
        .at_start([
            Action::IgnoreSigterm,
            Action::IgnoreEof,
            spawn(Session::Own, Stdio::Inherited),
        ])
        .on(
            "initialize",
            [Action::Error {
                code: -32600,
                message: "no".to_owned(),
            }],
        );
    let mut serve = Serve::plain(&plan).await;
    assert_eq!(code(&serve.codex().await), "APP_SERVER_START_FAILED");
    let all: Vec<u32> = serve
        .fake
        .started()
        .into_iter()
        .chain(spawned(&serve))
        .collect();
    assert_eq!(left_of(&all).await, []);
    serve.finish().await;
}
