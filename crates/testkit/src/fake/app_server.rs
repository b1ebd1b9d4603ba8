//! `codex app-server`: the shapes are those of 0.169, as recorded from it.
//! 0.104 and 0.153 leave out some of the fields and notifications.

use serde_json::{Value, json};

use super::dialect::{Call, Dialect, Kind, Notification, Refusal, Threads, fill};
use super::plan::{Action, TurnEnd};

/// The code of every refusal of the real app-server.
const INVALID_REQUEST: i64 = -32600;

/// A fixed moment, 2026-01-01, in seconds and milliseconds of Unix time: the fake's output is the
/// same in every run.
const SECONDS: u64 = 1_767_225_600;
const MILLISECONDS: u64 = SECONDS * 1000;

pub(super) struct AppServerDialect {
    version: String,
}

impl AppServerDialect {
    pub(super) fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
        }
    }

    fn thread(&self, call: &Call) -> Value {
        let directory = directory(call);
        let id = &call.thread;
        json!({
            "id": id,
            "environments": [],
            "extra": null,
            "sessionId": id,
            "forkedFromId": (call.method == "thread/fork").then(|| &call.params["threadId"]),
            "attachedToThreadId": null,
            "parentThreadId": null,
            "preview": "",
            "ephemeral": false,
            "historyMode": "paginated",
            "modelProvider": "fake",
            "model": "fake-model",
            "reasoningEffort": null,
            "createdAt": SECONDS,
            "updatedAt": SECONDS,
            "recencyAt": SECONDS,
            "status": {"type": "idle"},
            "path": null,
            "cwd": directory,
            "cliVersion": self.version,
            "originator": "fake",
            "source": "vscode",
            "canAcceptDirectInput": true,
            "gitInfo": null,
            "name": null,
            "turns": [],
        })
    }

    fn thread_answer(&self, call: &Call) -> Value {
        let directory = directory(call);
        json!({
            "thread": self.thread(call),
            "model": setting_or(call, "model", "fake-model"),
            "modelProvider": "fake",
            "serviceTier": null,
            "disabledPluginIds": [],
            "cwd": directory,
            "runtimeWorkspaceRoots": [directory],
            "instructionSources": [],
            "approvalPolicy": setting_or(call, "approvalPolicy", "on-request"),
            "approvalsReviewer": "user",
            "sandbox": {"type": sandbox(call), "networkAccess": false},
            "activePermissionProfile": {"id": ":read-only", "extends": null},
            "reasoningEffort": null,
            "multiAgentMode": "explicitRequestOnly",
        })
    }

    fn initialize_answer(&self, call: &Call) -> Value {
        let client = &call.params["clientInfo"];
        let name = client["name"].as_str().unwrap_or("unknown");
        json!({
            "userAgent": format!("{name}/{} (Linux; x86_64) unknown", self.version),
            "codexHome": std::env::var("CODEX_HOME").ok(),
            "platformFamily": "unix",
            "platformOs": "linux",
        })
    }
}

/// A setting of the call, or else its default.
fn setting_or(call: &Call, name: &str, default: &str) -> Value {
    match &call.params[name] {
        Value::Null => default.into(),
        setting_or => setting_or.clone(),
    }
}

/// The sandbox of a thread, by its name in answers.
fn sandbox(call: &Call) -> &'static str {
    match call.params["sandbox"].as_str() {
        Some("workspace-write") => "workspaceWrite",
        Some("danger-full-access") => "dangerFullAccess",
        _ => "readOnly",
    }
}

impl Dialect for AppServerDialect {
    fn understand(&self, mut call: Call, threads: &mut dyn Threads) -> Call {
        let named = call.params["threadId"].as_str().unwrap_or_default();
        let running = threads.running_turn(named);
        call.thread = named.to_owned();
        call.turn = running.clone().unwrap_or_default();
        match call.method.as_str() {
            "thread/start" | "thread/fork" => {
                call.thread = threads.new_id();
                call.kind = Kind::Thread;
            }
            "thread/resume" => call.kind = Kind::Thread,
            "turn/start" if !threads.knows(named) => call.kind = Kind::Wrong,
            "turn/start" | "turn/steer" if running.is_some() => call.kind = Kind::Steer,
            "turn/start" => {
                call.turn = threads.new_id();
                call.kind = Kind::Turn;
            }
            "turn/interrupt" if running.is_some() => call.kind = Kind::Interrupt,
            "turn/interrupt" | "turn/steer" => call.kind = Kind::Wrong,
            _ => {}
        }
        call
    }

    fn answer(&self, call: &Call, threads: &dyn Threads, _said: &str) -> Result<Value, Refusal> {
        if call.kind == Kind::Wrong {
            return Err((INVALID_REQUEST, refusal_message(call)));
        }
        Ok(match call.method.as_str() {
            "initialize" => self.initialize_answer(call),
            "thread/start" | "thread/resume" | "thread/fork" => self.thread_answer(call),
            "turn/start" => json!({"turn": turn(call, "inProgress", &Value::Null, vec![])}),
            "turn/steer" => json!({"turnId": call.turn}),
            "turn/interrupt" | "thread/archive" | "thread/unarchive" | "thread/name/set" => {
                json!({})
            }
            "thread/unsubscribe" => json!({"status": "unsubscribed"}),
            "thread/read" => json!({"thread": self.thread(call)}),
            "thread/loaded/list" => json!({"data": threads.ids(), "nextCursor": null}),
            "thread/list" | "model/list" | "mcpServerStatus/list" => {
                json!({"data": [], "nextCursor": null})
            }
            "account/read" => json!({"account": null, "requiresOpenaiAuth": false}),
            method => {
                let message = format!("Invalid request: unknown variant `{method}`, expected …");
                return Err((INVALID_REQUEST, message));
            }
        })
    }

