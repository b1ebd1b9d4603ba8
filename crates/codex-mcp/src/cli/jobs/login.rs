//! The check before a submission whether Codex has the login that a job needs.

use std::time::Duration;

use goal_run::spec::RunSpec;
use job_queue::spec::{Continuation, JobSpec};
use settings::Config;

use crate::doctor::brief::{CodexState, LoginState, brief};

/// The time limit of each of the two commands that report the login. They take some 20 ms.
const LIMIT: Duration = Duration::from_secs(5);

/// A key of Codex's configuration.
const PROVIDER: &str = "model_provider";

/// Whether a job may need no login: a profile, a key of the configuration or a thread may name a
/// provider that works without one.
pub(super) fn job_may_do_without(spec: &JobSpec) -> bool {
    spec.profile.is_some()
        || spec.continuation != Continuation::None
        || spec.config.contains_key(PROVIDER)
}

/// The same for a run.
pub(super) fn run_may_do_without(spec: &RunSpec) -> bool {
    let settings = &spec.settings;
    settings.profile.is_some()
        || spec.thread.is_some()
        || settings.thread.config.contains_key(PROVIDER)
}

/// The command that logs Codex in, if it has no login. `None` for a database, whose jobs may be run
/// by another machine.
pub(in crate::cli) async fn missing_login(config: &Config) -> Option<String> {
    config.jobs.store.value.path()?;
    match brief(config, LIMIT).await {
        CodexState::Found {
            login: LoginState::Missing(command),
            ..
        } => Some(command),
        _ => None,
    }
}
