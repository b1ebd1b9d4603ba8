//! Converts Codex's notifications about a thread into the events of a job.

use std::collections::{BTreeMap, BTreeSet};

use codex_protocol::codex::{
    Notification, Plan, PlanStep, RawItem, ThreadNotification, TokenUsage, Turn, TurnStatus,
    raw_item,
};
use codex_protocol::json_values;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::failed_step::PATCH;
use super::failure::in_words;
use crate::logic::describe::line;

/// The most calls without an output that are tracked.
const OPEN: usize = 64;

/// The most IDs of steps that are kept.
const KNOWN: usize = 10_000;

/// The beginning of the output of a command that the sandbox stopped (0.104.0). Such a
/// command is an item too.
const STOPPED: &str = "exec_command failed: SandboxDenied";

/// The fields of an item that its event contains, besides the type. All others are
/// redundant.
const FIELDS: [(&str, &[&str]); 6] = [
    ("agentMessage", &["id", "text"]),
    (
        "commandExecution",
        &["id", "command", "aggregatedOutput", "exitCode", "status"],
    ),
    ("fileChange", &["id", "status"]),
    (
        "mcpToolCall",
        &[
            "id",
            "server",
            "tool",
            "arguments",
            "result",
            "error",
            "status",
        ],
    ),
    // Not its answer, which may be a picture of some megabytes.
    ("dynamicToolCall", &["id", "tool", "arguments", "status"]),
    ("webSearch", &["id", "query", "action"]),
];

/// Converts the notifications of one turn into events.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The tokens that the thread has used.
    usage: Option<TokenUsage>,
    /// The model's calls that have not become steps.
    calls: BTreeMap<String, Call>,
    /// The IDs of the steps that Codex has reported.
    steps: BTreeSet<String>,
}

/// A call of the model that runs a command or changes files.
#[derive(Debug)]
enum Call {
    /// To run this command.
    Command(String),
    /// To change files.
    Patch,
}

impl Recorder {
    /// The event of a notification, if it has one.
    pub fn take(&mut self, notification: &ThreadNotification<'_>) -> Option<Value> {
        match &notification.notification {
            Notification::TurnStarted(_) => Some(json!({ "type": "turn.started" })),
            Notification::TurnCompleted(turn) => self.ended(turn),
            Notification::ItemStarted(_) => self.step("item.started", notification),
            Notification::ItemCompleted(_) => self.step("item.completed", notification),
            Notification::Raw(_) => {
                let payload = member(notification, "item")?;
                self.raw(&payload)
            }
            Notification::Plan(plan) => Some(todo_list(plan)),
            Notification::TokenUsage(usage) => {
                self.usage = Some(usage.clone());
                None
            }
            Notification::Error { error, .. } => {
                Some(json!({ "type": "error", "message": in_words(error) }))
            }
            Notification::Warning(message) => {
                let item = json!({ "type": "error", "message": message });
                Some(json!({ "type": "item.completed", "item": item }))
            }
            Notification::Delta(..)
            | Notification::Diff(_)
            | Notification::RequestResolved(_)
            | Notification::Other => None,
        }
    }

    /// The event of an item exchanged with the model. This is the only trace of a call
    /// that Codex did not allow, and of a command that the sandbox stopped at once.
    pub fn raw(&mut self, payload: &Value) -> Option<Value> {
        match RawItem::deserialize(payload).ok()? {
            RawItem::FunctionCall { call_id, name } if RawItem::is_acting_tool(&name) => {
                if self.calls.len() < OPEN && !self.steps.contains(&call_id) {
                    self.calls.insert(call_id, Call::of(&name, payload));
                }
                None
            }
            RawItem::FunctionCallOutput { call_id, output } => {
                let call = self.calls.remove(&call_id)?;
                let why = raw_item::output_text(&output);
                if why.starts_with(STOPPED) {
                    return None;
                }
                match raw_item::was_run(&output) {
                    true => self.failed(&call, &call_id, &output),
                    false => Some(call.refused(&call_id, &line(why))),
                }
            }
            _ => None,
        }
    }

