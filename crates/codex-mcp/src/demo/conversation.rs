//! The conversation between the client and the server.

use std::io::{self, Write};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, JsonObject};
use rmcp::service::{ClientInitializeError, RunningService, ServiceError};
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::printer::Printer;
use super::script;
use super::server::{Client, Line};
use super::wire::TappedMessage;

/// How long the server may take for one answer. Codex takes a second.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Why the conversation failed.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// The handshake failed.
    #[error("codex-mcp serve does not answer `initialize`: {0}")]
    Begin(Box<ClientInitializeError>),
    /// A request failed.
    #[error("codex-mcp serve does not answer: {0}")]
    Call(#[from] ServiceError),
    /// The server does not answer in time.
    #[error("codex-mcp serve has not answered for {} s", TIMEOUT.as_secs())]
    Silent,
    /// A tool reported an error.
    #[error("the tool `{tool}` failed: {text}")]
    Tool {
        /// The tool.
        tool: &'static str,
        /// The text of its answer.
        text: String,
    },
    /// The second turn does not remember the first.
    #[error("Codex should have quoted the first prompt, but it answered: {0}")]
    Forgotten(String),
    /// The messages cannot be printed.
    #[error("cannot write to stdout: {0}")]
    Output(#[from] io::Error),
    /// The user interrupted the demo.
    #[error("interrupted")]
    Interrupted,
}

/// The answer of a tool.
struct Answer {
    thread: String,
    content: String,
}

/// Holds the conversation and prints the messages that pass.
pub(super) struct Conversation<'a, W> {
    printer: &'a mut Printer<W>,
    passed: mpsc::Receiver<TappedMessage>,
    stop: &'a CancellationToken,
}

impl<'a, W: Write> Conversation<'a, W> {
    pub(super) fn new(
        printer: &'a mut Printer<W>,
        passed: mpsc::Receiver<TappedMessage>,
        stop: &'a CancellationToken,
    ) -> Self {
        Self {
            printer,
            passed,
            stop,
        }
    }

    /// The whole conversation: a greeting, a call, and another one in the same thread. The
    /// line is closed afterwards, whatever the outcome.
    ///
    /// # Errors
    ///
    /// [`ConversationError`].
    pub(super) async fn hold(
        mut self,
        line: Line,
        project: &Path,
    ) -> Result<(), ConversationError> {
        let client = self.greet(line).await?;
        let thread = self.delegate(&client, project).await?;
        self.follow_up(&client, &thread).await?;
        // The server sees the end of its input; the result on our side does not matter.
        let _ = client.cancel().await;
        Ok(())
    }

    async fn greet(
        &mut self,
        line: Line,
    ) -> Result<RunningService<RoleClient, Client>, ConversationError> {
        self.printer.step("Connect, as any MCP client does")?;
        let client = self
            .hear(Client.serve(line))
            .await?
            .map_err(|error| ConversationError::Begin(Box::new(error)))?;
        self.hear(client.list_tools(None)).await??;
        Ok(client)
    }

    async fn delegate(
        &mut self,
        client: &RunningService<RoleClient, Client>,
        project: &Path,
    ) -> Result<String, ConversationError> {
        self.printer.step("Hand a task to Codex")?;
        self.printer.note(
            "The sandbox is read-only, so Codex has to ask before it writes. Its question comes \
             as an elicitation; the demo stands in for you and accepts.",
        )?;
        let arguments = json!({
            "prompt": script::CALL,
            "cwd": project,
            "sandbox": "read-only",
            "approval-policy": "on-request",
        });
        let answer = self.call(client, "codex", arguments).await?;
        Ok(answer.thread)
    }

    async fn follow_up(
        &mut self,
        client: &RunningService<RoleClient, Client>,
        thread: &str,
    ) -> Result<(), ConversationError> {
        self.printer.step("Ask again in the same thread")?;
        self.printer.note(
            "The stand-in for the model can quote the first turn only because Codex sends it \
             along.",
        )?;
        let arguments = json!({ "threadId": thread, "prompt": script::FOLLOW_UP });
        let answer = self.call(client, "codex-reply", arguments).await?;
        match script::remembers(&answer.content) {
            true => Ok(()),
            false => Err(ConversationError::Forgotten(answer.content)),
        }
    }

    async fn call(
        &mut self,
        client: &RunningService<RoleClient, Client>,
        tool: &'static str,
        arguments: Value,
    ) -> Result<Answer, ConversationError> {
        let arguments: JsonObject = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = self.hear(client.call_tool(params)).await??;
        let structured = result.structured_content.unwrap_or_default();
        let text = |place| {
            let text = structured.pointer(place).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        if result.is_error == Some(true) {
            let text = format!("{}. {}", text("/error/message"), text("/error/hint"));
            return Err(ConversationError::Tool { tool, text });
        }
        Ok(Answer {
            thread: text("/threadId"),
            content: text("/content"),
        })
    }

    /// Waits for `work` and prints the messages that pass meanwhile.
    async fn hear<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ConversationError> {
        let mut work = pin!(work);
        let mut time_limit = pin!(sleep(TIMEOUT));
        let done = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(ConversationError::Interrupted),
                Some(passed) = self.passed.recv() => self.printer.message(&passed)?,
                done = &mut work => break done,
                () = &mut time_limit => return Err(ConversationError::Silent),
            }
        };
        while let Ok(passed) = self.passed.try_recv() {
            self.printer.message(&passed)?;
        }
        Ok(done)
    }
}
