//! `codex-mcp web`: serves the page, the JSON interface and MCP over HTTP, and manages their links
//! and tokens.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use agent_team::ClaimError;
use common::duration::ago;
use common::output;
use common::timestamp::timestamp;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use safe_files::state_file::{self, FileError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use settings::listen_address::ListenAddress;
use settings::{Config, ConfigError};
use web::logic::access::{Credential, Kind, NewCredential, Scope, TokenName};
use web::logic::authority::{Authorities, Authority};
use web::{CredentialStore, Listener, StoreError};

use super::exit::COULD_NOT;
use super::serve::{self, HostEndpointError};
use super::shutdown::{self, Shutdown};
use super::stored::{complain, configuration, exit_code, partial_configuration};
use super::table::{self, Cell};
use super::{log, runtime, work_board};

/// The default address at which the endpoint listens.
const ADDRESS: ListenAddress =
    ListenAddress(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8377));

/// The file with the address of the running endpoint, in the state directory.
const RUNNING: &str = "web/running.json";

/// The file that the endpoint holds locked.
const LOCK: &str = "web/running.lock";

/// The longest such file, in bytes.
const LONGEST: u64 = 4096;

/// The most that is shown of the name of a token, in characters.
const NAME: usize = 64;

const MEANING: &str = "\
The page shows the work that needs a person, runs or has ended: sessions of all clients that a \
host process serves, jobs and runs. You can answer Codex's questions there, steer, and start \
sessions. MCP clients connect to ADDRESS/mcp, and programs read ADDRESS/api/work.

Without --listen, only this machine reaches the page. Everyone needs a credential: a browser \
opens the printed link, which can be used once within 10 minutes; a program sends `Authorization: \
Bearer TOKEN`. There is no TLS: for other machines, put a TLS proxy in front, and name it with \
--allow-host, or use a tunnel such as `ssh -L 8377:localhost:8377`.

Exit codes: 0 done; 3 it cannot be done, as stderr explains; 130 after Ctrl-C.";

#[derive(Debug, clap::Args)]
#[command(after_help = MEANING, args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,

    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, clap::Args)]
struct ServeArgs {
    /// The address and port on which to listen. Port 0, as in 127.0.0.1:0, selects a free
    /// port.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value_t = ADDRESS
    )]
    listen: ListenAddress,

    /// A further name under which browsers and clients address the endpoint, such as that of a
    /// proxy: HOST or HOST:PORT. Can be given several times.
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<Authority>,

    /// Print the address instead of a link. `codex-mcp web link` prints one later.
    #[arg(long)]
    no_link: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print a one-time link to the running endpoint.
    Link(LinkArgs),
    /// Create a token for a program, and print it: it is shown only once.
    Token(TokenArgs),
    /// List the tokens, and the browsers that are signed in.
    Tokens(TokensArgs),
    /// Revoke tokens, or sign browsers out.
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
struct LinkArgs {
    /// The browser may see everything, but change nothing.
    #[arg(long, alias = "look")]
    read_only: bool,
}

#[derive(Debug, clap::Args)]
struct TokenArgs {
    /// The purpose of the token, such as "phone": it is listed under this name.
    #[arg(value_name = "NAME")]
    name: TokenName,

    /// The program may see everything, but change nothing, and not use MCP.
    #[arg(long, alias = "look")]
    read_only: bool,
}

#[derive(Debug, clap::Args)]
struct TokensArgs {
    /// Print JSON: a list of objects.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true)]
struct RevokeArgs {
    /// The IDs, from `codex-mcp web tokens`. `--all` revokes all.
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// Revoke all tokens, browsers and links.
    #[arg(long)]
    all: bool,
}

/// The reason why a verb of `web` has not done its work.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Home(#[from] ClaimError),
    #[error(transparent)]
    Host(#[from] HostEndpointError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot listen at {address}: {error}; --listen ADDRESS:PORT chooses another one")]
    Listen {
        address: SocketAddr,
        error: io::Error,
    },
    #[error("the endpoint does not run; `codex-mcp web` starts it")]
    NotRunning,
    #[error(
        "the endpoint does not run: `http` is set, so a host process starts it as soon as an MCP client \
         starts. If a host runs (`codex-mcp host`), its log says what is wrong; `codex-mcp web` tries it here"
    )]
    NotStarted,
    #[error("the endpoint is starting or ending; try again in a moment")]
    NotReady,
    #[error("the endpoint runs already, at {}; `codex-mcp web link` prints a link", .0.address)]
    Running(Running),
    #[error("there is no credential {0:?}; `codex-mcp web tokens` lists them")]
    NoCredential(String),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(#[from] io::Error),
}

/// The endpoint that runs.
#[derive(Debug, Serialize, Deserialize)]
struct Running {
    address: SocketAddr,
    /// The first of the further names by which the endpoint is addressed.
    host: Option<String>,
    /// The host name of the page on this machine, which no other start of the endpoint has.
    page: String,
}

