//! The loop of a run: prompts Codex, inspects the repository after each turn, and does what
//! the machine decides.

mod continuation;
mod conversation;
mod inspection;
mod report;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use codex_engine::command::{SessionId, TurnRef, joined};
use codex_engine::logic::progress::CurrentStep;
use codex_engine::{Engine, EngineError, GitGrant, GrantedSettings, Grants, LaunchError};
use codex_protocol::codex::{RateLimits, SandboxMode, ThreadId};
use common::json::lossy_path;
use git_probe::private::{self, PrivateGit};
use git_probe::{Git, Submodules};
use safe_files::off_runtime;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::active_run::ActiveRun;
use super::caller::Caller;
use super::clock::RunClock;
use super::error::{ReadOnlyCause, RunError};
use super::evidence::EvidenceFile;
use super::look::RepoInspector;
use super::record::RunState;
use super::spec::RunSpec;
use super::turn::{Turn, TurnDeadline, TurnResult};
use super::watcher::{RunEvent, Watcher};
use crate::logic::criteria::Grant;
use crate::logic::findings::judge;
use crate::logic::machine::{Conversation, NextStep, Run, RunEnd, TurnEnd, TurnPrompt};
use crate::logic::outcome::{Reason, RunOutcome, Usage};
use crate::logic::prompts::{Inserts, Templates};
use crate::logic::snapshot::{Snapshot, Work};

use continuation::LeftTurn;
use conversation::{NextPrompt, TurnStart};

pub use continuation::resume;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunResult {
    /// The criteria, and what holds.
    #[serde(flatten)]
    pub outcome: RunOutcome,
    /// The conversation with Codex, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    /// The sandbox of its commands, where Codex reports it; for people.
    #[serde(skip)]
    pub sandbox: Option<SandboxMode>,
    /// How many tokens were used.
    pub usage: Usage,
    /// The use of the account's limits, where Codex reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limits: Option<RateLimits>,
    /// Whether the last turn failed at a usage limit of the account.
    #[serde(skip)]
    pub at_usage_limit: bool,
    /// Codex's last message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub response: String,
    /// The file of the evidence, a line of JSON for each turn.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lossy_path")]
    pub evidence_file: Option<PathBuf>,
    /// Warnings, each with what to do about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl RunResult {
    /// The same result, with the cause of a read-only sandbox, and what to do about it, if the run
    /// has ended for that reason.
    #[must_use]
    pub fn with_cause(mut self, cause: impl FnOnce() -> ReadOnlyCause, caller: Caller) -> Self {
        if self.outcome.reason == Some(Reason::ReadOnly) {
            self.outcome.why = Some(cause().explained(caller));
        }
        self
    }
}

/// The services and inputs of a run.
pub struct RunContext<'a, W> {
    /// Runs Codex's app-server.
    pub engine: &'a Engine,
    /// Gets the events of the run, and answers questions.
    pub watcher: &'a W,
    /// Cancelled when nobody wants the run any more.
    pub stop: &'a CancellationToken,
    /// The templates of the prompts.
    pub templates: &'a Templates,
    /// The file for the evidence, if it is wanted.
    pub evidence: Option<EvidenceFile>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
    /// The repository's submodules as they were before Codex began.
    pub submodules: &'a Submodules,
    /// The name of the run, by which a second attempt finds the files of the first one:
    /// letters, digits and dashes.
    pub name: String,
}

impl<W: Watcher> RunContext<'_, W> {
    /// Marks the run as active until the mark is dropped, and warns of another one that is active in
    /// the same directory.
    async fn mark_active(&mut self, top: &Path) -> Option<ActiveRun> {
        let (top, caller) = (top.to_owned(), self.watcher.caller());
        let begin = move || {
            let active = ActiveRun::begin(&top);
            let warning = active.as_ref().and_then(|run| run.warning(caller));
            (active, warning)
        };
        let (active, warning) = off_runtime::run(begin).await.unwrap_or_default();
        self.warn(warning);
        active
    }

    fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.watcher.on_event(RunEvent::Warning(&warning));
                self.warnings.push(warning);
            }
        }
    }
}

/// Drives a run until it is over.
///
/// # Errors
///
/// [`RunError`] if the run could not begin. Codex got no prompt then.
pub async fn drive<W: Watcher>(
    mut context: RunContext<'_, W>,
    spec: &RunSpec,
    mut inspector: RepoInspector,
) -> Result<RunResult, RunError> {
    spec.check()?;
    let caller = context.watcher.caller();
    let _active = context.mark_active(inspector.top()).await;
    if let Some(git) = git_for_commits(spec, &inspector) {
        // Before the snapshot of the start: commits of earlier runs do not belong to this run.
        let recovered = private::recover(git, &context.name, context.stop).await;
        context.warn(recovered);
    }
    let start = inspector.start().await?;
    let private = private_git(&context.name, spec, &inspector).await?;
    if private.is_some() {
        context.warn(uncommitted_warning(&start, caller));
    }
    let of_rules = context
        .engine
        .git_rules_warning(spec.settings.thread.sandbox);
    context.warn(of_rules);
    let granted = granted_settings(context.engine, spec, inspector.top(), private.as_ref()).await?;
    let verdict = judge(
        &spec.criteria,
        &start,
        &start,
        &Work::default(),
        spec.preexisting,
    );
    context.watcher.on_event(RunEvent::Begins {
        top: inspector.top(),
        verdict: &verdict,
    });
    let state = RunState::new(start, verdict, spec.thread.clone());
    let clock = RunClock::start();
    let driver = Driver::new(context, spec, inspector, private, granted, state, clock);
    driver.drive().await
}

