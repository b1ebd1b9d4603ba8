//! The board of all work, set up from the configuration.

use std::path::Path;
use std::sync::Arc;

use agent_team::Member;
use agent_team::logic::registry::Entry;
use futures::future::BoxFuture;
use goal_run::Caller;
use host_process::endpoint::HostRemains;
use host_process::logic::handshake::Door;
use job_queue::logic::JobPrefix;
use job_queue::service::JobsError;
use settings::{Config, Flags, PartialConfig};
use work_board::{
    Connect, Connections, Hosts, JobBoard, MailBoard, Program, Resubmitted, RetryError,
    StartAwaited, ThreadRecord, WorkBoard,
};

use super::jobs::Failure;
use super::stored::StorageSettings;
use super::{jobs, serve, threads};

/// The board of this user. `state` is the state directory.
pub(super) fn of(config: &Config, state: &Path) -> WorkBoard {
    // Work that a person begins here continues when the connection ends, so no summary is needed
    // then.
    let connections = Connections {
        classic: connector(config, &["serve", "--no-summaries"]),
        sessions: connector(config, &["serve", "--no-summaries", "--api", "sessions"]),
        probe: connector(
            config,
            &["serve", "--no-summaries", "--identity", "codex-web"],
        ),
        remains: Arc::new(|| serve::endpoint().map_or(HostRemains::Nothing, |ours| ours.remains())),
        start_awaited: host_starter(),
    };
    let member = Member {
        identity: config.identity.value.clone(),
        team: config.team.as_ref().map(|team| team.value.clone()),
    };
    WorkBoard::new(
        hosts(config, state),
        JobBoard::new(jobs::service(config)),
        MailBoard::new(
            member,
            config.atm_home.clone(),
            config.retention.audit_bytes.value,
        ),
        connections,
        Arc::new(Configured),
        config.prices.prices(),
    )
}

/// The hosts. If there are bounds, a session of a host for other environments may exceed them, and
/// so may a session of our own host that began under other bounds.
fn hosts(config: &Config, state: &Path) -> Hosts {
    let hosts = Hosts::new(state.to_owned());
    let bounds = config.bounds();
    match bounds.is_any() {
        // Without an endpoint, no host has sessions with these bounds.
        true => hosts.bounded_to(
            serve::endpoint().map_or_else(|_| String::new(), |ours| ours.key().to_owned()),
            serve::terms(&bounds),
        ),
        false => hosts,
    }
}

/// Connects as a client with this command line, in the directory of this process.
fn connector(config: &Config, args: &[&str]) -> Arc<Connect> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let directory = config.directory.clone();
    Arc::new(move |options| {
        let connecting = serve::connect_as(args.clone(), directory.clone(), options);
        Box::pin(async move { connecting.await.map_err(|error| error.to_string()) })
    })
}

fn host_starter() -> Arc<StartAwaited> {
    Arc::new(|| {
        Box::pin(async {
            let started = serve::start_awaited_host().await;
            started.map_err(|error| error.to_string())
        })
    })
}

/// The program with its configuration, which is read again for each call.
struct Configured;

impl Program for Configured {
    fn threads(&self) -> Result<Vec<ThreadRecord>, String> {
        let loaded = settings::load_partial(&Flags::default());
        let PartialConfig { config, .. } = loaded.map_err(|error| error.to_string())?;
        let storage = StorageSettings {
            atm_home: config.atm_home,
            registry_mode: config.registry_mode.value,
            jobs: Some((config.jobs, config.identity.value)),
        };
        let entries = threads::recorded(&storage).map_err(|error| error.to_string())?;
        Ok(entries.into_iter().map(record).collect())
    }

    fn retry(
        &self,
        job: JobPrefix,
        door: Door,
    ) -> BoxFuture<'static, Result<Resubmitted, RetryError>> {
        let caller = match door {
            Door::Terminal => Caller::Shell,
            Door::Page => Caller::Page,
        };
        Box::pin(async move {
            let config = settings::load(Flags::default());
            let config = config.map_err(|error| RetryError::Failed(error.to_string()))?;
            let again = jobs::retry(config, &job, caller).await;
            again.map_err(retry_error)
        })
    }

    fn missing_login(&self) -> BoxFuture<'static, Option<String>> {
        Box::pin(async {
            let config = settings::load(Flags::default()).ok()?;
            jobs::missing_login(&config).await
        })
    }
}

fn retry_error(failure: Failure) -> RetryError {
    match failure {
        Failure::NotFound(_) | Failure::Jobs(JobsError::NotFound(_)) => RetryError::Unknown,
        Failure::Store(_)
        | Failure::Jobs(JobsError::Store(_) | JobsError::SubmissionUnclear { .. }) => {
            RetryError::Failed(failure.to_string())
        }
        _ => RetryError::Refused(failure.to_string()),
    }
}

fn record(entry: Entry) -> ThreadRecord {
    ThreadRecord {
        thread: entry.thread_id.to_string(),
        status: entry.status.shown().to_owned(),
        last_turn: entry.last_turn.map(|turn| turn.as_str().to_owned()),
        session: None,
        last_active: entry.last_active,
        directory: entry.cwd,
        prompt: entry.prompt,
    }
}
