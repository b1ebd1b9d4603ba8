//! Jobs of `call_codex` without a worker, for the tests of both kinds of Codex.

use std::path::{Path, PathBuf};
use std::time::Duration;

use codex_engine::binary::Source;
use codex_engine::logic::session::Timeouts;
use codex_engine::logic::work::FailureClass;
use codex_engine::{Engine, Launch, Options};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use job_queue::call::{CallOutcome, CallRequest, CallUpdate, run};
use supervise::spawn::set_guard_executable;
use testkit::Home;
use tokio_util::sync::CancellationToken;

/// Longer than any turn takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// An engine for the Codex at this path.
pub(crate) fn engine_of(home: &Home, codex: PathBuf) -> Engine {
    set_guard_executable(Path::new(env!("CARGO_BIN_EXE_codex-mcp")));
    let options = Options {
        launch: Launch {
            codex: Some((codex, Source::FlagOrVariable)),
            line_limit: DEFAULT_LINE_LIMIT,
        },
        codex_home: home.codex_home(),
        timeouts: Timeouts {
            approval: LONG,
            stall: LONG,
        },
    };
    Engine::new(options).with_env(home.env())
}

pub(crate) fn request(home: &Home, prompt: &str) -> CallRequest {
    CallRequest {
        codex_home: home.codex_home(),
        env: home.env(),
        prompt: prompt.to_owned(),
        cwd: home.work(),
        resume: None,
        model: None,
        sandbox: None,
        effort: None,
        profile: None,
        settings: job_queue::call_settings::CallSettings::default(),
        images: Vec::new(),
        output_schema: None,
        timeout: LONG,
        tool_limit: None,
        keep_stream: false,
        member: None,
        refused_until: None,
    }
}

/// Executes a request, and checks that no process is left of it.
pub(crate) async fn outcome_of(home: &Home, engine: &Engine, request: &CallRequest) -> CallOutcome {
    outcome_with(home, engine, request, |_| (), CancellationToken::new()).await
}

pub(crate) async fn outcome_with(
    home: &Home,
    engine: &Engine,
    request: &CallRequest,
    on_news: impl FnMut(CallUpdate<'_>),
    cancel: CancellationToken,
) -> CallOutcome {
    let outcome = run(engine, request, on_news, cancel).await;
    let processes = home.processes();
    let left = processes.iter().find(|one| one.command.contains("sleep"));
    assert_eq!(left, None);
    outcome
}

#[track_caller]
pub(crate) fn assert_said(outcome: &CallOutcome, message: &str) {
    assert_eq!(outcome.failure, None, "{outcome:#?}");
    let said = outcome.digest.message.as_deref();
    assert_eq!(said, Some(message), "{outcome:#?}");
}

#[track_caller]
pub(crate) fn assert_failed(outcome: &CallOutcome, class: FailureClass) -> String {
    let failure = outcome.failure.as_ref().unwrap();
    assert_eq!(failure.class, class, "{outcome:#?}");
    failure.message.clone()
}
