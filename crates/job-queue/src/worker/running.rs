//! An attempt at a run: turns of one thread until its criteria hold, with an engine of
//! its own.

use std::cell::OnceCell;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use codex_config::layers::get;
use codex_config::{profile, writable_roots};
use codex_engine::binary::{self, NoCodex};
use codex_engine::command::Alerted;
use codex_engine::logic::session::{Alert, Patience as SessionPatience};
use codex_engine::{Engine, Launch, LimitReached, Options};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use git_probe::Submodules;
use goal_run::logic::outcome::{Reason, blocked};
use goal_run::look::{InspectOptions, RepoInspector};
use goal_run::notify::Lookup;
use goal_run::order::{Approve, Order, Place};
use goal_run::worktree::{self, Worktree};
use goal_run::{EvidenceFile, ReadOnlyCause, RunContext, RunError, drive, templates_for};
use safe_files::{directory, off_runtime};
use serde_json::Value;
use supervise::io_thread::IoThread;
use tokio::time::{Instant, sleep, timeout};

use super::cancel_handle::{CancelHandle, CancelReason};
use super::ended::{Ended, Failure};
use super::engines::start;
use super::journal::Journal;
use super::reporter::Reporter;
use super::result::{AttemptOutcome, AttemptResult, still_waiting};
use super::telling::{News, Telling, notice};
use super::{Worker, admission, order};
use crate::call;
use crate::run::order::Kept;
use crate::store::Job;

/// How long a run that was called off has to interrupt its turn and to look at what
/// there is (20 s), and one whose worker ends: less than that takes.
const LAST_LOOK: Duration = Duration::from_secs(20);
const PARTING_LOOK: Duration = Duration::from_secs(5);

/// How often it is looked whether there is still time for that.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// What an attempt at a run works with.
struct Attempt<'a> {
    worker: &'a Worker,
    job: &'a Job,
    journal: &'a Journal,
    cancel: &'a CancelHandle,
}

/// Runs a job that is a run. Nothing of Codex's is left when this returns.
pub(super) async fn run(
    worker: &Worker,
    job: &Job,
    kept: Result<Kept, serde_json::Error>,
    journal: &Journal,
    cancel: &CancelHandle,
) -> AttemptResult {
    let attempt = Attempt {
        worker,
        job,
        journal,
        cancel,
    };
    match kept {
        Ok(kept) => match admission::check(job, &worker.options) {
            Ok(()) => attempt.in_its_place(kept).await,
            Err(refusal) => Ended::before(refusal, job).into_done(),
        },
        Err(error) => Ended::before(error, job).into_done(),
    }
}