    fn proceed(&self, call: &Call) -> Vec<Action> {
        match call.kind {
            Kind::Thread => {
                let params = json!({"thread": self.thread(call)});
                let method = "thread/started".to_owned();
                vec![Action::Answer, Action::Notify { method, params }]
            }
            Kind::Turn => vec![
                Action::Answer,
                Action::StartTurn,
                Action::say(super::HELLO),
                Action::EndTurn(TurnEnd::Completed),
            ],
            Kind::Interrupt => vec![Action::Answer, Action::EndTurn(TurnEnd::Interrupted)],
            Kind::Steer | Kind::Wrong | Kind::Other => vec![Action::Answer],
        }
    }

    fn turn_started(&self, call: &Call) -> Vec<Notification> {
        let prompt = json!({
            "type": "userMessage",
            "id": format!("{}-prompt", call.turn),
            "clientId": null,
            "content": call.params["input"],
        });
        let started = json!({
            "threadId": call.thread,
            "turn": turn(call, "inProgress", &Value::Null, vec![]),
        });
        vec![
            status(call, json!({"type": "active", "activeFlags": []})),
            ("turn/started", started),
            ("item/started", item(call, &prompt)),
            ("item/completed", item(call, &prompt)),
        ]
    }

    fn said(&self, call: &Call, text: &str) -> Vec<Notification> {
        let (start, end) = text.split_at(text.floor_char_boundary(text.len() / 2));
        vec![
            ("item/started", item(call, &message(call, ""))),
            self.delta(call, start),
            self.delta(call, end),
            ("item/completed", item(call, &message(call, text))),
        ]
    }

    fn delta(&self, call: &Call, text: &str) -> Notification {
        let params = json!({
            "threadId": call.thread,
            "turnId": call.turn,
            "itemId": message_id(call),
            "delta": text,
        });
        ("item/agentMessage/delta", params)
    }

    fn turn_ended(&self, call: &Call, end: &TurnEnd, said: &str) -> Vec<Notification> {
        let (status_name, error) = match end {
            TurnEnd::Completed => ("completed", Value::Null),
            TurnEnd::Interrupted => ("interrupted", Value::Null),
            TurnEnd::Failed(message) => ("failed", turn_error(message, &"other".into())),
            TurnEnd::FailedFor(message, info) => ("failed", turn_error(message, info)),
        };
        let mut items = vec![];
        if *end == TurnEnd::Completed {
            items.push(message(call, said));
        }
        let ended = json!({
            "threadId": call.thread,
            "turn": turn(call, status_name, &error, items),
        });
        vec![
            ("thread/tokenUsage/updated", token_usage(call)),
            status(call, json!({"type": "idle"})),
            ("turn/completed", ended),
        ]
    }

    fn place(&self, call: &Call, params: &mut Value) {
        // `thread/started` has the thread itself instead of its id.
        if params.get("thread").is_some() || call.thread.is_empty() {
            return;
        }
        fill(params, [("threadId", &call.thread), ("turnId", &call.turn)]);
        if let Some(command) = params.get("command") {
            let item = format!("{}-{command}", call.turn);
            fill(params, [("itemId", &item), ("cwd", &directory(call))]);
        }
    }

    fn envelop(&self, message: &mut Value) {
        if message.get("method").is_some() && message.get("id").is_none() {
            message["emittedAtMs"] = MILLISECONDS.into();
        }
    }
}

fn directory(call: &Call) -> String {
    match call.params["cwd"].as_str() {
        Some(directory) => directory.to_owned(),
        None => std::env::current_dir().unwrap().display().to_string(),
    }
}

fn refusal_message(call: &Call) -> String {
    match call.method.as_str() {
        "turn/interrupt" => "no active turn to interrupt".to_owned(),
        "turn/steer" => "no active turn to steer".to_owned(),
        _ => format!("thread not found: {}", call.thread),
    }
}

fn turn(call: &Call, status: &str, error: &Value, items: Vec<Value>) -> Value {
    let ended = status != "inProgress";
    json!({
        "id": call.turn,
        "rootTurnId": call.turn,
        "itemsView": if items.is_empty() { "notLoaded" } else { "summary" },
        "items": items,
        "status": status,
        "error": error,
        "startedAt": SECONDS,
        "completedAt": ended.then_some(SECONDS),
        "durationMs": ended.then_some(0),
    })
}

fn turn_error(message: &str, info: &Value) -> Value {
    json!({
        "message": message,
        "codexErrorInfo": info,
        "additionalDetails": null,
    })
}

fn item(call: &Call, item: &Value) -> Value {
    json!({
        "item": item,
        "threadId": call.thread,
        "turnId": call.turn,
        "startedAtMs": MILLISECONDS,
    })
}

fn message_id(call: &Call) -> String {
    format!("{}-message", call.turn)
}

fn message(call: &Call, text: &str) -> Value {
    json!({
        "type": "agentMessage",
        "id": message_id(call),
        "text": text,
        "phase": null,
        "memoryCitation": null,
        "startedAtMs": MILLISECONDS,
        "completedAtMs": null,
    })
}

fn status(call: &Call, status: Value) -> Notification {
    let params = json!({"threadId": call.thread, "status": status});
    ("thread/status/changed", params)
}

fn token_usage(call: &Call) -> Value {
    let usage = json!({
        "totalTokens": 15,
        "inputTokens": 10,
        "cachedInputTokens": 4,
        "cacheWriteInputTokens": 0,
        "outputTokens": 5,
        "reasoningOutputTokens": 1,
    });
    json!({
        "threadId": call.thread,
        "turnId": call.turn,
        "tokenUsage": {"total": usage, "last": usage, "modelContextWindow": 258_400},
    })
}
