//! `request_image`, by which Codex looks at pictures, and an MCP server that has it: for
//! any Codex that is not ours.
//!
//! There are two answers. For the wrapper the request goes into the queue, and Codex is
//! told to wait. Otherwise the answer is the picture itself: Codex shows the model what
//! a tool brings, so that nothing has to be started again.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use codex_protocol::codex::{Release, ThreadId};
use image_request::fitted::Fitted;
use image_request::logic::contract::{SERVER, TOOL, acknowledgement};
use image_request::logic::path::PicturePath;
use image_request::logic::queue::{Request, WrapperId};
use image_request::{ImageRoot, queue};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, RequestMetaObject, ServerCapabilities, ServerConfig,
    Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use safe_files::off_runtime::{self, OffRuntimeError};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::own_server::until_gone;
use super::transport::LineTransport;
use crate::tools::definition::tool;

/// How many pictures are decoded at once: each can take some 200 MB.
static DECODERS: Semaphore = Semaphore::const_new(2);

/// What Codex gets for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The picture.
    Picture,
    /// That it will come: the request is put into the queue, for this wrapper or, if
    /// none is named, for any.
    Later(Option<WrapperId>),
}

/// The server.
#[derive(Debug, Clone)]
pub struct Eyes {
    /// Where pictures may be.
    pub place: ImageRoot,
    /// What Codex gets.
    pub answer: Answer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[serde(default)]
    path: Value,
}

/// Serves `request_image` until the client has gone, or `closing` is cancelled.
///
/// # Errors
///
/// When the client doesn't begin as an MCP client does.
pub async fn serve_eyes<R, W>(
    eyes: Eyes,
    (reader, writer): (R, W),
    line_limit: usize,
    closing: CancellationToken,
) -> Result<(), Box<ServerInitializeError>>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = LineTransport::new(reader, writer, line_limit, closing.clone());
    until_gone(eyes, transport, &closing).await
}

impl Eyes {
    /// The refusals are errors of the protocol, as the contract has them.
    async fn call(
        &self,
        arguments: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let refused = |why: String| ErrorData::invalid_params(why, None);
        let wrapper = match &self.answer {
            Answer::Picture => {
                let shown = show(self.place.clone(), arguments, codex(context))
                    .await
                    .map_err(|error| internal_error(&error))?;
                let Fitted { bytes, kind } = shown.map_err(refused)?;
                let picture = ContentBlock::image(STANDARD.encode(bytes), kind.media_type());
                return Ok(CallToolResult::success(vec![picture]));
            }
            Answer::Later(wrapper) => wrapper.clone(),
        };
        let path = asked(&self.place, arguments).map_err(refused)?;
        let (place, wanted) = (self.place.clone(), path.clone());
        let looked = off_runtime::run(move || place.look(&wanted))
            .await
            .map_err(|error| internal_error(&error))?;
        looked.map_err(|bad| refused(bad.to_string()))?;
        let acknowledged = acknowledgement(&path);
        let request = Request {
            ts: now(),
            path,
            thread: thread(&context.meta),
            wrapper,
        };
        let directory = self.place.directory().to_owned();
        let written = off_runtime::run(move || queue::append(&directory, &request))
            .await
            .map_err(|error| internal_error(&error))?;
        written.map_err(|error| {
            let message = format!("the request can't be written down: {error}");
            ErrorData::internal_error(message, None)
        })?;
        Ok(CallToolResult::success(vec![ContentBlock::text(
            acknowledged,
        )]))
    }
}

/// The tool, for this answer.
pub(super) fn describe(answer: &Answer) -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "From the working directory or the root of the repository on, \
    for example ./screens/error.png.",
            },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let description = match answer {
        Answer::Picture => {
            "Use to look at a picture in this repository: a .png, .jpg, .jpeg or .webp file. The \
answer is the picture."
        }
        Answer::Later(_) => {
            "Use to ask for a picture in this repository: a .png, .jpg, .jpeg or .webp file. The \
answer says only that it was requested, and what to print; the picture comes after that."
        }
    };
    // Nothing is changed but our own queue, and Codex asks nobody before such a tool.
    let hints = ToolAnnotations::new()
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(false);
    tool(TOOL, "Look at a Picture", description, input).with_annotations(hints)
}

/// The picture that is asked for, as this Codex takes it; else why not, in words for Codex.
pub(super) async fn show(
    place: ImageRoot,
    arguments: Value,
    codex: Option<Release>,
) -> Result<Result<Fitted, String>, OffRuntimeError> {
    // It is never closed.
    let _turn = DECODERS.acquire().await.ok();
    off_runtime::run(move || {
        let path = asked(&place, arguments)?;
        place.answer(&path, codex).map_err(|bad| bad.to_string())
    })
    .await
}

/// What is asked for; else why not, in words for Codex.
fn asked(place: &ImageRoot, arguments: Value) -> Result<PicturePath, String> {
    let given = Arguments::deserialize(arguments).map_err(|error| error.to_string())?;
    place.path(given.path.as_str().unwrap_or_default())
}

fn internal_error(error: &OffRuntimeError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Which Codex a call comes from; `None` if it comes from another client.
fn codex(context: &RequestContext<RoleServer>) -> Option<Release> {
    let client = context.client_info()?;
    let is_codex = client.name.starts_with("codex");
    is_codex.then(|| Release::parse(&client.version)).flatten()
}

/// The conversation that a call of Codex's belongs to. Codex 0.153.4 and 0.169.0 tell,
/// 0.104.0 doesn't.
fn thread(meta: &RequestMetaObject) -> Option<ThreadId> {
    let turn = meta.get("x-codex-turn-metadata")?;
    ThreadId::parse(turn.get("thread_id")?.as_str()?).ok()
}

impl ServerHandler for Eyes {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new(SERVER, env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![describe(
            &self.answer,
        )]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if call.name != TOOL {
            let message = format!("there is no tool {:?}; there is {TOOL}", call.name);
            return Err(ErrorData::invalid_params(message, None));
        }
        let arguments = Value::Object(call.arguments.unwrap_or_default());
        Ok(self.call(arguments, &context).await?.into())
    }
}
