//! `codex-mcp run`: turns of Codex until all criteria hold, in this process or as a job.

mod approval;
mod args;
mod execution;
mod failure;
mod present;
mod resume;
mod show;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use codex_config::profile;
use codex_engine::command::SessionAlert;
use codex_engine::logic::session::{self, AlertKind};
use codex_engine::{Engine, Launch, Options};
use codex_protocol::codex::SandboxMode;
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use common::output;
use goal_run::ANSWER_LIMIT;
use goal_run::logic::criteria::Grant;
use goal_run::logic::outcome::{Reason, blocked};
use goal_run::look::InspectOptions;
use goal_run::notify::{self, Alerts, Delivery, Notice, Notification};
use goal_run::spec::{Approve, RunSpec, WorkspaceMode};
use goal_run::worktree::{KeptWorktree, Worktree};
use serde_json::{Value, json};
use settings::Config;

use super::exit::{self, COULD_NOT};
use super::job_service::job_service;
use super::services::Identity;
use super::shutdown::{self, Shutdown};
use super::stored::complain;
use super::{alerts, injected_servers, jobs, log, runtime};
use failure::Failure;
use present::RunReport;
use resume::{Continuation, Purpose};

pub(super) use args::Args;

/// The time by which a question stays open in the engine longer than a person may take to answer
/// it, so that the answer always comes from us.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

pub(super) fn run(args: &Args) -> ExitCode {
    log::start_quietly();
    let shutdown = OnceLock::new();
    match act(args, &shutdown) {
        Ok(code) => code,
        Err(error) => {
            if args.json() {
                // If it cannot be written, the exit code reports the error.
                let _ = output::json(&could_not_run(&error));
            }
            complain("error", &error.to_string());
            ExitCode::from(code_of_signal(shutdown.get()).unwrap_or(COULD_NOT))
        }
    }
}

/// The JSON result of a run that could not start.
fn could_not_run(error: &Failure) -> Value {
    json!({
        "ok": false,
        "artifacts": [],
        "partial": [],
        "evidence": { "criteria": [], "log": [] },
        "turns": 0,
        "reason": error.reason(),
        "why": error.to_string(),
    })
}

/// The exit code of a run that a signal has ended.
fn code_of_signal(shutdown: Option<&Shutdown>) -> Option<u8> {
    shutdown.and_then(Shutdown::signal).map(exit::signal_code)
}

fn act(args: &Args, shutdown: &OnceLock<Shutdown>) -> Result<ExitCode, Failure> {
    let config = settings::load(args.flags())?;
    for warning in &config.warnings {
        complain("warning", &warning.to_string());
    }
    if let Some(profile) = &args.profile {
        profile::check_exists(&config.codex_home, profile)?;
    }
    let mut spec = args.spec()?;
    if let Some(thread) = &args.thread {
        spec.thread = Some(thread.resolve(&config.codex_home, &config.atm_home)?);
    }
    spec.check()?;
    if args.detach {
        return detach(args, &config, spec);
    }
    runtime::block_on(async {
        let shutdown = shutdown.get_or_init(|| Shutdown::on_signals(shutdown::RUN_LIMIT));
        let commits = spec.criteria.grants().contains(&Grant::GitDirectory);
        let worktree = OnceLock::new();
        tokio::select! {
            code = perform(args, &config, spec, shutdown, &worktree) => code,
            () = shutdown.hurry.cancelled() => {
                let worktree = worktree.get().map(PathBuf::as_path);
                complain("error", &interrupted_twice(worktree, commits));
                Ok(ExitCode::from(code_of_signal(Some(shutdown)).unwrap_or(COULD_NOT)))
            }
        }
    })
    .map_err(Failure::Runtime)?
}

