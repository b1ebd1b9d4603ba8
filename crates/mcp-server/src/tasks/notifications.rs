//! Notifies a client of the changes of the tasks that its subscription names.

use std::future::pending;
use std::time::Duration;

use futures::future::join_all;
use rmcp::ErrorData;
use rmcp::model::{
    DetailedTask, ErrorCode, NotificationMetaObject, ServerNotification, TaskPayload, TaskStatus,
    TaskStatusNotification, TaskStatusNotificationParams,
};
use rmcp::service::SubscriptionContext;
use tokio::time::sleep;

use super::{POLL_INTERVAL, internal};
use crate::server::Server;

/// The shortest time between two notifications of one task.
const PAUSE: Duration = Duration::from_millis(200);

impl Server {
    /// Notifies the client of each change of these tasks, until all of them have ended.
    pub(crate) async fn notify_of_tasks(&self, context: &SubscriptionContext, tasks: &[String]) {
        join_all(tasks.iter().map(|task| self.notify_of_task(context, task))).await;
    }

    async fn notify_of_task(&self, context: &SubscriptionContext, id: &str) {
        let mut last = None;
        loop {
            let changed = self.task_changes(id);
            let task = match self.task(id).await {
                Ok(task) => task,
                Err(error) if error.code == ErrorCode::INVALID_PARAMS => {
                    return tracing::debug!("a client is not notified of a task: {error}");
                }
                Err(_) => {
                    // The host of the task may be starting.
                    changed.await;
                    continue;
                }
            };
            let state = TaskState::of(&task);
            let has_ended = state.status.is_terminal();
            if last.as_ref() != Some(&state) {
                if let Err(error) = notify(context, task).await {
                    return tracing::debug!("a client is not notified of a task: {error}");
                }
                last = Some(state);
            }
            if has_ended {
                return;
            }
            sleep(PAUSE).await;
            changed.await;
        }
    }

    /// Completes when a task may have changed since this was called.
    fn task_changes(&self, id: &str) -> impl Future<Output = ()> + Send + use<> {
        let changes = self.tasks.as_ref().and_then(|tasks| tasks.changes(id));
        async move {
            let told = async {
                match changes {
                    Some(changes) => changes.await,
                    None => pending().await,
                }
            };
            // Jobs, and the tasks of other hosts, report nothing here.
            tokio::select! {
                () = told => {}
                () = sleep(Duration::from_millis(POLL_INTERVAL)) => {}
            }
        }
    }
}

/// The part of a task's state of which clients are notified: all but the time at which it was read.
#[derive(PartialEq)]
struct TaskState {
    status: TaskStatus,
    words: Option<String>,
    questions: Vec<String>,
}

impl TaskState {
    fn of(task: &DetailedTask) -> Self {
        let questions = match &task.payload {
            TaskPayload::InputRequired { input_requests } => {
                input_requests.keys().cloned().collect()
            }
            _ => Vec::new(),
        };
        Self {
            status: task.status(),
            words: task.task.status_message.clone(),
            questions,
        }
    }
}

async fn notify(context: &SubscriptionContext, task: DetailedTask) -> Result<(), ErrorData> {
    let request = context.request_context();
    let mut meta = NotificationMetaObject::new();
    meta.set_subscription_id(request.id.clone());
    let params = TaskStatusNotificationParams::new(task).with_meta(meta);
    let notification = TaskStatusNotification::new(params);
    let notification = ServerNotification::TaskStatusNotification(notification);
    let sent = request.peer.send_notification(notification).await;
    sent.map_err(internal)
}
