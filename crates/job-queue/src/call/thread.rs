//! Prepares and opens the thread of a job, and waits for its turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_team::Context;
use codex_config::layers::{CodexConfig, UserConfig, get};
use codex_config::profile::check_exists;
use codex_config::trust::directory_trust;
use codex_engine::command::{
    AddedInstructions, LONGEST_WAIT, OpenQuestion, OpenThread, ReportDenied, ResumeThread,
    Settings, StartThread, TurnRef,
};
use codex_engine::confinement::{ConfiguredSandbox, Conversation, ThreadContext, left_out};
use codex_engine::logic::action::{ActionId, Decision};
use codex_engine::logic::session::{Timeouts, TurnOutcome};
use codex_engine::logic::work::WorkEnding;
use codex_engine::{CommandMark, Engine, EngineError, rollouts};
use codex_protocol::codex::{
    ApprovalPolicy, ModelOptions, Release, SandboxMode, ThreadId, ThreadSettings,
};
use common::json::as_word;
use safe_files::directory;
use serde_json::{Map, Value};
use settings::DEFAULT_SANDBOX;
use supervise::exit::Exit;

use super::CallRequest;
use crate::call_settings::Approval;

/// The key of the approval policy in Codex's configuration.
const POLICY: &str = "approval_policy";

/// The key of the model provider.
pub(crate) const PROVIDER: &str = "model_provider";

/// The settings with which a thread is started or resumed.
pub(super) struct Prepared {
    pub(super) start: StartThread,
    /// The effective sandbox: a mode, or the name of permissions. `None` if Codex decides it.
    pub(super) sandbox: Option<String>,
    /// The model provider that the job or its profile names.
    pub(super) provider: Option<String>,
    /// A warning about configuration of the repository that is not used.
    pub(super) left_out: Option<String>,
}

/// Reads the configuration that decides the settings of a thread. Errors are shown to the
/// submitter of the job.
pub(super) fn prepare(
    request: &CallRequest,
    release: Option<Release>,
    mark: &CommandMark,
) -> Result<Prepared, String> {
    check(request)?;
    let user = UserConfig::read(&request.codex_home);
    let trust = directory_trust(&request.cwd, &user).map_err(|error| error.to_string())?;
    let config = user.layers(request.profile.as_ref(), Some(&trust));
    let mut overrides = request.settings.overrides(|key| config.get(key).cloned());
    strip_nulls(&mut overrides);
    let (sandbox, in_force) = sandbox(request, &mut overrides, &config);
    let workplace = ThreadContext {
        conversation: match request.resume {
            None => Conversation::New,
            Some(_) => Conversation::Resumed,
        },
        config: &config,
        release,
        trust: Some(&trust),
    };
    if let Some(limit) = request.tool_limit {
        workplace.limit_tools(&mut overrides, limit);
    }
    mark.set_in(&mut overrides);
    let directories = directories(&request.cwd, |key| {
        get(&overrides, key).or_else(|| config.get(key))
    });
    let policy = match request.settings.approval {
        Approval::Never => ApprovalPolicy::Never,
        Approval::Ask => asking_policy(get(&overrides, POLICY).or_else(|| config.get(POLICY))),
    };
    let provider = named_provider(request, &overrides, &config);
    let settings = settings(request, sandbox, policy, overrides);
    Ok(Prepared {
        start: StartThread {
            // Newer releases remember the earlier writable directories of a thread.
            directories: Some(directories),
            ..started(request, settings)
        },
        sandbox: Some(in_force),
        provider,
        left_out: left_out(&trust),
    })
}

/// The settings of the thread of a job with this sandbox, approval policy and overrides.
fn settings(
    request: &CallRequest,
    sandbox: Option<SandboxMode>,
    policy: ApprovalPolicy,
    overrides: Map<String, Value>,
) -> Settings {
    Settings {
        thread: ThreadSettings {
            cwd: Some(request.cwd.clone()),
            model: request.model.clone(),
            sandbox,
            approval_policy: Some(policy),
            config: overrides,
            ..ThreadSettings::default()
        },
        added: AddedInstructions {
            before: None,
            behind: context(request),
        },
        profile: request.profile.clone(),
        model_options: ModelOptions {
            effort: request.effort,
            ..ModelOptions::default()
        },
        ..Settings::default()
    }
}

