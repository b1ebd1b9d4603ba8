//! Runs of `codex exec`, for the tests of both kinds of Codex.

use std::path::{Path, PathBuf};
use std::time::Duration;

use codex_mcp::engine::binary::{Source, find};
use codex_mcp::engine::spawn::guards_are;
use codex_mcp::jobs::exec::{KeepStream, News, Outcome, Request, run};
use codex_mcp_core::exec::FailureClass;
use codex_mcp_protocol::codex::Release;
use testkit::Home;
use tokio_util::sync::CancellationToken;

/// Longer than any run takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// A request for the Codex at this path.
pub(crate) fn request_to(home: &Home, codex: PathBuf, release: &str, prompt: &str) -> Request {
    guards_are(Path::new(env!("CARGO_BIN_EXE_codex-mcp")));
    Request {
        codex: find(Some((codex, Source::FlagOrVariable))).unwrap(),
        release: Release::parse(release),
        codex_home: home.codex_home(),
        env: home.env(),
        prompt: prompt.to_owned(),
        cwd: home.work(),
        resume: None,
        model: None,
        sandbox: None,
        effort: None,
        profile: None,
        settings: codex_mcp::jobs::settings::CallSettings::default(),
        mcp_servers: Vec::new(),
        images: Vec::new(),
        output_schema: None,
        timeout: LONG,
        tool_limit: None,
        stream: KeepStream::No,
    }
}

/// Runs it, and holds the runner to its promise that nothing is left.
pub(crate) async fn outcome_of(home: &Home, request: &Request) -> Outcome {
    outcome_with(home, request, |_| (), CancellationToken::new()).await
}

pub(crate) async fn outcome_with(
    home: &Home,
    request: &Request,
    on_news: impl FnMut(News<'_>),
    cancel: CancellationToken,
) -> Outcome {
    let outcome = run(request, on_news, cancel).await;
    assert_eq!(home.processes(), []);
    outcome
}

#[track_caller]
pub(crate) fn assert_said(outcome: &Outcome, message: &str) {
    assert_eq!(outcome.failure, None, "{outcome:#?}");
    let said = outcome.digest.message.as_deref();
    assert_eq!(said, Some(message), "{outcome:#?}");
}

#[track_caller]
pub(crate) fn assert_failed(outcome: &Outcome, class: FailureClass) -> String {
    let failure = outcome.failure.as_ref().unwrap();
    assert_eq!(failure.class, class, "{outcome:#?}");
    failure.message.clone()
}
