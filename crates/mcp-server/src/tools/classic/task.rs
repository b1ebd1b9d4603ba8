//! Calls of the classic tools that are answered by a task.

use std::sync::Arc;

use codex_engine::command::{LONGEST_PROMPT, LONGEST_WAIT, ResumeThread, StartThread};
use codex_engine::{Engine, ReleaseOutcome};
use codex_protocol::codex::ThreadId;
use job_queue::classic::call::ClassicCall;
use job_queue::classic::spec::ClassicSpec;
use job_queue::service::{Jobs, JobsError};
use job_queue::spec::BadJobSpec;
use rmcp::RoleServer;
use rmcp::model::CallToolResponse;
use rmcp::service::RequestContext;

use crate::code::Code;
use crate::error::ToolError;
use crate::server::Server;
use crate::tasks;
use crate::turn_call::TurnCall;

/// Why a session ends whose thread a task continues.
const RELEASED: &str = "a task continues its thread";

/// A call whose turn a job runs.
pub(super) struct TaskCall {
    /// The tool.
    pub(super) tool: &'static str,
    /// The settings of the thread, within the bounds.
    pub(super) start: StartThread,
    /// The thread to continue; a new one otherwise.
    pub(super) thread: Option<ThreadId>,
    /// The prompt and the warnings.
    pub(super) turn: TurnCall,
}

/// The jobs for a call whose caller takes a task. `None` if the call is answered when its turn has
/// ended: also where the store cannot be used or others write to it, for a prompt that Codex does
/// not take, and under bounds, of which a job carries only that of the sandbox.
pub(super) async fn jobs(
    server: &Server,
    context: &RequestContext<RoleServer>,
    turn: &TurnCall,
) -> Option<Arc<Jobs>> {
    let is_allowed = server.has_task_calls && !server.bounds.is_any();
    let is_too_long = || turn.prompt.text.chars().count() > LONGEST_PROMPT;
    if !is_allowed || !tasks::are_taken(context) || is_too_long() {
        return None;
    }
    let jobs = server.jobs.clone().filter(|jobs| jobs.are_of_this_host())?;
    let store = jobs.store().await;
    if let Err(error) = store {
        tracing::warn!("a call is not answered by a task: {error}");
        return None;
    }
    Some(jobs)
}

/// Submits the job of a call.
pub(super) async fn begin(
    server: &Server,
    context: &RequestContext<RoleServer>,
    jobs: Arc<Jobs>,
    mut call: TaskCall,
) -> Result<CallToolResponse, ToolError> {
    let thread = &mut call.start.settings.thread;
    thread.cwd = Some(server.engine.working_directory(thread.cwd.take())?);
    let client = context.peer.peer_info();
    let client = client.map(|info| info.client_info.name.clone());
    let spec = call.into_spec(client, server);
    let of_call = Arc::clone(&jobs);
    let submit = async move {
        let submitted = of_call.submit_classic(spec).await;
        submitted.map_err(not_submitted)
    };
    let submitted = server
        .run_detached_through_shutdown(context, submit)
        .await?;
    let created = tasks::created(&jobs, &submitted.job).await?;
    Ok(CallToolResponse::Task(created))
}

/// Releases a thread for the job that continues it. `None` if only this server can continue it.
pub(super) async fn release(
    server: &Server,
    context: &RequestContext<RoleServer>,
    resume: ResumeThread,
) -> Result<Option<StartThread>, ToolError> {
    let engine: Arc<Engine> = Arc::clone(&server.engine);
    let releasing = async move { engine.release_thread(resume, RELEASED).await };
    Ok(match server.run_detached(context, releasing).await? {
        ReleaseOutcome::Released(settings) => Some(StartThread {
            settings: *settings,
            ..StartThread::default()
        }),
        ReleaseOutcome::Kept => None,
    })
}

impl TaskCall {
    fn into_spec(self, client: Option<String>, server: &Server) -> ClassicSpec {
        let TurnCall {
            prompt,
            warnings,
            wait,
        } = self.turn;
        ClassicSpec {
            tool: self.tool.to_owned(),
            client,
            task_name: self.start.tag,
            prompt: prompt.text,
            thread: self.thread,
            call: ClassicCall {
                settings: self.start.settings,
                review: prompt.review,
                warnings,
            },
            // A call that waits for a while lets its turn go on afterwards.
            timeout: match wait {
                Some(_) => LONGEST_WAIT,
                None => server.timeouts.call,
            },
        }
    }
}

fn not_submitted(error: JobsError) -> ToolError {
    match error {
        JobsError::Spec(BadJobSpec::NoCodex(error)) => {
            ToolError::new(Code::CodexNotFound, error.to_string())
        }
        error => error.into(),
    }
}
