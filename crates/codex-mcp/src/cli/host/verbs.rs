//! `codex-mcp host status`, `stop` and `restart`, which ask the running hosts. A restart is a stop: the
//! next message of a client starts a host.

use std::process::ExitCode;

use common::output;
use common::text::counted;
use futures::future::join_all;
use host_process::connect::{self, ConnectError};
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
    let text = match given.into_iter().filter(|has_ended| *has_ended).count() {
        // At least one host has not ended.
        0 if failures > 0 => return Ok(exit_code(failures)),
        0 => "no host process runs".to_owned(),
        1 => "the host process has ended".to_owned(),
        count => format!("{count} host processes have ended"),
    };
    output::answer(&text).map_err(Failure::Write)?;
    Ok(exit_code(failures))
}
