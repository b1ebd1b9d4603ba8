//! `codex-mcp run`: Codex works until the result is there.

mod approval;
mod args;
mod failure;
mod present;
mod resume;
mod show;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use codex_config::profile;
use codex_engine::command::Alerted;
use codex_engine::logic::session::{self, Alert};
use codex_engine::{Engine, Launch, Options};
use codex_protocol::codex::SandboxMode;
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use common::output;
use goal_run::logic::outcome::{Reason, blocked};
use goal_run::look::{InspectOptions, RepoInspector};
use goal_run::notify::{self, Alerts, Lookup, Notice, Telling, Told};
use goal_run::order::{Approve, Order, Place};
use goal_run::worktree::{Kept, Worktree};
use goal_run::{
    ANSWER_LIMIT, Caller, ChosenTemplates, Done, EvidenceFile, ReadOnlyCause, RunContext, RunError,
    drive, templates_for,
};
use mcp_server::Defaults;
use safe_files::off_runtime;
use serde_json::{Value, json};
use settings::{Config, Warning};
use uuid::Uuid;

use super::ending::{self, Ending};
use super::exit::{self, COULD_NOT};
use super::jobs_of::jobs_of;
use super::services::Identity;
use super::stored::complain;
use super::{alerts, log, own_servers, runtime};
use approval::Approver;
use failure::Failure;
use present::Result as RunResult;
use resume::Purpose;
use show::Show;

pub(super) use args::Args;

/// How much longer a question stays open than a person is waited for, so that the answer is
/// always ours.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

pub(super) fn run(args: &Args) -> ExitCode {
    log::start_quietly();
    let ending = OnceLock::new();
    match act(args, &ending) {
        Ok(code) => code,
        Err(error) => {
            if args.json() {
                // If it can't be written, the exit code has to tell.
                let _ = output::json(&could_not_run(&error));
            }
            complain("error", &error.to_string());
            ExitCode::from(code_of_signal(ending.get()).unwrap_or(COULD_NOT))
        }
    }
}

/// What programs are told of a run that could not begin.
fn could_not_run(error: &Failure) -> Value {
    json!({
        "ok": false,
        "artifacts": [],
        "partial": [],
        "evidence": { "criteria": [], "log": [] },
        "turns": 0,
        "reason": "could_not_run",
        "why": error.to_string(),
    })
}

/// The exit code of a run that a signal has ended.
fn code_of_signal(ending: Option<&Ending>) -> Option<u8> {
    ending.and_then(Ending::signal).map(exit::of_signal)
}

fn act(args: &Args, ending: &OnceLock<Ending>) -> Result<ExitCode, Failure> {
    let config = settings::load(args.flags())?;
    for Warning { message, hint } in &config.warnings {
        complain("warning", &format!("{message}. {hint}"));
    }
    if let Some(profile) = &args.profile {
        profile::check_exists(&config.codex_home, profile)?;
    }
    let mut order = args.order()?;
    if let Some(thread) = &args.thread {
        order.thread = Some(thread.resolve(&config.codex_home, &config.atm_home)?);
    }
    order.check()?;
    runtime::block_on(async {
        let ending = ending.get_or_init(|| Ending::on_signals(ending::OF_A_RUN));
        tokio::select! {
            code = perform(args, &config, order, ending) => code,
            () = ending.hurry.cancelled() => {
                complain("error", "called off for good: what Codex has done until now stays");
                Ok(ExitCode::from(code_of_signal(Some(ending)).unwrap_or(COULD_NOT)))
            }
        }
    })
    .map_err(Failure::Runtime)?
}

