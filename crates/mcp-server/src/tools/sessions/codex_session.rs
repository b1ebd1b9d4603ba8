//! `codex_session`: lists sessions, and acts on one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use codex_config::profile::ProfileName;
use codex_engine::Engine;
use codex_engine::command::{Attention, Prompt, ResumeThread, SessionId, SessionInfo};
use codex_engine::logic::events::ResponseMode;
use codex_protocol::codex::{Effort, SandboxMode};
use common::timestamp::timestamp;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use strum::VariantNames;

use super::answers::{forked, milliseconds, missing, opened, session};
use super::elicit::elicit;
use super::settings::{AdvancedSettings, SessionArguments, SessionStart};
use crate::code::Code;
use crate::error::ToolError;
use crate::server::Server;
use crate::tools::parameter_names::resolved;
use crate::tools::parameters::{NonBlankText, Policy, Wait, arguments};
use crate::tools::schema::{OneOf, answer, input, output, tool};

pub(in crate::tools) const NAME: &str = "codex_session";

/// The default time of `wait_any`: below the minute after which many clients give up.
const WAIT: Duration = Duration::from_secs(50);

/// The most sessions in a list.
const MAX_LISTED: usize = 500;

/// The cancellation reason of a session that its client has cancelled.
const CANCELLED: &str = "Cancelled by user";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
enum Action {
    List,
    Get,
    Cancel,
    Interrupt,
    Fork,
    Steer,
    Resume,
    WaitAny,
    Terminals,
    EndTerminals,
}

/// The parameters of all actions; [`Request`] has those of one. The schema is one flat object, as
/// not all clients understand `oneOf`, and shared parameters would be repeated in their context.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    #[schemars(with = "OneOf<Action>")]
    action: Action,
    session_id: Option<String>,
    include_sensitive: Option<bool>,
    session_ids: Option<Vec<String>>,
    #[schemars(extend("default" = milliseconds(WAIT)))]
    wait_ms: Option<Wait>,
    process_id: Option<String>,
    prompt: Option<NonBlankText>,
    thread_id: Option<String>,
    #[schemars(with = "Option<String>")]
    approval_policy: Option<Policy>,
    #[schemars(with = "Option<String>")]
    sandbox: Option<SandboxMode>,
    #[schemars(with = "Option<String>")]
    effort: Option<Effort>,
    cwd: Option<PathBuf>,
    model: Option<String>,
    #[schemars(with = "Option<String>")]
    profile: Option<ProfileName>,
    #[schemars(with = "Option<Map<String, Value>>")]
    advanced: Option<AdvancedSettings>,
}

/// An action with its parameters.
enum Request {
    List {
        sensitive: bool,
    },
    Get {
        session: SessionId,
        sensitive: bool,
    },
    Cancel(SessionId),
    Interrupt(SessionId),
    Fork(SessionId),
    Steer {
        session: SessionId,
        text: String,
    },
    Resume {
        thread: String,
        prompt: Option<String>,
        arguments: Box<SessionArguments>,
    },
    WaitAny {
        sessions: Vec<SessionId>,
        wait: Duration,
    },
    Terminals(SessionId),
    EndTerminals {
        session: SessionId,
        process: Option<String>,
    },
}

pub(in crate::tools) fn describe() -> Tool {
    let description = "Use to manage sessions. list; get: usage, plan, diff, changedFiles; \
interrupt the turn; cancel or fork the session; steer: add to the turn; resume a thread; wait_any: \
wait until one of sessionIds (omit handled ones) is idle, ended or asking; terminals, \
end_terminals: commands that outlive their turn.";
    let answer = output(json!({ "status?": "string", "sessions?": "array" }));
    let input = input::<Arguments>();
    tool(NAME, "Codex Session", description, input).with_raw_output_schema(answer)
}

pub(in crate::tools) async fn call(
    server: &Server,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let given = resolved::<Arguments>(given)?;
    let named: Vec<String> = named(&given);
    let given: Arguments = arguments(given)?;
    given.action.takes(&named)?;
    let engine = &server.engine;
    let object = match given.request(engine)? {
        Request::List { sensitive } => list(engine, sensitive),
        Request::Get { session, sensitive } => details(&engine.get(&session)?, sensitive),
        Request::Cancel(session) => {
            engine.cancel(&session, CANCELLED).await?;
            done(&session, "cancelled")
        }
        Request::Interrupt(session) => {
            engine.interrupt_session(&session).await?;
            done(&session, "interrupted")
        }
        Request::Fork(session) => {
            let engine = Arc::clone(engine);
            let forking = async move { engine.fork(&session).await };
            forked(&server.run_detached(context, forking).await?)
        }
        Request::Steer { session, text } => steer(server, context, session, text).await?,
        Request::Resume {
            thread,
            prompt,
            arguments,
        } => resume(server, context, &thread, prompt, *arguments).await?,
        Request::WaitAny { sessions, wait } => wait_any(server, context, &sessions, wait).await?,
        Request::Terminals(session) => terminals(server, context, &session).await?,
        Request::EndTerminals { session, process } => {
            end_terminals(server, context, session, process).await?
        }
    };
    Ok(answer(object).into())
}

