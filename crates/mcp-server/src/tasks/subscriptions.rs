//! The tasks that a client's subscriptions name (`subscriptions/listen` with `taskIds`).
//!
//! The filter in rmcp's types has no `taskIds`. So they are read from the line of the request
//! before rmcp parses it, and are added to the acknowledgement that rmcp writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use common::sync::lock;
use rmcp::model::{
    ClientRequest, ConstString, CustomNotification, GetMeta, JsonRpcRequest,
    NotificationMetaObject, NumberOrString, ServerJsonRpcMessage, ServerNotification,
    SubscriptionFilter,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most tasks that one subscription may name. The others are not in its acknowledgement.
const TASKS: usize = 100;

/// The longest ID of a task that is remembered, in bytes. The specification allows none longer.
const LONGEST_ID: usize = 128;

/// The most subscriptions whose tasks are known before they begin.
const SUBSCRIPTIONS: usize = 100;

/// The tasks that the requests for subscriptions name, by the IDs of the requests, until the
/// subscriptions begin.
#[derive(Debug, Clone, Default)]
pub struct TaskSubscriptions(Arc<Mutex<HashMap<NumberOrString, Vec<String>>>>);

/// What is read of a request for a subscription.
#[derive(Deserialize)]
struct Subscribing {
    params: SubscribingParams,
}

#[derive(Deserialize)]
struct SubscribingParams {
    notifications: Filter,
}

#[derive(Deserialize)]
struct Filter {
    #[serde(rename = "taskIds", default)]
    tasks: Vec<String>,
}

/// The filter of an acknowledgement.
#[derive(Serialize)]
struct Accepted<'a> {
    #[serde(flatten)]
    filter: &'a SubscriptionFilter,
    #[serde(rename = "taskIds")]
    tasks: Vec<String>,
}

impl TaskSubscriptions {
    /// Notes the tasks that a request names, if it is one for a subscription and declares tasks.
    /// `line` is the request as it was read.
    pub(crate) fn note(&self, request: &JsonRpcRequest<ClientRequest>, line: &[u8]) {
        let ClientRequest::SubscriptionsListenRequest(_) = &request.request else {
            return;
        };
        let capabilities = request.request.get_meta().client_capabilities();
        if !capabilities.is_some_and(|capabilities| capabilities.supports_tasks()) {
            return;
        }
        let Ok(Subscribing { params }) = serde_json::from_slice(line) else {
            // The task IDs are not strings. rmcp has accepted the rest.
            return;
        };
        let mut tasks = params.notifications.tasks;
        tasks.sort_unstable();
        tasks.dedup();
        tasks.retain(|id| id.len() <= LONGEST_ID);
        tasks.truncate(TASKS);
        let mut all = lock(&self.0);
        if !tasks.is_empty() && all.len() < SUBSCRIPTIONS {
            all.insert(request.id.clone(), tasks);
        }
    }

    /// The tasks of a subscription that begins, or of one that is refused.
    pub(crate) fn take(&self, request: &NumberOrString) -> Vec<String> {
        lock(&self.0).remove(request).unwrap_or_default()
    }

    /// The same message. If it acknowledges a subscription to tasks, it also names the tasks.
    pub(crate) fn acknowledged(&self, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        let ServerJsonRpcMessage::Notification(mut notification) = message else {
            return message;
        };
        if let ServerNotification::SubscriptionsAcknowledgedNotification(acknowledged) =
            &notification.notification
        {
            let meta = acknowledged.extensions.get::<NotificationMetaObject>();
            let id = meta.and_then(NotificationMetaObject::subscription_id);
            let tasks = id.and_then(|id| lock(&self.0).get(&id).cloned());
            if let (Some(tasks), Some(meta)) = (tasks, meta) {
                let accepted = Accepted {
                    filter: &acknowledged.params.notifications,
                    tasks,
                };
                let params = json!({ "notifications": accepted, "_meta": meta });
                let named = CustomNotification::new(acknowledged.method.as_str(), Some(params));
                notification.notification = ServerNotification::CustomNotification(named);
            }
        }
        ServerJsonRpcMessage::Notification(notification)
    }
}
