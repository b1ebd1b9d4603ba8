//! Gathers the state, all parts at once, each with a time limit.

use std::time::Duration;

use settings::{Config, ConfigError};
use tokio::time::timeout;

use super::state::{State, WorkState};
use crate::cli::setup::clients_set_up;
use crate::cli::work_list;
use crate::doctor::brief::{CodexState, brief};
use crate::installation::Installation;

/// How long a program of Codex may take. It takes some 20 ms, more from a cold disk.
const PROGRAM_LIMIT: Duration = Duration::from_secs(5);

/// How long hosts and the store of jobs may take together. They take some milliseconds.
const WORK_LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn gather(config: Result<Config, ConfigError>) -> State {
    let (codex, work) = match &config {
        Ok(config) => tokio::join!(brief(config, PROGRAM_LIMIT), work(config)),
        Err(error) => (
            CodexState::Unusable(error.to_string()),
            WorkState::Unknown("the settings cannot be used".to_owned()),
        ),
    };
    State {
        version: Installation::of_this_process().in_words(),
        codex,
        clients: clients_set_up(),
        work,
    }
}

async fn work(config: &Config) -> WorkState {
    match timeout(WORK_LIMIT, find_work(config)).await {
        Ok(Ok(known)) => known,
        Ok(Err(why)) => WorkState::Unknown(why),
        Err(_) => WorkState::Unknown("a host process or the job store does not answer".to_owned()),
    }
}

async fn find_work(config: &Config) -> Result<WorkState, String> {
    let mut silent = None;
    let sessions = work_list::sessions(&config.prices.prices(), |error| silent = Some(error)).await;
    let mut work = sessions.map_err(|error| error.to_string())?;
    if let Some(error) = silent {
        return Err(error.to_string());
    }
    let jobs = work_list::inspect_jobs(config).await;
    let jobs = jobs.map_err(|error| error.to_string())?;
    work.extend(jobs.work);
    Ok(WorkState::Known {
        work,
        more_jobs: jobs.more,
    })
}
