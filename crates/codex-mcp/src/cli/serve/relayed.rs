//! A client that is served by the host process: its messages are passed on.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use codex_protocol::rpc::{ErrorObject, RequestId, code};
use host_process::connect::{self, ConnectError};
use host_process::endpoint::HostEndpoint;
use host_process::logic::conversation::{Repeatable, RequestKind};
use host_process::logic::environment;
use host_process::logic::handshake::ServeRequest;
use host_process::relay::{self, ClientSide, Hosts, RelayAnswers};
use mcp_server::Stdio;
use mcp_server::code::Code;
use mcp_server::error::ToolError;
use mcp_server::incoming::{id_of, too_long};
use mcp_server::{repeated_call, tools};
use rmcp::transport::stdio_pipes;
use safe_files::state_directory::state_directory;
use serde_json::{Value, json};
use settings::Config;
use supervise::spawn::{is_unknown_to_hosts, own_executable, umask};
use tokio::net::UnixStream;
use uuid::Uuid;
use work_board::ConnectOptions;

use super::{Args, ServeError};
use crate::cli::shutdown::Shutdown;

/// Why there is no host, or no endpoint for it.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum HostEndpointError {
    #[error("there is no directory for the host process: neither HOME nor XDG_STATE_HOME is set")]
    NoState,
    #[error("cannot identify this program: {0}")]
    NoProgram(io::Error),
    #[error("the command line or the working directory is not UTF-8, as a host process needs it")]
    NotText,
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot use the directory of the host processes: {0}")]
    Directory(io::Error),
}

/// A link to the host, and what is needed for another one.
pub(super) struct Link {
    stream: UnixStream,
    endpoint: HostEndpoint,
    request: ServeRequest,
}

/// The endpoint of the host for clients like this process: of this program, with this umask and
/// this environment.
pub(in crate::cli) fn endpoint() -> Result<HostEndpoint, HostEndpointError> {
    let state = state()?;
    let program = program().map_err(HostEndpointError::NoProgram)?;
    let variables = env::vars_os().filter(|(name, _)| !is_unknown_to_hosts(name));
    let key = environment::key(program.as_bytes(), &umask(), variables);
    Ok(HostEndpoint::new(&state, key))
}

/// The state directory.
pub(in crate::cli) fn state() -> Result<PathBuf, HostEndpointError> {
    state_directory(|name| env::var_os(name)).ok_or(HostEndpointError::NoState)
}

/// The endpoints of all hosts that have been started.
pub(in crate::cli) fn all_endpoints() -> Result<Vec<HostEndpoint>, HostEndpointError> {
    HostEndpoint::all(&state()?).map_err(HostEndpointError::Directory)
}

/// Identifies the build of this program by its file. Except on Linux, the file may be newer than
/// this process, and the next host is started from it; so our own version is not used.
fn program() -> io::Result<String> {
    let about = std::fs::metadata(own_executable()?)?;
    let (device, inode, length) = (about.dev(), about.ino(), about.len());
    let changed = (about.mtime(), about.mtime_nsec());
    Ok(format!("{device} {inode} {length} {changed:?}"))
}

/// The command line of a host.
fn host_args() -> [OsString; 2] {
    ["host", "run"].map(OsString::from)
}

/// Connects to a host, by default ours, as a client with this command line in this directory,
/// without a program between the two.
pub(in crate::cli) async fn connect_as(
    args: Vec<String>,
    directory: PathBuf,
    options: ConnectOptions,
) -> Result<UnixStream, HostEndpointError> {
    let ConnectOptions {
        host,
        client,
        identity_key,
        ..
    } = options;
    let request = request(args, directory, &Stdio::default())?;
    let request = ServeRequest {
        client: client.unwrap_or(request.client),
        identity_key,
        ..request
    };
    let endpoint = host.map_or_else(endpoint, Ok)?;
    Ok(connect::serve(&endpoint, &host_args(), &request).await?)
}

/// Starts the next host for clients like this process, if the last one was killed and app-servers wait
/// for the next. Returns whether one was started.
pub(in crate::cli) async fn start_awaited_host() -> Result<bool, HostEndpointError> {
    Ok(connect::start_awaited(&endpoint()?, &host_args()).await?)
}

