//! `codex-mcp host status`, `stop` and `restart`, which ask the running hosts. A host that restarts
//! starts the next one itself, in its own environment, and leaves its app-servers to it. If it has
//! none that can be taken over, it ends, and the next message of a client starts a host; if turns
//! would end with it, it stays. The next host of one that was killed is started.

use std::process::ExitCode;

use common::output;
use common::text::counted;
use futures::future::join_all;
use host_process::connect::{self, ConnectError, Restarted};
use host_process::logic::handshake::HostStatus;
use serde_json::{Value, json};

use super::{Failure, StatusArgs};
use crate::cli::stored::complain;
use crate::cli::times::took;
use crate::cli::{runtime, serve};

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
    fn new(answers: Vec<Result<T, ConnectError>>) -> Self {
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
        let is_new = serve::start_awaited_host().await?;
        endpoints.retain(|endpoint| !is_new || *endpoint != own);
        let answers = join_all(endpoints.iter().map(connect::restart)).await;
        Ok::<_, Failure>((usize::from(is_new), answers))
    };
    let (new, answers) = runtime::block_on(restarting).map_err(Failure::Runtime)??;
    let Answered { given, failures } = Answered::new(answers);
    let log = own.log();
    let logs = log.parent().unwrap_or(&log).display();
    let restarted =
        format!("restarted; if a Codex could not be taken over, a log in {logs} says why");
    let count = |how: Restarted| given.iter().filter(|restarted| **restarted == how).count();
    let done = [
        (new + count(Restarted::HandedOver), restarted.as_str()),
        (
            count(Restarted::Ended),
            "ended; the next message of a client starts another one",
        ),
    ];
    report(&done, failures)
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