/// The names of the given parameters.
fn named(given: &JsonObject) -> Vec<String> {
    let given = given.iter().filter(|(_, value)| !value.is_null());
    given.map(|(name, _)| name.clone()).collect()
}

impl Arguments {
    /// The action with its parameters, of which none is missing.
    fn request(self, engine: &Engine) -> Result<Request, ToolError> {
        let sensitive = self.include_sensitive.unwrap_or_default();
        let session = || session(engine, self.session_id);
        Ok(match self.action {
            Action::List => Request::List { sensitive },
            Action::Get => Request::Get {
                session: session()?,
                sensitive,
            },
            Action::Cancel => Request::Cancel(session()?),
            Action::Interrupt => Request::Interrupt(session()?),
            Action::Fork => Request::Fork(session()?),
            Action::Steer => Request::Steer {
                session: session()?,
                text: self.prompt.ok_or_else(|| missing("prompt", "steer"))?.0,
            },
            Action::Resume => Request::Resume {
                thread: self
                    .thread_id
                    .ok_or_else(|| missing("threadId", "resume"))?,
                prompt: self.prompt.map(|NonBlankText(text)| text),
                arguments: Box::new(SessionArguments {
                    approval_policy: self.approval_policy,
                    sandbox: self.sandbox,
                    effort: self.effort,
                    cwd: self.cwd,
                    model: self.model,
                    profile: self.profile,
                    tag: None,
                    advanced: self.advanced,
                }),
            },
            Action::WaitAny => {
                let names = self.session_ids.filter(|names| !names.is_empty());
                let names = names.ok_or_else(|| missing("sessionIds", "wait_any"))?;
                let sessions = names.iter().map(|name| engine.session_named(name));
                Request::WaitAny {
                    sessions: sessions.collect::<Result<_, _>>()?,
                    wait: self.wait_ms.map_or(WAIT, |Wait(wait)| wait),
                }
            }
            Action::Terminals => Request::Terminals(session()?),
            Action::EndTerminals => Request::EndTerminals {
                session: session()?,
                process: self.process_id,
            },
        })
    }
}

impl Action {
    /// Refuses parameters that the action would silently drop, apart from those that every action
    /// has always accepted.
    fn takes(self, named: &[String]) -> Result<(), ToolError> {
        let own: &[&str] = match self {
            Self::List
            | Self::Get
            | Self::Cancel
            | Self::Interrupt
            | Self::Fork
            | Self::Terminals => &[],
            Self::EndTerminals => &["processId"],
            Self::Steer => &["prompt"],
            Self::WaitAny => &["sessionIds", "waitMs"],
            Self::Resume => &[
                "threadId",
                "prompt",
                "approvalPolicy",
                "sandbox",
                "effort",
                "cwd",
                "model",
                "profile",
                "advanced",
            ],
        };
        let always = ["action", "sessionId", "includeSensitive"];
        let known =
            |name: &&String| own.contains(&name.as_str()) || always.contains(&name.as_str());
        match named.iter().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => Err(ToolError::new(
                Code::InvalidArgument,
                format!("{name} does not go with this action"),
            )),
        }
    }
}

/// The newest sessions, up to [`MAX_LISTED`], in the order in which they began.
fn list(engine: &Engine, sensitive: bool) -> Value {
    let all = engine.list();
    let omitted = all.len().saturating_sub(MAX_LISTED);
    let shown: Vec<Value> = all
        .iter()
        .skip(omitted)
        .map(|info| summary(info, sensitive))
        .collect();
    match omitted {
        0 => json!({ "sessions": shown }),
        omitted => json!({ "sessions": shown, "omitted": omitted }),
    }
}

fn done(session: &SessionId, what: &str) -> Value {
    json!({ "success": true, "message": format!("Session {session} {what}") })
}

async fn steer(
    server: &Server,
    context: &RequestContext<RoleServer>,
    session: SessionId,
    text: String,
) -> Result<Value, ToolError> {
    let engine = Arc::clone(&server.engine);
    let steered = session.clone();
    server
        .run_detached(context, async move { engine.steer(&steered, &text).await })
        .await?;
    Ok(done(&session, "steered"))
}

