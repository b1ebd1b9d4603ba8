//! The tasks of a host, and the access of a host to the tasks of other hosts.

use std::sync::Arc;
use std::time::Duration;

use host_process::connect;
use host_process::endpoint::HostEndpoint;
use mcp_server::{AskedHost, SessionTasks, TaskAnswer, TaskRequest};
use serde_json::{Value, json};

use crate::cli::serve::{self, HostEndpointError};

/// The directory of the tasks' files, in the state directory.
const DIRECTORY: &str = "tasks";

/// The tasks of the host of an endpoint, each of which is kept for a time after its end.
pub(super) fn of(
    endpoint: &HostEndpoint,
    kept: Duration,
) -> Result<Arc<SessionTasks>, HostEndpointError> {
    let state = serve::state()?;
    let directory = state.join(DIRECTORY);
    let others = move |host: String, request: TaskRequest| {
        let endpoint = HostEndpoint::named(&state, host);
        Box::pin(async move {
            match endpoint {
                Some(endpoint) => ask(&endpoint, &request).await,
                None => Ok(AskedHost::Gone),
            }
        }) as _
    };
    let tasks = SessionTasks::new(directory, kept, endpoint.key().to_owned(), Box::new(others));
    Ok(Arc::new(tasks))
}

/// Asks the host of an endpoint about a task.
async fn ask(endpoint: &HostEndpoint, request: &TaskRequest) -> Result<AskedHost, String> {
    let asked = connect::act_on_task(endpoint, json!(request)).await;
    match asked.map_err(|error| error.to_string())? {
        Some(answer) => {
            let answer = serde_json::from_value(answer);
            let answer = answer.map_err(|error| error.to_string())?;
            Ok(AskedHost::Answered(answer))
        }
        None => {
            let is_between = endpoint.is_between_hosts().await;
            Ok(match is_between.map_err(|error| error.to_string())? {
                true => AskedHost::Absent,
                false => AskedHost::Gone,
            })
        }
    }
}

/// Answers another host about a task.
pub(super) async fn answer_of(tasks: &SessionTasks, request: Value) -> Value {
    match serde_json::from_value(request) {
        Ok(request) => json!(tasks.answer_host(request).await),
        Err(error) => json!(TaskAnswer::failed(error.to_string())),
    }
}
