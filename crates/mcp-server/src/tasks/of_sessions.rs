//! Tasks of the calls that wait for a turn, in a host process: `codex`, `codex-reply` and
//! `codex_review`.
//!
//! ```text
//!   call ─► stored ─► thread opened ─► turn ─► result stored ─► removed after a day
//!             │                          │
//!             │         host killed ─────┤ the next host adopts the session, and finds the turn
//!             └─ host killed ─► lost     │   by the key of the task
//!                                        └─ not adopted ─► lost
//! ```
//!
//! The turn is one of a session, as without a task: other clients see it, and `codex-mcp attach`
//! opens it. A task belongs to the host in whose session its turn runs. Any server of the user
//! answers for it: from its file once it has ended, or else by asking that host.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use codex_engine::command::TurnView;
use codex_engine::logic::action::ActionId;
use codex_engine::{AppServers, SessionHandle};
use common::timestamp::timestamp;
use futures::future::BoxFuture;
use rmcp::ErrorData;
use rmcp::model::{
    CreateTaskResult, DetailedTask, InputRequests, InputResponses, JsonObject, Task, TaskPayload,
    TaskStatus,
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::record::{EndedTask, TaskFiles, TaskKey, TaskRecord};
use super::{POLL_INTERVAL, internal, unknown, whole};
use crate::answer::{INTERRUPT_TIMEOUT, TurnAnswer, answer_of, outcome_of};
use crate::code::Code;
use crate::decision::decide;
use crate::error::ToolError;
use crate::question::{ChoiceTitles, Origin, input_requests};

/// What the IDs of these tasks begin with.
const PREFIX: &str = "turn_";

/// How often old tasks are removed.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// What a client wants of a task, for the host that has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRequest {
    /// The ID of the task.
    pub task: String,
    /// What to do.
    pub act: TaskAct,
}

/// An act on a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskAct {
    /// Tell its state.
    Get,
    /// Answer its questions.
    Answer {
        /// The answers, by the IDs of the questions.
        responses: InputResponses,
        /// The setting that keeps commands in the sandbox for the one who answers.
        bound: Option<String>,
    },
    /// End it.
    Cancel,
}

/// The answer of a host about a task.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskAnswer {
    /// The state of the task.
    State(Box<DetailedTask>),
    /// It is done.
    Done,
    /// It cannot be done.
    Failed(ErrorData),
}

/// Asks another host about a task, by the key of the host. `None` if that host does not run.
pub type OtherHosts = dyn Fn(String, TaskRequest) -> BoxFuture<'static, Result<Option<TaskAnswer>, String>>
    + Send
    + Sync;

/// The tasks of a host.
pub struct SessionTasks {
    files: TaskFiles,
    /// The key of this host.
    host: String,
    others: Box<OtherHosts>,
    /// Those that have not ended, or whose end could not be stored.
    live: Mutex<HashMap<TaskKey, Arc<LiveTask>>>,
    /// The keys of the tasks that this host has taken over, by the calls that they answer.
    earlier: OnceLock<HashMap<String, TaskKey>>,
}

/// A task that has not ended.
struct LiveTask {
    /// Locked while it is written.
    record: tokio::sync::Mutex<TaskRecord>,
    /// The session, and the number of the turn in it, once the turn has begun.
    turn: OnceLock<TaskTurn>,
    cancelled: CancellationToken,
}

/// The turn of a task: its session, and its number there.
pub(crate) type TaskTurn = (SessionHandle, u64);

/// A task of an earlier host.
pub(crate) enum EarlierTask {
    /// Its turn has not ended.
    Turn(TaskTurn),
    /// It has ended, with this result of its call.
    Ended(JsonObject),
}

/// A task that is to begin.
pub(crate) struct NewTask {
    /// The call that it answers, by its name in the engine.
    pub(crate) call: String,
    pub(crate) warnings: Vec<String>,
    /// The time limit of the turn, without the time that a question is open.
    pub(crate) limit: Option<Duration>,
}

impl SessionTasks {
    /// The tasks of the host with this key, which are stored in this directory.
    #[must_use]
    pub fn new(directory: PathBuf, host: String, others: Box<OtherHosts>) -> Self {
        Self {
            files: TaskFiles::new(directory),
            host,
            others,
            live: Mutex::default(),
            earlier: OnceLock::new(),
        }
    }

