//! An attempt at a run: turns of one thread until its criteria hold, with its own engine.

use std::cell::OnceCell;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use agent_team::Context;
use codex_config::layers::get;
use codex_config::{profile, writable_roots};
use codex_engine::binary;
use codex_engine::command::SessionAlert;
use codex_engine::logic::session::{Alert, Timeouts as SessionTimeouts};
use codex_engine::{Engine, Launch, LimitReached, Options};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use git_probe::Submodules;
use goal_run::logic::outcome::{Reason, blocked};
use goal_run::look::{InspectOptions, RepoInspector};
use goal_run::notify::NotifierCheck;
use goal_run::spec::{Approve, RunSpec, WorkspaceMode};
use goal_run::worktree::{self, Worktree};
use goal_run::{EvidenceFile, ReadOnlyCause, RunContext, RunError, drive, resume, templates_for};
use safe_files::{directory, off_runtime};
use serde_json::Value;
use supervise::io_thread::IoThread;
use tokio::time::{Instant, sleep, timeout};

use super::cancel_handle::{CancelHandle, CancelReason};
use super::engines::{adopt, close_others, start};
use super::journal::Journal;
use super::left_turn::LeftRun;
use super::notifications::{EndNotice, JobNotifier, UsualNotifiers};
use super::reporter::Reporter;
use super::result::{AttemptOutcome, AttemptResult, still_waiting};
use super::run_result::{RunAttemptResult, RunFailure};
use super::{Worker, admission, attempt_spec};
use crate::call;
use crate::run::spec::StoredRun;
use crate::store::{Claim, Job};

/// How long a run that is cancelled, or whose time is over when it is continued, may take to interrupt
/// its turn and to inspect its repository (20 s).
/// The second limit applies when the worker ends, and is shorter than a worker's shutdown.
const LAST_LOOK: Duration = Duration::from_secs(20);
const PARTING_LOOK: Duration = Duration::from_secs(5);

/// How often a cancelled run checks whether that time is up.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// The context of an attempt at a run.
struct RunAttempt<'a> {
    worker: &'a Worker,
    claim: &'a Claim,
    job: &'a Job,
    journal: &'a Journal,
    cancel: &'a CancelHandle,
    /// How many ends of turns an earlier worker has recorded.
    recorded_turns: u32,
}

/// Runs a job that is a run. When this returns, all processes of its Codex have ended; if a takeover was
/// cut short, its guard is ending them. `left` is the
/// run with the number of the ends of turns that are recorded, if an earlier worker has begun it.
pub(super) async fn run(
    worker: &Worker,
    claim: &Claim,
    job: &Job,
    stored: Result<StoredRun, serde_json::Error>,
    journal: &Journal,
    cancel: &CancelHandle,
    left: Option<(Box<LeftRun>, u32)>,
) -> AttemptResult {
    let (mut left, recorded_turns) = left.unzip();
    let attempt = RunAttempt {
        worker,
        claim,
        job,
        journal,
        cancel,
        recorded_turns: recorded_turns.unwrap_or_default(),
    };
    let done = match stored {
        Ok(stored) => match admission::check(job, &worker.options) {
            Ok(()) => attempt.in_worktree(stored, &mut left).await,
            Err(refusal) => RunAttemptResult::before(refusal, job).into_attempt_result(),
        },
        Err(error) => RunAttemptResult::before(error, job).into_attempt_result(),
    };
    end(&mut left).await;
    done
}

/// Ends the app-server of a run that is not continued.
async fn end(left: &mut Option<Box<LeftRun>>) {
    if let Some(left) = left.take() {
        left.app_server.end().await;
    }
}

