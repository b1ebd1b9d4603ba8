//! Calls of our tools by Codex's threads.
//!
//! Codex waits for an answer without a time limit, so each call is answered: by the tool, or by a
//! refusal once the session is over. When the turn of a call ends, Codex silently stops expecting
//! an answer. A call of a sub-agent belongs to a turn of its own, which does not end with the
//! session's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use codex_protocol::codex::{
    Ask, McpElicitation, Release, ThreadNotification, ToolAnswer, ToolCall,
};
use codex_protocol::rpc::RequestId;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tracing::Instrument as _;

use super::command::new_action_id;
use super::effects::perform;
use super::entry::Entry;
use super::sessions::Sessions;
use super::thread_tools::{Reply, ToolInvocation};
use crate::logic::session::{IncomingQuestion, Session};

/// The approval policy under which Codex asks nobody.
const NEVER: &str = "never";

/// The name of the server in the question about a call.
const OURS: &str = "codex-mcp";

/// The answer to a call that an earlier host began. Such a call is not executed again.
const UNKNOWN_OUTCOME: &str = "the process that executed this call has ended, and it is not known \
    whether the call was executed; find out before you call it again";

/// The answer to a call of a sub-agent whose session's turn has ended while the tool worked.
const TURN_ENDED: &str = "the turn of the thread that started this agent ended before the call did, \
    and it is not known whether the call was executed; find out before you call it again";

/// The party that reports the step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepReporter {
    /// Codex. Calls of sub-agents are not reported at all.
    Codex,
    /// This engine: Codex before 0.106 reports no steps for calls.
    Us,
}

/// A call that has not been answered yet.
struct PendingCall {
    entry: Arc<Entry>,
    request: RequestId,
    call: ToolCall,
    /// The number of the session's turn.
    turn: u64,
    step: StepReporter,
    /// Whether this host, or an earlier one, may have executed the call.
    has_begun: AtomicBool,
}

/// Starts answering a call of one of the session's tools.
///
/// # Errors
///
/// Why the call is refused, as text for the model.
pub(super) fn accept(
    sessions: &Sessions,
    request: RequestId,
    call: ToolCall,
) -> Result<(), &'static str> {
    let responsible = sessions.responsible(&call.thread_id);
    let entry = responsible.ok_or("this thread has no session any more")?;
    let continues = |machine: &Session| machine.has_turn() && !machine.is_being_interrupted();
    let (turn, continues, is_reported) = entry.access(|machine, _| {
        let is_reported = machine.has_step(&call.call_id);
        (machine.turns(), continues(machine), is_reported)
    });
    if !continues {
        return Err("the turn is over");
    }
    let mut open = PendingCall {
        has_begun: AtomicBool::new(entry.has_begun_call(&request)),
        request,
        call,
        turn,
        step: StepReporter::Codex,
        entry,
    };
    if open.is_own() && !is_reported {
        open.step = StepReporter::Us;
    }
    open.report_step("item/started", None);
    let span = open.entry.span.clone();
    tokio::spawn(open.answer().instrument(span));
    Ok(())
}

impl PendingCall {
    async fn answer(self) {
        let (server, _) = self.entry.server();
        let reply = tokio::select! {
            biased;
            () = self.turn_ends() => match self.is_own() {
                true => return self.entry.end_call(&self.request),
                false => Reply::from(self.turn_ended()),
            },
            reply = self.reply() => reply,
        };
        self.report_step("item/completed", Some(&reply.answer));
        let (entry, request) = (Arc::clone(&self.entry), self.request.clone());
        let delivered = move || {
            // Called only after the answer has been written: until then, Codex repeats the call to
            // the next host.
            entry.end_call(&request);
            if let Some(delivered) = reply.delivered {
                delivered();
            }
        };
        server.connection().answer_and_then(
            &self.request,
            &reply.answer,
            Some(Box::new(delivered)),
        );
    }

    /// Returns whether the session's own thread made the call, rather than a sub-agent.
    fn is_own(&self) -> bool {
        self.entry.thread.as_str() == self.call.thread_id
    }

    /// The answer to a call of a sub-agent when the turn of its session ends.
    fn turn_ended(&self) -> ToolAnswer {
        if self.has_begun.load(Ordering::Relaxed) {
            return ToolAnswer::refusal(TURN_ENDED);
        }
        let tool = &self.call.tool;
        ToolAnswer::refusal(format!(
            "{tool} was not called: the turn of the thread that started this agent has ended"
        ))
    }

    async fn turn_ends(&self) {
        let mut revision = self.entry.watch();
        let continues = || {
            self.entry
                .access(|machine, _| machine.has_turn() && machine.turns() == self.turn)
        };
        while continues() {
            // Fails only without the entry, which this holds.
            let _ = revision.changed().await;
        }
    }

    async fn reply(&self) -> Reply {
        let tool = &self.call.tool;
        let tools = self.entry.owner().tools;
        if tools.needs_approval(tool)
            && let Err(why) = self.approval().await
        {
            return ToolAnswer::refusal(format!("{tool} was not called: {why}")).into();
        }
        if !self.entry.begin_call(&self.request).await {
            return ToolAnswer::refusal(UNKNOWN_OUTCOME.to_owned()).into();
        }
        self.has_begun.store(true, Ordering::Relaxed);
        let (server, _) = self.entry.server();
        let called = ToolInvocation {
            tool: tool.clone(),
            arguments: self.call.arguments.clone(),
            cwd: self.entry.settings().thread.cwd,
            codex: server.about.codex_version().and_then(Release::parse),
        };
        tools.call(called).await
    }

    /// Asks a person to approve the call, as Codex does for calls of MCP servers.
    async fn approval(&self) -> Result<(), &'static str> {
        let policy = self.entry.info().effective.approval_policy;
        if policy.is_some_and(|policy| policy == NEVER) {
            return Err("it needs an approval, and the approval policy is never");
        }
        let id = new_action_id();
        // The ID is the same after a restart of this process, when Codex repeats its request.
        let request = RequestId::Text(format!("{OURS}:{}", self.request.text()));
        let decided = self.entry.expect_decision(request.clone());
        let question = self.question();
        let question = IncomingQuestion {
            id,
            request,
            thread: self.call.thread_id.clone(),
            params: json!(question),
            ask: Ask::McpElicitation(question),
        };
        let effects = self
            .entry
            .change(|machine, now| machine.on_question(question, now));
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

    /// Reports the step to the session, unless Codex does.
    fn report_step(&self, method: &str, answer: Option<&ToolAnswer>) {
        if self.step == StepReporter::Codex {
            return;
        }
        let status = match answer {
            None => "inProgress",
            Some(answer) if answer.success => "completed",
            Some(_) => "failed",
        };
        let turn = self.entry.access(|machine, _| machine.turn_id().cloned());
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
        self.notify_session(method, &params);
    }

    fn notify_session(&self, method: &str, params: &RawValue) {
        if let Ok(Some(notification)) = ThreadNotification::read(method, params) {
            self.entry.notify(&notification);
            let effects = self
                .entry
                .change(|machine, now| machine.on_notification(notification, now));
            perform(&self.entry, effects);
        }
    }
}
