//! A call that prompts a thread and waits for the turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codex_engine::EngineError;
use codex_engine::command::{LONGEST_WAIT, OpenThread, Prompt, TurnOrigin, TurnRef};
use codex_engine::logic::action::ActionId;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult, JsonObject};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::code::Code;
use crate::decision::{ReplyOutcome, decide};
use crate::error::ToolError;
use crate::progress::Progress;
use crate::repeated_call;
use crate::request_state::RequestState;
use crate::server::Server;
use crate::tasks::{self, EarlierTask, NewTask, SessionTasks, TaskKey};
use crate::turn::{CallDeadline, TurnWait};

/// A call that prompts a thread and waits.
pub(crate) struct TurnCall {
    pub(crate) prompt: Prompt,
    pub(crate) warnings: Vec<String>,
    /// The time after which the call returns while the turn continues. `None` lets the call wait
    /// until its timeout, which interrupts the turn.
    pub(crate) wait: Option<Duration>,
}

impl Server {
    /// Prompts the thread that `opening` opens, and waits for the final message. If the caller goes
    /// away meanwhile, no turn is left running.
    pub(crate) async fn run_turn(
        &self,
        context: &RequestContext<RoleServer>,
        opening: impl Future<Output = Result<OpenThread, EngineError>> + Send + 'static,
        call: TurnCall,
    ) -> Result<CallToolResponse, ToolError> {
        if let Some(tasks) = self.tasks.as_ref().filter(|_| tasks::are_taken(context)) {
            return self.begin_task(context, tasks, opening, call).await;
        }
        let TurnCall {
            mut prompt,
            warnings,
            wait,
        } = call;
        prompt.origin = Some(TurnOrigin::Call(repeated_call::id(context)));
        let arrived = Instant::now();
        let deadline = arrived + self.timeouts.call;
        let mut progress = Progress::new(context, "opening the thread");
        let opening = self.run_step(context, deadline, &mut progress, opening);
        let opened = opening.await?;
        let OpenThread {
            session, thread, ..
        } = match opened {
            StepOutcome::Done(opened) => opened,
            StepOutcome::Running(_, error) => return Err(error),
        };
        let engine = Arc::clone(&self.engine);
        let prompting = async move { engine.prompt(&session, prompt).await };
        progress.begin("starting the turn");
        let prompting = self.run_step(context, deadline, &mut progress, prompting);
        match prompting.await {
            Ok(StepOutcome::Done(turn)) => {
                let until = self.call_deadline(arrived, wait);
                let wait = TurnWait::new(self, context, turn, thread, until, progress);
                let wait = wait.with_warnings(warnings);
                wait.outcome().await
            }
            Ok(StepOutcome::Running(prompting, error)) => {
                self.interrupt_once_started(prompting);
                Err(error.in_thread(&thread))
            }
            Err(error) => Err(error.in_thread(&thread)),
        }
    }

    /// Answers a call by a task, which prompts the thread and waits.
    async fn begin_task(
        &self,
        context: &RequestContext<RoleServer>,
        tasks: &Arc<SessionTasks>,
        opening: impl Future<Output = Result<OpenThread, EngineError>> + Send + 'static,
        call: TurnCall,
    ) -> Result<CallToolResponse, ToolError> {
        let TurnCall {
            mut prompt,
            warnings,
            wait,
        } = call;
        // A call that waits for a while lets its turn continue afterwards.
        let limit = wait.is_none().then_some(self.timeouts.call);
        let cancelled = CancellationToken::new();
        let new = NewTask {
            call: self.engine.named_call(&repeated_call::id(context)),
            warnings,
            limit,
            cancelled: cancelled.clone(),
        };
        // Clients do not look at a task while they show its dialog.
        prompt.approval_timeout = Some(LONGEST_WAIT);
        let engine = Arc::clone(&self.engine);
        let begin = async move |key: TaskKey, cancelled: CancellationToken| {
            let OpenThread {
                session, thread, ..
            } = opening.await?;
            if cancelled.is_cancelled() {
                let why = "the task was cancelled before its turn had begun";
                return Err(ToolError::new(Code::Cancelled, why).in_thread(&thread));
            }
            prompt.origin = Some(TurnOrigin::Task(key.to_string()));
            let begun = engine.prompt(&session, prompt).await;
            let turn = begun.map_err(|error| ToolError::from(error).in_thread(&thread))?;
            Ok((engine.handle(&session)?, turn.number))
        };
        let counted = self.beginning_tasks.clone();
        let begin = move |key, cancelled| counted.track_future(begin(key, cancelled));
        let beginning = Arc::clone(tasks).begin(new, begin);
        let beginning = self.beginning_tasks.track_future(beginning);
        let created = self.run_detached_through_shutdown(context, beginning).await;
        if created.is_err() && !self.closing.is_cancelled() {
            // The caller does not learn the ID of the task, so nobody waits for its turn.
            cancelled.cancel();
        }
        Ok(CallToolResponse::Task(created?))
    }

