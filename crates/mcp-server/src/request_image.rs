//! The tool `request_image`, with which Codex looks at pictures, and an MCP server that offers this
//! tool to a Codex that we do not run.
//!
//! A picture is delivered in one of two ways. For the wrapper, the request is put into the queue,
//! and Codex is told to wait. Otherwise the answer contains the picture itself: Codex shows the
//! model the pictures in a tool's answer, so it does not have to be restarted.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use codex_protocol::codex::{Release, ThreadId};
use image_request::fitted::{FittedPicture, fit};
use image_request::logic::contract::{SERVER, TOOL, acknowledgement};
use image_request::logic::path::PicturePath;
use image_request::logic::picture::BadPicture;
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
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::stdio_server::serve_until_closed;
use super::transport::LineTransport;
use crate::tools::schema::tool;

/// The most pictures that are decoded at once: each can take some 200 MB.
static DECODERS: Semaphore = Semaphore::const_new(2);

/// The delivery of a requested picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PictureDelivery {
    /// The answer is the picture.
    Inline,
    /// The request is put into the queue, for this wrapper or, if none is named, for any.
    Queued(Option<WrapperId>),
}

/// The MCP server with `request_image`.
#[derive(Debug, Clone)]
pub struct Eyes {
    /// The root below which pictures may be.
    pub root: ImageRoot,
    /// The delivery of pictures.
    pub delivery: PictureDelivery,
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
/// When the client does not begin as an MCP client does.
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
    serve_until_closed(eyes, transport, &closing).await
}

impl Eyes {
    /// Answers a call. Refusals are errors of the protocol, as the contract requires.
    async fn call(
        &self,
        arguments: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let refused = |why: String| ErrorData::invalid_params(why, None);
        let wrapper = match &self.delivery {
            PictureDelivery::Inline => {
                let shown = show(self.root.clone(), arguments, codex(context))
                    .await
                    .map_err(|error| internal_error(&error))?;
                let FittedPicture { bytes, kind } = shown.map_err(refused)?;
                let picture = ContentBlock::image(STANDARD.encode(bytes), kind.media_type());
                return Ok(CallToolResult::success(vec![picture]));
            }
            PictureDelivery::Queued(wrapper) => wrapper.clone(),
        };
        let path = requested_path(&self.root, arguments).map_err(refused)?;
        let (root, requested) = (self.root.clone(), path.clone());
        let checked = off_runtime::run(move || root.check(&requested))
            .await
            .map_err(|error| internal_error(&error))?;
        checked.map_err(|bad| refused(bad.to_string()))?;
        let acknowledged = acknowledgement(&path);
        let request = Request {
            ts: now(),
            path,
            thread: thread(&context.meta),
            wrapper,
        };
        let directory = self.root.directory().to_owned();
        let written = off_runtime::run(move || queue::append(&directory, &request))
            .await
            .map_err(|error| internal_error(&error))?;
        written.map_err(|error| {
            let message = format!("cannot record the request: {error}");
            ErrorData::internal_error(message, None)
        })?;
        Ok(CallToolResult::success(vec![ContentBlock::text(
            acknowledged,
        )]))
    }
}

/// The tool, for this delivery.
pub(super) fn describe(answer: &PictureDelivery) -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Relative to the working directory or to the top of the \
    repository, for example ./screens/error.png.",
            },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let description = match answer {
        PictureDelivery::Inline => {
            "Use to look at a picture in this repository: a .png, .jpg, .jpeg or .webp file. The \
answer is the picture."
        }
        PictureDelivery::Queued(_) => {
            "Use to ask for a picture in this repository: a .png, .jpg, .jpeg or .webp file. The \
answer says only that it was requested, and what to print; the picture comes after that."
        }
    };
    // The tool changes only our own queue. With these hints, Codex calls it without asking anybody.
    let hints = ToolAnnotations::new()
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(false);
    tool(TOOL, "Look at a Picture", description, input).with_annotations(hints)
}

/// The requested picture, as this Codex takes it, or the reason why it is refused, in words for
/// Codex.
pub(super) async fn show(
    root: ImageRoot,
    arguments: Value,
    codex: Option<Release>,
) -> Result<Result<FittedPicture, String>, OffRuntimeError> {
    // The semaphore is never closed.
    let turn = DECODERS.acquire().await.ok();
    // A file system that hangs keeps no turn.
    let read = off_runtime::run(move || {
        let path = requested_path(&root, arguments)?;
        let bytes = root.read(&path).map_err(|bad| bad.to_string())?;
        Ok::<_, String>((path, bytes))
    });
    let (path, bytes) = match read.await? {
        Ok(read) => read,
        Err(why) => return Ok(Err(why)),
    };
    in_turn(turn, move || {
        fit(bytes, path.kind(), codex).map_err(|why| BadPicture { path, why }.to_string())
    })
    .await
}

/// Runs a task that keeps its turn until it ends, also if nobody waits for it any more.
async fn in_turn<T: Send + 'static>(
    turn: Option<SemaphorePermit<'static>>,
    task: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OffRuntimeError> {
    off_runtime::run(move || {
        let _turn = turn;
        task()
    })
    .await
}

/// The requested path, or the reason why it is refused, in words for Codex.
fn requested_path(root: &ImageRoot, arguments: Value) -> Result<PicturePath, String> {
    let given = Arguments::deserialize(arguments).map_err(|error| error.to_string())?;
    root.path(given.path.as_str().unwrap_or_default())
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

/// The release of the Codex that a call comes from; `None` for another client.
fn codex(context: &RequestContext<RoleServer>) -> Option<Release> {
    let client = context.client_info()?;
    let is_codex = client.name.starts_with("codex");
    is_codex.then(|| Release::parse(&client.version)).flatten()
}

/// The thread that a call of Codex belongs to. Codex 0.153.4 and 0.169.0 name it, 0.104.0 does not.
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
            &self.delivery,
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use testkit::wait::wait_for;

    use super::*;

    #[tokio::test]
    async fn decoder_is_taken_until_its_thread_ends() {
        static ONE: Semaphore = Semaphore::const_new(1);
        let (begin, begun) = mpsc::channel();
        let (release, held) = mpsc::channel::<()>();
        let turn = ONE.acquire().await.ok();
        let call = tokio::spawn(in_turn(turn, move || {
            begin.send(()).unwrap();
            held.recv()
        }));
        wait_for("the thread", async || begun.try_recv().ok()).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        assert_eq!(ONE.available_permits(), 0);
        drop(release);
        let is_free = async || (ONE.available_permits() == 1).then_some(());
        wait_for("the end of the thread", is_free).await;
    }
}