/// The start of the thread of a job with these settings.
fn started(request: &CallRequest, settings: Settings) -> StartThread {
    StartThread {
        settings,
        report_denied: ReportDenied::On,
        timeouts: Some(Timeouts {
            approval: request.settings.question_limit(),
            // The worker itself detects stalled turns.
            stall: LONGEST_WAIT,
        }),
        ..StartThread::default()
    }
}

/// The model provider that the job or its profile names.
fn named_provider(
    request: &CallRequest,
    overrides: &Map<String, Value>,
    config: &CodexConfig,
) -> Option<String> {
    let of_profile = request.profile.as_ref().and_then(|_| config.get(PROVIDER));
    let provider = get(overrides, PROVIDER).or(of_profile);
    provider.and_then(Value::as_str).map(str::to_owned)
}

/// The model provider of a turn, unless it is the configured one. A resumed thread keeps the
/// provider that it began with; for a new thread, the named provider counts.
pub(crate) fn provider(
    codex_home: &Path,
    thread: Option<&ThreadId>,
    named: Option<String>,
) -> Option<String> {
    let begun = thread.and_then(|thread| rollouts::provider(codex_home, thread));
    let config = UserConfig::read(codex_home).layers(None, None);
    let configured = config.get(PROVIDER).and_then(Value::as_str);
    let provider = begun.or(named);
    provider.filter(|provider| configured != Some(provider))
}

