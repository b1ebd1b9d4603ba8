//! Calls of our tools by Codex's threads.
//!
//! A call waits in Codex without a limit, so each is answered: at once where the session is
//! over, by the tool else. Of one whose turn ends Codex wants no answer any more, and does
//! not say so.

use std::sync::Arc;

use codex_protocol::codex::{Ask, Heard, McpElicitation, Release, ToolAnswer, ToolCall};
use codex_protocol::rpc::RequestId;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tracing::Instrument as _;

use super::command::new_action_id;
use super::effects::perform;
use super::sessions::{Entry, Sessions};
use super::thread_tools::{Called, Reply, ThreadTools};
use crate::logic::session::{Asked, Session};

/// The approval policy under which nobody is asked.
const NEVER: &str = "never";

/// What a person is told who is asked about a call: whose tool it is.
const OURS: &str = "codex-mcp";

/// Who tells of the step that a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Codex; or nobody, as for those of sub-agents.
    Codex,
    /// We: Codex before 0.106 has no steps for calls.
    Us,
}

/// A call that waits for its answer.
struct Open {
    entry: Arc<Entry>,
    tools: Arc<dyn ThreadTools>,
    request: RequestId,
    call: ToolCall,
    /// The turn of the session that it belongs to.
    turn: u64,
    step: Step,
}

/// Takes a call of one of `tools`.
///
/// # Errors
///
/// Why it is answered at once, in words for the model.
pub(super) fn take(
    sessions: &Sessions,
    tools: Arc<dyn ThreadTools>,
    request: RequestId,
    call: ToolCall,
) -> Result<(), &'static str> {
    let responsible = sessions.responsible(&call.thread_id);
    let entry = responsible.ok_or("this thread has no session any more")?;
    let goes_on = |machine: &Session| machine.has_turn() && !machine.is_being_interrupted();
    let (turn, goes_on, told) = entry.look(|machine, _| {
        let told = machine.has_step(&call.call_id);
        (machine.turns(), goes_on(machine), told)
    });
    if !goes_on {
        return Err("the turn is over");
    }
    let is_own = entry.thread.as_str() == call.thread_id;
    let open = Open {
        tools,
        request,
        call,
        turn,
        step: match is_own && !told {
            true => Step::Us,
            false => Step::Codex,
        },
        entry,
    };
    open.tell("item/started", None);
    let span = open.entry.span.clone();
    tokio::spawn(open.answer().instrument(span));
    Ok(())
}

impl Open {
    async fn answer(self) {
        let (server, _) = self.entry.server();
        let reply = tokio::select! {
            biased;
            () = self.turn_ends() => return,
            reply = self.reply() => reply,
        };
        self.tell("item/completed", Some(&reply.answer));
        server
            .connection()
            .answer_and_then(&self.request, &reply.answer, reply.delivered);
    }

    async fn turn_ends(&self) {
        let mut revision = self.entry.watch();
        let goes_on = || {
            self.entry
                .look(|machine, _| machine.has_turn() && machine.turns() == self.turn)
        };
        while goes_on() {
            // Fails only without the entry, which is here.
            let _ = revision.changed().await;
        }
    }

    async fn reply(&self) -> Reply {
        let tool = &self.call.tool;
        if self.tools.asks_first(tool)
            && let Err(why) = self.approval().await
        {
            return ToolAnswer::refusal(format!("{tool} was not called: {why}")).into();
        }
        let (server, _) = self.entry.server();
        let called = Called {
            tool: tool.clone(),
            arguments: self.call.arguments.clone(),
            cwd: self.entry.settings().thread.cwd,
            codex: server.about.codex_version().and_then(Release::parse),
        };
        self.tools.call(called).await
    }

    /// Has a person asked about the call, as Codex does about those of MCP servers.
    async fn approval(&self) -> Result<(), &'static str> {
        let policy = self.entry.info().effective.approval_policy;
        if policy.is_some_and(|policy| policy == NEVER) {
            return Err("it needs an approval, and the approval policy is never");
        }
        let id = new_action_id();
        let request = RequestId::Text(format!("{OURS}:{}", id.0));
        let decided = self.entry.expect_decision(request.clone());
        let question = self.question();
        let asked = Asked {
            id,
            request,
            params: json!(question),
            ask: Ask::McpElicitation(question),
        };
        let effects = self.entry.change(|machine, now| machine.asked(asked, now));
        perform(&self.entry, effects);
        match decided.await {
            Ok(result) if result.get("action").is_some_and(|it| it == "accept") => Ok(()),
            Ok(_) | Err(_) => Err("it was declined"),
        }
    }

    fn question(&self) -> McpElicitation {
        let tool = &self.call.tool;
        McpElicitation {
            server_name: OURS.to_owned(),
            message: format!("Allow {OURS} to run tool \"{tool}\"?"),
            meta: Some(json!({
                "codex_approval_kind": "mcp_tool_call",
                "tool_name": tool,
                "tool_params": self.call.arguments,
            })),
            ..McpElicitation::default()
        }
    }

    /// Tells the session of the step, unless Codex does.
    fn tell(&self, method: &str, answer: Option<&ToolAnswer>) {
        if self.step == Step::Codex {
            return;
        }
        let status = match answer {
            None => "inProgress",
            Some(answer) if answer.success => "completed",
            Some(_) => "failed",
        };
        let turn = self.entry.look(|machine, _| machine.turn_id().cloned());
        let params = to_raw_value(&json!({
            "threadId": self.call.thread_id,
            "turnId": turn,
            "item": {
                "type": "dynamicToolCall",
                "id": self.call.call_id,
                "tool": self.call.tool,
                "arguments": self.call.arguments,
                "status": status,
                "contentItems": answer.map(|answer| &answer.content_items),
                "success": answer.map(|answer| answer.success),
            },
        }));
        let Ok(params) = params else { return };
        self.hear(method, &params);
    }

    fn hear(&self, method: &str, params: &RawValue) {
        if let Ok(Some(heard)) = Heard::read(method, params) {
            let effects = self.entry.change(|machine, now| machine.heard(heard, now));
            perform(&self.entry, effects);
        }
    }
}
