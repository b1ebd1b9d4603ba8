//! The conversation: what the client says to the server, and what comes back.

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

use super::script;
use super::server::{Client, Line};
use super::show::Show;
use super::wire::Passed;

/// How long the server may take for one answer. Codex takes a second.
const PATIENCE: Duration = Duration::from_secs(90);

/// Why the conversation did not go as it should.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// The server does not begin as it should.
    #[error("codex-mcp serve does not answer `initialize`: {0}")]
    Begin(Box<ClientInitializeError>),
    /// A request failed.
    #[error("codex-mcp serve does not answer: {0}")]
    Call(#[from] ServiceError),
    /// Nothing comes.
    #[error("codex-mcp serve has not answered for {} s", PATIENCE.as_secs())]
    Silent,
    /// A tool says that it failed.
    #[error("the tool `{tool}` failed: {text}")]
    Tool {
        /// Which one.
        tool: &'static str,
        /// What it answered.
        text: String,
    },
    /// The second turn does not know of the first.
    #[error("Codex should have quoted the first prompt, but it answered: {0}")]
    Forgotten(String),
    /// What passes can't be shown.
    #[error("the output can't be written: {0}")]
    Output(#[from] io::Error),
    /// The user has had enough.
    #[error("interrupted")]
    Interrupted,
}

/// What a tool answered.
struct Answer {
    thread: String,
    content: String,
}

/// Shows what passes while somebody waits.
pub(super) struct Talk<'a, W> {
    show: &'a mut Show<W>,
    passed: mpsc::Receiver<Passed>,
    stop: &'a CancellationToken,
}

impl<'a, W: Write> Talk<'a, W> {
    pub(super) fn new(
        show: &'a mut Show<W>,
        passed: mpsc::Receiver<Passed>,
        stop: &'a CancellationToken,
    ) -> Self {
        Self { show, passed, stop }
    }

    /// The whole conversation: a greeting, a call, and another one in the same thread. The
    /// line is closed afterwards, whatever the outcome.
    ///
    /// # Errors
    ///
    /// [`TalkError`].
    pub(super) async fn hold(mut self, line: Line, project: &Path) -> Result<(), TalkError> {
        let client = self.greet(line).await?;
        let thread = self.delegate(&client, project).await?;
        self.follow_up(&client, &thread).await?;
        // The server sees the end of its input; how our side ends is no matter.
        let _ = client.cancel().await;
        Ok(())
    }

    async fn greet(&mut self, line: Line) -> Result<RunningService<RoleClient, Client>, TalkError> {
        self.show.step("Connect, as any MCP client does")?;
        let client = self
            .hear(Client.serve(line))
            .await?
            .map_err(|error| TalkError::Begin(Box::new(error)))?;
        self.hear(client.list_tools(None)).await??;
        Ok(client)
    }

    async fn delegate(
        &mut self,
        client: &RunningService<RoleClient, Client>,
        project: &Path,
    ) -> Result<String, TalkError> {
        self.show.step("Hand a task to Codex")?;
        self.show.note(
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
    ) -> Result<(), TalkError> {
        self.show.step("Ask again in the same thread")?;
        self.show.note(
            "The stand-in for the model can quote the first turn only because Codex sends it \
             along.",
        )?;
        let arguments = json!({ "threadId": thread, "prompt": script::FOLLOW_UP });
        let answer = self.call(client, "codex-reply", arguments).await?;
        match script::remembers(&answer.content) {
            true => Ok(()),
            false => Err(TalkError::Forgotten(answer.content)),
        }
    }

    async fn call(
        &mut self,
        client: &RunningService<RoleClient, Client>,
        tool: &'static str,
        arguments: Value,
    ) -> Result<Answer, TalkError> {
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
            return Err(TalkError::Tool { tool, text });
        }
        Ok(Answer {
            thread: text("/threadId"),
            content: text("/content"),
        })
    }

    /// Waits for `work` and shows what passes meanwhile.
    async fn hear<T>(&mut self, work: impl Future<Output = T>) -> Result<T, TalkError> {
        let mut work = pin!(work);
        let mut patience = pin!(sleep(PATIENCE));
        let done = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(TalkError::Interrupted),
                Some(passed) = self.passed.recv() => self.show.message(&passed)?,
                done = &mut work => break done,
                () = &mut patience => return Err(TalkError::Silent),
            }
        };
        while let Ok(passed) = self.passed.try_recv() {
            self.show.message(&passed)?;
        }
        Ok(done)
    }
}
