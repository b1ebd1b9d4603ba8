//! `codex_check`: polls a session, and answers Codex's questions.

use std::time::Duration;

use codex_engine::command::{Decider, PollResponse, SessionId};
use codex_engine::logic::action::{ActionId, Decision};
use codex_engine::logic::events::{Poll, PollOptions, ResponseMode};
use codex_engine::logic::session::State;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use strum::{IntoStaticStr, VariantNames};

use super::answers::{insert_poll_interval, missing, session};
use super::elicit::can_ask_user;
use crate::code::Code;
use crate::error::ToolError;
use crate::server::Server;
use crate::tools::parameters::{Count, Wait, arguments};
use crate::tools::schema::{OneOf, answer, input, output, tool};

pub(in crate::tools) const NAME: &str = "codex_check";

/// The default number of events of a poll with `waitMs`.
const EVENTS_AFTER_WAIT: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum Action {
    Poll,
    #[serde(alias = "respond_approval")]
    RespondPermission,
    RespondUserInput,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    #[schemars(with = "OneOf<Action>")]
    action: Action,
    #[schemars(required)]
    session_id: Option<String>,
    cursor: Option<Count>,
    max_events: Option<Count>,
    #[schemars(with = "Option<OneOf<ResponseMode>>", extend("default" = "minimal"))]
    response_mode: Option<ResponseMode>,
    #[schemars(with = "Option<Map<String, Value>>")]
    poll_options: Option<Options>,
    wait_ms: Option<Wait>,
    request_id: Option<String>,
    #[schemars(with = "Option<OneOf<DecisionName>>")]
    decision: Option<DecisionName>,
    execpolicy_amendment: Option<Vec<String>>,
    /// {action: allow|deny, host}
    #[schemars(with = "Option<Map<String, Value>>")]
    network_policy_amendment: Option<NetworkRule>,
    deny_message: Option<String>,
    /// {questionId: {answers: [text]}}
    answers: Option<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Options {
    include_events: Option<bool>,
    include_actions: Option<bool>,
    include_result: Option<bool>,
    max_bytes: Option<Count>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, VariantNames)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
enum DecisionName {
    Accept,
    AcceptForSession,
    AcceptWithExecpolicyAmendment,
    ApplyNetworkPolicyAmendment,
    Decline,
    Cancel,
}

/// A rule for a host, as Codex takes it.
#[derive(Debug, Clone, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
struct NetworkRule {
    action: NetworkAction,
    host: String,
}

#[derive(Debug, Clone, Copy, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum NetworkAction {
    Allow,
    Deny,
}

pub(in crate::tools) fn describe() -> Tool {
    let description = "Use to follow a session and decide what it asks. poll: result.output is the \
final message. At waiting_approval decide each of actions[] by respond_permission, or answer \
questions by respond_user_input, before it times out. decline, cancel (also ends the turn) and \
acceptForSession of commands are always valid; others if in availableDecisions. To wait: \
codex_session wait_any.";
    let answer = output(json!({
        "status": "string",
        "events": "array",
        "nextCursor": "integer",
        "actions?": "array",
        "result?": "object",
    }));
    tool(NAME, "Codex Check", description, input::<Arguments>()).with_raw_output_schema(answer)
}

pub(in crate::tools) async fn call(
    server: &Server,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let mut given: Arguments = arguments(given)?;
    let session = session(&server.engine, given.session_id.take())?;
    let mut poll = given.poll();
    if given.action == Action::Poll {
        given.refuse_decision()?;
        let wait = given.wait_ms.map_or(Duration::ZERO, |Wait(wait)| wait);
        if !wait.is_zero() {
            let deciding = match can_ask_user(server, context) {
                true => Decider::Other,
                false => Decider::Reader,
            };
            let news = server.engine.wait_for_news(&session, &poll, wait, deciding);
            let look = || server.engine.current_step(&session);
            server.wait_with_steps(context, look, news).await??;
        }
    } else {
        given.refuse_wait()?;
        let asking = server.engine.handle(&session)?;
        asking.restore().await;
        asking.questions_restored().await;
        // A caller that answers may have an old cursor: no event is shown twice.
        poll.cursor = Some(server.engine.read_position(&session, poll.cursor)?);
        let decision = given.decision()?;
        let request = given.request_id.take();
        let request = request.ok_or_else(|| missing("requestId", given.action.into()))?;
        let note = given.deny_message.as_deref();
        let engine = &server.engine;
        engine.respond(&session, &ActionId(request), &decision, note)?;
    }
    let polled = server.engine.poll(&session, &poll)?;
    Ok(answer(shown(&session, polled)?).into())
}

/// The status, and a hint when to look again, before the rest.
fn shown(session: &SessionId, polled: PollResponse) -> Result<Value, ToolError> {
    let PollResponse {
        state,
        poll_interval,
        mut shown,
    } = polled;
    // Moved rather than serialized again, as they can be many.
    let events = std::mem::take(&mut shown.events);
    let shown = serde_json::to_value(shown)
        .map_err(|error| ToolError::new(Code::Internal, error.to_string()))?;
    let mut all = Map::new();
    all.insert("sessionId".to_owned(), json!(session));
    all.insert("status".to_owned(), json!(state));
    insert_poll_interval(&mut all, poll_interval);
    if let Value::Object(shown) = shown {
        all.extend(shown);
    }
    all.insert("events".to_owned(), Value::Array(events));
    if state == State::WaitingApproval && !all.contains_key("actions") {
        all.insert("actions".to_owned(), json!([]));
    }
    Ok(Value::Object(all))
}