    /// The event of a failed command that Codex does not report as a step.
    fn failed(&self, call: &Call, id: &str, output: &Value) -> Option<Value> {
        let exit_code = raw_item::exit_code(output).filter(|code| *code != 0)?;
        // Beyond the limit, the command may have been reported as a step.
        let is_uncertain = self.steps.len() >= KNOWN;
        let Call::Command(command) = call else {
            return None;
        };
        let item = json!({ "id": id, "type": "command_execution", "command": command,
            "aggregated_output": raw_item::output_text(output), "exit_code": exit_code,
            "status": "failed" });
        (!is_uncertain).then(|| json!({ "type": "item.completed", "item": item }))
    }

    fn ended(&self, turn: &Turn) -> Option<Value> {
        match (turn.status, &turn.error) {
            (TurnStatus::Completed, _) => {
                let used = self.usage.as_ref().map(|usage| usage.total);
                let used = used.unwrap_or_default();
                Some(json!({ "type": "turn.completed", "usage": {
                    "input_tokens": used.input_tokens,
                    "cached_input_tokens": used.cached_input_tokens,
                    "output_tokens": used.output_tokens,
                    "reasoning_output_tokens": used.reasoning_output_tokens,
                } }))
            }
            (TurnStatus::Failed, Some(error)) => {
                Some(json!({ "type": "turn.failed", "error": { "message": in_words(error) } }))
            }
            _ => None,
        }
    }

    fn step(&mut self, kind: &str, notification: &ThreadNotification<'_>) -> Option<Value> {
        let item = member(notification, "item")?;
        let item = item.as_object()?;
        if let Some(id) = item.get("id").and_then(Value::as_str) {
            self.calls.remove(id);
            if self.steps.len() < KNOWN {
                self.steps.insert(id.to_owned());
            }
        }
        let shown = shown(item, kind == "item.completed")?;
        Some(json!({ "type": kind, "item": shown }))
    }
}

impl Call {
    fn of(name: &str, payload: &Value) -> Self {
        if name == PATCH {
            return Self::Patch;
        }
        let arguments = payload.get("arguments").and_then(Value::as_str);
        let arguments: Value = arguments
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let command = arguments.get("cmd").or_else(|| arguments.get("command"));
        Self::Command(match command {
            Some(Value::String(command)) => command.clone(),
            Some(Value::Array(words)) => {
                let words = words.iter().filter_map(Value::as_str);
                shlex::try_join(words).unwrap_or_default()
            }
            _ => name.to_owned(),
        })
    }

    fn refused(&self, id: &str, why: &str) -> Value {
        let item = match self {
            Self::Command(command) => json!({ "id": id, "type": "command_execution",
                "command": command, "aggregated_output": why, "exit_code": null,
                "status": "declined" }),
            Self::Patch => json!({ "id": id, "type": "file_change", "changes": [],
                "status": "declined", "reason": why }),
        };
        json!({ "type": "item.completed", "item": item })
    }
}

fn member(notification: &ThreadNotification<'_>, name: &str) -> Option<Value> {
    let mut params: Map<String, Value> = serde_json::from_str(notification.params.get()).ok()?;
    params.remove(name)
}

/// An item in the form of events; `None` if it has no event.
fn shown(item: &Map<String, Value>, is_completed: bool) -> Option<Value> {
    let kind = item.get("type")?.as_str()?;
    let mut shown = Map::new();
    match FIELDS.iter().find(|(known, _)| *known == kind) {
        Some((_, fields)) => {
            for field in *fields {
                let value = item.get(*field).cloned().unwrap_or_default();
                shown.insert(snake(field), value);
            }
        }
        None => shown.extend(item.iter().map(|(key, value)| (snake(key), value.clone()))),
    }
    match kind {
        "userMessage" => return None,
        "agentMessage" | "reasoning" if !is_completed => return None,
        "reasoning" => {
            shown = Map::from_iter([
                ("id".to_owned(), item.get("id").cloned().unwrap_or_default()),
                ("text".to_owned(), thoughts(item)?.into()),
            ]);
        }
        "fileChange" => {
            shown.insert("changes".to_owned(), edits(item.get("changes")));
        }
        "dynamicToolCall" if item.get("status").and_then(Value::as_str) == Some("failed") => {
            shown.insert("error".to_owned(), first_text(item).into());
        }
        _ => {}
    }
    if let Some(mark) = item.get(json_values::MARK) {
        shown.insert(json_values::MARK.to_owned(), mark.clone());
    }
    shown.insert("type".to_owned(), snake(kind).into());
    if let Some(Value::String(status)) = shown.get_mut("status") {
        *status = snake(status);
    }
    Some(shown.into())
}