    /// Continues the tasks of a host that was killed, in the sessions that this one has adopted. A
    /// task whose session was not adopted is lost.
    pub async fn take_over(self: &Arc<Self>, app_servers: &AppServers) {
        let found = match self.files.of_host(&self.host).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!("the tasks of the last host cannot be read: {error}");
                Vec::new()
            }
        };
        let of_calls = found.iter();
        let of_calls = of_calls.map(|(key, record)| (record.call.clone(), key.clone()));
        // It is set once, as a host takes over once.
        let _ = self.earlier.set(of_calls.collect());
        for (key, record) in found {
            if record.ended.is_none() {
                let turn = app_servers.turn_of_task(key.as_str());
                let live = self.add(key.clone(), record);
                if let Some(turn) = &turn {
                    live.has_turn(turn);
                }
                let tasks = Arc::clone(self);
                let turn = turn.ok_or_else(lost);
                tokio::spawn(async move { tasks.finish(&key, &live, turn, None).await });
            }
        }
        tokio::spawn(remove_old(Arc::downgrade(self)));
    }

    /// Stores a task, and then has `begin` begin its turn.
    pub(crate) async fn begin<F>(
        self: Arc<Self>,
        new: NewTask,
        begin: impl FnOnce(TaskKey) -> F,
    ) -> Result<CreateTaskResult, ToolError>
    where
        F: Future<Output = Result<TaskTurn, ToolError>> + Send + 'static,
    {
        let NewTask {
            call,
            warnings,
            limit,
        } = new;
        let id = format!("{PREFIX}{}", Uuid::new_v4().simple());
        let key = TaskKey::of(&id);
        let record = TaskRecord {
            host: self.host.clone(),
            call,
            created: SystemTime::now(),
            thread: None,
            warnings,
            is_cancelled: false,
            ended: None,
        };
        let stored = self.files.write(&key, &record).await;
        stored.map_err(|error| ToolError::new(Code::TaskFiles, error.to_string()))?;
        let created = created(&id, record.created);
        let live = self.add(key.clone(), record);
        let beginning = begin(key.clone());
        tokio::spawn(async move {
            let turn = beginning.await;
            self.finish(&key, &live, turn, limit).await;
        });
        Ok(created)
    }

    /// What has become of the task with which an earlier host meant to answer this call. The client
    /// has not learned its ID.
    pub(crate) async fn of_call(&self, call: &str) -> Option<EarlierTask> {
        let key = self.earlier.get()?.get(call)?;
        if let Some(live) = self.live(key)
            && let Some(turn) = live.turn.get()
        {
            return Some(EarlierTask::Turn(turn.clone()));
        }
        let record = self.files.read(key).await.ok()??;
        record.ended.map(|ended| EarlierTask::Ended(ended.result))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<TaskKey, Arc<LiveTask>>> {
        // A map is valid at every point.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self, key: &TaskKey) -> Option<Arc<LiveTask>> {
        self.all().get(key).cloned()
    }

    fn add(&self, key: TaskKey, record: TaskRecord) -> Arc<LiveTask> {
        let cancelled = CancellationToken::new();
        if record.is_cancelled {
            cancelled.cancel();
        }
        let live = Arc::new(LiveTask {
            record: record.into(),
            turn: OnceLock::new(),
            cancelled,
        });
        self.all().insert(key, Arc::clone(&live));
        live
    }
    /// Waits for the end of a turn, and stores the result.
    async fn finish(
        &self,
        key: &TaskKey,
        live: &LiveTask,
        turn: Result<TaskTurn, ToolError>,
        limit: Option<Duration>,
    ) {
        let result = match turn {
            Ok(turn) => {
                live.has_turn(&turn);
                self.note_thread(key, live, &turn.0).await;
                live.end_of(&turn, limit).await
            }
            Err(error) => Err(error),
        };
        let mut record = live.record.lock().await;
        let result = match (result, &record.thread) {
            (Ok(answer), _) => Ok(answer),
            (Err(error), Some(thread)) => Err(error.in_thread(thread)),
            (Err(error), None) => Err(error),
        };
        let result = match result {
            Ok(answer) => TurnAnswer {
                warnings: record.warnings.clone(),
                ..answer
            }
            .into_result(),
            Err(error) => error.into_result(),
        };
        record.ended = Some(EndedTask {
            at: SystemTime::now(),
            result: whole(&result).unwrap_or_default(),
        });
        match self.files.write(key, &record).await {
            Ok(()) => drop(self.all().remove(key)),
            // It is answered for from here as long as this host runs.
            Err(error) => tracing::error!("the result of a task cannot be stored: {error}"),
        }
    }

    /// Stores the thread of a task, which its error names if this host is killed.
    async fn note_thread(&self, key: &TaskKey, live: &LiveTask, session: &SessionHandle) {
        let mut record = live.record.lock().await;
        if record.thread.is_none() {
            record.thread = Some(session.thread().clone());
            if let Err(error) = self.files.write(key, &record).await {
                tracing::warn!("the thread of a task cannot be stored: {error}");
            }
        }
    }

    /// Does what a client of this host wants of a task. `None` if there is no such task.
    pub(super) async fn act(&self, request: TaskRequest) -> Option<Result<TaskAnswer, ErrorData>> {
        let key = TaskKey::of(&request.task);
        if let Some(live) = self.live(&key) {
            return Some(self.act_on_live(&key, &live, request).await);
        }
        let record = match self.files.read(&key).await {
            Ok(Some(record)) => record,
            Ok(None) => return None,
            Err(error) => return Some(Err(internal(error))),
        };
        if record.ended.is_some() {
            return Some(Ok(match request.act {
                TaskAct::Get => state(&request.task, &record, None).into(),
                TaskAct::Answer { .. } | TaskAct::Cancel => TaskAnswer::Done,
            }));
        }
        Some(self.act_elsewhere(record, request).await)
    }

    /// Does what another host wants of a task of this one.
    pub async fn answer_host(&self, request: TaskRequest) -> TaskAnswer {
        let key = TaskKey::of(&request.task);
        let answered = match self.live(&key) {
            Some(live) => self.act_on_live(&key, &live, request).await,
            None => Err(unknown()),
        };
        answered.unwrap_or_else(TaskAnswer::Failed)
    }

    async fn act_elsewhere(
        &self,
        record: TaskRecord,
        request: TaskRequest,
    ) -> Result<TaskAnswer, ErrorData> {
        let id = request.task.clone();
        let is_get = matches!(request.act, TaskAct::Get);
        if record.host != self.host {
            match (self.others)(record.host.clone(), request).await {
                Ok(Some(TaskAnswer::Failed(error))) => {
                    // It may have ended in the meantime.
                    let now = self.files.read(&TaskKey::of(&id)).await.map_err(internal)?;
                    return match now.filter(|record| record.ended.is_some()) {
                        Some(record) if is_get => Ok(state(&id, &record, None).into()),
                        Some(_) => Ok(TaskAnswer::Done),
                        None => Err(error),
                    };
                }
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(why) => return Err(internal(why)),
            }
        }
        Ok(match is_get {
            true => state(&id, &record.lost(), None).into(),
            false => TaskAnswer::Done,
        })
    }

    async fn act_on_live(
        &self,
        key: &TaskKey,
        live: &LiveTask,
        request: TaskRequest,
    ) -> Result<TaskAnswer, ErrorData> {
        match request.act {
            TaskAct::Get => {
                let record = live.record.lock().await.clone();
                return Ok(state(&request.task, &record, live.turn.get()).into());
            }
            TaskAct::Answer { responses, bound } => {
                if let Some((session, _)) = live.turn.get() {
                    let session = session.clone().within(bound);
                    for (question, answer) in responses {
                        decide(&session, &ActionId(question), Some(&answer));
                    }
                }
            }
            TaskAct::Cancel => {
                let mut record = live.record.lock().await;
                if record.ended.is_none() && !record.is_cancelled {
                    record.is_cancelled = true;
                    self.files.write(key, &record).await.map_err(internal)?;
                    live.cancelled.cancel();
                }
            }
        }
        Ok(TaskAnswer::Done)
    }
}

