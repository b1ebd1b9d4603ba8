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
use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use codex_engine::logic::action::ActionId;
use codex_engine::{AppServers, SessionHandle};
use common::sync::lock;
use common::text::hex;
use rmcp::ErrorData;
use rmcp::model::{CreateTaskResult, JsonObject};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::record::{EndedTask, FoundTask, TaskFiles, TaskKey, TaskRecord};
use super::request::{AskedHost, OtherHosts, TaskAct, TaskAnswer, TaskRequest};
use super::{internal, state, unknown, whole};
use crate::answer::{INTERRUPT_TIMEOUT, TurnAnswer, answer_of, is_complete_at_limit, outcome_of};
use crate::code::Code;
use crate::decision::decide;
use crate::error::ToolError;

/// The prefix of the IDs of these tasks.
const PREFIX: &str = "turn_";

/// The number of random bytes in an ID: enough that nobody can guess it.
const RANDOM_BYTES: usize = 16;

/// The pause before the end of a task is stored again.
const STORING_PAUSE: Duration = Duration::from_secs(1);

/// The most tasks of a host that have not ended.
const LIVE_TASKS: usize = 1000;

/// How often old tasks are removed, unless they are kept for less than four times as long.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The tasks of a host.
pub struct SessionTasks {
    files: TaskFiles,
    /// The time between two removals of old tasks.
    removal_interval: Duration,
    /// The key of this host.
    host: String,
    others: Box<OtherHosts>,
    /// Those that have not ended, or whose end could not be stored.
    live: Mutex<HashMap<TaskKey, Arc<LiveTask>>>,
    /// The keys of the tasks that this host has taken over, by the calls that they answer.
    earlier: OnceLock<HashMap<String, TaskKey>>,
    /// Those whose results are not stored yet.
    unfinished: TaskTracker,
}

/// A task that has not ended.
struct LiveTask {
    /// Locked while it is written.
    record: tokio::sync::Mutex<TaskRecord>,
    /// The session, and the number of the turn in it, once the turn has begun.
    turn: OnceLock<TaskTurn>,
    cancelled: CancellationToken,
    /// Cancelled once the record has the end of the task.
    ended: CancellationToken,
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
    /// Cancelled to end the task.
    pub(crate) cancelled: CancellationToken,
}

