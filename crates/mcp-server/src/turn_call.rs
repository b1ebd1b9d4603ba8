//! A call that prompts a thread and waits for the turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codex_engine::EngineError;
use codex_engine::command::{Opened, Prompt, TurnRef};
use codex_engine::logic::action::ActionId;
use rmcp::RoleServer;
use rmcp::model::CallToolResponse;
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::code::Code;
use crate::decision::{Taken, decide};
use crate::error::ToolError;
use crate::progress::Progress;
use crate::request_state::RequestState;
use crate::server::Server;
use crate::turn::{TurnWait, Until};

/// A call that prompts a thread and waits.
pub(crate) struct TurnCall {
    pub(crate) prompt: Prompt,
    pub(crate) warnings: Vec<String>,
    /// How long to wait before the call comes back and the work goes on; if not
    /// given, the turn is given up when the call's time is up.
    pub(crate) wait: Option<Duration>,
}

impl Server {
    /// Prompts the thread that `opening` opens and waits for what Codex says.
    /// Should the caller go away in the meantime, no turn is left running.
    pub(crate) async fn run_turn(
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
        let deadline = came + self.timeouts.call;
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
        let taken: Vec<Taken> = answers
            .into_iter()
            .map(|(id, answer)| decide(&self.engine, &turn.session, &ActionId(id), Some(&answer)))
            .collect();
        let until = match wait {
            Some(wait) => Until::ComeBack(Instant::now() + wait),
            None => Until::GiveUp(Instant::now() + self.timeouts.call),
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

/// A step of a call, done, or still under way when the caller went away.
enum Ready<T> {
    Now(T),
    Later(JoinHandle<Result<T, EngineError>>, ToolError),
}
