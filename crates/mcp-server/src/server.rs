//! The state of the server that its tools and resources use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use agent_team::TeamServices;
use codex_config::profile;
use codex_engine::command::{KnownSettings, Overrides, Settings};
use codex_engine::logic::session;
use codex_engine::{AppServerStatus, Engine};
use codex_protocol::codex::ThreadId;
use job_queue::service::Jobs;
use job_queue::thread_ids::{BadThreadPrefix, ThreadPrefix};
use safe_files::{directory, off_runtime};
use settings::bounds::{Bounds, OutOfBounds};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::changing::Changing;
use crate::code::Code;
use crate::defaults::Defaults;
use crate::deliveries::Deliveries;
use crate::error::ToolError;
use crate::notices::Notices;
use crate::status::{self, Calls, Status};
use crate::stdio::Stdio;
use crate::tasks::{SessionTasks, TaskSubscriptions};
use crate::tool_sets::{Api, Group, Groups};
use crate::warnings::Warnings;

/// The time-outs of calls, questions and silences.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// A classic tool call, from its arrival to its answer.
    pub call: Duration,
    /// A question of Codex's, until it is declined.
    pub approval: Duration,
    /// The silence of a turn, until it is reported as stalled.
    pub stall: Duration,
}

impl Timeouts {
    /// The time-outs of the sessions.
    #[must_use]
    pub fn session(self) -> session::Timeouts {
        session::Timeouts {
            approval: self.approval,
            stall: self.stall,
        }
    }
}

/// This release.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The party that answers Codex's questions in a session that no call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    /// A program that polls the session.
    Poller,
    /// The client's user, who is asked at once if the client supports it.
    User,
}

/// The state behind the tools of one client.
pub struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) timeouts: Timeouts,
    /// Cancelled when the client has gone or the server is told to end.
    pub(crate) closing: CancellationToken,
    pub(crate) decider: Decider,
    pub(crate) api: Api,
    pub(crate) groups: Groups,
    pub(crate) stdio: Stdio,
    pub(crate) defaults: Defaults,
    pub(crate) services: TeamServices,
    pub(crate) jobs: Option<Arc<Jobs>>,
    /// The tasks of the calls that wait for a turn, if there may be any.
    pub(crate) tasks: Option<Arc<SessionTasks>>,
    /// The tasks of this client whose turns have not begun.
    pub(crate) beginning_tasks: TaskTracker,
    pub(crate) task_subscriptions: TaskSubscriptions,
    pub(crate) deliveries: Deliveries,
    pub(crate) notices: Notices,
    pub(crate) warnings: Warnings,
    pub(crate) bounds: Bounds,
    pub(crate) warned_of_on_failure: AtomicBool,
    pub(crate) started: Instant,
    pub(crate) calls: CallCounter,
}

/// Calls of the tools that prompt Codex.
#[derive(Default)]
pub(crate) struct CallCounter {
    total: AtomicU64,
    in_flight: AtomicUsize,
}

/// Counts a call as in flight until it is dropped.
pub(crate) struct CallGuard<'a>(&'a CallCounter);