impl Running {
    /// The host and port by which a browser addresses it.
    fn authority(&self) -> String {
        let address = self.address;
        match &self.host {
            Some(host) if !address.ip().is_loopback() => host.clone(),
            None if !address.ip().is_loopback() && !address.ip().is_unspecified() => {
                address.to_string()
            }
            _ => format!("{}:{}", self.page, address.port()),
        }
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    let done = match &args.verb {
        None => serve(&args.serve),
        Some(Verb::Link(args)) => link(args),
        Some(Verb::Token(args)) => token(args),
        Some(Verb::Tokens(args)) => tokens(args),
        Some(Verb::Revoke(args)) => revoke(args),
    };
    exit_code(
        done,
        COULD_NOT,
        |error| matches!(error, Failure::Write(error) if error.kind() == io::ErrorKind::BrokenPipe),
    )
}

fn serve(args: &ServeArgs) -> Result<ExitCode, Failure> {
    log::start();
    let config = configuration::<Failure>()?;
    runtime::block_on(serve_until_shutdown(args, config)).map_err(Failure::Runtime)?
}

async fn serve_until_shutdown(args: &ServeArgs, config: Config) -> Result<ExitCode, Failure> {
    let shutdown = Shutdown::on_signals(shutdown::TOOL_LIMIT);
    let state = serve::state()?;
    let _lock = taken_lock(&state)?;
    let path = state.join(RUNNING);
    // An endpoint that was killed has left this file, and its port may now belong to another
    // program.
    state_file::remove(&path)?;
    CredentialStore::new(&state).revoke_all_but_tokens()?;
    let listener = listen(args.listen.0).await?;
    let address = listener.local_addr()?;
    if let Some(warning) = ListenAddress(address).warning() {
        complain("warning", &warning);
    }
    let page = web::new_page_host()?;
    let running = Running {
        address,
        host: args.allow_host.first().map(ToString::to_string),
        page: page.to_string(),
    };
    note_running(&path, &running)?;
    match args.no_link {
        true => output::answer(&format!("http://{}/", running.authority()))?,
        false => {
            show_link(&state, &running, Scope::Decide)?;
            complain("hint", "the page is served until Ctrl-C");
        }
    }
    let names = args.allow_host.iter().cloned().chain([page]).collect();
    let authorities = Authorities::new(address, names);
    let board = work_board::of(&config, &state);
    let closing = shutdown.closing.clone();
    let serving = web::serve(listener, (state, authorities), board, closing);
    let forgetting = async {
        // The file is removed as soon as the end begins: no link may be made for a port that is
        // given up while the last connections end.
        shutdown.closing.cancelled().await;
        state_file::remove(&path)
    };
    let ((), forgotten) = tokio::join!(serving, forgetting);
    forgotten?;
    Ok(shutdown.exit_code())
}

async fn listen(address: SocketAddr) -> Result<Listener, Failure> {
    let listening = Listener::bind(address).await;
    listening.map_err(|error| Failure::Listen { address, error })
}

fn note_running(path: &Path, running: &Running) -> Result<(), Failure> {
    state_file::replace(path, json!(running).to_string().as_bytes())?;
    Ok(())
}

/// The file that the endpoint holds locked while it runs.
fn endpoint_lock(state: &Path) -> Result<File, FileError> {
    let path = state.join(LOCK);
    if let Some(directory) = path.parent() {
        state_file::make_directory(directory)?;
    }
    state_file::open_to_lock(&path).map_err(state_file::about(&path))
}

/// The address at which the endpoint that holds the lock listens.
fn running(state: &Path) -> Result<Running, Failure> {
    let path = state.join(RUNNING);
    let file = state_file::open(&path)?.ok_or(Failure::NotReady)?;
    let bytes = state_file::read(&file, &path, LONGEST)?;
    serde_json::from_slice(&bytes).map_err(|_| Failure::NotReady)
}

/// Whether `codex-mcp web` serves this user, here or in another process.
pub(super) fn is_running(state: &Path) -> Result<bool, FileError> {
    // Several processes can check this at once, as only an endpoint refuses a shared lock.
    match endpoint_lock(state)?.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(state_file::about(&state.join(LOCK))(error)),
    }
}

/// Takes the endpoint's lock, unless another endpoint holds it.
fn taken_lock(state: &Path) -> Result<File, Failure> {
    let lock = endpoint_lock(state)?;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if is_running(state)? => {
                return Err(Failure::Running(running(state)?));
            }
            // Another process was only checking.
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(state_file::about(&state.join(LOCK))(error).into());
            }
        }
    }
}

fn link(args: &LinkArgs) -> Result<ExitCode, Failure> {
    let state = serve::state()?;
    if !is_running(&state)? {
        let config = partial_configuration::<Failure>()?;
        return Err(match config.http {
            Some(_) => Failure::NotStarted,
            None => Failure::NotRunning,
        });
    }
    let running = running(&state)?;
    show_link(&state, &running, scope(args.read_only))?;
    Ok(ExitCode::SUCCESS)
}

