//! The thread of a job: what it is given, and how its turn ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_team::Context;
use codex_config::layers::{CodexConfig, UserConfig, get};
use codex_config::profile::check_exists;
use codex_config::trust::directory_trust;
use codex_engine::command::{
    AddedInstructions, LONGEST_WAIT, Open, Opened, Refusals, Resume, Settings, Start, TurnRef,
};
use codex_engine::confinement::{ConfiguredSandbox, Conversation, Workplace, left_out};
use codex_engine::logic::action::{ActionId, Decision};
use codex_engine::logic::session::{Outcome as TurnOutcome, Patience};
use codex_engine::logic::work::Ending;
use codex_engine::{CommandMark, Engine, EngineError, rollouts};
use codex_protocol::codex::{
    ApprovalPolicy, ModelOptions, Release, SandboxMode, ThreadId, ThreadSettings,
};
use safe_files::directory;
use serde_json::{Map, Value};
use settings::DEFAULT_SANDBOX;

use super::Request;
use crate::call_settings::Approval;

/// The key of the approval policy in Codex's configuration.
const POLICY: &str = "approval_policy";

/// The key of the model provider.
pub(crate) const PROVIDER: &str = "model_provider";

/// What a thread is begun or taken up with.
pub(super) struct Prepared {
    pub(super) start: Start,
    /// The sandbox that it puts into force: a mode, or the name of permissions.
    pub(super) sandbox: String,
    /// The model provider that the job names, or its profile.
    pub(super) provider: Option<String>,
    /// A warning of what the repository brings and is not used.
    pub(super) left_out: Option<String>,
}

/// Reads what decides how a thread is begun. An error is told to the submitter of the job.
pub(super) fn prepare(
    request: &Request,
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
    let workplace = Workplace {
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
        Approval::Ask => asking(get(&overrides, POLICY).or_else(|| config.get(POLICY))),
    };
    let of_profile = request.profile.as_ref().and_then(|_| config.get(PROVIDER));
    let provider = get(&overrides, PROVIDER).or(of_profile);
    let provider = provider.and_then(Value::as_str).map(str::to_owned);
    let settings = Settings {
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
        manner: ModelOptions {
            effort: request.effort,
            ..ModelOptions::default()
        },
        ..Settings::default()
    };
    Ok(Prepared {
        start: Start {
            settings,
            refusals: Refusals::Told,
            patience: Some(Patience {
                approval: request.settings.question_limit(),
                // The worker notices itself when a turn stalls.
                stall: LONGEST_WAIT,
            }),
            // Newer releases remember what a thread could write to before.
            directories: Some(directories),
            ..Start::default()
        },
        sandbox: in_force,
        provider,
        left_out: left_out(&trust),
    })
}

/// The model provider of a turn, unless it is that of the configuration: the one with which
/// its thread began, which keeps it, else the one that is named.
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

