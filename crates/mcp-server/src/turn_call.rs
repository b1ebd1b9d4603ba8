//! A call that prompts a thread and waits for the turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codex_engine::EngineError;
use codex_engine::command::{OpenThread, Prompt, TurnRef};
use codex_engine::logic::action::ActionId;
use rmcp::RoleServer;
use rmcp::model::CallToolResponse;
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::code::Code;
use crate::decision::{ReplyOutcome, decide};
use crate::error::ToolError;
use crate::progress::Progress;
use crate::repeated_call;
use crate::request_state::RequestState;
use crate::server::Server;
use crate::turn::{CallDeadline, TurnWait};

/// A call that prompts a thread and waits.
pub(crate) struct TurnCall {
    pub(crate) prompt: Prompt,
    pub(crate) warnings: Vec<String>,
    /// The time after which the call returns while the turn continues. Without it, the turn is
    /// interrupted when the call times out.
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
        let TurnCall {
            mut prompt,
            warnings,
            wait,
        } = call;
        prompt.call = Some(repeated_call::id(context));
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

    /// The deadline of a call that arrived at this time.
    fn call_deadline(&self, arrived: Instant, wait: Option<Duration>) -> CallDeadline {
        match wait {
            Some(wait) => CallDeadline::Return(arrived + wait),
            None => CallDeadline::Interrupt(arrived + self.timeouts.call),
        }
    }

    /// Waits for the turn of a call that the client's relay repeats, since the host that had the
    /// call was killed.
    pub(crate) async fn rejoin_turn(
        &self,
        context: &RequestContext<RoleServer>,
        wait: Option<Duration>,
    ) -> Result<CallToolResponse, ToolError> {
        let call = repeated_call::id(context);
        let Some((turn, thread)) = self.engine.turn_of_call(&call) else {
            let why = "the host process was killed, and the turn of this call with it";
            return Err(ToolError::new(Code::HostLost, why));
        };
        let until = self.call_deadline(Instant::now(), wait);
        let progress = Progress::new(context, "waiting for the turn");
        let wait = TurnWait::new(self, context, turn, thread, until, progress);
        wait.outcome().await
    }

    /// Runs a step of a call on a task of its own, as half a step is worse than none, and stops
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
        let outcomes: Vec<ReplyOutcome> = answers
            .into_iter()
            .map(|(id, answer)| decide(&self.engine, &turn.session, &ActionId(id), Some(&answer)))
            .collect();
        let until = self.call_deadline(Instant::now(), wait);
        let progress = Progress::new(context, "answering Codex's questions");
        let wait = TurnWait::new(self, context, turn, thread, until, progress);
        // The client would dismiss the question again, at once and for ever.
        let wait = match outcomes.contains(&ReplyOutcome::Dismissed) {
            true => wait.without_dialogs(),
            false => wait,
        };
        wait.outcome().await
    }
}

/// The outcome of a step: done, or still running when the caller went away.
enum StepOutcome<T> {
    Done(T),
    Running(JoinHandle<Result<T, EngineError>>, ToolError),
}
