//! `codex-mcp host`: the background process that serves several clients, and the verbs that show,
//! restart and end it.

mod http;
mod tasks;
mod verbs;
mod watch;

use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use codex_engine::command::SessionInfo;
use codex_engine::logic::session::State;
use codex_engine::{AdoptionError, AppServers, Handover, Predecessor, SharedSession};
use common::duration;
use common::output;
use futures::Stream;
use futures::future::join_all;
use host_process::connect::{ConnectError, READY, TAKEN};
use host_process::endpoint::{HostEndpoint, HostLock, HostRemains};
use host_process::leftovers;
use host_process::listener::{self, Client, HostEnd, HostService, Restart};
use host_process::logic::handshake::{
    Answer, MOST_QUESTIONS, ModelUsage, ServeRequest, SessionAnswer, SessionRequest,
    SessionSummary, StepSummary, WatchRequest,
};
use mcp_server::SessionTasks;
use safe_files::own_log::OwnLog;
use serde_json::Value;
use settings::{Config, Flags, RetentionSettings};
use supervise::adoptable;
use tokio::net::UnixStream;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::backend::Backend;
use super::serve::{self, ClientEnd, ClientSetup, HostEndpointError, Shared, SharedIdentities};
use super::shutdown::{self, Shutdown};
use super::stored::complain;
use super::{log, runtime, work};

/// The time for which a host stays without a client.
const IDLE: &str = "10m";

/// The time limit for taking over the app-servers of an earlier host. Meanwhile clients wait, for
/// at most 20 s.
const ADOPTION_LIMIT: Duration = Duration::from_secs(10);

/// The time limit for storing the results of the tasks when the host ends.
const STORING_LIMIT: Duration = Duration::from_secs(2);

/// The time for which an app-server stays without a client and without work, and the interval
/// between two checks of it.
const UNUSED: Duration = Duration::from_secs(600);
const LOOK_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show the running hosts. The default.
    Status(StatusArgs),
    /// End the running hosts and their work.
    Stop,
    /// Replace the running hosts without ending their turns.
    ///
    /// On Linux, with Codex 0.130 or newer, the next host takes over the Codex of the last one. Where
    /// that is impossible, a host with running turns stays, and one without them ends: the next
    /// message of a client starts another one.
    Restart,
    /// Run a host for clients with this environment. Clients start it themselves.
    #[command(hide = true)]
    Run(RunArgs),
}

#[derive(Debug, Default, clap::Args)]
struct StatusArgs {
    /// Print JSON: a list of objects.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// How long to keep running without a client.
    #[arg(long, value_name = "TIME", default_value = IDLE, value_parser = duration::parse)]
    idle: Duration,
}

/// The reason why a host could not work, or did not answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Endpoint(#[from] HostEndpointError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot use the directory of the host processes: {0}")]
    Directory(io::Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot write to stdout: {0}")]
    Write(io::Error),
}