/// Instructions for Codex about its private git directory.
const ABOUT_GIT: &str = "Git uses a private git directory here (GIT_DIR, GIT_COMMON_DIR and \
    GIT_WORK_TREE are set); what you commit, push or check out is taken over into the repository \
    after your turn. Its settings cannot be changed: use `git -c KEY=VALUE`. \
    Before you run git in another repository, or tests that do, run: \
    unset $(git rev-parse --local-env-vars)";

/// Git, if criteria want commits and there is a repository.
fn git_for_commits<'a>(spec: &RunSpec, inspector: &'a RepoInspector) -> Option<&'a Git> {
    let is_wanted = spec.criteria.grants().contains(&Grant::GitDirectory);
    inspector.git().filter(|_| is_wanted)
}

/// The git directory in which Codex commits, if criteria want commits.
async fn private_git(
    run: &str,
    spec: &RunSpec,
    inspector: &RepoInspector,
) -> Result<Option<PrivateGit>, RunError> {
    let Some(git) = git_for_commits(spec, inspector) else {
        return Ok(None);
    };
    let opened = PrivateGit::open(git, run).await;
    let opened = opened.map_err(|error| RunError::PrivateGit(error.to_string()))?;
    Ok(Some(opened))
}

/// How many uncommitted files the warning names.
const FILES_NAMED: usize = 3;

/// The warning that Codex may commit changes of the user.
fn uncommitted_warning(start: &Snapshot, caller: Caller) -> Option<String> {
    let dirty = &start.tree.found()?.state.dirty;
    let mut names: Vec<&str> = dirty.keys().map(String::as_str).take(FILES_NAMED).collect();
    if dirty.len() > FILES_NAMED {
        names.push("…");
    }
    (!dirty.is_empty()).then(|| {
        format!(
            "uncommitted changes of yours ({}: {}) can get into Codex's commits, as by `git add \
             --all`: with {} Codex works on a copy without them",
            dirty.len(),
            names.join(", "),
            caller.worktree()
        )
    })
}

/// The permissions that the criteria need.
fn grants(spec: &RunSpec, private: Option<&PrivateGit>) -> Grants {
    let grants = spec.criteria.grants();
    Grants {
        git: private.map(|private| GitGrant {
            directory: private.path(),
            variables: private.variables().into(),
        }),
        network: grants.contains(&Grant::Network),
    }
}

/// The settings of the spec for work at `top`, with what Codex is told about its git directory and the
/// permissions that the criteria need; and these permissions.
async fn granted_settings(
    engine: &Engine,
    spec: &RunSpec,
    top: &Path,
    private: Option<&PrivateGit>,
) -> Result<(GrantedSettings, Grants), RunError> {
    let grants = grants(spec, private);
    let mut settings = spec.settings.clone();
    settings.thread.cwd = Some(top.to_owned());
    if private.is_some() {
        let behind = &mut settings.added.behind;
        *behind = joined(behind.take(), Some(ABOUT_GIT.to_owned()));
    }
    let granted = engine.with_grants(settings, &grants).await;
    Ok((granted.map_err(RunError::from)?, grants))
}

struct Driver<'a, W> {
    context: RunContext<'a, W>,
    spec: &'a RunSpec,
    inspector: RepoInspector,
    granted: GrantedSettings,
    grants: Grants,
    /// The git directory in which Codex commits.
    private: Option<PrivateGit>,
    clock: Rc<RunClock>,
    state: RunState,
    session: Option<SessionId>,
    /// The sandbox that the next prompt has to apply to a resumed thread: newer releases remember
    /// the sandbox of the thread's earlier turns.
    sandbox_to_reapply: Option<SandboxMode>,
    /// Why no conversation could be opened, until the first turn reports it.
    open_error: Option<EngineError>,
    /// The review after the last turn, until the turn is recorded.
    review: Option<String>,
}

impl<'a, W> Driver<'a, W> {
    /// The driver of a run in which no conversation is open.
    fn new(
        context: RunContext<'a, W>,
        spec: &'a RunSpec,
        inspector: RepoInspector,
        private: Option<PrivateGit>,
        (granted, grants): (GrantedSettings, Grants),
        state: RunState,
        clock: RunClock,
    ) -> Self {
        Self {
            context,
            spec,
            inspector,
            granted,
            grants,
            private,
            clock: Rc::new(clock),
            state,
            session: None,
            sandbox_to_reapply: None,
            open_error: None,
            review: None,
        }
    }
}