impl SessionTasks {
    /// The tasks of the host with this key. They are stored in `directory`, each for the time
    /// `kept` after its end.
    #[must_use]
    pub fn new(directory: PathBuf, kept: Duration, host: String, others: Box<OtherHosts>) -> Self {
        Self {
            files: TaskFiles::new(directory, kept),
            removal_interval: (kept / 4).min(REMOVAL_INTERVAL),
            host,
            others,
            live: Mutex::default(),
            earlier: OnceLock::new(),
            unfinished: TaskTracker::new(),
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
        let of_calls = of_calls.map(|task| (task.call.clone(), task.key.clone()));
        // It is set once, as a host takes over once.
        let _ = self.earlier.set(of_calls.collect());
        for FoundTask { key, open, .. } in found {
            if let Some(record) = open {
                let turn = app_servers.turn_of_task(key.as_str());
                let live = LiveTask::new(record, CancellationToken::new());
                lock(&self.live).insert(key.clone(), Arc::clone(&live));
                if let Some(turn) = &turn {
                    live.has_turn(turn);
                }
                let tasks = Arc::clone(self);
                let turn = turn.ok_or_else(lost);
                self.unfinished
                    .spawn(async move { tasks.finish(&key, &live, turn).await });
            }
        }
        tokio::spawn(remove_old(Arc::downgrade(self)));
    }

    /// Whether a task has no stored result yet.
    #[must_use]
    pub fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Waits until the results of all tasks are stored. No task may begin any more.
    pub async fn end(&self) {
        self.unfinished.close();
        self.unfinished.wait().await;
    }

    /// Stores a task, and then has `begin` begin its turn. `begin` gets a token that is cancelled
    /// with the task, and must not begin the turn then.
    pub(crate) async fn begin<F>(
        self: Arc<Self>,
        new: NewTask,
        begin: impl FnOnce(TaskKey, CancellationToken) -> F,
    ) -> Result<CreateTaskResult, ToolError>
    where
        F: Future<Output = Result<TaskTurn, ToolError>> + Send + 'static,
    {
        let NewTask {
            call,
            warnings,
            limit,
            cancelled,
        } = new;
        let id = random_id()?;
        let key = TaskKey::of(&id);
        let record = TaskRecord {
            host: self.host.clone(),
            call,
            created: SystemTime::now(),
            thread: None,
            warnings,
            limit,
            is_cancelled: false,
            ended: None,
        };
        let created = state::created(&id, record.created);
        let live = LiveTask::new(record, cancelled);
        self.add_within_limit(&key, &live)?;
        let record = live.record.lock().await;
        let stored = self.files.write(&key, &record).await;
        drop(record);
        if let Err(error) = stored {
            lock(&self.live).remove(&key);
            return Err(ToolError::new(Code::TaskFiles, error.to_string()));
        }
        let beginning = begin(key.clone(), live.cancelled.clone());
        let unfinished = self.unfinished.clone();
        unfinished.spawn(async move {
            let turn = beginning.await;
            self.finish(&key, &live, turn).await;
        });
        Ok(created)
    }

    /// The task that an earlier host created for this call. The client has not learned its ID.
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

    fn live(&self, key: &TaskKey) -> Option<Arc<LiveTask>> {
        lock(&self.live).get(key).cloned()
    }

    /// Adds a task that is to begin, unless too many have not ended. It counts before it is stored, as
    /// others may begin meanwhile.
    fn add_within_limit(&self, key: &TaskKey, live: &Arc<LiveTask>) -> Result<(), ToolError> {
        let mut all = lock(&self.live);
        if all.len() >= LIVE_TASKS {
            let why = format!("{LIVE_TASKS} tasks have not ended");
            return Err(ToolError::new(Code::TooManyTasks, why));
        }
        all.insert(key.clone(), Arc::clone(live));
        Ok(())
    }

    /// Waits for the end of a turn, and stores the result.
    async fn finish(&self, key: &TaskKey, live: &LiveTask, turn: Result<TaskTurn, ToolError>) {
        let result = match turn {
            Ok(turn) => {
                live.has_turn(&turn);
                let limit = self.note_thread(key, live, &turn.0).await;
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
        // Nobody learns of the end before the record is stored, or storing it has failed.
        let mut stored = self.files.write(key, &record).await;
        let ended = record.clone();
        drop(record);
        live.ended.cancel();
        if let Err(error) = &stored {
            tracing::error!("the result of a task cannot be stored: {error}");
        }
        while stored.is_err() {
            // A full disk may have room again. Until then, this host answers from memory.
            sleep(STORING_PAUSE).await;
            stored = self.files.write(key, &ended).await;
        }
        lock(&self.live).remove(key);
    }

    /// Stores the thread of a task, which its error names if this host is killed, and returns the
    /// time limit of the turn.
    async fn note_thread(
        &self,
        key: &TaskKey,
        live: &LiveTask,
        session: &SessionHandle,
    ) -> Option<Duration> {
        let mut record = live.record.lock().await;
        if record.thread.is_none() {
            record.thread = Some(session.thread().clone());
            if let Err(error) = self.files.write(key, &record).await {
                tracing::warn!("the thread of a task cannot be stored: {error}");
            }
        }
        record.limit
    }

    /// Completes when a task of this host may have changed since this was called. `None` for another
    /// task.
    pub(super) fn changes(&self, id: &str) -> Option<impl Future<Output = ()> + Send + use<>> {
        let live = self.live(&TaskKey::of(id))?;
        let turn = live.turn.get().cloned();
        let turn = turn.map(|(session, _)| (session.view().revision, session));
        Some(async move {
            let of_turn = async {
                match turn {
                    Some((revision, session)) => session.changed(revision).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = of_turn => {}
                () = live.ended.cancelled() => {}
            }
        })
    }

    /// Executes a client's request about a task of this host. `None` if there is no such task.
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
                TaskAct::Get => state::of_record(&request.task, &record).into(),
                TaskAct::Answer { .. } | TaskAct::Cancel => TaskAnswer::Done,
            }));
        }
        Some(self.act_elsewhere(record, request).await)
    }

    /// Executes another host's request about a task of this host.
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
        let asked = match record.host == self.host {
            true => Ok(AskedHost::Gone),
            false => (self.others)(record.host.clone(), request).await,
        };
        match (asked.map_err(internal)?, is_get) {
            (AskedHost::Answered(TaskAnswer::Failed(error)), _) => {
                // It may have ended in the meantime.
                let now = self.files.read(&TaskKey::of(&id)).await.map_err(internal)?;
                match now.filter(|record| record.ended.is_some()) {
                    Some(record) if is_get => Ok(state::of_record(&id, &record).into()),
                    Some(_) => Ok(TaskAnswer::Done),
                    None => Err(error),
                }
            }
            (AskedHost::Answered(answer), _) => Ok(answer),
            (AskedHost::Absent, true) => Ok(state::between_hosts(&id, &record).into()),
            (AskedHost::Absent, false) => Err(internal(
                "the host process of the task does not listen; try again in a moment",
            )),
            (AskedHost::Gone, true) => {
                // It may have stored the result before it left.
                let now = self.files.read(&TaskKey::of(&id)).await.map_err(internal)?;
                let record = now.unwrap_or(record);
                let record = match record.ended {
                    Some(_) => record,
                    None => record.lost(),
                };
                Ok(state::of_record(&id, &record).into())
            }
            (AskedHost::Gone, false) => Ok(TaskAnswer::Done),
        }
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
                let state = match live.turn.get() {
                    Some((session, number))
                        if record.ended.is_none() && session.view().turn == *number =>
                    {
                        state::of_turn(&request.task, &record, session)
                    }
                    _ => state::of_record(&request.task, &record),
                };
                return Ok(state.into());
            }
            TaskAct::Answer { responses, bound } => {
                let has_ended = live.record.lock().await.ended.is_some();
                let turn = live.turn.get().filter(|_| !has_ended);
                if let Some((session, number)) = turn
                    && session.view().turn == *number
                {
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
                    live.cancelled.cancel();
                    // Its end is stored, too.
                    if let Err(error) = self.files.write(key, &record).await {
                        tracing::warn!("the cancellation of a task cannot be stored: {error}");
                    }
                }
            }
        }
        Ok(TaskAnswer::Done)
    }
}

