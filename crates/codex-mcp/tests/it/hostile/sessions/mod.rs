//! `--api sessions` under failures: every refusal has the same form, and loses nothing.

mod beginnings;
mod cancelling;
mod classic;
mod crowd;
mod cursors;
mod deaths;
mod deciding;
mod elicit;
mod offers;
mod prompts;
mod questions;
mod reading;
mod refusals;
mod refused_by_codex;
mod sensitive;
mod subagents;
mod waiting;
mod withdrawn;

use serde_json::{Value, json};
use testkit::fake::{Action, Event, Plan, TurnEnd};

use super::serve::{HANDSHAKE, Serve, is_answer};

/// The error of a refused call.
struct Refusal {
    code: String,
    message: String,
}

/// A server with `--api sessions`, its client and its Codex.
struct Sessions {
    serve: Serve,
}

impl Sessions {
    async fn new(plan: &Plan) -> Self {
        Self::with(plan, &[]).await
    }

    async fn with(plan: &Plan, args: &[&str]) -> Self {
        Self {
            serve: Serve::plain_with(plan, &with_api(args)).await,
        }
    }

    /// A server whose client can be asked.
    async fn eliciting(plan: &Plan, args: &[&str]) -> Self {
        Self {
            serve: Serve::eliciting(plan, &with_api(args)).await,
        }
    }

    /// A server whose Codex reports this version.
    async fn of_version(plan: &Plan, version: &str) -> Self {
        let mut serve = Serve::start_with(plan, |launch| {
            launch
                .args(["--api", "sessions"])
                .env(testkit::fake::VERSION, version)
        });
        serve.client.initialize(HANDSHAKE, json!({})).await;
        Self { serve }
    }

    /// Calls a tool that must not refuse.
    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.serve.client.call_tool(tool, arguments).await;
        structured(&result)
    }

    /// Calls a tool that must refuse.
    async fn refused(&mut self, tool: &str, arguments: Value) -> Refusal {
        let result = self.serve.client.call_tool(tool, arguments).await;
        refusal(&result)
    }

    /// Starts a session with these arguments beside the required ones.
    async fn start(&mut self, more: Value) -> String {
        let started = self.call("codex", beginning(more)).await;
        started["sessionId"].as_str().unwrap().to_owned()
    }

    /// All sessions, as `codex_session` lists them.
    async fn list(&mut self) -> Value {
        self.call("codex_session", json!({"action": "list"})).await
    }

    /// Calls `codex_session` with this action.
    async fn session(&mut self, action: &str, session: &str) -> Value {
        let arguments = json!({"action": action, "sessionId": session});
        self.call("codex_session", arguments).await
    }

    async fn get(&mut self, session: &str) -> Value {
        let arguments = json!({"action": "get", "sessionId": session, "includeSensitive": true});
        self.call("codex_session", arguments).await
    }

    async fn reply(&mut self, session: &str) -> Value {
        let arguments = json!({"sessionId": session, "prompt": "go on"});
        self.call("codex_reply", arguments).await
    }

    /// Polls the session, with these further arguments.
    async fn poll(&mut self, session: &str, more: Value) -> Value {
        let arguments = join(json!({"action": "poll", "sessionId": session}), more);
        self.call("codex_check", arguments).await
    }

    /// The state of the session, without reading an event.
    async fn state(&mut self, session: &str) -> Value {
        let options = json!({"includeEvents": false});
        let more = json!({"pollOptions": options, "responseMode": "full"});
        self.poll(session, more).await
    }

    /// Waits until the session no longer runs, and returns its state.
    async fn attention(&mut self, session: &str) -> Value {
        let arguments = json!({"action": "wait_any", "sessionIds": [session], "waitMs": 20_000});
        let first = self.call("codex_session", arguments).await;
        assert_eq!(first["sessionId"], session, "{first:#}");
        let state = self.state(session).await;
        assert_eq!(state["status"], first["status"]);
        state
    }

    /// Waits until the turn has ended and returns its result.
    async fn result(&mut self, session: &str) -> Value {
        let idle = self.attention(session).await;
        assert_eq!(idle["status"], "idle", "{idle:#}");
        idle["result"].clone()
    }

    /// Waits for a question and returns it.
    async fn question(&mut self, session: &str) -> Value {
        let waiting = self.attention(session).await;
        assert_eq!(waiting["status"], "waiting_approval", "{waiting:#}");
        waiting["actions"][0].clone()
    }

    /// All stored events.
    async fn events(&mut self, session: &str) -> Vec<Value> {
        let more = json!({"cursor": 0, "maxEvents": 5000, "responseMode": "full"});
        let look = self.poll(session, more).await;
        look["events"].as_array().unwrap().clone()
    }

    /// The events of a type.
    async fn events_of(&mut self, session: &str, kind: &str) -> Vec<Value> {
        let mut events = self.events(session).await;
        events.retain(|event| event["type"] == kind);
        events
    }

    /// The answers to Codex, once there are `count`.
    async fn answers(&mut self, count: usize) -> Vec<Value> {
        let fake = &self.serve.fake;
        fake.wait_for_nth(count, "an answer", is_answer).await;
        self.serve.answers()
    }

    async fn finish(self) {
        self.serve.finish().await;
    }
}