/// Checks that the directories and the profile are there, and the same as when the job was
/// submitted.
fn check(request: &Request) -> Result<(), String> {
    if !request.cwd.is_dir() {
        let directory = request.cwd.display();
        return Err(format!(
            "the working directory {directory} is not there, or not a directory"
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

/// The sandbox that Codex is given, unless its configuration has one; and the name of the
/// one that is in force.
fn sandbox(
    request: &Request,
    overrides: &mut Map<String, Value>,
    config: &CodexConfig,
) -> (Option<SandboxMode>, String) {
    let configured = ConfiguredSandbox::of(overrides, config);
    match (request.sandbox, configured) {
        (None, Some(configured)) => {
            // Newer releases resume a thread with the sandbox that it had.
            if request.resume.is_some() {
                configured.set_in(overrides);
            }
            (None, configured.to_string())
        }
        (asked, _) => {
            let mode = asked.unwrap_or(DEFAULT_SANDBOX);
            (Some(mode), word(mode))
        }
    }
}

/// What a new conversation is told of where it works and for whom.
fn context(request: &Request) -> Option<String> {
    let member = request.member.as_ref().filter(|_| request.resume.is_none());
    Some(Context::gather(member?, Some(&request.cwd)).text())
}

/// The policy by which Codex asks: one under which it asks about more is kept.
fn asking(configured: Option<&Value>) -> ApprovalPolicy {
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

/// TOML has no null: a key that is null is left alone.
fn strip_nulls(overrides: &mut Map<String, Value>) {
    overrides.retain(|_, value| !value.is_null());
    for value in overrides.values_mut() {
        if let Value::Object(inner) = value {
            strip_nulls(inner);
        }
    }
}

/// The word that Codex has for a setting.
fn word(setting: impl serde::Serialize) -> String {
    match serde_json::to_value(setting) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Begins a thread, or takes one up.
pub(super) async fn open(
    engine: &Engine,
    resume: Option<&ThreadId>,
    start: Start,
) -> Result<Opened, EngineError> {
    let Some(thread) = resume.cloned() else {
        return engine.start(start).await;
    };
    let resume = Resume { thread, start };
    match engine.resume(resume.clone()).await {
        Err(EngineError::NoThread(thread)) => {
            engine
                .unarchive(&thread)
                .await
                .map_err(|_| EngineError::NoThread(thread))?;
            engine.resume(resume).await
        }
        opened => opened,
    }
}

/// What has become of a turn.
pub(super) enum Progress {
    /// It has ended.
    Ended(Arc<TurnOutcome>),
    /// Other questions are open than before.
    Asking(Vec<Open>),
}

/// Waits until a turn has ended. Codex's questions are declined meanwhile: nobody is
/// there to be asked.
pub(super) async fn ended(
    engine: &Engine,
    turn: &TurnRef,
) -> Result<Arc<TurnOutcome>, EngineError> {
    loop {
        match progress(engine, turn, Approval::Never, &[]).await? {
            Progress::Ended(outcome) => return Ok(outcome),
            Progress::Asking(_) => {}
        }
    }
}

/// Waits until a turn has ended or, where somebody decides what Codex asks, other questions
/// are open than those that were told.
pub(super) async fn progress(
    engine: &Engine,
    turn: &TurnRef,
    approval: Approval,
    told: &[ActionId],
) -> Result<Progress, EngineError> {
    loop {
        let view = engine.inspect(&turn.session)?;
        if let Some((number, outcome)) = &view.outcome
            && *number >= turn.number
        {
            return Ok(Progress::Ended(Arc::clone(outcome)));
        }
        match approval {
            Approval::Never => {
                for open in &view.actions {
                    // It may be answered already.
                    let _ = engine.respond(&turn.session, &open.id, &Decision::Decline, None);
                }
            }
            Approval::Ask => {
                if !view.actions.iter().map(|open| &open.id).eq(told) {
                    return Ok(Progress::Asking(view.actions));
                }
            }
        }
        engine.changed(&turn.session, view.revision).await?;
    }
}

/// How an attempt ends that could not be begun.
pub(super) fn ending(error: EngineError) -> Ending {
    let words = error.to_string();
    match error {
        EngineError::NoThread(thread) => Ending::UnknownSession(thread),
        // The hint of a job says what to do.
        EngineError::NoLogin => {
            Ending::NoLogin("Codex has no login for its model provider".to_owned())
        }
        EngineError::Gone(_) => Ending::Died(words),
        EngineError::ThreadInUse(_)
        | EngineError::Busy(_)
        | EngineError::StillEnding(_)
        | EngineError::Live { .. } => Ending::SessionBusy(words),
        EngineError::Refused { refusal, .. } => Ending::Refused(refusal.message),
        _ => Ending::NotStarted(words),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policy_that_asks_about_more_is_kept() {
        for (configured, policy) in [
            (None, ApprovalPolicy::OnRequest),
            (Some(json!("never")), ApprovalPolicy::OnRequest),
            (Some(json!("untrusted")), ApprovalPolicy::Untrusted),
            (Some(json!({ "granular": {} })), ApprovalPolicy::OnRequest),
        ] {
            assert_eq!(asking(configured.as_ref()), policy, "{configured:?}");
        }
    }
}