impl RunAttempt<'_> {
    /// Runs in the requested worktree, or in the repository itself.
    /// Takes `left` to continue the run, or to end its app-server before a notification is sent or a
    /// worktree removed.
    async fn in_worktree(
        &self,
        mut stored: StoredRun,
        left: &mut Option<Box<LeftRun>>,
    ) -> AttemptResult {
        if let Err(error) = self.bound(&mut stored.spec) {
            return RunAttemptResult::before(error, self.job).into_attempt_result();
        }
        // A run that has begun is not ended because its end cannot be told.
        if left.is_none()
            && let Err(error) = self.check_notifiers(&stored).await
        {
            let mut ended = RunAttemptResult::before(error, self.job);
            ended.told = self.notify_end(&ended, &stored).await;
            return ended.into_attempt_result();
        }
        let made = match stored.spec.workspace {
            WorkspaceMode::Here => Ok(None),
            WorkspaceMode::Worktree => {
                let home = self.worker.options.state.join("worktrees");
                let run = self.job.summary.id.as_str();
                // A second attempt uses the worktree of the first.
                let options = InspectOptions {
                    halt: self.cancel.token.clone(),
                    ..InspectOptions::default()
                };
                let made = Worktree::of(&stored.spec.repo, &home, run, options).await;
                made.map(Some)
            }
        };
        let worktree = match made {
            Ok(worktree) => worktree,
            Err(error) => {
                end(left).await;
                let mut ended = RunAttemptResult::before(error, self.job);
                ended.told = self.notify_end(&ended, &stored).await;
                return ended.into_attempt_result();
            }
        };
        if let Some(worktree) = &worktree {
            stored.spec.repo.clone_from(&worktree.directory);
        }
        if let Some(earlier) = attempt_spec::earlier(self.job) {
            stored.spec.thread = Some(earlier);
        }
        let mut ended = self.with_codex(&stored, left).await;
        end(left).await;
        if let (AttemptOutcome::LostCodex, Err(error)) = (ended.outcome(), &ended.driven) {
            tracing::error!("the run begins again: {error}");
        }
        let cause = || self.read_only_cause(&stored);
        ended.driven = match ended.driven {
            Ok(done) => Ok(done.with_cause(cause, stored.caller)),
            Err(RunFailure::Run(error)) => {
                Err(error.with_cause(cause).for_caller(stored.caller).into())
            }
            failed => failed,
        };
        ended.told = self.notify_end(&ended, &stored).await;
        if let Some(worktree) = worktree {
            ended.worktree =
                worktree::KeptWorktree::after_cleanup(worktree, ended.may_have_made()).await;
        }
        ended.into_attempt_result()
    }

    /// Checks that the notifiers can work, as far as this is known before.
    async fn check_notifiers(&self, stored: &StoredRun) -> Result<(), RunError> {
        let lookup = NotifierCheck {
            team: stored.team.clone(),
            atm_home: stored.atm_home.clone().unwrap_or_default().into(),
            directory: stored.spec.repo.clone(),
        };
        let notify = stored.spec.notify.clone();
        match off_runtime::run(move || lookup.check(&notify)).await {
            Ok(checked) => checked.map_err(|error| RunError::from(error).for_caller(stored.caller)),
            Err(error) => {
                tracing::warn!("the notifiers of the run were not looked up: {error}");
                Ok(())
            }
        }
    }

    /// Applies the bounds of this machine to a run.
    fn bound(&self, spec: &mut RunSpec) -> Result<(), RunFailure> {
        directory::check(&spec.repo)?;
        writable_roots::check(&spec.settings.thread.config)?;
        let bounds = attempt_spec::bounds(self.job, &self.worker.options)?;
        let own = attempt_spec::worker_bounds(self.job, &self.worker.options)?;
        let approves_all = spec.approve == Approve::Always;
        own.check_run(&spec.criteria, &spec.notify, approves_all)?;
        if bounds.directories.is_some() {
            spec.repo = bounds.repository(&spec.repo)?;
        }
        let settings = &mut spec.settings;
        own.check_config(&settings.thread.config)?;
        let (said, profile) = (settings.thread.sandbox, settings.profile.as_ref());
        let of_sandbox = attempt_spec::bounds_of_sandbox(self.job, &bounds);
        settings.thread.sandbox = of_sandbox.sandbox(said, profile, &spec.repo)?;
        Ok(())
    }

    fn read_only_cause(&self, stored: &StoredRun) -> ReadOnlyCause {
        let (job, options) = (self.job, &self.worker.options);
        let bounds = attempt_spec::bounds(job, options).ok();
        let bound = bounds.and_then(|bounds| bounds.read_only_bound());
        match (bound, &stored.read_only) {
            (Some(bound), _) => ReadOnlyCause::Bound(bound.to_string()),
            (None, Some(cause)) => cause.clone(),
            (None, None) => {
                let profile = stored.spec.settings.profile.as_ref();
                let codex_home = attempt_spec::codex_home(job, options);
                ReadOnlyCause::of_codex(profile, &stored.spec.repo, &codex_home)
            }
        }
    }

    /// Drives the run with its own Codex.
    async fn with_codex(
        &self,
        stored: &StoredRun,
        left: &mut Option<Box<LeftRun>>,
    ) -> RunAttemptResult {
        let spec = &stored.spec;
        if left.is_none()
            && let Err(error) = binary::find(attempt_spec::chosen(self.job, &self.worker.options))
        {
            return RunAttemptResult::before(error, self.job);
        }
        let engine = self.engine(stored);
        let reporter = Reporter::new(self.journal, &engine, self.claim, stored);
        let submodules = OnceCell::new();
        let limit = Duration::from_millis(self.job.request.timeout_ms.into());
        let driving = async {
            match left.take() {
                Some(left) => {
                    let remaining = limit.saturating_sub(left.record.elapsed());
                    let driving = self.continue_run(&engine, &reporter, stored, *left, &submodules);
                    timeout(remaining.max(LAST_LOOK), driving).await
                }
                None => {
                    let driving = self.begin_run(&engine, &reporter, stored, &submodules);
                    timeout(limit, driving).await
                }
            }
        };
        let driven = tokio::select! {
            driven = driving => driven.unwrap_or(Err(RunFailure::TooLong(limit))),
            () = self.no_time_left() => Err(RunFailure::Cut),
        };
        let mut ended = RunAttemptResult {
            driven,
            wait: still_waiting(self.job, reporter.thread().as_ref(), SystemTime::now()),
            thread: reporter.thread(),
            ..RunAttemptResult::before(RunFailure::Cut, self.job)
        };
        self.wait_for_limit(&engine, spec, &mut ended).await;
        engine.shut_down().await;
        // Processes that Codex had started may have changed files until now.
        if let Some(submodules) = submodules.into_inner() {
            let mut restored = submodules.finish().await;
            match &mut ended.driven {
                Ok(done) => {
                    restored.retain(|what| !done.warnings.contains(what));
                    done.warnings.extend(restored);
                }
                Err(_) => restored.iter().for_each(|what| tracing::warn!("{what}")),
            }
        }
        ended
    }

    /// Lets the job wait if the run has ended at a usage limit.
    async fn wait_for_limit(&self, engine: &Engine, spec: &RunSpec, ended: &mut RunAttemptResult) {
        let limit = match &ended.driven {
            _ if !ended.is_at_usage_limit() => return,
            Err(RunFailure::UsedUp(until)) => Some(LimitReached {
                reset: Some(*until),
            }),
            _ => {
                let provider = self.provider(spec).await;
                let (model, cancel) = (spec.settings.thread.model.as_deref(), &self.cancel.token);
                engine
                    .limit_reached(provider.as_deref(), model, cancel)
                    .await
            }
        };
        if let Some(limit) = limit {
            ended.wait_for_limit(limit, self.job);
        }
    }

    /// The model provider of the run's thread, unless it is the configured one.
    async fn provider(&self, spec: &RunSpec) -> Option<String> {
        let codex_home = attempt_spec::codex_home(self.job, &self.worker.options);
        let (thread, profile) = (spec.thread.clone(), spec.settings.profile.clone());
        let of_run = get(&spec.settings.thread.config, call::PROVIDER).cloned();
        let found = off_runtime::run(move || {
            let of_profile = || {
                let overrides = profile::overrides(&codex_home, &profile?).ok()?;
                get(&overrides, call::PROVIDER).cloned()
            };
            let named = of_run.or_else(of_profile);
            let named = named.as_ref().and_then(Value::as_str).map(str::to_owned);
            call::provider(&codex_home, thread.as_ref(), named)
        });
        found.await.ok().flatten()
    }

    fn engine(&self, stored: &StoredRun) -> Engine {
        let (job, options) = (self.job, &self.worker.options);
        let codex = attempt_spec::chosen(job, options);
        let codex_home = attempt_spec::codex_home(job, options);
        let env = vec![("CODEX_HOME".into(), codex_home.clone().into())];
        let atm_home = stored.atm_home.as_deref().map(Path::new);
        let mail = attempt_spec::mail(job, stored.mail, stored.team.as_ref(), atm_home);
        let engine = Engine::new(Options {
            launch: Launch {
                codex,
                line_limit: DEFAULT_LINE_LIMIT,
            },
            codex_home,
            timeouts: SessionTimeouts {
                approval: stored.spec.limits.total(),
                stall: options.stall,
            },
        });
        let engine = match self.notifier(stored).alerts() {
            Some(alerts) => {
                let job = job.summary.id.clone();
                engine.with_alerts(move |SessionAlert { alert, .. }| {
                    // Questions are answered at once.
                    if matches!(alert, Alert::Stalled { .. }) {
                        alerts.give(&job, &alert);
                    }
                })
            }
            None => engine,
        };
        // The bounds were read for this attempt before.
        let bound = attempt_spec::bounds(job, options).map_or_else(
            |error| Some(error.to_string()),
            |bounds| bounds.sandbox_escape_bound().map(|by| by.to_string()),
        );
        let engine = engine.with_sandbox_bound(bound);
        let engine = engine.with_tools(options.tools.with(mail.as_ref()));
        // The run reports unused configuration itself.
        let engine = engine.with_env(env).with_warnings(drop);
        self.worker.engines.adoptable(engine)
    }

    /// Takes over the app-server of a run that an earlier worker has begun, closes the session of a
    /// review, and continues the run. Nothing is read anew that Codex may have changed.
    async fn continue_run(
        &self,
        engine: &Engine,
        reporter: &Reporter<'_>,
        stored: &StoredRun,
        left: LeftRun,
        submodules: &OnceCell<Submodules>,
    ) -> Result<goal_run::RunResult, RunFailure> {
        let LeftRun { app_server, record } = left;
        reporter.continue_from(&record, self.recorded_turns);
        adopt(engine, app_server).await?;
        close_others(engine, &[record.session().clone()].into()).await;
        let inspector = record.inspector(&stored.spec.criteria, self.inspecting());
        let inspector = inspector.await?;
        self.check_top(&stored.spec, &inspector)?;
        let noted = record.submodules(&inspector).await?;
        let templates = record.templates().clone();
        let spec = record.with_instructions(stored.spec.clone());
        let context = RunContext {
            engine,
            watcher: reporter,
            stop: &self.cancel.token,
            templates: &templates,
            evidence: None,
            warnings: Vec::new(),
            submodules: submodules.get_or_init(|| noted),
            name: self.job.summary.id.to_string(),
        };
        Ok(Box::pin(resume(context, &spec, inspector, record)).await?)
    }

    async fn begin_run(
        &self,
        engine: &Engine,
        reporter: &Reporter<'_>,
        stored: &StoredRun,
        submodules: &OnceCell<Submodules>,
    ) -> Result<goal_run::RunResult, RunFailure> {
        let spec = &stored.spec;
        let inspector = RepoInspector::at(&spec.repo, &spec.criteria, self.inspecting()).await;
        let inspector = inspector.map_err(RunError::from)?;
        self.check_top(spec, &inspector)?;
        let (noted, not_noted) = inspector.submodules().await;
        let submodules = submodules.get_or_init(|| noted);
        start(engine).await;
        self.check_limit(engine, spec).await?;
        let io_thread = IoThread::start().map_err(RunFailure::Thread)?;
        let top = inspector.top().to_owned();
        let codex_home = attempt_spec::codex_home(self.job, &self.worker.options);
        let member = attempt_spec::member(self.job, stored.team.clone());
        let read = move || {
            let about = member.map(|member| Context::gather(&member, &top, Some(&top)).text());
            (templates_for(&top, &codex_home), about)
        };
        let (chosen, about) = asked(&io_thread, read).await?;
        let chosen = chosen?;
        let mut spec = spec.clone();
        spec.settings.added.behind = about;
        let directory = self.worker.options.state.join("runs");
        let evidence = evidence_in(&io_thread, &directory).await?;
        let context = RunContext {
            engine,
            watcher: reporter,
            stop: &self.cancel.token,
            templates: &chosen.templates,
            evidence: Some(evidence),
            warnings: [
                Vec::from_iter(restart_warning(self.job)),
                chosen.warnings,
                not_noted,
            ]
            .concat(),
            submodules,
            name: self.job.summary.id.to_string(),
        };
        Ok(Box::pin(drive(context, &spec, inspector)).await?)
    }

    fn inspecting(&self) -> InspectOptions {
        InspectOptions {
            stop: self.cancel.token.clone(),
            ..InspectOptions::default()
        }
    }

    /// Checks the directory in which Codex works: git may find another top directory than the bounds have
    /// checked.
    fn check_top(&self, spec: &RunSpec, inspector: &RepoInspector) -> Result<(), RunFailure> {
        if spec.workspace == WorkspaceMode::Here {
            attempt_spec::bounds(self.job, &self.worker.options)?.directory(inspector.top())?;
        }
        Ok(())
    }

    /// Refuses a run if a usage limit of the account is known to be reached.
    async fn check_limit(&self, engine: &Engine, spec: &RunSpec) -> Result<(), RunFailure> {
        let provider = self.provider(spec).await;
        let refused = self.job.wait_history.refused_until();
        let model = spec.settings.thread.model.as_deref();
        let used_up = engine.used_up(provider.as_deref(), model, refused).await;
        used_up.map_or(Ok(()), |until| Err(RunFailure::UsedUp(until)))
    }

    /// Returns when the run was cancelled and its time to end is up.
    async fn no_time_left(&self) {
        self.cancel.token.cancelled().await;
        let since = Instant::now();
        loop {
            let time_limit = match self.cancel.why() {
                Some(CancelReason::Lost | CancelReason::LeaseOver) => return,
                Some(CancelReason::WorkerEnds) => PARTING_LOOK,
                Some(CancelReason::JobCancelled) | None => LAST_LOOK,
            };
            if since.elapsed() >= time_limit {
                return;
            }
            sleep(CANCEL_POLL).await;
        }
    }

    /// Sends the notifications of the end, if it is final: a job that is given up may run again,
    /// which the store decides.
    async fn notify_end(&self, ended: &RunAttemptResult, stored: &StoredRun) -> Option<Value> {
        let is_the_end = match ended.outcome() {
            AttemptOutcome::Cancelled | AttemptOutcome::UsedUp(_) => {
                self.cancel.why() == Some(CancelReason::JobCancelled)
            }
            AttemptOutcome::LostCodex => false,
            AttemptOutcome::Completed | AttemptOutcome::Failed => true,
        };
        if !is_the_end {
            return None;
        }
        let notifier = self.notifier(stored);
        let news = async {
            EndNotice {
                line: ended.notice(self.number().await),
                result: ended.result(),
            }
        };
        notifier.send(self.cancel, news).await
    }

    fn notifier<'b>(&'b self, stored: &'b StoredRun) -> JobNotifier<'b> {
        JobNotifier::of_run(self.job, stored, &self.worker.options.notifiers)
    }

    /// The number of the run in notifications.
    async fn number(&self) -> u64 {
        let worker = self.worker;
        let number = worker
            .store_health
            .retry(async || worker.store.next_run_number().await);
        number.await.unwrap_or_else(|error| {
            tracing::warn!("the run has no number: {error}");
            0
        })
    }
}