/// Checks that the directories and the profile exist, and that no directory was replaced since
/// the job was submitted.
fn check(request: &CallRequest) -> Result<(), String> {
    if !request.cwd.is_dir() {
        let directory = request.cwd.display();
        return Err(format!(
            "the working directory {directory} does not exist, or is not a directory"
        ));
    }
    let noted = directory::check(&request.cwd);
    let noted = noted.and_then(|()| request.settings.check_directories());
    noted.map_err(|replaced| replaced.to_string())?;
    match &request.profile {
        Some(name) => check_exists(&request.codex_home, name).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// The sandbox to send to Codex, unless its configuration sets one; and the name of the
/// effective sandbox.
fn sandbox(
    request: &CallRequest,
    overrides: &mut Map<String, Value>,
    config: &CodexConfig,
) -> (Option<SandboxMode>, String) {
    let configured = ConfiguredSandbox::of(overrides, config);
    match (request.sandbox, configured) {
        (None, Some(configured)) => {
            // Newer releases resume a thread with its earlier sandbox.
            if request.resume.is_some() {
                configured.set_in(overrides);
            }
            (None, configured.to_string())
        }
        (asked, _) => {
            let mode = asked.unwrap_or(DEFAULT_SANDBOX);
            (Some(mode), as_word(mode).unwrap_or_default())
        }
    }
}

/// The text that tells a new thread in which directory and for which member it works.
fn context(request: &CallRequest) -> Option<String> {
    let member = request.member.as_ref().filter(|_| request.resume.is_none());
    Some(Context::gather(member?, &request.cwd, Some(&request.cwd)).text())
}

/// The approval policy of a job with approval `ask`. A configured `untrusted` is kept, as it asks
/// more often.
fn asking_policy(configured: Option<&Value>) -> ApprovalPolicy {
    match configured.and_then(|policy| serde_json::from_value(policy.clone()).ok()) {
        Some(ApprovalPolicy::Untrusted) => ApprovalPolicy::Untrusted,
        _ => ApprovalPolicy::OnRequest,
    }
}

/// The directories that the thread may write to in `workspace-write`.
fn directories<'a>(cwd: &Path, configured: impl Fn(&str) -> Option<&'a Value>) -> Vec<PathBuf> {
    let roots = configured("sandbox_workspace_write.writable_roots");
    let roots = roots.and_then(Value::as_array).into_iter().flatten();
    let roots = roots.filter_map(Value::as_str).map(PathBuf::from);
    std::iter::once(cwd.to_owned()).chain(roots).collect()
}

/// Removes null members: TOML has no null, and a null key overrides nothing.
fn strip_nulls(overrides: &mut Map<String, Value>) {
    overrides.retain(|_, value| !value.is_null());
    for value in overrides.values_mut() {
        if let Value::Object(inner) = value {
            strip_nulls(inner);
        }
    }
}

/// Starts a thread, or resumes one.
pub(super) async fn open(
    engine: &Engine,
    resume: Option<&ThreadId>,
    start: StartThread,
) -> Result<OpenThread, EngineError> {
    let Some(thread) = resume.cloned() else {
        return engine.start(start).await;
    };
    engine.resume(ResumeThread { thread, start }).await
}

/// The progress of a turn.
pub(super) enum TurnProgress {
    /// The turn has ended.
    Ended(Arc<TurnOutcome>),
    /// The open questions have changed.
    Asking(Vec<OpenQuestion>),
}

/// Waits until a turn has ended. Codex's questions are declined meanwhile, as there is nobody
/// to ask.
pub(super) async fn wait_for_end(
    engine: &Engine,
    turn: &TurnRef,
) -> Result<Arc<TurnOutcome>, EngineError> {
    loop {
        match progress(engine, turn, Approval::Never, &[]).await? {
            TurnProgress::Ended(outcome) => return Ok(outcome),
            TurnProgress::Asking(_) => {}
        }
    }
}

/// Waits until a turn has ended or, with approval `ask`, until the open questions differ from
/// the reported ones (`told`).
pub(super) async fn progress(
    engine: &Engine,
    turn: &TurnRef,
    approval: Approval,
    told: &[ActionId],
) -> Result<TurnProgress, EngineError> {
    loop {
        let view = engine.inspect(&turn.session)?;
        if let Some((number, outcome)) = &view.outcome
            && *number >= turn.number
        {
            return Ok(TurnProgress::Ended(Arc::clone(outcome)));
        }
        match approval {
            Approval::Never => {
                for open in &view.actions {
                    // The question may have been answered already.
                    let _ = engine.respond(&turn.session, &open.id, &Decision::Decline, None);
                }
            }
            Approval::Ask => {
                if !view.actions.iter().map(|open| &open.id).eq(told) {
                    return Ok(TurnProgress::Asking(view.actions));
                }
            }
        }
        engine.changed(&turn.session, view.revision).await?;
    }
}

/// The ending of a turn whose Codex has exited. `how` describes the exit without a subject: `exited
/// with code 1`.
pub(super) fn lost(how: String, exit: Option<Exit>) -> WorkEnding {
    match exit {
        Some(Exit::Signal(_)) => WorkEnding::Killed(how),
        _ => WorkEnding::Died(how),
    }
}

/// The ending of a turn that could not be started.
pub(super) fn ending(error: EngineError) -> WorkEnding {
    let words = error.to_string();
    match error {
        EngineError::NoThread(thread) => WorkEnding::UnknownSession(thread),
        // The hint of the failure names the remedy.
        EngineError::NoLogin => {
            WorkEnding::NoLogin("Codex has no login for its model provider".to_owned())
        }
        EngineError::Gone(exit) => lost(exit.to_string(), Some(exit)),
        EngineError::NewThreadLost(_) => lost("ended".to_owned(), None),
        EngineError::ThreadInUse(_)
        | EngineError::Busy(_)
        | EngineError::StillEnding(_)
        | EngineError::Live { .. } => WorkEnding::SessionBusy(words),
        EngineError::Refused { refusal, .. } => WorkEnding::Refused(refusal.message),
        _ => WorkEnding::NotStarted(words),
    }
}

#[cfg(test)]
mod tests {
    use codex_engine::logic::work::{Digest, FailureClass, judge};
    use serde_json::json;

    use super::*;

    #[test]
    fn codex_that_ends_before_the_turn_has_the_words_and_class_of_later_ends() {
        for (exit, class, words) in [
            (
                Exit::Signal(9),
                FailureClass::Signal,
                "Codex was ended by signal 9 (SIGKILL) during the turn",
            ),
            (
                Exit::Code(3),
                FailureClass::Exit,
                "Codex exited with code 3 during the turn",
            ),
        ] {
            let ending = ending(EngineError::Gone(exit));
            let failure = judge(&ending, &Digest::default()).unwrap();
            assert_eq!(failure.class, class);
            assert_eq!(failure.message, words);
        }
    }

    #[test]
    fn untrusted_policy_is_kept() {
        for (configured, policy) in [
            (None, ApprovalPolicy::OnRequest),
            (Some(json!("never")), ApprovalPolicy::OnRequest),
            (Some(json!("untrusted")), ApprovalPolicy::Untrusted),
            (Some(json!({ "granular": {} })), ApprovalPolicy::OnRequest),
        ] {
            assert_eq!(asking_policy(configured.as_ref()), policy, "{configured:?}");
        }
    }
}