pub(super) fn run(args: &Args) -> ExitCode {
    let done = match &args.verb {
        None => verbs::status(&StatusArgs::default()),
        Some(Verb::Status(args)) => verbs::status(args),
        Some(Verb::Stop) => verbs::stop(),
        Some(Verb::Restart) => verbs::restart(),
        Some(Verb::Run(args)) => return host(args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            complain("error", &error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn host(args: &RunArgs) -> ExitCode {
    log::start();
    match serve_clients(args.idle) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error}");
            // If nobody reads the announcement, the log has the error.
            let _ = announce(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn serve_clients(idle: Duration) -> Result<ExitCode, Failure> {
    let endpoint = serve::endpoint()?;
    let Some(lock) = endpoint.take().map_err(Failure::Directory)? else {
        announce(TAKEN).map_err(Failure::Write)?;
        return Ok(ExitCode::SUCCESS);
    };
    let (http, retention) = match user_settings() {
        Some(config) => (config.http, config.retention),
        None => (None, RetentionSettings::default()),
    };
    let log = OwnLog::on_stderr(endpoint.log(), retention.log_bytes.value);
    let lock = Rc::new(lock);
    // The system releases the lock when this process ends: no other host gets it while this one
    // runs.
    let _held = ManuallyDrop::new(Rc::clone(&lock));
    let serving = async {
        let shutdown = Shutdown::on_signals(shutdown::SERVER_LIMIT);
        let (closing, hurry) = (shutdown.closing.clone(), shutdown.hurry.clone());
        let end = ClientEnd {
            closing: closing.clone(),
            ended: closing.clone(),
            hurry,
        };
        // This process listens only later, so what is there is left of the last host.
        let predecessor = match endpoint.remains() {
            HostRemains::Nothing => Predecessor::Ended,
            HostRemains::Socket | HostRemains::AppServers => Predecessor::Killed,
        };
        let near = endpoint.clone();
        let app_servers = AppServers::adoptable(predecessor, move || near.new_adoption_socket());
        let app_servers = Rc::new(app_servers);
        adopt(&endpoint, &app_servers).await;
        let tasks = tasks::of(&endpoint, retention.tasks.value)?;
        tasks.take_over(&app_servers).await;
        let service = Service {
            end,
            app_servers: Rc::clone(&app_servers),
            tasks: Arc::clone(&tasks),
            identities: Rc::default(),
        };
        spawn_background_tasks(&app_servers, log, closing.clone());
        if let Some(http) = http {
            spawn_http(http.value.0, serve::state()?, closing.clone());
        }
        let listening = lock.listen().map_err(Failure::Directory)?;
        announce(READY).map_err(Failure::Write)?;
        leftovers::remove(&endpoint, SystemTime::now());
        let end = listener::run(Rc::clone(&lock), listening, idle, closing, service)
            .await
            .map_err(Failure::Directory)?;
        if end == HostEnd::HandOver {
            app_servers.hand_over().await;
            leave_to_next_host(&endpoint, &lock);
        }
        app_servers.shut_down().await;
        if timeout(STORING_LIMIT, tasks.end()).await.is_err() {
            tracing::error!("some results could not be stored in time; their tasks count as lost");
        }
        Ok(shutdown.exit_code())
    };
    let all = LocalSet::new();
    runtime::block_on(all.run_until(serving)).map_err(Failure::Runtime)?
}

/// Ends this process. Clients and guards see the same as if it was killed, but the next host already
/// starts: no client may be there to start it.
fn leave_to_next_host(endpoint: &HostEndpoint, lock: &HostLock) -> ! {
    if let Err(error) = lock.release() {
        tracing::error!("cannot release the lock for the next host process: {error}");
    }
    match serve::start_next_host(endpoint) {
        Ok(()) => tracing::info!("the host exits: the next one takes over its work"),
        Err(error) => tracing::error!("the next message of a client starts a host: {error}"),
    }
    // Returning would drop the app-servers, which ends them.
    process::exit(0)
}

/// Spawns what runs beside the clients: ending unused app-servers, bounding the log, and, at `closing`,
/// making this host the last owner of its app-servers.
fn spawn_background_tasks(
    app_servers: &Rc<AppServers>,
    log: Option<OwnLog>,
    closing: CancellationToken,
) {
    tokio::task::spawn_local(end_unused(Rc::clone(app_servers)));
    tokio::task::spawn_local(log::bound(log));
    let owned = Rc::clone(app_servers);
    tokio::task::spawn_local(async move {
        closing.cancelled().await;
        // The user or a signal has ended the host: its app-servers must not continue if this
        // process is killed.
        owned.be_last_owner();
    });
}

/// Spawns a future that keeps the HTTP endpoint running at this address until `closing` is cancelled.
fn spawn_http(address: SocketAddr, state: PathBuf, closing: CancellationToken) {
    tokio::task::spawn_local(async move {
        closing
            .run_until_cancelled(http::keep(address, &state))
            .await;
    });
}

/// The settings of the user; `None` if they are wrong.
fn user_settings() -> Option<Config> {
    match settings::load(Flags::default()) {
        Ok(config) => Some(config),
        // Each client reports the error to its user.
        Err(error) => {
            tracing::warn!(
                "the HTTP endpoint is not started, and tasks and logs are kept as by default: {error}"
            );
            None
        }
    }
}

/// Takes over the app-servers of a host that was killed, all at the same time. The guard of an
/// app-server that cannot be taken over ends it.
async fn adopt(endpoint: &HostEndpoint, app_servers: &AppServers) {
    let left = match endpoint.left_app_servers() {
        Ok(left) => left,
        Err(error) => return tracing::error!("cannot look for running app-servers: {error}"),
    };
    let adopting = left.iter().map(|guard| async move {
        let adopted = timeout(ADOPTION_LIMIT, adopt_one(guard, app_servers)).await;
        if let Err(error) = adopted.unwrap_or(Err(AdoptFailure::TooSlow)) {
            tracing::error!("cannot take over a running app-server: {error}");
        }
    });
    join_all(adopting).await;
}

/// Why an app-server is not taken over.
#[derive(Debug, thiserror::Error)]
enum AdoptFailure {
    #[error("its guard does not hand it over: {0}")]
    Guard(#[from] io::Error),
    #[error(transparent)]
    AppServer(#[from] AdoptionError),
    #[error("it does not answer within {} s", ADOPTION_LIMIT.as_secs())]
    TooSlow,
}

async fn adopt_one(guard: &Path, app_servers: &AppServers) -> Result<(), AdoptFailure> {
    if let Some(adopted) = adoptable::adopt(guard).await? {
        app_servers.adopt(adopted).await?;
    }
    Ok(())
}

/// Ends app-servers that nobody has used for a while, such as those of a Codex that was updated
/// since.
async fn end_unused(app_servers: Rc<AppServers>) {
    loop {
        sleep(LOOK_AFTER).await;
        app_servers.end_unused(UNUSED).await;
    }
}

/// Prints the line for which the process that started this one waits. A closed pipe does not count
/// as an error.
fn announce(word: &str) -> io::Result<()> {
    let mut stdout = output::stdout();
    let line = word.lines().next().unwrap_or_default();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The service that this process offers to clients.
struct Service {
    end: ClientEnd,
    app_servers: Rc<AppServers>,
    tasks: Arc<SessionTasks>,
    identities: Rc<SharedIdentities>,
}

impl HostService for Service {
    fn serve(&self, request: ServeRequest, stream: UnixStream, client: Client) {
        let shared = Shared {
            app_servers: Rc::clone(&self.app_servers),
            tasks: Arc::clone(&self.tasks),
            identities: Rc::clone(&self.identities),
            client: request.client.clone(),
            identity_key: request.identity_key.clone(),
        };
        let serving = serve_client(request, stream, client, self.end.clone(), shared);
        tokio::task::spawn_local(serving);
    }

    fn sessions(&self) -> Vec<SessionSummary> {
        let sessions = self.app_servers.sessions();
        sessions.into_iter().map(summary).collect()
    }

    fn is_at_work(&self) -> bool {
        let sessions = self.app_servers.sessions();
        self.tasks.has_unfinished() || sessions.iter().any(|one| one.info.view.state.is_at_work())
    }

    async fn act(&self, request: SessionRequest) -> SessionAnswer {
        work::answer_of(&self.app_servers, request).await
    }

    async fn act_on_task(&self, request: Value) -> Value {
        tasks::answer_of(&self.tasks, request).await
    }

    async fn restart(&self) -> Restart {
        match self.app_servers.handover().await {
            Handover::Possible => Restart::HandOver,
            Handover::Needless => Restart::End,
            Handover::Harmful(turns) => Restart::Refuse { turns },
        }
    }

    fn watch(&self, request: WatchRequest) -> impl Stream<Item = Answer> {
        watch::answers(Rc::clone(&self.app_servers), request)
    }
}

fn summary(SharedSession { info, terms }: SharedSession) -> SessionSummary {
    let SessionInfo {
        session,
        thread,
        settings,
        view,
        title,
        questions,
        awaited,
        mut expiries,
        ..
    } = info;
    expiries.truncate(MOST_QUESTIONS);
    // They are open, although their texts are not known here yet.
    let state = match view.state {
        State::Running if !awaited.is_empty() => State::WaitingApproval,
        state => state,
    };
    let questions = awaited.into_iter().chain(questions).take(MOST_QUESTIONS);
    let questions = questions.map(|id| id.0).collect();
    let began = SystemTime::now().checked_sub(view.progress.took);
    let step = StepSummary {
        words: view.progress.words,
        since: began.unwrap_or(view.created),
    };
    let of_model = |(model, tokens)| ModelUsage { model, tokens };
    SessionSummary {
        session: session.to_string(),
        thread: thread.to_string(),
        title,
        state: state.as_ref().to_owned(),
        created: view.created,
        step: view.state.is_at_work().then_some(step),
        tokens: view
            .used
            .and_then(|used| u64::try_from(used.total_tokens).ok()),
        usage: view.sole_model.zip(view.used).map(of_model),
        questions,
        expiries,
        directory: settings.thread.cwd,
        bounds: terms,
    }
}

/// Serves a client until it has gone.
async fn serve_client(
    request: ServeRequest,
    mut stream: UnixStream,
    _client: Client,
    end: ClientEnd,
    shared: Shared,
) {
    let end = ClientEnd {
        closing: end.closing.child_token(),
        ..end
    };
    let Accepted { args, setup } = match accept(request, end, shared).await {
        Ok(accepted) => accepted,
        Err(why) => {
            let refused = listener::reply(&mut stream, &Answer::Refused { why }).await;
            if let Err(error) = refused {
                tracing::warn!("a client has gone before it was refused: {error}");
            }
            return;
        }
    };
    if let Err(error) = listener::reply(&mut stream, &Answer::Serving).await {
        tracing::warn!("a client has gone before it was served: {error}");
        return;
    }
    if let Err(error) = serve::serve_client(&args, setup, stream.into_split()).await {
        tracing::error!("{error}");
    }
}

/// A client that can be served.
struct Accepted {
    args: serve::Args,
    setup: ClientSetup,
}

/// Reads a client's request as the client's own process would, and in the client's directory.
async fn accept(request: ServeRequest, end: ClientEnd, shared: Shared) -> Result<Accepted, String> {
    let args = super::serve_args(&request.args).map_err(in_words)?;
    let config = settings::load_in(&request.directory, args.flags()).map_err(in_words)?;
    let backend = match serve::backend(&args, &config).map_err(in_words)? {
        backend @ Backend::AppServer => backend,
        Backend::McpServer(..) => return Err("a host process serves no mcp-server".to_owned()),
    };
    let defaults = serve::defaults(&config).await.map_err(in_words)?;
    let stdio = serde_json::from_value(request.stdio).map_err(in_words)?;
    let setup = ClientSetup {
        config,
        backend,
        defaults,
        stdio,
        shared: Some(shared),
        end,
    };
    Ok(Accepted { args, setup })
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
