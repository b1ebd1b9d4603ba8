//! The board of all work, set up from the configuration.

use std::path::Path;
use std::sync::Arc;

use agent_team::Member;
use agent_team::logic::registry::Entry;
use futures::future::BoxFuture;
use job_queue::logic::{JobId, JobPrefix};
use settings::{Config, Flags};
use work_board::{Connect, Connections, JobBoard, MailBoard, Program, ThreadRecord, WorkBoard};

use super::stored::StorageSettings;
use super::{jobs, serve, threads, work_list};

/// The board of this user. `state` is the state directory.
pub(super) fn of(config: &Config, state: &Path) -> WorkBoard {
    // What somebody begins here continues when the connection ends, so nothing is summed up then.
    let connections = Connections {
        classic: connector(config, &["serve", "--no-summaries"]),
        sessions: connector(config, &["serve", "--no-summaries", "--api", "sessions"]),
    };
    let member = Member {
        identity: config.identity.value.clone(),
        team: config.team.as_ref().map(|team| team.value.clone()),
    };
    let store = config.jobs.store.value.clone();
    let has_store = Box::new(move || work_list::has_store_at(&store));
    WorkBoard::new(
        state.to_owned(),
        JobBoard::new(jobs::service(config), has_store),
        MailBoard::new(member, config.atm_home.clone()),
        connections,
        Arc::new(Configured),
    )
}

/// Connects as a client with this command line, in the directory of this process.
fn connector(config: &Config, args: &[&str]) -> Arc<Connect> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let directory = config.directory.clone();
    Arc::new(move |host| {
        let connecting = serve::connect_as(args.clone(), directory.clone(), host);
        Box::pin(async move { connecting.await.map_err(|error| error.to_string()) })
    })
}

/// The program with its configuration, which is read anew for each call.
struct Configured;

impl Program for Configured {
    fn threads(&self) -> Result<Vec<ThreadRecord>, String> {
        let config = load()?;
        let storage = StorageSettings {
            atm_home: config.atm_home,
            registry_mode: config.registry_mode.value,
            jobs: Some((config.jobs, config.identity.value)),
        };
        let entries = threads::recorded(&storage).map_err(|error| error.to_string())?;
        Ok(entries.into_iter().map(record).collect())
    }

    fn retry(&self, job: JobPrefix) -> BoxFuture<'static, Result<JobId, String>> {
        Box::pin(async move {
            let retried = jobs::retry(load()?, &job).await;
            retried.map_err(|error| error.to_string())
        })
    }
}

fn load() -> Result<Config, String> {
    settings::load(Flags::default()).map_err(|error| error.to_string())
}

fn record(entry: Entry) -> ThreadRecord {
    ThreadRecord {
        thread: entry.thread_id.to_string(),
        status: entry.status.as_str().to_owned(),
        last_active: entry.last_active,
        directory: entry.cwd,
        prompt: entry.prompt,
    }
}