/// The arguments of a decision.
pub(super) fn decision(session: &str, question: &Value, decision: &str) -> Value {
    json!({"action": "respond_permission", "sessionId": session,
        "requestId": question["requestId"], "decision": decision})
}

fn with_api<'a>(args: &[&'a str]) -> Vec<&'a str> {
    ["--api", "sessions"].iter().chain(args).copied().collect()
}

/// The arguments of `codex`.
fn beginning(more: Value) -> Value {
    let least = json!({"prompt": "hi", "approvalPolicy": "on-request", "sandbox": "read-only"});
    join(least, more)
}

fn join(mut object: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(more);
    object
}

/// The result of a tool, checked to be equal as text and as an object.
fn structured(result: &Value) -> Value {
    assert_eq!(result["isError"], false, "{result:#}");
    let text = result["content"][0]["text"].as_str().unwrap();
    let text: Value = serde_json::from_str(text).unwrap();
    assert_eq!(text, result["structuredContent"]);
    text
}

/// The one form of a refusal.
fn refusal(result: &Value) -> Refusal {
    assert_eq!(result["isError"], true, "{result:#}");
    let structured = result["structuredContent"].as_object().unwrap();
    assert_eq!(structured["isError"], true, "{result:#}");
    assert_eq!(structured.len(), 2, "{result:#}");
    let content = result["content"].as_array().unwrap();
    assert_eq!(content.len(), 1, "{result:#}");
    let text = content[0]["text"].as_str().unwrap();
    let (code, message) = text
        .strip_prefix("Error [")
        .and_then(|rest| rest.split_once("]: "))
        .unwrap();
    let error = &structured["error"];
    assert_eq!(error["code"], code, "{result:#}");
    assert!(message.starts_with(error["message"].as_str().unwrap().trim_end_matches('.')));
    assert!(message.ends_with(error["hint"].as_str().unwrap()));
    assert!(error["retryable"].is_boolean(), "{result:#}");
    Refusal {
        code: code.to_owned(),
        message: message.to_owned(),
    }
}

/// Whether this is a prefix with so many digits of a UUID.
fn is_name(text: &str, prefix: &str, digits: usize) -> bool {
    let rest = text.strip_prefix(prefix).unwrap_or_default();
    rest.len() == digits && rest.chars().all(|digit| digit.is_ascii_hexdigit())
}

fn ask(method: &str, params: Value) -> Action {
    Action::Ask {
        method: method.to_owned(),
        params,
    }
}

/// A turn that waits at this gate before it ends.
fn gated(gate: &str) -> Vec<Action> {
    vec![
        Action::Answer,
        Action::StartTurn,
        Action::gate(gate),
        Action::say("done"),
        Action::EndTurn(TurnEnd::Completed),
    ]
}

/// The messages of this method to Codex.
fn sent(serve: &Serve, method: &str) -> Vec<Value> {
    let of_method = |message: &Value| message["method"] == method;
    serve
        .fake
        .received()
        .into_iter()
        .filter(of_method)
        .collect()
}

/// Waits until Codex has been sent so many messages of this method about a thread.
async fn wait_for_thread(serve: &Serve, nth: usize, method: &str, thread: &Value) -> Value {
    let fits = |entry: &testkit::fake::Entry| {
        matches!(&entry.event, Event::Received(message)
            if message["method"] == method && message["params"]["threadId"] == *thread)
    };
    let entry = serve.fake.wait_for_nth(nth, method, fits).await;
    match entry.event {
        Event::Received(message) => message,
        event => panic!("not a message: {event:?}"),
    }
}