impl CallCounter {
    pub(crate) fn begin(&self) -> CallGuard<'_> {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        CallGuard(self)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// A server for one client of `engine`.
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        api: Api,
        decider: Decider,
        timeouts: Timeouts,
        closing: CancellationToken,
    ) -> Self {
        Self {
            engine,
            timeouts,
            closing,
            decider,
            api,
            groups: Groups::default(),
            stdio: Stdio::default(),
            defaults: Defaults::default(),
            services: TeamServices::default(),
            jobs: None,
            tasks: None,
            beginning_tasks: TaskTracker::new(),
            task_subscriptions: TaskSubscriptions::default(),
            deliveries: Deliveries::default(),
            notices: Notices::default(),
            warnings: Warnings::default(),
            bounds: Bounds::default(),
            warned_of_on_failure: AtomicBool::new(false),
            started: Instant::now(),
            calls: CallCounter::default(),
        }
    }

    /// The status of the server and its Codex.
    pub(crate) async fn status(&self) -> Status {
        let codex = match self.engine.app_server_status() {
            AppServerStatus::Starting => status::Codex::Starting,
            AppServerStatus::Ready(version) => status::Codex::Ready { version },
            AppServerStatus::Absent(failure) => status::Codex::Absent {
                reason: failure.map(|failure| failure.to_string()),
            },
        };
        let (_, open_questions) = self.engine.under_way();
        let mut warnings = self.warnings.all();
        warnings.extend(self.death_notice());
        Status {
            backend: "app-server",
            member: self.defaults.member().cloned(),
            codex,
            limits: self
                .engine
                .limits()
                .await
                .map_err(|error| error.to_string()),
            last_exit: self.engine.last_unexpected_exit(),
            uptime: self.started.elapsed(),
            calls: Calls {
                total: self.calls.total.load(Ordering::Relaxed),
                in_flight: self.calls.in_flight.load(Ordering::Relaxed),
            },
            active_threads: self.active_threads().await,
            open_questions,
            pending_mail: self.services.pending_mail().await,
            messages: None,
            warnings,
        }
    }

    /// The warning that Codex has died, for the first answer after its death.
    pub(crate) fn death_notice(&self) -> Option<String> {
        let death = self.engine.unreported_exit()?;
        let then = match self.engine.app_server_status() {
            AppServerStatus::Ready(_) | AppServerStatus::Starting => "It was started again",
            AppServerStatus::Absent(_) => "The next call starts it again",
        };
        Some(format!("{death}. {then}, and its threads continue"))
    }

    /// The number of active threads, as `codex_threads` shows them. If no record of threads is
    /// kept, the number of sessions that are not cancelled.
    async fn active_threads(&self) -> usize {
        match self.services.active_threads().await {
            Some(active) => active,
            None => self.engine.active_sessions(),
        }
    }

    /// The same server, with warnings for its caller. Others that share `warnings` may add to them.
    #[must_use]
    pub fn with_warnings(self, warnings: Warnings) -> Self {
        Self { warnings, ..self }
    }

    /// The same server, limited to the tools of these groups.
    #[must_use]
    pub fn with_groups(self, groups: Groups) -> Self {
        Self { groups, ..self }
    }

    /// The same server, with the findings about stdin and stdout.
    #[must_use]
    pub fn with_stdio(self, stdio: Stdio) -> Self {
        Self { stdio, ..self }
    }

    /// The same server, with defaults for the settings of new threads.
    #[must_use]
    pub fn with_defaults(self, defaults: Defaults) -> Self {
        Self { defaults, ..self }
    }

    /// The same server, with bounds for the settings that its client may ask for.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// The settings of a new thread: those of the call, within the bounds, completed by the
    /// defaults.
    pub(crate) async fn settings(&self, given: Settings) -> Result<Settings, ToolError> {
        self.bounds.check_asked(&given)?;
        if let Some(profile) = &given.profile {
            profile::check_exists(self.engine.codex_home(), profile)
                .map_err(|error| ToolError::new(Code::InvalidArgument, error.to_string()))?;
        }
        let settings = self.defaults.apply(given).await;
        self.bound(move |bounds| bounds.bound_laid(settings)).await
    }

    /// Narrows settings to the bounds. If there are bounds, this is done on another thread: a bound
    /// on the sandbox may depend on the user's trust, for which files of the repository are read.
    async fn bound(
        &self,
        narrow: impl FnOnce(&Bounds) -> Result<Settings, OutOfBounds> + Send + 'static,
    ) -> Result<Settings, ToolError> {
        if !self.bounds.is_any() {
            return Ok(narrow(&self.bounds)?);
        }
        let bounds = self.bounds.clone();
        let narrowed = off_runtime::run(move || narrow(&bounds)).await;
        let narrowed =
            narrowed.map_err(|error| ToolError::new(Code::Internal, error.to_string()))?;
        Ok(narrowed?)
    }

    /// Narrows the settings of a call for an existing thread to the bounds.
    pub(crate) async fn bound_resumed(
        &self,
        thread: &ThreadId,
        settings: &mut Settings,
    ) -> Result<(), ToolError> {
        let known = match self.engine.known_settings(thread) {
            // The settings were narrowed to the bounds when the thread began. The engine refuses
            // the thread if one of its directories has been replaced by a link since.
            KnownSettings::Remembered => {
                self.bounds.check_config(&settings.thread.config)?;
                let mut changes = Overrides {
                    cwd: settings.thread.cwd.take(),
                    sandbox: settings.thread.sandbox,
                    ..Overrides::default()
                };
                self.bounds.bound_overrides(&mut changes)?;
                settings.thread.cwd = changes.cwd;
                return Ok(());
            }
            KnownSettings::Recorded(known) => {
                if let (None, Some(cwd)) = (&settings.thread.cwd, &known.thread.cwd) {
                    directory::check(cwd)?;
                }
                Some(known)
            }
            KnownSettings::Unknown => None,
        };
        let mut resumed = settings.clone();
        *settings = self
            .bound(move |bounds| {
                bounds.bound_resumed(&mut resumed, known.as_deref())?;
                Ok(resumed)
            })
            .await?;
        Ok(())
    }

    /// The thread that a call names by its ID or an ID prefix: the thread of a session here, or one
    /// of which Codex has a rollout. A whole ID is not looked up, as Codex reports an unknown
    /// thread.
    pub(crate) async fn thread(&self, text: &str) -> Result<ThreadId, ToolError> {
        if let Ok(thread) = ThreadId::parse(text) {
            return Ok(thread);
        }
        let prefix: ThreadPrefix = text.parse().map_err(|error: BadThreadPrefix| {
            ToolError::new(Code::InvalidArgument, format!("threadId: {error}"))
        })?;
        let mut live = self.engine.threads();
        live.retain(|thread| prefix.fits(thread));
        let codex_home = self.engine.codex_home().to_owned();
        let resolve = move || prefix.resolve_with(live, &codex_home, &settings::atm_home());
        let resolved = off_runtime::run(resolve).await;
        let resolved =
            resolved.map_err(|error| ToolError::new(Code::Internal, error.to_string()))?;
        Ok(resolved?)
    }

    /// The same server, with its records and mail as a member of a team. The transport that it is
    /// served on has to share `deliveries`.
    #[must_use]
    pub fn with_services(self, services: TeamServices, deliveries: Deliveries) -> Self {
        Self {
            services,
            deliveries,
            ..self
        }
    }

    /// The same server, which answers calls that wait for a turn by tasks, if the caller supports
    /// tasks. Tasks whose turn has not begun are counted in `beginning`.
    #[must_use]
    pub fn with_tasks(self, tasks: Option<Arc<SessionTasks>>, beginning: TaskTracker) -> Self {
        Self {
            tasks,
            beginning_tasks: beginning,
            ..self
        }
    }

    /// The tasks that its client's subscriptions name, for the transport that it is served on. `None`
    /// if it has no tasks.
    #[must_use]
    pub fn task_subscriptions(&self) -> Option<TaskSubscriptions> {
        self.has_tasks().then(|| self.task_subscriptions.clone())
    }

    /// The same server, with the store of jobs.
    #[must_use]
    pub fn with_jobs(self, jobs: Arc<Jobs>) -> Self {
        Self {
            jobs: Some(jobs),
            ..self
        }
    }

    /// The resources that change.
    pub(crate) fn changing(&self) -> Vec<Changing> {
        let mail = self.services.mail_client.clone().map(Changing::Mail);
        let threads = self.services.records.clone().map(Changing::Threads);
        let jobs = self.jobs.clone().filter(|_| self.groups.has(Group::Jobs));
        let jobs = jobs.map(Changing::Jobs);
        mail.into_iter().chain(threads).chain(jobs).collect()
    }

    /// Whether this is the first call with the approval policy `on-failure`.
    pub(crate) fn first_on_failure(&self) -> bool {
        !self.warned_of_on_failure.swap(true, Ordering::Relaxed)
    }
}