/// Starts the next host of an endpoint, for the host there, which has released it and ends at once.
pub(in crate::cli) fn start_next_host(endpoint: &HostEndpoint) -> Result<(), ConnectError> {
    connect::start_next(endpoint, &host_args())
}

fn request(
    args: Vec<String>,
    directory: PathBuf,
    stdio: &Stdio,
) -> Result<ServeRequest, HostEndpointError> {
    Ok(ServeRequest {
        args,
        directory: text(directory.into_os_string())?.into(),
        stdio: json!(stdio),
        client: Uuid::new_v4().to_string(),
        identity_key: None,
    })
}

fn text(text: OsString) -> Result<String, HostEndpointError> {
    text.into_string().map_err(|_| HostEndpointError::NotText)
}

/// Connects to the host, which is started if there is none.
pub(super) async fn connect(config: &Config, stdio: &Stdio) -> Result<Link, HostEndpointError> {
    let args = env::args_os().skip(1).map(text);
    let args = args.collect::<Result<_, _>>()?;
    let request = request(args, config.directory.clone(), stdio)?;
    let endpoint = endpoint()?;
    let stream = connect::serve(&endpoint, &host_args(), &request).await?;
    Ok(Link {
        stream,
        endpoint,
        request,
    })
}

/// Passes messages on until the client has gone, or a signal has come.
pub(super) async fn run(args: &Args, link: Link, shutdown: &Shutdown) -> Result<(), ServeError> {
    let Link {
        stream,
        endpoint: first,
        request,
    } = link;
    let (reader, writer) = stdio_pipes();
    let client = ClientSide {
        reader,
        writer,
        line_limit: args.max_line,
    };
    let answers = ToolAnswers {
        line_limit: args.max_line,
    };
    let (again, request) = (&host_args(), &request);
    // The next host has another endpoint if its program is a newer one.
    let next = || endpoint().unwrap_or_else(|_| first.clone());
    let hosts = Hosts {
        connect: || {
            let endpoint = next();
            async move { connect::serve(&endpoint, again, request).await }
        },
        remains: || next().remains(),
    };
    let repeatable = Repeatable {
        tools: &tools::REPEATED,
        lasting: &tools::jobs::LASTING,
        mark: repeated_call::MARK,
    };
    let closing = shutdown.closing.clone();
    let relaying = relay::run(client, stream, hosts, repeatable, &answers, closing);
    tokio::select! {
        relayed = relaying => relayed.map_err(ServeError::Client),
        () = shutdown.hurry.cancelled() => Ok(()),
    }
}

/// The relay's own answers, as the server's tools word them.
struct ToolAnswers {
    line_limit: usize,
}

impl RelayAnswers for ToolAnswers {
    fn lost(&self, id: &RequestId, kind: RequestKind) -> Vec<u8> {
        let is_lasting = matches!(kind, RequestKind::LastingCall);
        failure(id, kind, tools::lost_call(is_lasting))
    }

    fn no_host(&self, id: &RequestId, kind: RequestKind, error: &ConnectError) -> Vec<u8> {
        failure(id, kind, ToolError::new(Code::HostLost, error.to_string()))
    }

    fn too_long(&self, length: u64, head: &[u8]) -> Vec<u8> {
        let message = too_long(length, self.line_limit);
        let error = error_object(code::INVALID_REQUEST, message);
        answer(id_of(head).as_ref(), Err(&error))
    }
}

/// A failed call: of a tool as a result, of anything else as an error.
fn failure(id: &RequestId, kind: RequestKind, error: ToolError) -> Vec<u8> {
    match kind {
        RequestKind::ToolCall | RequestKind::LastingCall => {
            let result = serde_json::to_value(error.into_result()).unwrap_or_default();
            answer(Some(id), Ok(&result))
        }
        RequestKind::Other => {
            let error = error_object(code::INTERNAL_ERROR, error.text());
            answer(Some(id), Err(&error))
        }
    }
}

fn error_object(code: i64, message: String) -> ErrorObject {
    ErrorObject {
        code,
        message,
        data: None,
    }
}

fn answer(id: Option<&RequestId>, outcome: Result<&Value, &ErrorObject>) -> Vec<u8> {
    let answer = match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    };
    answer.to_string().into_bytes()
}