    /// The deadline of a call that arrived at this time.
    fn call_deadline(&self, arrived: Instant, wait: Option<Duration>) -> CallDeadline {
        match wait {
            Some(wait) => CallDeadline::Return(arrived + wait),
            None => CallDeadline::Interrupt(arrived + self.timeouts.call),
        }
    }

    /// Waits for the turn of a repeated call: the client's relay repeats a call if the host that
    /// had the call was killed.
    pub(crate) async fn rejoin_turn(
        &self,
        context: &RequestContext<RoleServer>,
        wait: Option<Duration>,
    ) -> Result<CallToolResponse, ToolError> {
        let call = repeated_call::id(context);
        let found = match self.engine.turn_of_call(&call) {
            Some(found) => Some(found),
            None => match self.earlier_task(&call).await {
                Some(EarlierTask::Ended(result)) => return finished(result),
                Some(EarlierTask::Turn((session, number))) => {
                    let thread = session.thread().clone();
                    let session = session.id().clone();
                    Some((TurnRef { session, number }, thread))
                }
                None => None,
            },
        };
        let Some((turn, thread)) = found else {
            return Err(ToolError::new(Code::HostLost, repeated_call::LOST));
        };
        let until = self.call_deadline(Instant::now(), wait);
        let progress = Progress::new(context, "waiting for the turn");
        let wait = TurnWait::new(self, context, turn, thread, until, progress);
        wait.outcome().await
    }

    /// The task with which the killed host meant to answer a call.
    async fn earlier_task(&self, call: &str) -> Option<EarlierTask> {
        let tasks = self.tasks.as_ref()?;
        tasks.of_call(&self.engine.named_call(call)).await
    }

    /// Runs a step of a call on a separate task, since an incomplete step is worse than none. Stops
    /// waiting for it when the caller goes away.
    async fn run_step<T: Send + 'static>(
        &self,
        context: &RequestContext<RoleServer>,
        deadline: Instant,
        progress: &mut Progress,
        step: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<StepOutcome<T>, ToolError> {
        let mut step = tokio::spawn(step);
        let deadline = Some(deadline);
        let waited = self.wait_until(context, deadline, progress, &mut step);
        match waited.await {
            Ok(done) => {
                let done =
                    done.map_err(|error| ToolError::new(Code::Internal, error.to_string()))?;
                Ok(StepOutcome::Done(done?))
            }
            Err(error) => Ok(StepOutcome::Running(step, error)),
        }
    }

    fn interrupt_once_started(&self, prompting: JoinHandle<Result<TurnRef, EngineError>>) {
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move {
            if let Ok(Ok(turn)) = prompting.await
                && let Err(error) = engine.interrupt(&turn)
            {
                tracing::warn!("a turn that no call waits for could not be interrupted: {error}");
            }
        });
    }

    /// Continues a call that returned questions, which are answered now.
    pub(crate) async fn continue_turn(
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
        let session = self.engine.handle(&turn.session);
        let session = session.map_err(|error| in_thread(error.into()))?;
        let outcomes: Vec<ReplyOutcome> = answers
            .into_iter()
            .map(|(id, answer)| decide(&session, &ActionId(id), Some(&answer)))
            .collect();
        let until = self.call_deadline(Instant::now(), wait);
        let progress = Progress::new(context, "answering Codex's questions");
        let wait = TurnWait::new(self, context, turn, thread, until, progress);
        // Otherwise the client would dismiss the question again, at once and for ever.
        let wait = match outcomes.contains(&ReplyOutcome::Dismissed) {
            true => wait.without_dialogs(),
            false => wait,
        };
        wait.outcome().await
    }
}

/// The answer to a call by a task that has ended.
fn finished(result: JsonObject) -> Result<CallToolResponse, ToolError> {
    let result = serde_json::from_value::<CallToolResult>(Value::Object(result));
    let result = result.map_err(|error| ToolError::new(Code::Internal, error.to_string()))?;
    Ok(result.into())
}

/// The outcome of a step: done, or still running when the caller went away.
enum StepOutcome<T> {
    Done(T),
    Running(JoinHandle<Result<T, EngineError>>, ToolError),
}
