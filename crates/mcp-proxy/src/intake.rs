//! Reads the messages of the client and the child, and gives them to the router.

use std::sync::Arc;

use codex_engine::EngineError;
use codex_protocol::lines::{Frame, LineDecoder};
use codex_protocol::rpc::{Message, TruncatedMessage, code};
use common::sync::lock;
use mcp_server::code::Code;
use mcp_server::error::ToolError;
use mcp_server::incoming::{check_values, id_of, too_long, unreadable};
use safe_files::off_runtime;
use tokio::io::AsyncRead;

use crate::augment::{self, AugmentedCall};
use crate::logic::{Child, ChildQueue, Effect, Failure};
use crate::members::Members;
use crate::proxy::{ANSWER_EXPANSION, Proxy};
use crate::{answers, wire};

/// The side from which a message comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Child,
}

/// The answer to a call that is refused before it reaches the router.
fn refusal(message: &Message<'_>, error: impl Into<ToolError>) -> Vec<Effect> {
    let Message::Request { id, .. } = message else {
        return Vec::new();
    };
    let result = error.into().into_result();
    vec![Effect::ToClient(answers::tool_result(id, &result))]
}

/// Checks that a message of the client may be parsed, and that every reader gets the same
/// values.
fn check(line: &[u8], message: &Message<'_>) -> Result<(), String> {
    check_values(line)?;
    let members = wire::check_members(message);
    members.map_err(|error| format!("the parameters are not passed on: {error}"))
}

/// Checks that the parameters and the arguments of a tool call are objects. Codex 0.66.0 reads an
/// array as an object with its members in the order of Codex's own struct (0.104.0 no longer does),
/// so a bound that looks for a member by its name would miss it.
fn check_call(message: &Message<'_>) -> Result<(), ToolError> {
    let Some(params) = wire::call_params(message) else {
        return Ok(());
    };
    let params = object("params", params.get())?;
    match params.get("arguments") {
        Some(arguments) if arguments != "null" => object("arguments", arguments).map(drop),
        _ => Ok(()),
    }
}

/// The members of an object; `name` names it in the error.
fn object<'a>(name: &str, json: &'a str) -> Result<Members<'a>, ToolError> {
    serde_json::from_str(json).map_err(|_| {
        let message = format!("{name} of tools/call must be an object");
        ToolError::new(Code::InvalidArgument, message)
    })
}

impl Proxy {
    /// Gives the messages of one side to the router until the side ends.
    pub(super) async fn read(self: &Arc<Self>, side: Side, mut reader: impl AsyncRead + Unpin) {
        let mut decoder = match side {
            Side::Client => LineDecoder::with_headers(self.client_limit),
            Side::Child => LineDecoder::new(self.child_limit),
        };
        loop {
            let more = wire::read(&mut reader, &mut decoder).await;
            let ended = matches!(more, Ok(wire::Input::Ended));
            while let Some(frame) = decoder.next_frame() {
                let effects = match (side, frame) {
                    // The child's end has cut this message off: its request fails because the child
                    // is gone.
                    (Side::Child, Frame::Line(line)) if ended && Message::read(line).is_err() => {
                        Vec::new()
                    }
                    (Side::Client, Frame::Line(line)) => self.take_from_client(line).await,
                    (Side::Child, Frame::Line(line)) => self.take_from_child(line),
                    (Side::Client, Frame::TooLong { length, head }) => {
                        self.refuse_long(length, head)
                    }
                    (Side::Child, Frame::TooLong { length, head }) => self.skip_long(length, head),
                };
                if side == Side::Client {
                    *lock(&self.framing) = decoder.framing();
                }
                self.perform(effects);
                if side == Side::Child {
                    self.to_client.wait_until_low().await;
                }
            }
            match more {
                Ok(wire::Input::Open) => {}
                Ok(wire::Input::Ended) => return,
                Err(error) => return tracing::warn!("reading from the {side:?} failed: {error}"),
            }
        }
    }