impl Attempt<'_> {
    /// The run in the worktree that it wants.
    async fn in_its_place(&self, mut kept: Kept) -> AttemptResult {
        if let Err(error) = self.bound(&mut kept.order) {
            return Ended::before(error, self.job).into_done();
        }
        if let Err(error) = self.check_notifiers(&kept).await {
            let mut ended = Ended::before(error, self.job);
            ended.told = self.tell(&ended, &kept).await;
            return ended.into_done();
        }
        let made = match kept.order.place {
            Place::Here => Ok(None),
            Place::Worktree => {
                let home = self.worker.options.state.join("worktrees");
                let run = self.job.summary.id.as_str();
                // A second attempt goes on in that of the first.
                let means = InspectOptions {
                    halt: self.cancel.token.clone(),
                    ..InspectOptions::default()
                };
                let made = Worktree::of(&kept.order.repo, &home, run, means).await;
                made.map(Some)
            }
        };
        let worktree = match made {
            Ok(worktree) => worktree,
            Err(error) => {
                let mut ended = Ended::before(error, self.job);
                ended.told = self.tell(&ended, &kept).await;
                return ended.into_done();
            }
        };
        if let Some(worktree) = &worktree {
            kept.order.repo.clone_from(&worktree.directory);
        }
        if let Some(earlier) = order::earlier(self.job) {
            kept.order.thread = Some(earlier);
        }
        let mut ended = self.with_codex(&kept).await;
        if let Err(Failure::Run(error)) = ended.driven {
            let error = error.explained(|| self.read_only_cause(&kept));
            ended.driven = Err(error.into());
        }
        ended.told = self.tell(&ended, &kept).await;
        if let Some(worktree) = worktree {
            ended.worktree = worktree::Kept::tidied(worktree, ended.may_have_made()).await;
        }
        ended.into_done()
    }

    /// Whether those who are to be told of the end can be, as far as that is known.
    async fn check_notifiers(&self, kept: &Kept) -> Result<(), RunError> {
        let lookup = Lookup {
            team: kept.team.clone(),
            atm_home: kept.atm_home.clone().unwrap_or_default().into(),
            directory: kept.order.repo.clone(),
        };
        let notify = kept.order.notify.clone();
        match off_runtime::run(move || lookup.check(&notify)).await {
            Ok(checked) => Ok(checked?),
            Err(error) => {
                tracing::warn!("the notifiers of the run were not looked up: {error}");
                Ok(())
            }
        }
    }

    /// Brings an order within the bounds of this machine.
    fn bound(&self, order: &mut Order) -> Result<(), Failure> {
        directory::check(&order.repo)?;
        writable_roots::check(&order.settings.thread.config)?;
        let bounds = order::bounds(self.job, &self.worker.options)?;
        let approves_all = order.approve == Approve::Always;
        bounds.check_run(&order.criteria, &order.notify, approves_all)?;
        if bounds.directories.is_some() {
            order.repo = bounds.repository(&order.repo)?;
        }
        let settings = &mut order.settings;
        bounds.check_config(&settings.thread.config)?;
        let (said, profile) = (settings.thread.sandbox, settings.profile.as_ref());
        let of_sandbox = order::bounds_of_sandbox(self.job, &bounds);
        settings.thread.sandbox = of_sandbox.sandbox(said, profile, &order.repo)?;
        Ok(())
    }

    fn read_only_cause(&self, kept: &Kept) -> ReadOnlyCause {
        let (job, options) = (self.job, &self.worker.options);
        let bounds = order::bounds(job, options).ok();
        let bound = bounds.and_then(|bounds| bounds.read_only_bound());
        match (bound, &kept.read_only) {
            (Some(bound), _) => ReadOnlyCause::Bound(bound.to_string()),
            (None, Some(cause)) => cause.clone(),
            (None, None) => {
                ReadOnlyCause::of_codex(&kept.order.repo, &order::codex_home(job, options))
            }
        }
    }

    /// The run with a Codex of its own.
    async fn with_codex(&self, kept: &Kept) -> Ended {
        let order = &kept.order;
        let engine = match self.engine(kept) {
            Ok(engine) => engine,
            Err(error) => return Ended::before(error, self.job),
        };
        let reporter = Reporter::new(self.journal, order);
        let submodules = OnceCell::new();
        let driven = tokio::select! {
            driven = self.drive(&engine, &reporter, order, &submodules) => driven,
            () = self.no_time_left() => Err(Failure::Cut),
        };
        let mut ended = Ended {
            driven,
            wait: still_waiting(self.job, reporter.thread().as_ref(), SystemTime::now()),
            thread: reporter.thread(),
            ..Ended::before(Failure::Cut, self.job)
        };
        self.wait_for_limit(&engine, order, &mut ended).await;
        engine.shut_down().await;
        // What Codex had started may have gone on until now.
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

    /// Has the job wait for a usage limit at which the run has ended.
    async fn wait_for_limit(&self, engine: &Engine, order: &Order, ended: &mut Ended) {
        let limit = match &ended.driven {
            _ if !ended.is_at_usage_limit() => return,
            Err(Failure::UsedUp(until)) => Some(LimitReached {
                reset: Some(*until),
            }),
            _ => {
                let provider = self.provider(order).await;
                let cancel = &self.cancel.token;
                engine.limit_reached(provider.as_deref(), cancel).await
            }
        };
        if let Some(limit) = limit {
            ended.wait_for_limit(limit, self.job);
        }
    }

    /// The model provider of the run's thread, unless it is that of the configuration.
    async fn provider(&self, order: &Order) -> Option<String> {
        let codex_home = order::codex_home(self.job, &self.worker.options);
        let (thread, profile) = (order.thread.clone(), order.settings.profile.clone());
        let of_run = get(&order.settings.thread.config, call::PROVIDER).cloned();
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

    fn engine(&self, kept: &Kept) -> Result<Engine, NoCodex> {
        let (job, options) = (self.job, &self.worker.options);
        let codex = order::chosen(job, options);
        binary::find(codex.clone())?;
        let codex_home = order::codex_home(job, options);
        let env = vec![("CODEX_HOME".into(), codex_home.clone().into())];
        let atm_home = kept.atm_home.as_deref().map(Path::new);
        let mail = order::mail(job, kept.mail, kept.team.as_ref(), atm_home);
        let engine = Engine::new(Options {
            launch: Launch {
                codex,
                line_limit: DEFAULT_LINE_LIMIT,
            },
            codex_home,
            patience: SessionPatience {
                approval: kept.order.limits.total(),
                stall: options.stall,
            },
        });
        let engine = match self.telling(kept).alerts() {
            Some(alerts) => {
                let job = job.summary.id.clone();
                engine.with_alerts(move |Alerted { alert, .. }| {
                    // Questions are answered at once.
                    if matches!(alert, Alert::Stalled { .. }) {
                        alerts.give(notice(&job, &alert));
                    }
                })
            }
            None => engine,
        };
        let engine = engine.with_tools(options.tools.with(mail.as_ref()));
        // The run tells what was left out.
        Ok(engine.with_env(env).with_warnings(drop))
    }

    async fn drive(
        &self,
        engine: &Engine,
        reporter: &Reporter<'_>,
        order: &Order,
        submodules: &OnceCell<Submodules>,
    ) -> Result<goal_run::Done, Failure> {
        let limit = Duration::from_millis(self.job.request.timeout_ms.into());
        let driving = async {
            let means = InspectOptions {
                stop: self.cancel.token.clone(),
                ..InspectOptions::default()
            };
            let looker = RepoInspector::at(&order.repo, &order.criteria, means).await;
            let looker = looker.map_err(RunError::from)?;
            if order.place == Place::Here {
                // Git itself may find another top than was found when the run was bounded.
                order::bounds(self.job, &self.worker.options)?.directory(looker.top())?;
            }
            let (noted, not_noted) = looker.submodules().await;
            let submodules = submodules.get_or_init(|| noted);
            start(engine).await;
            let provider = self.provider(order).await;
            let refused = self.job.wait_history.refused_until();
            if let Some(until) = engine.used_up(provider.as_deref(), refused).await {
                return Err(Failure::UsedUp(until));
            }
            let io_thread = IoThread::start().map_err(Failure::Thread)?;
            let top = looker.top().to_owned();
            let codex_home = order::codex_home(self.job, &self.worker.options);
            let chosen = asked(&io_thread, move || templates_for(&top, &codex_home)).await??;
            let directory = self.worker.options.state.join("runs");
            let evidence = evidence_in(&io_thread, &directory).await?;
            let rig = RunContext {
                engine,
                watcher: reporter,
                stop: &self.cancel.token,
                templates: &chosen.templates,
                evidence: Some(evidence),
                warnings: [chosen.warnings, not_noted].concat(),
                submodules,
                name: self.job.summary.id.to_string(),
            };
            Ok(Box::pin(drive(rig, order, looker)).await?)
        };
        let driven = timeout(limit, driving).await;
        driven.unwrap_or(Err(Failure::TooLong(limit)))
    }

    /// Comes back when the run is to end and has no time for that any more.
    async fn no_time_left(&self) {
        self.cancel.token.cancelled().await;
        let since = Instant::now();
        loop {
            let patience = match self.cancel.why() {
                Some(CancelReason::Lost | CancelReason::LeaseOver) => return,
                Some(CancelReason::WorkerEnds) => PARTING_LOOK,
                Some(CancelReason::Unwanted) | None => LAST_LOOK,
            };
            if since.elapsed() >= patience {
                return;
            }
            sleep(CANCEL_POLL).await;
        }
    }

    /// Tells others of the end, if it is one: a job that is given up may run again.
    async fn tell(&self, ended: &Ended, kept: &Kept) -> Option<Value> {
        let is_the_end = match ended.outcome() {
            AttemptOutcome::Cancelled | AttemptOutcome::UsedUp(_) => {
                self.cancel.why() == Some(CancelReason::Unwanted)
            }
            _ => true,
        };
        if !is_the_end || kept.order.notify.is_empty() {
            return None;
        }
        let telling = self.telling(kept);
        let news = async {
            News {
                line: ended.notice(self.number().await),
                result: ended.result(),
            }
        };
        telling.tell(self.cancel, news).await
    }

    fn telling<'b>(&'b self, kept: &'b Kept) -> Telling<'b> {
        Telling::of_run(self.job, kept)
    }

    /// The number by which others know the run.
    async fn number(&self) -> u64 {
        let worker = self.worker;
        let number = worker
            .trouble
            .attempt(async || worker.store.number_of_a_run().await);
        number.await.unwrap_or_else(|error| {
            tracing::warn!("the run has no number: {error}");
            0
        })
    }
}

/// Tells others that a run was cancelled that was to wait for a usage limit: nobody was told
/// while it was to run again.
pub(super) async fn tell_cancelled(
    job: &Job,
    kept: &Kept,
    done: &mut AttemptResult,
    cancel: &CancelHandle,
) {
    if kept.order.notify.is_empty() {
        return;
    }
    let telling = Telling::of_run(job, kept);
    let result = done.report.run.clone().unwrap_or_default();
    let line = blocked(Reason::Cancelled.words());
    let told = telling.tell(cancel, async { News { line, result } }).await;
    if let (Some(told), Some(Value::Object(run))) = (told, &mut done.report.run) {
        run.insert("notified".to_owned(), told);
    }
}

async fn asked<T: Send + 'static>(
    io_thread: &IoThread,
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let answer = io_thread.ask(task).await;
    answer.map_err(|error| Failure::Thread(io::Error::other(error)))
}

async fn evidence_in(io_thread: &IoThread, directory: &Path) -> Result<EvidenceFile, Failure> {
    let here = directory.to_owned();
    let made = asked(io_thread, move || EvidenceFile::new_in(&here)).await?;
    made.map_err(|error| Failure::Evidence {
        directory: directory.to_owned(),
        error,
    })
}