fn thoughts(item: &Map<String, Value>) -> Option<String> {
    let summary = item.get("summary").and_then(Value::as_array)?;
    let parts: Vec<&str> = summary.iter().filter_map(Value::as_str).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// The first text of the answer to a call of a tool of ours: why the call failed.
fn first_text(item: &Map<String, Value>) -> Option<&str> {
    let parts = item.get("contentItems")?.as_array()?;
    let mut texts = parts.iter().filter_map(|part| part.get("text"));
    texts.find_map(Value::as_str)
}

fn edits(changes: Option<&Value>) -> Value {
    let changes = changes.and_then(Value::as_array).into_iter().flatten();
    let edit = |change: &Value| json!({ "path": change.get("path"), "kind": change.pointer("/kind/type") });
    changes.map(edit).collect()
}

fn todo_list(plan: &Plan) -> Value {
    let item =
        |step: &PlanStep| json!({ "text": step.step, "completed": step.status == "completed" });
    let items: Vec<Value> = plan.steps.iter().map(item).collect();
    json!({ "type": "item.updated", "item": { "type": "todo_list", "items": items } })
}

/// `inProgress` as `in_progress`.
fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn taken(recorder: &mut Recorder, method: &str, mut params: Value) -> Option<Value> {
        params["threadId"] = "t".into();
        params["turnId"] = "u".into();
        let params = RawValue::from_string(params.to_string()).unwrap();
        recorder.take(&ThreadNotification::read(method, &params).unwrap().unwrap())
    }

    fn item(state: &str, item: Value) -> Option<Value> {
        let method = format!("item/{state}");
        let taken = taken(&mut Recorder::default(), &method, json!({ "item": item }))?;
        assert_eq!(taken["type"], format!("item.{state}"));
        Some(taken["item"].clone())
    }

    #[test]
    fn items_have_the_form_of_events() {
        let command = json!({ "type": "commandExecution", "id": "1", "command": "make",
            "cwd": "/w", "aggregatedOutput": null, "exitCode": null, "status": "inProgress" });
        assert_eq!(
            item("started", command),
            Some(
                json!({ "type": "command_execution", "id": "1", "command": "make",
                "aggregated_output": null, "exit_code": null, "status": "in_progress" })
            )
        );
        let change = json!({ "type": "fileChange", "id": "2", "status": "completed",
            "changes": [{ "path": "/w/a", "kind": { "type": "add" }, "diff": "x" }] });
        assert_eq!(
            item("completed", change),
            Some(
                json!({ "type": "file_change", "id": "2", "status": "completed",
                "changes": [{ "path": "/w/a", "kind": "add" }] })
            )
        );
        let thought = json!({ "type": "reasoning", "id": "3", "summary": ["a", "b"] });
        assert_eq!(item("started", thought.clone()), None);
        assert_eq!(
            item("completed", thought),
            Some(json!({ "type": "reasoning", "id": "3", "text": "a\n\nb" }))
        );
        let call = |status: &str, text: &str| {
            json!({ "type": "dynamicToolCall", "id": "7", "tool": "request_image",
                "arguments": { "path": "a.png" }, "status": status, "success": false,
                "contentItems": [{ "type": "inputImage", "imageUrl": "data:" },
                    { "type": "inputText", "text": text }] })
        };
        assert_eq!(
            item("completed", call("completed", "x")),
            Some(
                json!({ "type": "dynamic_tool_call", "id": "7", "tool": "request_image",
                "arguments": { "path": "a.png" }, "status": "completed" })
            )
        );
        let failed = item("completed", call("failed", "no such file")).unwrap();
        assert_eq!(failed["error"], "no such file");
        let long = json!({ "type": "mcpToolCall", "id": "8", "server": "s", "tool": "t",
            "status": "completed", "truncated": true });
        assert_eq!(
            item("completed", long),
            Some(
                json!({ "type": "mcp_tool_call", "id": "8", "server": "s", "tool": "t",
                "arguments": null, "result": null, "error": null, "status": "completed",
                "truncated": true })
            )
        );
        let new = json!({ "type": "dreamOf", "id": "4", "ofWhat": 1 });
        assert_eq!(
            item("completed", new),
            Some(json!({ "type": "dream_of", "id": "4", "of_what": 1 }))
        );
        let said = json!({ "type": "agentMessage", "id": "5", "text": "" });
        assert_eq!(item("started", said), None);
        let prompt = json!({ "type": "userMessage", "id": "6" });
        assert_eq!(item("completed", prompt), None);
    }

    #[test]
    fn turn_ends_with_what_the_thread_has_used() {
        let mut recorder = Recorder::default();
        let usage = json!({ "last": {}, "total": { "inputTokens": 300, "outputTokens": 7 } });
        let used = taken(
            &mut recorder,
            "thread/tokenUsage/updated",
            json!({ "tokenUsage": usage }),
        );
        assert_eq!(used, None);
        let mut ended =
            |turn: Value| taken(&mut recorder, "turn/completed", json!({ "turn": turn }));
        let completed = ended(json!({ "id": "u", "status": "completed" })).unwrap();
        assert_eq!(completed["type"], "turn.completed");
        assert_eq!(completed["usage"]["input_tokens"], 300);
        let error = json!({ "message": "no", "additionalDetails": "at all" });
        assert_eq!(
            ended(json!({ "id": "u", "status": "failed", "error": error })),
            Some(json!({ "type": "turn.failed", "error": { "message": "no (at all)" } }))
        );
        assert_eq!(ended(json!({ "id": "u", "status": "interrupted" })), None);
    }

    #[test]
    fn calls_that_become_no_step_are_recorded_as_refused() {
        let mut recorder = Recorder::default();
        let call = |id: &str, command: &str| {
            json!({ "type": "function_call", "call_id": id, "name": "exec_command",
                "arguments": json!({ "cmd": command }).to_string() })
        };
        let answer = |id: &str, output: &str| json!({ "type": "function_call_output", "call_id": id, "output": output });
        for begun in [
            call("1", "touch x"),
            call("2", "ls"),
            call("3", "rm y"),
            call("4", "run"),
        ] {
            assert_eq!(recorder.raw(&begun), None);
        }
        let refused = recorder.raw(&answer("1", "approval policy is Never;\nreject command"));
        assert_eq!(
            refused.unwrap()["item"],
            json!({ "id": "1", "type": "command_execution", "command": "touch x",
                "aggregated_output": "approval policy is Never; reject command",
                "exit_code": null, "status": "declined" })
        );
        let ran = answer("2", "Chunk ID: 5\nProcess exited with code 0\nOutput:\nyes");
        assert_eq!(recorder.raw(&ran), None);
        let stopped = answer("3", "exec_command failed: SandboxDenied { }");
        assert_eq!(recorder.raw(&stopped), None);
        let step = json!({ "item": { "type": "commandExecution", "id": "4" } });
        assert!(taken(&mut recorder, "item/started", step).is_some());
        assert_eq!(recorder.raw(&answer("4", "done")), None);
        let patch = json!({ "type": "custom_tool_call", "call_id": "p", "name": "apply_patch",
            "input": "*** Begin Patch" });
        assert_eq!(recorder.raw(&patch), None);
        let refused = recorder.raw(&answer("p", "patch rejected")).unwrap();
        assert_eq!(refused["item"]["reason"], "patch rejected");
        assert_eq!(refused["item"]["type"], "file_change");
    }

    #[test]
    fn command_stopped_by_the_sandbox_is_recorded_once() {
        let mut recorder = Recorder::default();
        let call = json!({ "type": "function_call", "call_id": "1", "name": "exec_command",
            "arguments": json!({ "cmd": "touch /x" }).to_string() });
        let told = "Chunk ID: 5\nProcess exited with code 1\nOutput:\nRead-only file system\n";
        let answer = json!({ "type": "function_call_output", "call_id": "1", "output": told });
        assert_eq!(recorder.raw(&call), None);
        assert_eq!(
            recorder.raw(&answer).unwrap()["item"],
            json!({ "id": "1", "type": "command_execution", "command": "touch /x",
                "aggregated_output": "Read-only file system\n", "exit_code": 1,
                "status": "failed" })
        );
        // A rollout that is read after the turn repeats the call.
        let step = json!({ "item": { "type": "commandExecution", "id": "1" } });
        assert!(taken(&mut recorder, "item/started", step).is_some());
        assert_eq!(recorder.raw(&call), None);
        assert_eq!(recorder.raw(&answer), None);
    }
}
