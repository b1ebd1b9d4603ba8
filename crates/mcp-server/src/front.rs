//! The MCP server: which tools there are, and who answers a call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use agent_team::{Desk, Office};
use codex_config::profile;
use codex_engine::command::{Known, Opened, Overrides, Prompt, SessionId, Settings, TurnRef};
use codex_engine::logic::action::{ActionId, DecidedBy, Decision};
use codex_engine::logic::session::{self, DecisionRefused};
use codex_engine::{Engine, EngineError, Standing};
use codex_protocol::codex::ThreadId;
use job_queue::service::Jobs;
use job_queue::thread_ids::{NotAThread, ThreadPrefix};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, JsonObject, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use safe_files::{directory, off_runtime};
use serde_json::Value;
use settings::bounds::Bounds;
use supervise::io_thread::Ended;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::code::Code;
use super::defaults::Defaults;
use super::deliveries::Deliveries;
use super::error::ToolError;
use super::instructions::instructions;
use super::notices::{self, MAIL, Notices};
use super::progress::Progress;
use super::question::{self, Reply};
use super::request_state::RequestState;
use super::resources::{self, Stdio};
use super::tools::codex_status::{self, Calls, Status};
use super::tools::jobs::{Called, JobTool, Waited, Watch};
use super::tools::team::{TeamTool, Told};
use super::tools::{self, Api, Groups};
use super::turn::{TurnWait, Until};
use super::warnings::Warnings;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// A classic tool call, from its arrival to its answer.
    pub call: Duration,
    /// A question of Codex's, until it is declined.
    pub approval: Duration,
    /// The silence of a turn, until it is reported as stalled.
    pub stall: Duration,
}

impl Patience {
    /// What of it is the sessions'.
    #[must_use]
    pub fn session(self) -> session::Patience {
        session::Patience {
            approval: self.approval,
            stall: self.stall,
        }
    }
}

/// Who decides what Codex asks in a session that nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    /// Whoever looks in.
    Poller,
    /// The client's user, who is asked at once where the client can do that.
    User,
}

/// A call that prompts a thread and waits.
pub(super) struct TurnCall {
    pub(super) prompt: Prompt,
    pub(super) warnings: Vec<String>,
    /// How long to wait before the call comes back and the work goes on; if not
    /// given, the turn is given up when the call's time is up.
    pub(super) wait: Option<Duration>,
}

/// Serves the tools to one client.
pub struct Front {
    pub(super) engine: Arc<Engine>,
    pub(super) patience: Patience,
    /// Cancelled when the client has gone or we are told to end.
    pub(super) closing: CancellationToken,
    pub(super) decider: Decider,
    pub(super) api: Api,
    groups: Groups,
    pub(super) stdio: Stdio,
    pub(super) defaults: Defaults,
    office: Office,
    jobs: Option<Arc<Jobs>>,
    deliveries: Deliveries,
    notices: Notices,
    warnings: Warnings,
    pub(super) bounds: Bounds,
    warned_of_on_failure: AtomicBool,
    started: Instant,
    calls: CallCounter,
}

/// Calls of the tools that prompt Codex.
#[derive(Default)]
struct CallCounter {
    total: AtomicU64,
    in_flight: AtomicUsize,
}

/// A call that is under way, until it is dropped.
struct Counted<'a>(&'a CallCounter);

