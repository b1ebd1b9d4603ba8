//! The states of the tasks of sessions, as clients read them.

use std::time::SystemTime;

use codex_engine::SessionHandle;
use codex_engine::command::TurnView;
use common::timestamp::timestamp;
use rmcp::model::{CreateTaskResult, DetailedTask, InputRequests, Task, TaskPayload, TaskStatus};

use super::POLL_INTERVAL;
use super::record::TaskRecord;
use crate::question::{ChoiceTitles, Origin, input_requests};

/// The status message of a task that has no turn yet.
const OPENING: &str = "opens the thread";

/// The status message of a task whose host does not listen at the moment.
const BETWEEN_HOSTS: &str = "waits for its host process";

const ASKING: &str = "Codex waits for an answer";

/// The state of a question that cannot be written as a form.
const UNANSWERABLE: &str = "Codex waits for an answer that this client cannot give: `codex-mcp ps` \
lists the question";

const CANCELLED: &str = "cancelled";
const ENDED: &str = "completed";

/// The answer to a call by a task that begins.
pub(super) fn created(id: &str, at: SystemTime) -> CreateTaskResult {
    let at = timestamp(at);
    let task = Task::new(id, TaskStatus::Working, at.clone(), at)
        .with_status_message(OPENING)
        .with_poll_interval_ms(POLL_INTERVAL);
    CreateTaskResult::new(task)
}

/// The state of a task that has ended, or is known by its record only.
pub(super) fn of_record(id: &str, record: &TaskRecord) -> DetailedTask {
    let now = SystemTime::now();
    match &record.ended {
        Some(ended) if record.is_cancelled => {
            detailed(id, record, CANCELLED, TaskPayload::Cancelled, ended.at)
        }
        Some(ended) => {
            let result = ended.result.clone();
            let payload = TaskPayload::Completed { result };
            detailed(id, record, ENDED, payload, ended.at)
        }
        None => detailed(id, record, OPENING, TaskPayload::Working, now),
    }
}

/// The state of a task whose host does not listen at the moment.
pub(super) fn between_hosts(id: &str, record: &TaskRecord) -> DetailedTask {
    let now = SystemTime::now();
    detailed(id, record, BETWEEN_HOSTS, TaskPayload::Working, now)
}

/// The state of a task whose turn runs in this session.
pub(super) fn of_turn(id: &str, record: &TaskRecord, session: &SessionHandle) -> DetailedTask {
    let view = session.view();
    let input_requests = questions(session, &view);
    let (words, payload) = match (view.actions.is_empty(), input_requests.is_empty()) {
        (_, false) => (
            ASKING.to_owned(),
            TaskPayload::InputRequired { input_requests },
        ),
        (false, true) => (UNANSWERABLE.to_owned(), TaskPayload::Working),
        // Without its time, which would make each second a change.
        (true, true) => (view.progress.words, TaskPayload::Working),
    };
    detailed(id, record, &words, payload, SystemTime::now())
}

fn detailed(
    id: &str,
    record: &TaskRecord,
    words: &str,
    payload: TaskPayload,
    changed: SystemTime,
) -> DetailedTask {
    let (created, changed) = (timestamp(record.created), timestamp(changed));
    let task = Task::new(id, payload.status(), created, changed)
        .with_status_message(words)
        .with_poll_interval_ms(POLL_INTERVAL);
    DetailedTask::new(task, payload)
}

/// The open questions of a turn that can be written as forms.
fn questions(session: &SessionHandle, view: &TurnView) -> InputRequests {
    let origin = Origin {
        thread: session.thread(),
        turn: view.turn_id.as_ref(),
        call: None,
    };
    input_requests(&origin, &view.actions, ChoiceTitles::OneOf)
}