/// Submits the run as a job.
fn detach(args: &Args, config: &Config, spec: RunSpec) -> Result<ExitCode, Failure> {
    let submitting = jobs::submit_run(config, args.job(spec), args.json());
    match runtime::block_on(submitting).map_err(Failure::Runtime)? {
        Ok(code) => Ok(code),
        // The reader has closed the pipe.
        Err(jobs::Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(Failure::Detach(Box::new(error))),
    }
}

/// The message of a run that a second signal has ended.
fn interrupted_twice(worktree: Option<&Path>, commits: bool) -> String {
    let place = match worktree.filter(|top| top.is_dir()) {
        Some(top) => format!(" in {}", top.display()),
        None => String::new(),
    };
    let commits = match commits {
        true => "; the next run in this repository that commits imports Codex's commits",
        false => "",
    };
    format!("interrupted twice: exiting now; Codex's changes are kept{place}{commits}")
}

/// Runs the spec, in a worktree if the spec requests one. The top of the worktree is stored in
/// `top`.
async fn perform(
    args: &Args,
    config: &Config,
    mut spec: RunSpec,
    shutdown: &Shutdown,
    top: &OnceLock<PathBuf>,
) -> Result<ExitCode, Failure> {
    let worktree = match spec.workspace {
        WorkspaceMode::Here => None,
        WorkspaceMode::Worktree => {
            let home = config.jobs.state.join("worktrees");
            let options = InspectOptions {
                halt: shutdown.closing.clone(),
                ..InspectOptions::default()
            };
            Some(Worktree::make(&spec.repo, &home, options).await?)
        }
    };
    if let Some(worktree) = &worktree {
        spec.repo.clone_from(&worktree.directory);
        // Nothing else sets it.
        let _ = top.set(worktree.top.clone());
    }
    let worked = run_as_member(args, config, &spec, shutdown).await;
    let made = worked
        .as_ref()
        .is_ok_and(|(done, _)| !done.outcome.made().is_empty());
    let kept = match worktree {
        Some(worktree) => KeptWorktree::after_cleanup(worktree, made).await,
        None => None,
    };
    let (done, told) = worked?;
    let continuation = continuation(args, &spec, &done, kept.as_ref());
    let read_only = may_lack_writing(&done).then_some(match args.sandbox {
        Some(_) => READ_ONLY_AS_ASKED,
        None => READ_ONLY,
    });
    let result = RunReport {
        read_only,
        done,
        kept,
        told,
        continuation,
    };
    let shown = match args.json() {
        true => output::json(&json!(result)),
        false => result.present(),
    };
    match shown {
        // The reader has closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    let reason = result.done.outcome.reason;
    let signalled = code_of_signal(Some(shutdown)).filter(|_| reason == Some(Reason::Cancelled));
    Ok(ExitCode::from(
        signalled.unwrap_or_else(|| exit::run_code(reason)),
    ))
}

/// How the thread of a run is continued; nothing if Codex could not work.
fn continuation(
    args: &Args,
    spec: &RunSpec,
    done: &goal_run::RunResult,
    kept: Option<&KeptWorktree>,
) -> Continuation {
    let purpose = match done.outcome.reason {
        None => Purpose::NewTask,
        Some(Reason::CouldNotRun) => return Continuation::default(),
        Some(_) => Purpose::Remaining(&done.outcome),
    };
    let Some(thread) = &done.thread_id else {
        return Continuation::default();
    };
    let worktree = kept.and_then(|kept| kept.path.as_deref());
    let repo = match spec.workspace {
        WorkspaceMode::Here => spec.repo.clone(),
        // A worktree that was removed belonged to this repository.
        WorkspaceMode::Worktree => worktree.map_or_else(|| args.repo(), Path::to_owned),
    };
    let wider = Some(SandboxMode::WorkspaceWrite);
    let sandbox = match done.outcome.reason {
        // In the same sandbox, the next run would end in the same way.
        Some(Reason::ReadOnly) => wider,
        _ if may_lack_writing(done) => args.sandbox.or(wider),
        _ => args.sandbox,
    };
    args.continuation(&repo, thread, sandbox, purpose)
}

/// The hint for a run that missed its criteria in a read-only sandbox.
const READ_ONLY: &str = "Codex's sandbox was read-only, so it could change nothing; the command \
    below has --sandbox workspace-write";

/// The same hint where `--sandbox` named the sandbox: the resume command names the same one.
const READ_ONLY_AS_ASKED: &str = "Codex's sandbox was read-only, as --sandbox says, so it could \
    change nothing; to let it change files, use --sandbox workspace-write";

/// Whether a run may have failed because its sandbox was read-only.
fn may_lack_writing(done: &goal_run::RunResult) -> bool {
    done.sandbox == Some(SandboxMode::ReadOnly)
        && matches!(
            done.outcome.reason,
            Some(
                Reason::Stalled
                    | Reason::MaxTurnsExceeded
                    | Reason::TotalTimeExceeded
                    | Reason::MaxTokensExceeded
            )
        )
}

/// Runs as a member of the team, and notifies others of the end.
async fn run_as_member(
    args: &Args,
    config: &Config,
    spec: &RunSpec,
    shutdown: &Shutdown,
) -> Result<(goal_run::RunResult, Vec<Delivery>), Failure> {
    let identity = Identity::take(config, "app-server", None).without_summaries();
    identity.join(config);
    let engine = engine(config, &identity, spec);
    let worked = execution::execute(args, config, &identity, &engine, spec, shutdown).await;
    engine.shut_down().await;
    let told = match &worked {
        Ok(done) => {
            let number = number(config, &identity, spec).await;
            let line = done.outcome.notice(number);
            tell(config, &identity, spec, &line, &json!(done)).await
        }
        Err(error) => {
            let line = blocked(&error.to_string());
            tell(config, &identity, spec, &line, &could_not_run(error)).await
        }
    };
    identity.close(&shutdown.hurry).await;
    worked.map(|done| (done, told))
}

fn engine(config: &Config, identity: &Identity, spec: &RunSpec) -> Engine {
    let engine = Engine::new(Options {
        launch: Launch {
            codex: config.chosen_codex(),
            line_limit: DEFAULT_LINE_LIMIT,
        },
        codex_home: config.codex_home.clone(),
        timeouts: session::Timeouts {
            approval: ANSWER_LIMIT + ANSWER_MARGIN,
            stall: config.alerts.stall_timeout.value,
        },
    })
    .with_tools(injected_servers::member_tools(config, identity))
    // The run reports the settings that were left out.
    .with_warnings(drop);
    let engine = with_alerts(engine, config, identity, spec);
    match identity.services.records.clone() {
        Some(records) => engine.with_observer(records),
        None => engine,
    }
}

/// Adds alerts to the engine of a run: others are notified when its user is asked, or a turn has
/// stalled.
fn with_alerts(engine: Engine, config: &Config, identity: &Identity, spec: &RunSpec) -> Engine {
    if spec.notify.is_empty() {
        return engine;
    }
    let notifiers = alerts::notifiers(config, identity, spec.repo.clone());
    let alerts = Alerts::start(spec.notify.clone(), notifiers);
    let asks = spec.approve == Approve::Ask;
    engine.with_alerts(move |SessionAlert { thread, alert, .. }| {
        // Without a person, questions are answered at once. The end of the run is reported, not
        // that of each turn.
        let is_reported = match alert.kind() {
            AlertKind::Asks => asks,
            AlertKind::Stalls => true,
            AlertKind::Ends => false,
        };
        if is_reported {
            let names = json!({ "thread_id": thread });
            alerts.give(Notice::of(&format!("thread {thread}"), &names, &alert));
        }
    })
}

/// The number of the run in its notices; 0 without notifiers.
async fn number(config: &Config, identity: &Identity, spec: &RunSpec) -> u64 {
    if spec.notify.is_empty() {
        return 0;
    }
    let jobs = job_service(config, &identity.member, "codex-mcp run", |_| {});
    let number = jobs.next_run_number().await;
    number.unwrap_or_else(|error| {
        complain("warning", &format!("the run has no number: {error}"));
        0
    })
}

/// Notifies others. A failed notice is reported, and does not fail the run.
async fn tell(
    config: &Config,
    identity: &Identity,
    spec: &RunSpec,
    line: &str,
    result: &Value,
) -> Vec<Delivery> {
    let notifiers = alerts::notifiers(config, identity, spec.repo.clone());
    notify::notify_all(&spec.notify, Notification { line, result }, &notifiers).await
}