/// The warning that the result does not cover what an earlier attempt has done.
fn restart_warning(job: &Job) -> Option<String> {
    let has_begun = job.counted_attempts() > 1 && job.summary.session_id.is_some();
    has_begun.then(|| {
        "the run began again after its worker was lost: what it had made or changed by then counts \
         as preexisting, and diff_within does not cover it"
            .to_owned()
    })
}

/// Sends the notifications of a run that was cancelled just as it was being put back to wait for a
/// usage limit. They were withheld, since the run was expected to run again.
pub(super) async fn notify_cancelled(
    job: &Job,
    stored: &StoredRun,
    usual: &UsualNotifiers,
    done: &mut AttemptResult,
    cancel: &CancelHandle,
) {
    let notifier = JobNotifier::of_run(job, stored, usual);
    let result = done.report.run.clone().unwrap_or_default();
    let line = blocked(Reason::Cancelled.words());
    let told = notifier
        .send(cancel, async { EndNotice { line, result } })
        .await;
    if let (Some(told), Some(Value::Object(run))) = (told, &mut done.report.run) {
        run.insert("notified".to_owned(), told);
    }
}

async fn asked<T: Send + 'static>(
    io_thread: &IoThread,
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RunFailure> {
    let answer = io_thread.run(task).await;
    answer.map_err(|error| RunFailure::Thread(io::Error::other(error)))
}

async fn evidence_in(io_thread: &IoThread, directory: &Path) -> Result<EvidenceFile, RunFailure> {
    let here = directory.to_owned();
    let made = asked(io_thread, move || EvidenceFile::new_in(&here)).await?;
    made.map_err(|error| RunFailure::Evidence {
        directory: directory.to_owned(),
        error,
    })
}