impl LiveTask {
    fn new(record: TaskRecord, cancelled: CancellationToken) -> Arc<Self> {
        if record.is_cancelled {
            cancelled.cancel();
        }
        Arc::new(Self {
            record: record.into(),
            turn: OnceLock::new(),
            cancelled,
            ended: CancellationToken::new(),
        })
    }

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
            let has_turn = session.has_turn();
            let view = session.view();
            if let Some(ended) = outcome_of(&view, *number) {
                return answer_of(ended?, session.thread(), session.id());
            }
            if !has_turn {
                // The outcome was lost with the host that was killed.
                return Err(lost());
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

/// Interrupts a turn, and returns the error with the text that Codex has written so far, or the answer
/// if the turn has just been completed.
async fn interrupted(
    session: &SessionHandle,
    number: u64,
    code: Code,
    limit: Option<Duration>,
) -> Result<TurnAnswer, ToolError> {
    let why = match (code, limit) {
        (Code::Timeout, Some(limit)) => format!(
            "the turn took longer than {} s and was interrupted; its last step: {}",
            limit.as_secs(),
            session.view().progress,
        ),
        _ => "the task was cancelled and the turn interrupted".to_owned(),
    };
    session.restore().await;
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
    let text = match ended {
        Some(outcome) if is_complete_at_limit(code, &outcome) => {
            return answer_of(outcome, session.thread(), session.id());
        }
        Some(outcome) => outcome.text.clone(),
        None => text,
    };
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
    let why = "the last host process ended before the turn of this task did";
    ToolError::new(Code::HostLost, why)
}

fn random_id() -> Result<String, ToolError> {
    let mut random = [0; RANDOM_BYTES];
    let filled = getrandom::fill(&mut random);
    filled.map_err(|error| ToolError::new(Code::Internal, error.to_string()))?;
    Ok(format!("{PREFIX}{}", hex(&random)))
}

async fn remove_old(tasks: Weak<SessionTasks>) {
    while let Some(tasks) = tasks.upgrade() {
        let live = lock(&tasks.live).keys().cloned().collect();
        if let Err(error) = tasks.files.remove_old(live).await {
            tracing::warn!("old tasks are not removed: {error}");
        }
        let interval = tasks.removal_interval;
        drop(tasks);
        sleep(interval).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;

    /// The tasks of a host that store their files in this directory.
    fn tasks_in(directory: PathBuf) -> Arc<SessionTasks> {
        let others = |_: String, _: TaskRequest| -> BoxFuture<'static, Result<AskedHost, String>> {
            Box::pin(async { Ok(AskedHost::Gone) })
        };
        let kept = Duration::from_secs(60);
        let tasks = SessionTasks::new(directory, kept, "host".to_owned(), Box::new(others));
        Arc::new(tasks)
    }

    /// Begins a task whose thread does not open.
    async fn begin(tasks: &Arc<SessionTasks>) -> Result<CreateTaskResult, ToolError> {
        let new = NewTask {
            call: "call".to_owned(),
            warnings: Vec::new(),
            limit: None,
            cancelled: CancellationToken::new(),
        };
        Arc::clone(tasks).begin(new, |_, _| pending()).await
    }

    #[tokio::test]
    async fn limit_of_tasks_holds_for_calls_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let tasks = tasks_in(directory.path().to_owned());
        begin(&tasks).await.unwrap();
        let (_, live) = lock(&tasks.live).drain().next().unwrap();
        for number in 1..LIVE_TASKS {
            let key = TaskKey::of(&number.to_string());
            lock(&tasks.live).insert(key, Arc::clone(&live));
        }
        let begun = tokio::join!(begin(&tasks), begin(&tasks));
        let refused = [begun.0, begun.1].into_iter().filter_map(Result::err);
        let refused: Vec<String> = refused.map(|error| error.text()).collect();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains("TOO_MANY_TASKS"), "{refused:?}");
        assert_eq!(lock(&tasks.live).len(), LIVE_TASKS);
    }

    #[tokio::test]
    async fn task_that_cannot_be_stored_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let in_the_way = directory.path().join("tasks");
        std::fs::write(&in_the_way, "").unwrap();
        let tasks = tasks_in(in_the_way);
        let refused = begin(&tasks).await.err().unwrap();
        assert!(refused.text().contains("TASK_FILES"));
        assert!(lock(&tasks.live).is_empty());
    }
}
