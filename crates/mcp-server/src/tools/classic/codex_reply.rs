//! `codex-reply`: continues a thread and waits for the final message.

use std::sync::Arc;

use codex_engine::command::{Prompt, ResumeThread, Settings, StartThread};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tool;
use crate::code::Code;
use crate::error::ToolError;
use crate::server::Server;
use crate::tools::parameters::{NonBlankText, Wait, arguments};
use crate::tools::schema::input;
use crate::turn_call::TurnCall;

pub(in crate::tools) const NAME: &str = "codex-reply";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    prompt: NonBlankText,
    thread_id: Option<String>,
    // The older name of `threadId`.
    #[schemars(extend("deprecated" = true))]
    conversation_id: Option<String>,
    #[serde(rename = "wait-ms")]
    wait: Option<Wait>,
}

pub(in crate::tools) fn describe() -> Tool {
    let description = "Use to continue a thread, even one from before a restart. Waits and \
returns like codex.";
    tool(NAME, "Codex Reply", description, input::<Arguments>())
}

pub(in crate::tools) async fn call(
    server: &Server,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let given: Arguments = arguments(given)?;
    let thread = server.thread(given.thread()?).await?;
    let mut settings = Settings::default();
    server.bound_resumed(&thread, &mut settings).await?;
    let resume = ResumeThread {
        thread: thread.clone(),
        start: StartThread {
            settings,
            ..StartThread::default()
        },
    };
    let call = TurnCall {
        prompt: Prompt::text(given.prompt.0),
        warnings: Vec::new(),
        wait: given.wait.map(|Wait(wait)| wait),
    };
    let engine = Arc::clone(&server.engine);
    let opening = async move { engine.resume(resume).await };
    server
        .run_turn(context, opening, call)
        .await
        .map_err(|error| error.in_thread(&thread))
}

impl Arguments {
    fn thread(&self) -> Result<&str, ToolError> {
        let wrong = |message: &str| ToolError::new(Code::InvalidArgument, message);
        match (&self.thread_id, &self.conversation_id) {
            (Some(one), Some(other)) if one != other => {
                Err(wrong("threadId and conversationId name different threads"))
            }
            (Some(text), _) | (None, Some(text)) => Ok(text),
            (None, None) => Err(wrong("threadId is missing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "0199a213-81c0-7800-8aa1-bbab2a035a53";
    const OTHER: &str = "0199a213-81c0-7800-8aa1-bbab2a035a54";

    fn thread(given: Value) -> Result<String, String> {
        let Value::Object(object) = given else {
            panic!("an object");
        };
        arguments::<Arguments>(object)
            .and_then(|given| given.thread().map(str::to_owned))
            .map_err(|error| error.text())
    }

    #[test]
    fn thread_id_and_conversation_id_name_the_thread() {
        for given in [
            json!({"prompt": "x", "threadId": ID}),
            json!({"prompt": "x", "conversationId": ID}),
            json!({"prompt": "x", "threadId": ID, "conversationId": ID}),
        ] {
            assert_eq!(thread(given).unwrap(), ID);
        }
    }

    #[test]
    fn missing_or_conflicting_thread_ids_are_refused() {
        for given in [
            json!({"prompt": "x"}),
            json!({"prompt": "x", "threadId": 7}),
            json!({"prompt": "x", "threadId": ID, "conversationId": OTHER}),
        ] {
            let error = thread(given).unwrap_err();
            assert!(error.starts_with("Error [INVALID_ARGUMENT]"), "{error}");
        }
    }
}
