//! `codex-mcp host status`, `stop` and `restart`, which ask the running hosts. A host that restarts
//! starts the next one itself, in its own environment, and leaves its app-servers to it. If it has
//! none that can be taken over, it ends, and the next message of a client starts a host; if turns
//! would end with it, it stays. The next host of one that was killed is started.

use std::collections::HashSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use codex_engine::logic::session::State;
use common::output;
use common::text::counted;
use futures::future::join_all;
use host_process::connect::{self, ConnectError, Restarted};
use host_process::endpoint::HostEndpoint;
use host_process::logic::handshake::HostStatus;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Failure, StatusArgs};
use crate::cli::stored::complain;
use crate::cli::times::took;
use crate::cli::{runtime, serve};

/// How long the lock of a killed host may stay taken (2 s): the system releases it when the last thread
/// of the process has ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two looks at a lock.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let endpoints = serve::all_endpoints()?;
    let asking = async { join_all(endpoints.iter().map(connect::status)).await };
    let answers = runtime::block_on(asking).map_err(Failure::Runtime)?;
    let Answered { given, failures } = Answered::new(answers);
    let found: Vec<HostStatus> = given.into_iter().flatten().collect();
    match args.json {
        true => output::json(&found.iter().map(as_json).collect::<Vec<_>>()),
        // A host that did not answer may still be running.
        false if found.is_empty() && failures > 0 => Ok(()),
        false => output::answer(&as_text(&found)),
    }
    .map_err(Failure::Write)?;
    Ok(exit_code(failures))
}

/// The answers of hosts.
struct Answered<T> {
    given: Vec<T>,
    /// The number of hosts that gave no answer.
    failures: usize,
}

impl<T> Answered<T> {
    /// Prints the errors of hosts that have not answered, and keeps the answers of the others.
    fn new<E: Display>(answers: Vec<Result<T, E>>) -> Self {
        let mut answered = Self {
            given: Vec::new(),
            failures: 0,
        };
        for answer in answers {
            match answer {
                Ok(answer) => answered.given.push(answer),
                Err(error) => {
                    complain("error", &error.to_string());
                    answered.failures += 1;
                }
            }
        }
        answered
    }
}

fn exit_code(failures: usize) -> ExitCode {
    match failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn as_json(status: &HostStatus) -> Value {
    json!({
        "pid": status.pid,
        "version": status.version,
        "uptime_secs": status.uptime.as_secs(),
        "clients": status.clients,
    })
}

fn as_text(found: &[HostStatus]) -> String {
    if found.is_empty() {
        return "no host process runs".to_owned();
    }
    let lines = found.iter().map(|status| {
        let HostStatus {
            pid,
            version,
            uptime,
            clients,
        } = status;
        let clients = counted(*clients, "client");
        format!(
            "process {pid}, version {version}: {clients}, up {}",
            took(*uptime)
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

pub(super) fn stop() -> Result<ExitCode, Failure> {
    let endpoints = serve::all_endpoints()?;
    let stopping = async { join_all(endpoints.iter().map(connect::stop)).await };
    let answers = runtime::block_on(stopping).map_err(Failure::Runtime)?;
    let Answered { given, failures } = Answered::new(answers);
    let ended = given.into_iter().filter(|has_ended| *has_ended).count();
    report(&[(ended, "ended")], failures)
}

pub(super) fn restart() -> Result<ExitCode, Failure> {
    let own = serve::endpoint()?;
    let mut endpoints = serve::all_endpoints()?;
    let restarting = async {
        // If the last host here was killed and no client is connected, nothing else starts the next one.
        let is_new = start_after_kill(&own).await?;
        endpoints.retain(|endpoint| !is_new || *endpoint != own);
        let answers = join_all(endpoints.iter().map(restart_one)).await;
        Ok::<_, Failure>((usize::from(is_new), answers))
    };
    let (new, answers) = runtime::block_on(restarting).map_err(Failure::Runtime)??;
    let Answered { given, failures } = Answered::new(answers);
    let count = |how: Restarted| given.iter().filter(|restarted| **restarted == how).count();
    let done = [
        (new + count(Restarted::HandedOver), "restarted"),
        (
            count(Restarted::Ended),
            "ended; the next message of a client starts another one",
        ),
    ];
    report(&done, failures)
}

/// Starts the next host if the last one was killed. Returns whether it did.
async fn start_after_kill(own: &HostEndpoint) -> Result<bool, Failure> {
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    loop {
        if serve::start_awaited_host().await? {
            return Ok(true);
        }
        let is_settled = match connect::status(own).await {
            Ok(None) => !own.is_between_hosts().await.unwrap_or_default(),
            // It is asked to restart next, and any error is reported then.
            Ok(Some(_)) | Err(_) => true,
        };
        if is_settled || Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(PAUSE).await;
    }
}

/// Why a host was not restarted.
#[derive(Debug, thiserror::Error)]
enum RestartError {
    #[error(
        "the host process of another environment was killed, and is not restarted: run `codex-mcp host \
         restart` in the environment of its clients, or send a message in one of them, within 30 s; else \
         its turns end; its log is {}",
        log.display()
    )]
    Killed { log: PathBuf },
    #[error(
        "a host process is starting or ending, and is not restarted: another `codex-mcp host restart` may \
         be under way; `codex-mcp host status` shows the host when it runs; its log is {}",
        log.display()
    )]
    Changing { log: PathBuf },
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Restarts a host, and warns of sessions that the next one does not have.
async fn restart_one(endpoint: &HostEndpoint) -> Result<Restarted, RestartError> {
    let before = open_sessions(endpoint).await;
    let restarted = match connect::restart(endpoint).await {
        Err(ConnectError::BetweenHosts) => return Err(between_hosts(endpoint).await),
        restarted => restarted?,
    };
    if restarted != Restarted::HandedOver {
        return Ok(restarted);
    }
    if let (Ok(before), Ok(after)) = (before, open_sessions(endpoint).await) {
        let missing = before.difference(&after).count();
        if missing > 0 {
            let warning = format!(
                "the next host process has not taken over {}: {} may say why; `codex-mcp threads` lists \
                 the threads",
                counted(missing, "session"),
                endpoint.log().display()
            );
            complain("warning", &warning);
        }
    }
    Ok(restarted)
}

/// The sessions of a host that were not ended by a person.
async fn open_sessions(endpoint: &HostEndpoint) -> Result<HashSet<String>, ConnectError> {
    let sessions = connect::sessions(endpoint).await?.into_iter();
    let cancelled: &str = State::Cancelled.as_ref();
    let open = sessions.filter(|one| one.state != cancelled);
    Ok(open.map(|one| one.session).collect())
}

async fn between_hosts(endpoint: &HostEndpoint) -> RestartError {
    let log = endpoint.log();
    match endpoint.awaits_host().await {
        Ok(true) => RestartError::Killed { log },
        Ok(false) | Err(_) => RestartError::Changing { log },
    }
}

/// Prints how many hosts have done what.
fn report(done: &[(usize, &str)], failures: usize) -> Result<ExitCode, Failure> {
    let lines = done.iter().filter_map(|(count, what)| match *count {
        0 => None,
        1 => Some(format!("the host process has {what}")),
        count => Some(format!("{count} host processes have {what}")),
    });
    let lines: Vec<String> = lines.collect();
    let text = match lines.is_empty() {
        // At least one host has not done it.
        true if failures > 0 => return Ok(exit_code(failures)),
        true => "no host process runs".to_owned(),
        false => lines.join("\n"),
    };
    output::answer(&text).map_err(Failure::Write)?;
    Ok(exit_code(failures))
}