    /// Takes one message of the client.
    async fn take_from_client(&self, line: &[u8]) -> Vec<Effect> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Vec::new();
        }
        let message = match Message::read(line) {
            Ok(message) => message,
            Err(error) => {
                let (code, text) = unreadable(line, &error);
                return vec![Effect::ToClient(answers::refusal(None, code, &text, None))];
            }
        };
        if let Err(text) = check(line, &message) {
            return self.refuse(&message, &text);
        }
        if let Err(error) = check_call(&message) {
            return refusal(&message, error);
        }
        let augmented = match self.augment(line, &message).await {
            Ok(augmented) => augmented,
            Err(error) => return refusal(&message, error),
        };
        let checked = lock(&self.directories).check(&message, &self.augmenter.bounds);
        if let Err(error) = checked {
            return refusal(&message, error);
        }
        let (mut longer, mut thread_start) = (None, None);
        if let Some(call) = augmented {
            if let Some(warning) = call.warning {
                tracing::warn!("{warning}");
                self.warnings.push(warning);
            }
            (longer, thread_start) = (call.bytes, Some(call.thread_start));
        }
        let line = longer.as_deref().unwrap_or(line);
        lock(&self.directories).expect_start(thread_start.as_ref());
        self.recorder.expect_start(thread_start);
        let queue = self.child_queue();
        self.with_router(|router, now| router.from_client(line, &message, queue, now))
    }

    fn child_queue(&self) -> ChildQueue {
        match self.to_child.is_full() {
            true => ChildQueue::Full,
            false => ChildQueue::Open,
        }
    }

    /// Refuses a message: a request gets an error, an answer becomes an error for the child, and a
    /// notification is dropped.
    fn refuse(&self, message: &Message<'_>, text: &str) -> Vec<Effect> {
        let refusal = |id| answers::refusal(Some(id), code::INVALID_REQUEST, text, None);
        match message {
            Message::Request { id, .. } => vec![Effect::ToClient(refusal(id))],
            Message::Response { id, .. } => {
                let refusal = refusal(id);
                let line = refusal.trim_ascii();
                match Message::read(line) {
                    Ok(error) => self.with_router(|router, now| {
                        router.from_client(line, &error, self.child_queue(), now)
                    }),
                    Err(_) => Vec::new(),
                }
            }
            Message::Notification { method, .. } => {
                tracing::warn!("the notification {method} is dropped: {text}");
                Vec::new()
            }
        }
    }

    /// The additions to a call that begins a thread; `None` for any other message. The files of the
    /// thread's directory are read on another thread.
    async fn augment(
        &self,
        line: &[u8],
        message: &Message<'_>,
    ) -> Result<Option<AugmentedCall>, ToolError> {
        if !augment::begins_thread(message) {
            return Ok(None);
        }
        let (augmenter, line) = (Arc::clone(&self.augmenter), line.to_vec());
        let augmented = off_runtime::run(move || match Message::read(&line) {
            Ok(message) => augmenter.augment(&line, &message),
            Err(_) => Ok(None),
        });
        augmented.await.map_err(EngineError::from)?
    }

    /// Takes one message of the child.
    fn take_from_child(&self, line: &[u8]) -> Vec<Effect> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Vec::new();
        }
        match Message::read(line) {
            Ok(message) => self.with_router(|router, now| {
                let before = router.child().clone();
                let effects = router.from_child(line, &message, now);
                if before == Child::Starting && before != *router.child() {
                    tracing::info!("codex mcp-server is ready");
                }
                effects
            }),
            Err(error) => {
                wire::log_stray(line, &error);
                let why =
                    format!("codex mcp-server answered in a way that is not understood: {error}");
                self.fail_unreadable(line, Failure::Unreadable(why))
            }
        }
    }

    fn refuse_long(&self, length: u64, head: &[u8]) -> Vec<Effect> {
        let text = too_long(length, self.client_limit);
        let id = id_of(head);
        let refusal = answers::refusal(id.as_ref(), code::INVALID_REQUEST, &text, None);
        vec![Effect::ToClient(refusal)]
    }

    fn skip_long(&self, length: u64, head: &[u8]) -> Vec<Effect> {
        let why = format!(
            "codex mcp-server sent {length} bytes at once, over the limit of {}, which is \
             {ANSWER_EXPANSION} times `--max-line`",
            self.child_limit
        );
        tracing::warn!("{why}; it is dropped");
        self.fail_unreadable(head, Failure::TooLong(why))
    }

    /// Handles a message of the child that can't be read: fails the request that it answers, or
    /// answers the child's own request with an error.
    fn fail_unreadable(&self, line: &[u8], why: Failure) -> Vec<Effect> {
        match TruncatedMessage::guess(line) {
            Some(head) => self.with_router(|router, _| router.fail_unreadable(&head, why)),
            None => Vec::new(),
        }
    }
}