impl TaskAnswer {
    /// The answer to a request that cannot be followed.
    #[must_use]
    pub fn failed(why: String) -> Self {
        Self::Failed(ErrorData::invalid_params(why, None))
    }
}

impl From<DetailedTask> for TaskAnswer {
    fn from(task: DetailedTask) -> Self {
        Self::State(Box::new(task))
    }
}

impl LiveTask {
    fn has_turn(&self, turn: &TaskTurn) {
        // A turn that was taken over is known already.
        let _ = self.turn.set(turn.clone());
    }

    /// Waits for the end of the turn, which is interrupted when the task is cancelled, or has
    /// reached its time limit.
    async fn end_of(
        &self,
        (session, number): &TaskTurn,
        limit: Option<Duration>,
    ) -> Result<TurnAnswer, ToolError> {
        let mut left = limit.unwrap_or(Duration::MAX);
        loop {
            let view = session.view();
            if let Some(ended) = outcome_of(&view, *number) {
                return answer_of(ended?, session.thread(), session.id());
            }
            let is_asking = !view.actions.is_empty();
            let since = Instant::now();
            let code = tokio::select! {
                () = session.changed(view.revision) => None,
                () = self.cancelled.cancelled() => Some(Code::Cancelled),
                () = sleep(left), if !is_asking => Some(Code::Timeout),
            };
            if let Some(code) = code {
                return interrupted(session, *number, code, limit).await;
            }
            if !is_asking {
                left = left.saturating_sub(since.elapsed());
            }
        }
    }
}