impl CallCounter {
    fn begin(&self) -> Counted<'_> {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Counted(self)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Front {
    /// A front to `engine`.
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        api: Api,
        decider: Decider,
        patience: Patience,
        closing: CancellationToken,
    ) -> Self {
        Self {
            engine,
            patience,
            closing,
            decider,
            api,
            groups: Groups::default(),
            stdio: Stdio::default(),
            defaults: Defaults::default(),
            office: Office::default(),
            jobs: None,
            deliveries: Deliveries::default(),
            notices: Notices::default(),
            warnings: Warnings::default(),
            bounds: Bounds::default(),
            warned_of_on_failure: AtomicBool::new(false),
            started: Instant::now(),
            calls: CallCounter::default(),
        }
    }

    /// How the server and its Codex are.
    pub(super) async fn status(&self) -> Status {
        let codex = match self.engine.standing() {
            Standing::Starting => codex_status::Codex::Starting,
            Standing::Ready(version) => codex_status::Codex::Ready { version },
            Standing::Absent(failure) => codex_status::Codex::Absent {
                reason: failure.map(|failure| failure.to_string()),
            },
        };
        let (_, open_questions) = self.engine.under_way();
        let mut warnings = self.warnings.all();
        warnings.extend(self.news_of_death());
        Status {
            backend: "app-server",
            member: self.defaults.member().cloned(),
            codex,
            limits: self
                .engine
                .limits()
                .await
                .map_err(|error| error.to_string()),
            last_exit: self.engine.last_death(),
            uptime: self.started.elapsed(),
            calls: Calls {
                total: self.calls.total.load(Ordering::Relaxed),
                in_flight: self.calls.in_flight.load(Ordering::Relaxed),
            },
            active_threads: self.active_threads().await,
            open_questions,
            pending_mail: self.office.pending_mail().await,
            messages: None,
            warnings,
        }
    }

    /// That Codex has died, for the first answer after that.
    fn news_of_death(&self) -> Option<String> {
        let death = self.engine.unreported_death()?;
        let then = match self.engine.standing() {
            Standing::Ready(_) | Standing::Starting => "It was started again",
            Standing::Absent(_) => "The next call starts it again",
        };
        Some(format!("{death}. {then}, and its threads continue"))
    }

    /// How many threads are active, as `codex_threads` shows them; without a record of
    /// threads, how many sessions are not cancelled.
    async fn active_threads(&self) -> usize {
        match self.office.active_threads().await {
            Some(active) => active,
            None => self.engine.active_sessions(),
        }
    }

    /// The same front, with warnings for its caller, to which others may add.
    #[must_use]
    pub fn with_warnings(self, warnings: Warnings) -> Self {
        Self { warnings, ..self }
    }

    /// The same front, with the tools of these groups alone.
    #[must_use]
    pub fn with_groups(self, groups: Groups) -> Self {
        Self { groups, ..self }
    }

    /// The same front, with what is known about stdin and stdout.
    #[must_use]
    pub fn with_stdio(self, stdio: Stdio) -> Self {
        Self { stdio, ..self }
    }

    /// The same front, with what threads are begun with where a call doesn't say.
    #[must_use]
    pub fn with_defaults(self, defaults: Defaults) -> Self {
        Self { defaults, ..self }
    }

    /// The same front, with bounds of what its client may ask for.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// The settings of a new thread: what a call says, within the bounds, with the
    /// defaults below.
    pub(super) async fn settings(&self, given: Settings) -> Result<Settings, ToolError> {
        self.bounds.check_asked(&given)?;
        if let Some(profile) = &given.profile {
            profile::check_exists(self.engine.codex_home(), profile)
                .map_err(|error| ToolError::new(Code::InvalidArgument, error.to_string()))?;
        }
        let settings = self.defaults.under(given).await;
        Ok(self.bounds.bound_laid(settings)?)
    }

    /// Brings what a call says of a thread from before within the bounds.
    pub(super) fn bound_resumed(
        &self,
        thread: &ThreadId,
        settings: &mut Settings,
    ) -> Result<(), ToolError> {
        match self.engine.known(thread) {
            // It was brought within the bounds when it began, and the engine refuses it if
            // a directory of it leads anywhere else since.
            Known::Here => {
                self.bounds.check_config(&settings.thread.config)?;
                let mut changes = Overrides {
                    cwd: settings.thread.cwd.take(),
                    sandbox: settings.thread.sandbox,
                    ..Overrides::default()
                };
                self.bounds.bound_overrides(&mut changes)?;
                settings.thread.cwd = changes.cwd;
            }
            Known::Before(known) => {
                if let (None, Some(cwd)) = (&settings.thread.cwd, &known.thread.cwd) {
                    directory::check(cwd)?;
                }
                self.bounds.bound_resumed(settings, Some(&known))?;
            }
            Known::Unknown => self.bounds.bound_resumed(settings, None)?,
        }
        Ok(())
    }

    /// The thread that a call names, by its id or how that begins: one of a session here, or
    /// one of which Codex has a rollout. Whether there is one of a whole id is Codex's to say.
    pub(super) async fn thread(&self, text: &str) -> Result<ThreadId, ToolError> {
        if let Ok(thread) = ThreadId::parse(text) {
            return Ok(thread);
        }
        let prefix: ThreadPrefix = text.parse().map_err(|error: NotAThread| {
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

    /// The same front, with what it does as a member of a team. The transport that it
    /// is served on has to tell of `deliveries`.
    #[must_use]
    pub fn with_office(self, office: Office, deliveries: Deliveries) -> Self {
        Self {
            office,
            deliveries,
            ..self
        }
    }

    /// The same front, with the store of jobs.
    #[must_use]
    pub fn with_jobs(self, jobs: Arc<Jobs>) -> Self {
        Self {
            jobs: Some(jobs),
            ..self
        }
    }

    /// The mail, if there is some.
    pub(super) fn desk(&self) -> Option<&Desk> {
        self.office.desk.as_ref()
    }

    fn tools(&self) -> Vec<tools::Name> {
        tools::names(self.api, &self.groups, self.office.desk.as_ref())
    }

    /// Answers a call of a tool of the team.
    pub(super) async fn team_tool(
        &self,
        tool: TeamTool,
        context: &RequestContext<RoleServer>,
        arguments: JsonObject,
    ) -> Result<CallToolResponse, ToolError> {
        let Told { result, then } = tool.call(&self.office, arguments).await?;
        if let Some(then) = then {
            self.deliveries.expect(context.id.clone(), then);
        }
        Ok(result.into())
    }

    /// Answers a call of a tool for jobs.
    pub(super) async fn job_tool(
        &self,
        tool: JobTool,
        context: &RequestContext<RoleServer>,
        arguments: JsonObject,
    ) -> Result<CallToolResponse, ToolError> {
        let none = || ToolError::new(Code::JobStore, "this server has no store of jobs");
        let jobs = Arc::clone(self.jobs.as_ref().ok_or_else(none)?);
        let client = context.peer.peer_info();
        let client = client.map(|info| info.client_info.name.clone());
        let of_call = Arc::clone(&jobs);
        let call = async move { tool.call(&of_call, client, arguments).await };
        let called = match tool.acts() {
            true => self.done_in_any_case(context, call).await?,
            false => self.wait_for(context, call).await??,
        };
        match called {
            Called::Answered(answer) => Ok(answer.into()),
            Called::Watched(job) => self.wait_for_job(context, &jobs, &job).await,
        }
    }

    /// Waits for a job on behalf of a call, and tells what happens in it.
    async fn wait_for_job(
        &self,
        context: &RequestContext<RoleServer>,
        jobs: &Jobs,
        job: &Watch,
    ) -> Result<CallToolResponse, ToolError> {
        let mut progress = Progress::new(context, "waiting for the job");
        loop {
            let waited = job.wait(jobs);
            match self.wait_until(context, None, &mut progress, waited).await {
                Ok(waited) => match waited? {
                    Waited::Over(answer) => return Ok(answer.into()),
                    Waited::Doing(Some(step)) => progress.tell(context, &step).await,
                    Waited::Doing(None) => {}
                },
                Err(error) => {
                    let known = job.goes_on().filter(|_| self.closing.is_cancelled());
                    return known.map(CallToolResponse::from).ok_or(error);
                }
            }
        }
    }

    /// Whether nobody has asked this before.
    pub(super) fn first_on_failure(&self) -> bool {
        !self.warned_of_on_failure.swap(true, Ordering::Relaxed)
    }

    /// Prompts the thread that `opening` opens and waits for what Codex says.
    /// Should the caller go away in the meantime, no turn is left running.
    pub(super) async fn run_turn(
        &self,
        context: &RequestContext<RoleServer>,
        opening: impl Future<Output = Result<Opened, EngineError>> + Send + 'static,
        call: TurnCall,
    ) -> Result<CallToolResponse, ToolError> {
        let TurnCall {
            prompt,
            warnings,
            wait,
        } = call;
        let came = Instant::now();
        let deadline = came + self.patience.call;
        let mut progress = Progress::new(context, "opening the thread");
        let opening = self.unless_gone(context, deadline, &mut progress, opening);
        let opened = opening.await?;
        let Opened {
            session, thread, ..
        } = match opened {
            Ready::Now(opened) => opened,
            Ready::Later(_, error) => return Err(error),
        };
        let engine = Arc::clone(&self.engine);
        let prompting = async move { engine.prompt(&session, prompt).await };
        progress.begin("starting the turn");
        let prompting = self.unless_gone(context, deadline, &mut progress, prompting);
        match prompting.await {
            Ok(Ready::Now(turn)) => {
                let until = match wait {
                    Some(wait) => Until::ComeBack(came + wait),
                    None => Until::GiveUp(deadline),
                };
                let wait = TurnWait::new(self, context, turn, thread, until, progress);
                let wait = wait.with_warnings(warnings);
                wait.outcome().await
            }
            Ok(Ready::Later(prompting, error)) => {
                self.interrupt_once_started(prompting);
                Err(error.in_thread(&thread))
            }
            Err(error) => Err(error.in_thread(&thread)),
        }
    }

    /// Runs a step of a call on a task of its own, since half a step is worse
    /// than none, and stops waiting for it when the caller goes away.
    async fn unless_gone<T: Send + 'static>(
        &self,
        context: &RequestContext<RoleServer>,
        deadline: Instant,
        progress: &mut Progress,
        step: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<Ready<T>, ToolError> {
        let mut step = tokio::spawn(step);
        let deadline = Some(deadline);
        let waited = self.wait_until(context, deadline, progress, &mut step);
        match waited.await {
            Ok(done) => {
                let done =
                    done.map_err(|error| ToolError::new(Code::Internal, error.to_string()))?;
                Ok(Ready::Now(done?))
            }
            Err(error) => Ok(Ready::Later(step, error)),
        }
    }

    fn interrupt_once_started(&self, prompting: JoinHandle<Result<TurnRef, EngineError>>) {
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move {
            if let Ok(Ok(turn)) = prompting.await
                && let Err(error) = engine.interrupt(&turn)
            {
                tracing::warn!("a turn nobody waits for was not interrupted: {error}");
            }
        });
    }

    /// Goes on with a call that came back with questions, now answered.
    async fn go_on(
        &self,
        context: &RequestContext<RoleServer>,
        state: &str,
        answers: BTreeMap<String, Value>,
        wait: Option<Duration>,
    ) -> Result<CallToolResponse, ToolError> {
        let RequestState { turn, thread } = RequestState::parse(state)?;
        let in_thread = |error: ToolError| error.in_thread(&thread);
        let view = self.engine.inspect(&turn.session);
        let view = view.map_err(|error| in_thread(error.into()))?;
        if view.turn != turn.number {
            let late = "another turn of the thread has begun in the meantime";
            return Err(in_thread(ToolError::new(Code::InvalidArgument, late)));
        }
        let taken: Vec<Taken> = answers
            .into_iter()
            .map(|(id, answer)| decide(&self.engine, &turn.session, &ActionId(id), Some(&answer)))
            .collect();
        let until = match wait {
            Some(wait) => Until::ComeBack(Instant::now() + wait),
            None => Until::GiveUp(Instant::now() + self.patience.call),
        };
        let progress = Progress::new(context, "answering Codex's questions");
        let wait = TurnWait::new(self, context, turn, thread, until, progress);
        // The client would dismiss the question again, at once and for ever.
        let wait = match taken.contains(&Taken::Dismissed) {
            true => wait.asking_nobody(),
            false => wait,
        };
        wait.outcome().await
    }
}

/// How a client has taken a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It has decided, or the question is open no longer.
    Decided,
    /// It has dismissed the question, or can't be asked: the question stays open.
    Dismissed,
}