impl<W: Watcher> Driver<'_, W> {
    async fn drive(mut self) -> Result<RunResult, RunError> {
        self.open_first().await?;
        let (run, first) = Run::start(self.spec.limits);
        self.drive_from(run, first, None).await
    }

    /// Drives the run from a turn to its end. `left` is that turn if another process has begun it.
    async fn drive_from(
        mut self,
        mut run: Run,
        mut wanted: TurnPrompt,
        mut left: Option<LeftTurn>,
    ) -> Result<RunResult, RunError> {
        let (end, inspection) = loop {
            let (began, result) = match left.take() {
                Some(left) => (left.began, self.left_turn(&mut run, left).await),
                None => {
                    self.context.watcher.on_event(RunEvent::Turn(&wanted));
                    let began = self.clock.elapsed();
                    (began, self.turn(&mut run, &wanted).await?)
                }
            };
            let took = self.clock.elapsed().saturating_sub(began);
            self.context.watcher.on_event(RunEvent::Looking);
            let inspection = self.inspect(&result).await;
            let report = self.report(&result, &inspection.now);
            self.record(&wanted, result, &report, took);
            if self.context.stop.is_cancelled() {
                // No turn runs that could be interrupted, so only the machine has to know.
                run.stop();
            }
            match run.step(&report, self.clock.elapsed()) {
                Some(NextStep::Prompt(next)) => wanted = next,
                Some(NextStep::End(end)) => break (end, inspection),
                // The machine does not interrupt a turn that has ended.
                Some(NextStep::Interrupt) | None => break (RunEnd::Cancelled, inspection),
            }
        };
        let (end, now) = self.confirm(end, inspection).await;
        Ok(self.finish(end, &now, run.turns()).await)
    }

    /// Gives Codex a prompt and waits until the turn has ended.
    async fn turn(&mut self, run: &mut Run, wanted: &TurnPrompt) -> Result<TurnResult, RunError> {
        if self.context.stop.is_cancelled() {
            run.stop();
            return Ok(TurnResult::nothing(TurnEnd::Interrupted));
        }
        let next = NextPrompt {
            text: self.prompt(wanted),
            wanted: *wanted,
            run: run.clone(),
        };
        if wanted.conversation == Conversation::New {
            (self.state.thread, self.session) = (None, None);
        }
        let clock = Rc::clone(&self.clock);
        let mut deadline = TurnDeadline::new(run, &clock, self.context.stop);
        let started = self.start_turn(next, &mut deadline).await;
        if !matches!(started, Ok(TurnStart::Turn(..))) {
            // The record says that this turn is about to begin.
            self.context.watcher.keep(|| None).await;
        }
        let (turn, reported) = match started {
            Ok(TurnStart::Turn(turn, reported)) => (turn, reported),
            Ok(TurnStart::TooLate(why)) => return Ok(TurnResult::nothing(why)),
            Err(RunError::Engine(error)) => return Ok(TurnResult::failed(&error)),
            // Codex was found before the first turn, so only this turn fails.
            Err(RunError::NoCodex(none)) => {
                let error = Arc::new(LaunchError::NoCodex(none));
                return Ok(TurnResult::failed(&error.into()));
            }
            // The run continues, as the work of earlier turns must not be lost.
            Err(error) if !self.state.log.is_empty() => return Ok(TurnResult::refused_by(&error)),
            Err(error) => return Err(error),
        };
        Ok(self.follow(turn, reported, deadline).await)
    }

    /// Waits until a turn has ended. `reported` is the last step that the watcher knows.
    async fn follow(
        &self,
        turn: TurnRef,
        reported: CurrentStep,
        deadline: TurnDeadline<'_>,
    ) -> TurnResult {
        let used = self.state.usage.total_tokens;
        let (engine, watcher) = (self.context.engine, self.context.watcher);
        let turn = Turn::new(engine, watcher, turn, reported, used);
        let ended = turn.wait_for_end(deadline).await;
        // Needed if the turn was lost while a question was open.
        self.clock.resume();
        ended.unwrap_or_else(|error| TurnResult::failed(&error))
    }

    fn prompt(&self, wanted: &TurnPrompt) -> String {
        let criteria = self.spec.criteria.iter();
        let criteria: Vec<String> = criteria.map(|criterion| criterion.requirement()).collect();
        let directory = self.inspector.top().display().to_string();
        let inserts = Inserts {
            task: &self.spec.task,
            repo: &directory,
            criteria: &criteria,
            missing: &self.state.verdict.instructions(),
            errors: &self.state.errors,
            turn: wanted.turn,
            max_turns: self.spec.limits.turns(),
        };
        self.context.templates.get(wanted.kind).fill(&inserts)
    }
}