impl Arguments {
    fn poll(&self) -> Poll {
        let usual = PollOptions::default();
        let given = self.poll_options.as_ref();
        let most = self.max_events.map(|Count(most)| most);
        let most = match self.action {
            // At least one event, or the caller would poll in a loop. After a wait, more than one,
            // or the caller would poll for each word.
            Action::Poll if self.wait_ms.is_some() => most.unwrap_or(EVENTS_AFTER_WAIT).max(1),
            Action::Poll => most.unwrap_or(1).max(1),
            Action::RespondPermission | Action::RespondUserInput => most.unwrap_or(0),
        };
        let or = |given: Option<bool>, usual| given.unwrap_or(usual);
        Poll {
            cursor: self.cursor.map(|Count(cursor)| cursor),
            max_events: usize::try_from(most).unwrap_or(usize::MAX),
            mode: self.response_mode.unwrap_or_default(),
            options: PollOptions {
                include_events: or(given.and_then(|o| o.include_events), usual.include_events),
                include_actions: or(given.and_then(|o| o.include_actions), usual.include_actions),
                include_result: or(given.and_then(|o| o.include_result), usual.include_result),
                max_bytes: given.and_then(|o| o.max_bytes).map(|Count(bytes)| bytes),
            },
        }
    }

    /// Refuses a poll that contains a decision: the caller must not believe that it has answered.
    fn refuse_decision(&self) -> Result<(), ToolError> {
        let slip = match (&self.request_id, &self.decision, &self.answers) {
            (_, Some(_), _) => "decision",
            (_, _, Some(_)) => "answers",
            (Some(_), ..) => "requestId",
            (None, None, None) => return Ok(()),
        };
        Err(ToolError::new(
            Code::InvalidArgument,
            format!("{slip} goes with respond_permission or respond_user_input, not with poll"),
        ))
    }

    fn refuse_wait(&self) -> Result<(), ToolError> {
        match self.wait_ms {
            None => Ok(()),
            Some(_) => Err(ToolError::new(
                Code::InvalidArgument,
                "waitMs goes with poll: answer first, then poll",
            )),
        }
    }

    fn decision(&mut self) -> Result<Decision, ToolError> {
        let action: &'static str = self.action.into();
        if self.action == Action::RespondUserInput {
            let answers = self.answers.take();
            return match self.decision {
                // Also beside answers: an answer with a yes and a no is a no.
                Some(DecisionName::Decline) => Ok(Decision::Decline),
                Some(DecisionName::Cancel) => Ok(Decision::Cancel),
                None | Some(DecisionName::Accept) => answers
                    .map(Decision::Submit)
                    .ok_or_else(|| missing("answers", action)),
                Some(_) => Err(ToolError::new(
                    Code::InvalidArgument,
                    "decision is accept, decline or cancel with respond_user_input",
                )),
            };
        }
        let name = self.decision.ok_or_else(|| missing("decision", action))?;
        match name {
            DecisionName::Accept => Ok(match self.answers.take() {
                Some(answers) => Decision::Submit(answers),
                None => Decision::Accept,
            }),
            DecisionName::AcceptForSession => Ok(Decision::AcceptForSession),
            DecisionName::Decline => Ok(Decision::Decline),
            DecisionName::Cancel => Ok(Decision::Cancel),
            DecisionName::AcceptWithExecpolicyAmendment => self
                .execpolicy_amendment
                .take()
                .filter(|words| !words.is_empty())
                .map(Decision::AcceptWithExecpolicyAmendment)
                .ok_or_else(|| missing("execpolicyAmendment", action)),
            DecisionName::ApplyNetworkPolicyAmendment => self
                .network_policy_amendment
                .take()
                .and_then(|rule| match json!(rule) {
                    Value::Object(rule) => Some(Decision::ApplyNetworkPolicyAmendment(rule)),
                    _ => None,
                })
                .ok_or_else(|| missing("networkPolicyAmendment", action)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decline_beside_answers_is_a_no() {
        let answers = json!({ "colour": { "answers": ["red"] } });
        let submitted = answers.as_object().cloned().map(Decision::Submit);
        for (action, decision, answers, expected) in [
            (
                "respond_user_input",
                json!(null),
                &answers,
                submitted.clone(),
            ),
            (
                "respond_user_input",
                json!("accept"),
                &answers,
                submitted.clone(),
            ),
            (
                "respond_user_input",
                json!("decline"),
                &answers,
                Some(Decision::Decline),
            ),
            (
                "respond_user_input",
                json!("cancel"),
                &answers,
                Some(Decision::Cancel),
            ),
            (
                "respond_user_input",
                json!("acceptForSession"),
                &answers,
                None,
            ),
            (
                "respond_user_input",
                json!("decline"),
                &Value::Null,
                Some(Decision::Decline),
            ),
            ("respond_user_input", json!("accept"), &Value::Null, None),
            ("respond_permission", json!("accept"), &answers, submitted),
            (
                "respond_permission",
                json!("decline"),
                &answers,
                Some(Decision::Decline),
            ),
        ] {
            let given = json!({ "action": action, "decision": decision, "answers": answers });
            let mut given: Arguments = serde_json::from_value(given).unwrap();
            assert_eq!(
                given.decision().ok(),
                expected,
                "{action} {decision} {answers}"
            );
        }
    }
}
