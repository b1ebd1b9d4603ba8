//! The model's answer to one request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gate::Gate;
use crate::patch::Patch;
use crate::request::Request;
use crate::shell::Shell;

/// One answer of the model: a text, tool calls, a failure, or several of these
/// one after the other.
///
/// An answer is one model response. After one with tool calls Codex runs the
/// tools and asks again, and the rule's next reply is used; one with nothing but
/// text ends the turn.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) steps: Vec<Step>,
}

/// Token counts to report at the end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read, the cached ones included.
    pub input: u64,
    /// Tokens read from the provider's cache.
    pub cached_input: u64,
    /// Tokens written, the reasoning included.
    pub output: u64,
    /// Tokens spent on reasoning.
    pub reasoning: u64,
}

impl Default for Usage {
    /// 100 tokens read, 10 written.
    fn default() -> Self {
        Self {
            input: 100,
            cached_input: 0,
            output: 10,
            reasoning: 0,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Pause(Pause),
    Text(Text),
    EndMessage,
    /// The ID of the next call.
    CallId(String),
    Call(Call),
    Usage(Usage),
    /// Ends the response with an error event inside a healthy stream.
    Break {
        code: String,
        message: String,
    },
    HangUp,
    Refuse {
        status: u16,
        body: String,
        headers: Vec<(&'static str, String)>,
    },
    With(Closure),
}

#[derive(Clone, Debug)]
pub(crate) enum Pause {
    For(Duration),
    At(Gate),
}

impl Pause {
    pub(crate) async fn pass(&self) {
        match self {
            Self::For(duration) => tokio::time::sleep(*duration).await,
            Self::At(gate) => gate.pass().await,
        }
    }
}

/// Deltas of a message: all `pieces` in order, and that `times` over.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) pieces: Arc<[String]>,
    pub(crate) times: usize,
    pub(crate) pace: Duration,
}

impl Text {
    /// The text of the delta with that index, counted from 0.
    pub(crate) fn piece(&self, index: usize) -> Option<&str> {
        let round = index.checked_div(self.pieces.len())?;
        if round >= self.times {
            return None;
        }
        let piece = self.pieces.get(index % self.pieces.len())?;
        Some(piece)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Call {
    Function {
        namespace: Option<String>,
        name: String,
        arguments: Value,
    },
    Freeform {
        name: String,
        input: String,
    },
    Mcp {
        server: String,
        tool: String,
        arguments: Value,
    },
    Shell(Shell),
    Patch(Patch),
}

#[derive(Clone)]
pub(crate) struct Closure(pub(crate) Arc<dyn Fn(&Request) -> Reply + Send + Sync>);

impl fmt::Debug for Closure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closure")
    }
}

impl Reply {
    /// A whole message.
    pub fn say(text: impl Into<String>) -> Self {
        Self::of([
            Step::Text(Text {
                pieces: [text.into()].into(),
                times: 1,
                pace: Duration::ZERO,
            }),
            Step::EndMessage,
        ])
    }

    /// A message streamed in the given pieces. It stays open: text that
    /// [follows](Self::then) belongs to the same message, also after a pause.
    pub fn stream<T: Into<String>>(pieces: impl IntoIterator<Item = T>) -> Self {
        Self::of([Step::Text(Text {
            pieces: pieces.into_iter().map(Into::into).collect(),
            times: 1,
            pace: Duration::ZERO,
        })])
    }

    /// A message streamed as `count` deltas of the same `piece`; like
    /// [`stream`](Self::stream) otherwise.
    pub fn deltas(count: usize, piece: impl Into<String>) -> Self {
        Self::of([Step::Text(Text {
            pieces: [piece.into()].into(),
            times: count,
            pace: Duration::ZERO,
        })])
    }

    /// Runs a shell command with the shell tool that the request offers.
    pub fn shell(command: impl Into<Shell>) -> Self {
        Self::calling(Call::Shell(command.into()))
    }

    /// Changes files: with the `apply_patch` tool if the request offers it, else
    /// with an `apply_patch` command in the shell, which Codex treats alike.
    pub fn patch(patch: impl Into<Patch>) -> Self {
        Self::calling(Call::Patch(patch.into()))
    }

    /// Calls a tool with JSON arguments.
    pub fn call(name: impl Into<String>, arguments: Value) -> Self {
        Self::calling(Call::Function {
            namespace: None,
            name: name.into(),
            arguments,
        })
    }

    /// Calls a tool inside a namespace.
    pub fn call_in(
        namespace: impl Into<String>,
        name: impl Into<String>,
        arguments: Value,
    ) -> Self {
        Self::calling(Call::Function {
            namespace: Some(namespace.into()),
            name: name.into(),
            arguments,
        })
    }

    /// Calls a tool that takes free text.
    pub fn call_freeform(name: impl Into<String>, input: impl Into<String>) -> Self {
        Self::calling(Call::Freeform {
            name: name.into(),
            input: input.into(),
        })
    }

    /// Calls `tool` of the MCP server that Codex knows as `server`, under the
    /// name by which this release offers it.
    pub fn mcp(server: impl Into<String>, tool: impl Into<String>, arguments: Value) -> Self {
        Self::calling(Call::Mcp {
            server: server.into(),
            tool: tool.into(),
            arguments,
        })
    }

    /// Answers with an HTTP status and a body instead of a stream. Codex tries
    /// again a few times on 5xx and gives up at once on most of 4xx. Pauses before
    /// it are kept, nothing else of the reply is sent.
    pub fn fail(status: u16, body: impl Into<String>) -> Self {
        Self::of([Step::Refuse {
            status,
            body: body.into(),
            headers: Vec::new(),
        }])
    }

    /// Refuses as OpenAI does when the usage limit of the account is reached, which is reset
    /// at this moment, in seconds since 1970.
    pub fn usage_limit(resets_at: u64) -> Self {
        Self::refused_at_limit(
            resets_at,
            vec![
                ("x-codex-primary-used-percent", "100".to_owned()),
                ("x-codex-primary-window-minutes", "300".to_owned()),
                ("x-codex-primary-reset-at", resets_at.to_string()),
            ],
        )
    }

    /// Refuses as OpenAI does when the usage limit of a single model is reached, which is
    /// reset at a time in seconds since 1970. The limit of the account is not reached.
    #[must_use]
    pub fn usage_limit_of_model(resets_at: u64) -> Self {
        Self::refused_at_limit(
            resets_at,
            vec![
                ("x-codex-active-limit", "codex_spark".to_owned()),
                ("x-codex-primary-used-percent", "42".to_owned()),
                ("x-codex-primary-window-minutes", "300".to_owned()),
                ("x-codex-spark-primary-used-percent", "100".to_owned()),
                ("x-codex-spark-primary-window-minutes", "300".to_owned()),
                ("x-codex-spark-primary-reset-at", resets_at.to_string()),
                ("x-codex-spark-limit-name", "GPT-Spark".to_owned()),
            ],
        )
    }

    fn refused_at_limit(resets_at: u64, headers: Vec<(&'static str, String)>) -> Self {
        let error = json!({ "type": "usage_limit_reached", "message": "The usage limit",
            "plan_type": "plus", "resets_at": resets_at });
        Self::of([Step::Refuse {
            status: 429,
            body: json!({ "error": error }).to_string(),
            headers,
        }])
    }

    /// Ends the response with a `response.failed` event, as the provider does
    /// for instance with the code `context_length_exceeded`.
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::of([Step::Break {
            code: code.into(),
            message: message.into(),
        }])
    }

    /// A reply that a function makes from the request.
    pub fn with(make: impl Fn(&Request) -> Self + Send + Sync + 'static) -> Self {
        Self::of([Step::With(Closure(Arc::new(make)))])
    }

    /// Several replies in one response, such as tool calls to run side by side.
    pub fn together(replies: impl IntoIterator<Item = Self>) -> Self {
        Self::of(replies.into_iter().flat_map(|reply| reply.steps))
    }

    /// This reply, and in the same response `next`.
    #[must_use]
    pub fn then(mut self, next: Self) -> Self {
        self.steps.extend(next.steps);
        self
    }

    /// Waits that long before this reply.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self::of([Step::Pause(Pause::For(wait))]).then(self)
    }

    /// Waits at `gate` before this reply.
    #[must_use]
    pub fn behind(self, gate: &Gate) -> Self {
        Self::of([Step::Pause(Pause::At(gate.clone()))]).then(self)
    }

    /// Waits that long between the deltas of each text of this reply.
    #[must_use]
    pub fn paced(mut self, pace: Duration) -> Self {
        for step in &mut self.steps {
            if let Step::Text(text) = step {
                text.pace = pace;
            }
        }
        self
    }

    /// Drops the connection after what this reply has sent so far, without the
    /// end of the response. Codex asks again, up to five times unless its
    /// `stream_max_retries` says otherwise, and gets this reply each time.
    #[must_use]
    pub fn hang_up(self) -> Self {
        self.then(Self::of([Step::HangUp]))
    }

    /// The token counts to report for this reply.
    #[must_use]
    pub fn using(self, usage: Usage) -> Self {
        self.then(Self::of([Step::Usage(usage)]))
    }

    /// Gives all tool calls of this reply the same ID, as a model can where the
    /// server takes over its IDs. Calls have different IDs otherwise.
    #[must_use]
    pub fn under_call_id(self, id: &str) -> Self {
        Self::of(self.steps.into_iter().flat_map(|step| {
            let is_call = matches!(step, Step::Call(_));
            let id = is_call.then(|| Step::CallId(id.to_owned()));
            id.into_iter().chain([step])
        }))
    }

    fn calling(call: Call) -> Self {
        Self::of([Step::Call(call)])
    }

    fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
        }
    }
}
