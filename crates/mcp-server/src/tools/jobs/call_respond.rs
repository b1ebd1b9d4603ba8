//! `call_respond`: answers a question of Codex in a job, or steers its turn.

use codex_engine::logic::action::DecidedBy;
use job_queue::service::{Jobs, NewAnswer, Response};
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ids::JobIdArgument;
use crate::code::Code;
use crate::error::ToolError;
use crate::tools::parameters::{NonBlankText, arguments};
use crate::tools::schema::{answer, input, output, tool};

pub(super) const NAME: &str = "call_respond";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    job_id: JobIdArgument,
    request_id: Option<String>,
    #[schemars(extend("type" = ["string", "object"]))]
    decision: Option<Value>,
    answers: Option<Map<String, Value>>,
    steer: Option<NonBlankText>,
}

pub(super) fn describe() -> Tool {
    let description = "Use to answer a job's question with one of its `decisions` or its \
fields, or steer its turn.";
    let answer = output(json!({ "message": "string" }));
    tool(NAME, "Answer Job", description, input::<Arguments>()).with_raw_output_schema(answer)
}

pub(super) async fn call(jobs: &Jobs, given: JsonObject) -> Result<CallToolResult, ToolError> {
    let given: Arguments = arguments(given)?;
    let action = given.action()?;
    let JobIdArgument(prefix) = given.job_id;
    let id = jobs.find(&prefix).await?;
    Ok(answer(match action {
        ResponseAction::Steer(words) => {
            jobs.steer(&id, words).await?;
            json!({ "job_id": id, "message": "Codex accepted the message" })
        }
        ResponseAction::Respond(response) => {
            let request = given.request_id.as_deref();
            let given = NewAnswer::new(response, DecidedBy::Client);
            let question = jobs.respond(&id, request, given).await?;
            let message = "Answered; follow the job with call_status";
            json!({ "job_id": id, "request_id": question, "message": message })
        }
    }))
}

/// The action that a call asks for.
enum ResponseAction {
    Respond(Response),
    Steer(String),
}

impl Arguments {
    fn action(&self) -> Result<ResponseAction, ToolError> {
        let wrong = |why: &str| ToolError::new(Code::InvalidArgument, why);
        match (&self.decision, &self.answers, &self.steer) {
            (Some(decision), None, None) => {
                Ok(ResponseAction::Respond(Response::Json(decision.clone())))
            }
            (None, Some(answers), None) => {
                Ok(ResponseAction::Respond(Response::Words(answers.clone())))
            }
            (None, None, Some(NonBlankText(words))) => match &self.request_id {
                None => Ok(ResponseAction::Steer(words.clone())),
                Some(_) => Err(wrong("request_id does not go with steer")),
            },
            _ => Err(wrong("give one of decision, answers and steer")),
        }
    }
}