/// Takes a client's answer to a question; none from a client that can't be asked. An
/// answer that doesn't fit counts as the nearest that does: the client has answered
/// and won't do so again. A late one is no error: the question may have timed out
/// while the answer was under way.
pub(super) fn decide(
    engine: &Engine,
    session: &SessionId,
    action: &ActionId,
    answer: Option<&Value>,
) -> Taken {
    match try_decide(engine, session, action, answer) {
        Ok(taken) => taken,
        Err(error) => {
            tracing::warn!("an answer was not taken: {error}");
            Taken::Decided
        }
    }
}

fn try_decide(
    engine: &Engine,
    session: &SessionId,
    action: &ActionId,
    answer: Option<&Value>,
) -> Result<Taken, EngineError> {
    let view = engine.inspect(session)?;
    let open = view.actions.iter().find(|open| open.id == *action);
    let open = open.ok_or(EngineError::Decision(DecisionRefused::NotOpen))?;
    let reply = answer.map_or(Reply::Dismissed, |answer| {
        question::reply(&open.ask, answer)
    });
    let Reply::Decided { decisions, reason } = reply else {
        engine.dismiss(session, action)?;
        return Ok(Taken::Dismissed);
    };
    for decision in decisions {
        let asked = DecidedBy::Elicitation;
        match engine.respond_as(asked, session, action, &decision, reason.as_deref()) {
            Ok(()) => break,
            Err(EngineError::OutOfBounds(why)) => {
                let why = why.to_string();
                let (bounds, no) = (DecidedBy::Settings, &Decision::Decline);
                engine.respond_as(bounds, session, action, no, Some(&why))?;
                break;
            }
            Err(EngineError::Decision(DecisionRefused::Wrong(why))) => {
                tracing::warn!("an answer doesn't fit the question: {why}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Taken::Decided)
}

/// A step of a call, done, or still under way when the caller went away.
enum Ready<T> {
    Now(T),
    Later(JoinHandle<Result<T, EngineError>>, ToolError),
}

impl ServerHandler for Front {
    fn get_info(&self) -> ServerConfig {
        let builder = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources();
        let capabilities = match self.desk() {
            Some(_) => builder.enable_resources_subscribe().build(),
            None => builder.build(),
        };
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("codex-mcp", env!("CARGO_PKG_VERSION")).with_title("codex-mcp"),
            )
            .with_instructions(instructions(self.api, &self.groups))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools().into_iter().map(tools::Name::describe);
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(self)))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(resources::read(self, &request.uri).await?.into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        resources::find(self, &request.uri)?;
        // The others never change.
        if let (MAIL, Some(desk)) = (request.uri.as_str(), self.desk()) {
            let subscribing = self.notices.subscribe(desk, &context.peer, &self.closing);
            let told = |error: Ended| ErrorData::internal_error(error.to_string(), None);
            subscribing.await.map_err(told)?;
        }
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if request.uri == MAIL {
            self.notices.unsubscribe();
        }
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.desk().map(|_| requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        if let Some(desk) = self.desk() {
            notices::listen(desk.clone(), &context, &self.closing).await;
        }
        Ok(())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = tools::named(&self.tools(), &call.name)?;
        let _counted = tool.prompts().then(|| self.calls.begin());
        let answered = match &call.request_state {
            Some(state) if tool.waits() => {
                let answers = call.input_responses.unwrap_or_default();
                let arguments = call.arguments.unwrap_or_default();
                let wait = tools::wait_of(&arguments);
                self.go_on(&context, state, answers, wait).await
            }
            _ => {
                tool.call(self, &context, call.arguments.unwrap_or_default())
                    .await
            }
        };
        let answered = answered.map(|response| match response {
            CallToolResponse::Complete(mut result) if tool.carries_warnings() => {
                self.warnings.attach(&mut result, || self.news_of_death());
                CallToolResponse::Complete(result)
            }
            other => other,
        });
        answered.or_else(|error| {
            if error.is_about_a_death() {
                // The next answer need not tell it again.
                let _ = self.engine.unreported_death();
            }
            tracing::debug!("{}: {}", call.name, error.text());
            Ok(tool.refusal(error).into())
        })
    }
}