async fn resume(
    server: &Server,
    context: &RequestContext<RoleServer>,
    thread: &str,
    prompt: Option<String>,
    arguments: SessionArguments,
) -> Result<Value, ToolError> {
    let thread = server.thread(thread).await?;
    let SessionStart {
        mut start,
        first,
        warnings,
    } = arguments.into_start(server).await?;
    server.bound_resumed(&thread, &mut start.settings).await?;
    let resume = ResumeThread { thread, start };
    let prompt = match prompt {
        Some(text) => Some(Prompt { text, ..first }),
        None if first != Prompt::default() => {
            let message = "images and outputSchema go with a prompt, and there is none";
            return Err(ToolError::new(Code::InvalidArgument, message));
        }
        None => None,
    };
    let engine = Arc::clone(&server.engine);
    let (opened_session, turn) = server
        .run_detached(context, async move {
            let opened = engine.resume(resume).await?;
            let turn = match prompt {
                Some(prompt) => Some(engine.prompt(&opened.session, prompt).await),
                None => None,
            };
            Ok((opened, turn))
        })
        .await?;
    match turn {
        Some(Ok(turn)) => elicit(server, context, &turn, &opened_session.thread),
        Some(Err(error)) => {
            let session = &opened_session.session;
            let note = format!("session {session} has the thread, but not the prompt");
            return Err(ToolError::from(error).with_note(&note));
        }
        None => {}
    }
    opened(&server.engine, &opened_session, warnings)
}

async fn wait_any(
    server: &Server,
    context: &RequestContext<RoleServer>,
    sessions: &[SessionId],
    wait: Duration,
) -> Result<Value, ToolError> {
    let attention = server.engine.attention(sessions, wait);
    let look = || {
        let mut sessions = sessions.iter();
        sessions.find_map(|session| server.engine.current_step(session))
    };
    let first = server.wait_with_steps(context, look, attention).await??;
    Ok(match first {
        Some(Attention { session, state }) => json!({ "sessionId": session, "status": state }),
        None => json!({ "timedOut": true }),
    })
}

async fn terminals(
    server: &Server,
    context: &RequestContext<RoleServer>,
    session: &SessionId,
) -> Result<Value, ToolError> {
    let listing = server.engine.terminals(session);
    let terminals = server.wait_for(context, listing).await??;
    Ok(json!({ "sessionId": session, "terminals": terminals }))
}

async fn end_terminals(
    server: &Server,
    context: &RequestContext<RoleServer>,
    session: SessionId,
    process: Option<String>,
) -> Result<Value, ToolError> {
    let engine = Arc::clone(&server.engine);
    let of = session.clone();
    let ending = async move {
        match process {
            Some(process) => engine.end_terminal(&of, &process).await,
            None => engine.end_terminals(&of).await,
        }
    };
    server.run_detached(context, ending).await?;
    let message = format!("Background terminals of session {session} ended");
    Ok(json!({ "success": true, "message": message }))
}

/// A session in a list.
fn summary(info: &SessionInfo, sensitive: bool) -> Value {
    let mut object = common_members(info);
    if sensitive {
        object.insert("threadId".to_owned(), json!(info.thread));
        object.insert("cwd".to_owned(), json!(info.settings.thread.cwd));
    }
    Value::Object(object)
}

/// A session with all details.
fn details(info: &SessionInfo, sensitive: bool) -> Value {
    let mut object = common_members(info);
    let manner = match json!(info.settings.model_options) {
        Value::Object(manner) => manner,
        _ => Map::new(),
    };
    object.extend(manner);
    object.extend(info.view.facts.shown(ResponseMode::Minimal));
    if sensitive {
        let thread = &info.settings.thread;
        object.insert("threadId".to_owned(), json!(info.thread));
        object.insert("cwd".to_owned(), json!(thread.cwd));
        object.insert("profile".to_owned(), json!(info.settings.profile));
        if !thread.config.is_empty() {
            object.insert("config".to_owned(), json!(thread.config));
        }
    }
    object.retain(|_, value| !value.is_null());
    Value::Object(object)
}

fn common_members(info: &SessionInfo) -> Map<String, Value> {
    let SessionInfo {
        view, effective, ..
    } = info;
    let object = json!({
        "sessionId": info.session,
        "status": view.state,
        "createdAt": timestamp(view.created),
        "lastActiveAt": timestamp(view.active),
        "cancelledAt": view.cancelled.as_ref().map(|(_, at)| timestamp(*at)),
        "cancelledReason": view.cancelled.as_ref().map(|(why, _)| why),
        "error": view.error,
        "model": effective.model,
        "approvalPolicy": effective.approval_policy,
        "sandbox": effective.sandbox,
        "pendingRequestCount": view.open,
        "turns": view.turns,
        "turnId": view.turn,
        "doing": view.state.is_at_work().then(|| view.progress.to_string()),
        "stalledForMs": view.stalled.map(milliseconds),
    });
    let mut object = match object {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    object.retain(|_, value| !value.is_null());
    object
}