fn scope(read_only: bool) -> Scope {
    match read_only {
        true => Scope::Look,
        false => Scope::Decide,
    }
}

/// Makes a one-time link, and prints it; at a terminal also as a QR code, if other machines reach it.
fn show_link(state: &Path, running: &Running, scope: Scope) -> Result<(), Failure> {
    let address = running.address;
    let new = NewCredential {
        kind: Kind::Link,
        name: name("a link"),
        scope,
    };
    let store = CredentialStore::new(state);
    let (_, code) = store.add(new)?;
    if address.ip().is_unspecified() && running.host.is_none() {
        let note = "the link is for this machine; on others, put an address of it before the port";
        complain("hint", note);
    }
    let host = running.authority();
    let link = format!("http://{host}/login?code={}", code.reveal());
    let mut out = output::stdout();
    let is_for_others = match address.ip() {
        // The name in the link means the machine of whoever reads it.
        ip if ip.is_unspecified() => running.host.is_some(),
        ip => !ip.is_loopback(),
    };
    if output::stdout_is_terminal() && is_for_others {
        // A link is short enough for a code.
        if let Ok(code) = QrCode::new(&link) {
            let code = code.render::<Dense1x2>().quiet_zone(true).build();
            writeln!(out, "{code}")?;
        }
    }
    writeln!(out, "{link}")?;
    out.flush()?;
    complain("hint", "the link can be used once, within 10 minutes");
    Ok(())
}

fn token(args: &TokenArgs) -> Result<ExitCode, Failure> {
    let new = NewCredential {
        kind: Kind::Token,
        name: args.name.clone(),
        scope: scope(args.read_only),
    };
    let (id, token) = CredentialStore::new(&serve::state()?).add(new)?;
    let mut out = output::stdout();
    writeln!(out, "{}", token.reveal())?;
    out.flush()?;
    complain(
        "hint",
        &format!("it is not shown again; `codex-mcp web revoke {id}` takes it back"),
    );
    complain(
        "hint",
        "while no endpoint runs, another user of this machine can take its port, and is sent the token",
    );
    Ok(ExitCode::SUCCESS)
}

fn tokens(args: &TokensArgs) -> Result<ExitCode, Failure> {
    let credentials = CredentialStore::new(&serve::state()?).read()?;
    let now = SystemTime::now();
    let listed: Vec<&Credential> = credentials.listed(now).collect();
    match args.json {
        true => output::json(&listed.iter().map(|one| as_json(one)).collect::<Vec<_>>())?,
        false if listed.is_empty() => output::answer("there is no token, and no browser")?,
        false => {
            let mut out = output::stdout();
            table::write(HEADINGS, listed.iter().map(|one| cells(one, now)), &mut out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

const HEADINGS: [&str; 5] = ["ID", "KIND", "MAY", "AGE", "NAME"];

fn cells(one: &Credential, now: SystemTime) -> [Cell; 5] {
    let age = now.duration_since(one.created).unwrap_or_default();
    [
        Cell::plain(one.id.as_str()),
        Cell::plain(one.kind.as_ref()),
        Cell::plain(one.scope.as_ref()),
        Cell::plain(ago(age)),
        Cell::foreign(&one.name.to_string(), NAME),
    ]
}

fn as_json(one: &Credential) -> Value {
    json!({
        "id": one.id,
        "kind": one.kind,
        "may": one.scope,
        "name": one.name,
        "created_at": timestamp(one.created),
        "expires_at": one.expires.map(timestamp),
    })
}

fn revoke(args: &RevokeArgs) -> Result<ExitCode, Failure> {
    let store = CredentialStore::new(&serve::state()?);
    if args.all {
        let count = store.change(|all| all.revoke_all(SystemTime::now()))?;
        output::answer(&format!("{count} revoked"))?;
        return Ok(ExitCode::SUCCESS);
    }
    // All tokens are revoked before anything is printed, as printing fails if nobody reads the
    // output.
    let (revoked, unknown): (Vec<&String>, Vec<&String>) =
        store.change(|all| args.ids.iter().partition(|id| all.revoke(id)))?;
    for id in &unknown {
        complain("error", &Failure::NoCredential((*id).clone()).to_string());
    }
    let lines = revoked.iter().map(|id| format!("{id}: revoked\n"));
    match write!(output::stdout(), "{}", lines.collect::<String>()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ if unknown.is_empty() => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::from(COULD_NOT)),
    }
}

fn name(text: &str) -> TokenName {
    // It is one, as its test shows.
    text.parse().unwrap_or_else(|_| unreachable!())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_a_name() {
        assert_eq!(name("a link").to_string(), "a link");
    }
}