/// Interrupts a turn, and returns the error with the text that Codex has written so far.
async fn interrupted(
    session: &SessionHandle,
    number: u64,
    code: Code,
    limit: Option<Duration>,
) -> Result<TurnAnswer, ToolError> {
    let why = match (code, limit) {
        (Code::Timeout, Some(limit)) => format!(
            "the turn took longer than {} s and was interrupted; the last that was heard: {}",
            limit.as_secs(),
            session.view().progress,
        ),
        _ => "the task was cancelled and the turn interrupted".to_owned(),
    };
    let text = session.partial_text();
    session.interrupt(number);
    let ending = async {
        loop {
            let view = session.view();
            if let Some(outcome) = outcome_of(&view, number) {
                return outcome.ok();
            }
            session.changed(view.revision).await;
        }
    };
    let ended = timeout(INTERRUPT_TIMEOUT, ending).await.ok().flatten();
    let text = ended.map_or(text, |outcome| outcome.text.clone());
    Err(ToolError::new(code, why).with_partial(text))
}

impl TaskRecord {
    /// The record of a task whose host was killed, if its turn was not continued.
    fn lost(self) -> Self {
        let error = match &self.thread {
            Some(thread) => lost().in_thread(thread),
            None => lost(),
        };
        let ended = EndedTask {
            at: self.created,
            result: whole(&error.into_result()).unwrap_or_default(),
        };
        Self {
            ended: Some(ended),
            ..self
        }
    }
}

fn lost() -> ToolError {
    let why = "the host process was killed, and the turn of this task with it";
    ToolError::new(Code::HostLost, why)
}

fn created(id: &str, at: SystemTime) -> CreateTaskResult {
    let at = timestamp(at);
    let task = Task::new(id, TaskStatus::Working, at.clone(), at)
        .with_status_message(OPENING)
        .with_poll_interval_ms(POLL_INTERVAL);
    CreateTaskResult::new(task)
}

/// What a task does that has no turn yet.
const OPENING: &str = "opens the thread";

/// The state of a task.
fn state(id: &str, record: &TaskRecord, turn: Option<&TaskTurn>) -> DetailedTask {
    let (words, payload, changed) = match (&record.ended, record.is_cancelled, turn) {
        (Some(ended), true, _) => (CANCELLED.to_owned(), TaskPayload::Cancelled, ended.at),
        (Some(ended), false, _) => {
            let result = ended.result.clone();
            (
                ENDED.to_owned(),
                TaskPayload::Completed { result },
                ended.at,
            )
        }
        (None, _, None) => (OPENING.to_owned(), TaskPayload::Working, SystemTime::now()),
        (None, _, Some((session, _))) => {
            let view = session.view();
            match questions(session, &view) {
                Some(input_requests) => (
                    ASKING.to_owned(),
                    TaskPayload::InputRequired { input_requests },
                    SystemTime::now(),
                ),
                None => {
                    let words = view.progress.to_string();
                    (words, TaskPayload::Working, SystemTime::now())
                }
            }
        }
    };
    let (created, changed) = (timestamp(record.created), timestamp(changed));
    let task = Task::new(id, payload.status(), created, changed)
        .with_status_message(words)
        .with_poll_interval_ms(POLL_INTERVAL);
    DetailedTask::new(task, payload)
}

const ASKING: &str = "Codex waits for an answer";
const CANCELLED: &str = "cancelled";
const ENDED: &str = "completed";

/// The open questions of a turn; `None` if there are none that can be asked here.
fn questions(session: &SessionHandle, view: &TurnView) -> Option<InputRequests> {
    let origin = Origin {
        thread: session.thread(),
        turn: view.turn_id.as_ref(),
        call: None,
    };
    let requests = input_requests(&origin, &view.actions, ChoiceTitles::OneOf)?;
    (!requests.is_empty()).then_some(requests)
}

async fn remove_old(tasks: Weak<SessionTasks>) {
    while let Some(tasks) = tasks.upgrade() {
        let live = tasks.all().keys().cloned().collect();
        if let Err(error) = tasks.files.remove_old(live).await {
            tracing::warn!("old tasks are not removed: {error}");
        }
        drop(tasks);
        sleep(REMOVAL_INTERVAL).await;
    }
}