/// A run in the worktree that it wants.
async fn perform(
    args: &Args,
    config: &Config,
    mut order: Order,
    ending: &Ending,
) -> Result<ExitCode, Failure> {
    let worktree = match order.place {
        Place::Here => None,
        Place::Worktree => {
            let home = config.jobs.state.join("worktrees");
            let means = InspectOptions {
                halt: ending.closing.clone(),
                ..InspectOptions::default()
            };
            Some(Worktree::make(&order.repo, &home, means).await?)
        }
    };
    if let Some(worktree) = &worktree {
        order.repo.clone_from(&worktree.directory);
    }
    let worked = as_a_member(args, config, &order, ending).await;
    let made = worked
        .as_ref()
        .is_ok_and(|(done, _)| !done.outcome.made().is_empty());
    let kept = match worktree {
        Some(worktree) => Kept::tidied(worktree, made).await,
        None => None,
    };
    let (done, told) = worked?;
    let resume_command = resume_command(args, &order, &done, kept.as_ref());
    let read_only = may_lack_writing(&done).then_some(match args.sandbox {
        Some(_) => READ_ONLY_AS_ASKED,
        None => READ_ONLY,
    });
    let result = RunResult {
        read_only,
        done,
        kept,
        told,
        resume_command,
    };
    let shown = match args.json() {
        true => output::json(&json!(result)),
        false => result.present(),
    };
    match shown {
        // Whoever read it has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    let reason = result.done.outcome.reason;
    let signalled = code_of_signal(Some(ending)).filter(|_| reason == Some(Reason::Cancelled));
    Ok(ExitCode::from(
        signalled.unwrap_or_else(|| exit::of_run(reason)),
    ))
}

/// How the thread of a run is continued; not after one that could not work.
fn resume_command(args: &Args, order: &Order, done: &Done, kept: Option<&Kept>) -> Option<String> {
    let purpose = match done.outcome.reason {
        None => Purpose::More,
        Some(Reason::CouldNotRun) => return None,
        Some(_) => Purpose::Rest,
    };
    let worktree = kept.and_then(|kept| kept.path.as_deref());
    let repo = match order.place {
        Place::Here => order.repo.clone(),
        // One that is removed was a worktree of this repository.
        Place::Worktree => worktree.map_or_else(|| args.repo(), Path::to_owned),
    };
    let thread = done.thread_id.as_ref()?;
    let sandbox = args.sandbox.or_else(|| {
        let wider = SandboxMode::WorkspaceWrite;
        may_lack_writing(done).then_some(wider)
    });
    Some(args.resume_command(&repo, thread, sandbox, purpose))
}

/// What is said of a read-only sandbox in which a run did not get what was asked for.
const READ_ONLY: &str = "Codex's sandbox was read-only, so it could change nothing; the command \
    below has --sandbox workspace-write";

/// The same where the sandbox was named: the command names the same one.
const READ_ONLY_AS_ASKED: &str = "Codex's sandbox was read-only, as --sandbox says, so it could \
    change nothing; to let it change files, name --sandbox workspace-write";

/// Whether a run may have failed for want of a sandbox in which files can be changed.
fn may_lack_writing(done: &Done) -> bool {
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

/// A run by a member of a team, who tells others of its end.
async fn as_a_member(
    args: &Args,
    config: &Config,
    order: &Order,
    ending: &Ending,
) -> Result<(Done, Vec<Told>), Failure> {
    let identity = Identity::take(config, "app-server").without_summaries();
    identity.join(config);
    let engine = engine(config, &identity, order);
    let worked = work(args, config, &identity, &engine, order, ending).await;
    engine.shut_down().await;
    let told = match &worked {
        Ok(done) => {
            let number = number(config, &identity, order).await;
            let line = done.outcome.notice(number);
            tell(config, &identity, order, &line, &json!(done)).await
        }
        Err(error) => {
            let line = blocked(&error.to_string());
            tell(config, &identity, order, &line, &could_not_run(error)).await
        }
    };
    identity.close(&ending.hurry).await;
    worked.map(|done| (done, told))
}

fn engine(config: &Config, identity: &Identity, order: &Order) -> Engine {
    let engine = Engine::new(Options {
        launch: Launch {
            codex: config.chosen_codex(),
            line_limit: DEFAULT_LINE_LIMIT,
        },
        codex_home: config.codex_home.clone(),
        patience: session::Patience {
            approval: ANSWER_LIMIT + ANSWER_MARGIN,
            stall: config.alerts.stall_timeout.value,
        },
    })
    .with_tools(own_servers::tools_of_a_member(config, identity))
    // The run tells what was left out.
    .with_warnings(drop);
    let engine = with_alerts(engine, config, identity, order);
    match identity.services.records.clone() {
        Some(records) => engine.with_witness(records),
        None => engine,
    }
}

/// The engine of a run that tells others when its user is asked, or a turn has stalled.
fn with_alerts(engine: Engine, config: &Config, identity: &Identity, order: &Order) -> Engine {
    if order.notify.is_empty() {
        return engine;
    }
    let teller = alerts::teller(config, identity, order.repo.clone());
    let alerts = Alerts::start(order.notify.clone(), teller);
    let asks = order.approve == Approve::Ask;
    engine.with_alerts(move |Alerted { thread, alert, .. }| {
        // Other questions are answered at once.
        if asks || matches!(alert, Alert::Stalled { .. }) {
            let names = json!({ "thread_id": thread });
            alerts.give(Notice::of(&format!("thread {thread}"), &names, &alert));
        }
    })
}

async fn work(
    args: &Args,
    config: &Config,
    identity: &Identity,
    engine: &Engine,
    order: &Order,
    ending: &Ending,
) -> Result<Done, Failure> {
    let means = InspectOptions {
        stop: ending.closing.clone(),
        ..InspectOptions::default()
    };
    let looker = RepoInspector::at(&order.repo, &order.criteria, means).await;
    let looker = looker.map_err(RunError::from)?;
    check_notifiers(config, identity, order).await?;
    let (top, home) = (looker.top().to_owned(), config.codex_home.clone());
    let threads = config.threads.clone();
    let read = move || (templates_for(&top, &home), Defaults::read(&threads));
    let (templates, defaults) = off_runtime::run(read).await.map_err(Failure::Files)?;
    let ChosenTemplates {
        templates,
        warnings: of_repository,
    } = templates?;
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let more = identity.warnings.iter().cloned().chain(of_repository);
    let more = more.filter(|text| !warnings.contains(text));
    let mut more: Vec<String> = more.inspect(|text| complain("warning", text)).collect();
    let defaults = defaults?.for_member(identity.member.clone());
    let mut order = order.clone();
    order.settings.thread.cwd = Some(looker.top().to_owned());
    order.settings = defaults.under(order.settings).await;
    let show = Show::new(Approver::new(order.approve), order.limits.turns());
    let evidence = evidence(args, config)?;
    // From here on nothing returns before `finish`.
    let (submodules, not_noted) = looker.submodules().await;
    for warning in &not_noted {
        complain("warning", warning);
    }
    more.extend(not_noted);
    let rig = RunContext {
        engine,
        watcher: &show,
        stop: &ending.closing,
        templates: &templates,
        evidence: Some(evidence),
        warnings: [warnings, more].concat(),
        submodules: &submodules,
        name: Uuid::new_v4().simple().to_string(),
    };
    let mut driven = tokio::select! {
        driven = Box::pin(drive(rig, &order, looker)) => driven,
        never = show.tick() => match never {},
    };
    driven = driven.map_err(|error| {
        let explained = error.explained(|| read_only_cause(config, &order));
        explained.told_to(Caller::Shell)
    });
    engine.shut_down().await;
    // What Codex had started may have gone on until now.
    let mut restored = submodules.finish().await;
    if let Ok(done) = &mut driven {
        restored.retain(|what| !done.warnings.contains(what));
        done.warnings.extend(restored.iter().cloned());
    }
    for warning in &restored {
        complain("warning", warning);
    }
    Ok(driven?)
}

/// Whether those who are to be told of the end can be, as far as that is known.
async fn check_notifiers(
    config: &Config,
    identity: &Identity,
    order: &Order,
) -> Result<(), Failure> {
    let lookup = Lookup {
        team: identity.member.team.clone(),
        atm_home: config.atm_home.clone(),
        directory: order.repo.clone(),
    };
    let notify = order.notify.clone();
    let checked = off_runtime::run(move || lookup.check(&notify)).await;
    let checked = checked.map_err(Failure::Files)?;
    Ok(checked.map_err(|error| RunError::from(error).told_to(Caller::Shell))?)
}

fn evidence(args: &Args, config: &Config) -> Result<EvidenceFile, Failure> {
    let directory = config.jobs.state.join("runs");
    let (path, made) = match args.evidence() {
        Some(path) => (path, EvidenceFile::at(path)),
        None => (&directory, EvidenceFile::new_in(&directory)),
    };
    made.map_err(|error| Failure::Evidence {
        path: path.clone(),
        error,
    })
}

/// The number by which others know the run; only they need one.
async fn number(config: &Config, identity: &Identity, order: &Order) -> u64 {
    if order.notify.is_empty() {
        return 0;
    }
    let jobs = jobs_of(config, &identity.member, "codex-mcp run", |_| {});
    let number = jobs.number_of_a_run().await;
    number.unwrap_or_else(|error| {
        complain("warning", &format!("the run has no number: {error}"));
        0
    })
}

/// Tells others. What fails is told, and fails nothing.
async fn tell(
    config: &Config,
    identity: &Identity,
    order: &Order,
    line: &str,
    result: &Value,
) -> Vec<Told> {
    let teller = alerts::teller(config, identity, order.repo.clone());
    notify::tell_all(&order.notify, Telling { line, result }, &teller).await
}

/// What makes the sandbox of a run at a shell read-only.
fn read_only_cause(config: &Config, order: &Order) -> ReadOnlyCause {
    let set = config.threads.sandbox.as_ref();
    match set.filter(|set| set.value == SandboxMode::ReadOnly) {
        Some(set) => ReadOnlyCause::Setting(format!("sandbox ({})", set.source)),
        None => ReadOnlyCause::of_codex(&order.repo, &config.codex_home),
    }
}
