//! Finds the candidates, without changing anything. Candidates that cannot be found are left out
//! silently.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::time::SystemTime;

use agent_team::logic::TeamName;
use agent_team::registry;
use common::duration::ago;
use job_queue::logic::JobState;
use job_queue::store::{JobFilter, JobSummary};
use settings::store_location::Location;
use settings::{Config, Flags, PartialConfig};

use super::MOST;
use super::candidate::{Candidate, JobChoice};
use crate::cli::runtime;
use crate::cli::work_list::{self, Work};

/// The most ended jobs, and the most threads of jobs, that are offered: the newest ones.
const RECENT: u32 = 30;

/// Sessions, jobs and runs.
pub(super) fn work(choice: JobChoice) -> Vec<Candidate> {
    with_config(None, async |config| {
        let mut work = work_list::sessions(&config.prices.prices(), |_| ())
            .await
            .unwrap_or_default();
        if choice != JobChoice::Sessions {
            let jobs = work_list::inspect_jobs(config).await.unwrap_or_default();
            work.extend(jobs.work);
        }
        let mut found = chosen(work, choice);
        found.extend(ended_jobs(config, choice).await);
        found
    })
}

/// Jobs and runs of a store; `None` stands for the configured store.
pub(super) fn jobs(choice: JobChoice, store: Option<Location>) -> Vec<Candidate> {
    with_config(store, async |config| {
        let jobs = work_list::inspect_jobs(config).await.unwrap_or_default();
        let mut found = chosen(jobs.work, choice);
        found.extend(ended_jobs(config, choice).await);
        found
    })
}

/// Threads: those of the registries, and those of jobs.
pub(super) fn threads() -> Vec<Candidate> {
    with_config(None, async |config| {
        let mut found: Vec<(SystemTime, Candidate)> = Vec::new();
        let registries = registry::all(&config.atm_home).into_iter().flatten();
        for threads in registries.filter_map(|(_, threads)| threads.ok()) {
            found.extend(threads.entries().map(|entry| {
                let about = entry.prompt.as_deref().unwrap_or_default();
                let id = entry.thread_id.to_string();
                thread(entry.last_active, id, entry.repo_name.as_deref(), about)
            }));
        }
        found.extend(job_threads(config).await);
        found.sort_by_key(|(last_active, _)| Reverse(*last_active));
        // A thread of a job can be in a registry too.
        let mut known = BTreeSet::new();
        found.retain(|(_, thread)| known.insert(thread.value.clone()));
        found.into_iter().map(|(_, thread)| thread).collect()
    })
}

/// Teams: the directories of Claude Code's teams.
pub(super) fn teams() -> Vec<Candidate> {
    let directory = settings::atm_home().join(".claude/teams");
    if directory.is_relative() {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let teams = names.filter(|name| name.parse::<TeamName>().is_ok());
    sorted(teams.take(MOST))
}

/// Identities under which servers have recorded threads.
pub(super) fn identities() -> Vec<Candidate> {
    let home = settings::atm_home();
    let all = registry::all(&home).into_iter().flatten();
    sorted(all.take(MOST).map(|(identity, _)| identity.to_string()))
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<Candidate> {
    let mut names: Vec<String> = names.collect();
    names.sort();
    let names = names.into_iter();
    names.map(|name| Candidate::new(name, "")).collect()
}

/// Finds candidates with the configuration. If the state directory is unknown, there are none: a
/// relative path would lead to the current directory, which may be a stranger's.
fn with_config(
    store: Option<Location>,
    find: impl AsyncFnOnce(&Config) -> Vec<Candidate>,
) -> Vec<Candidate> {
    let flags = Flags {
        store,
        ..Flags::default()
    };
    let Ok(PartialConfig { config, .. }) = settings::load_partial(&flags) else {
        return Vec::new();
    };
    if config.jobs.state.is_relative() || config.atm_home.is_relative() {
        return Vec::new();
    }
    runtime::block_on(find(&config)).unwrap_or_default()
}

/// The chosen work, the newest first.
fn chosen(mut work: Vec<Work>, choice: JobChoice) -> Vec<Candidate> {
    work.sort_by_key(|one| Reverse(one.created_at));
    let chosen = work.iter().filter(|work| choice.has(work));
    chosen.map(Candidate::of_work).collect()
}

/// Jobs that have ended, if they are among the choice.
async fn ended_jobs(config: &Config, choice: JobChoice) -> Vec<Candidate> {
    if choice != JobChoice::All {
        return Vec::new();
    }
    let Ok(store) = work_list::inspect_store(config).await else {
        return Vec::new();
    };
    let mut ended: Vec<JobSummary> = Vec::new();
    for state in JobState::ALL.iter().filter(|state| state.has_ended()) {
        let filter = JobFilter {
            status: Some(*state),
            ..JobFilter::default()
        };
        let listed = store.list(&filter, RECENT).await;
        ended.extend(listed.map(|listed| listed.jobs).unwrap_or_default());
    }
    ended.sort_by_key(|job| Reverse(job.created_at));
    let now = SystemTime::now();
    let jobs = ended.into_iter().map(|job| {
        let age = now.duration_since(job.created_at).unwrap_or_default();
        let state = job.state.as_str();
        let about = format!("{state}, {}: {}", ago(age), job.task_name);
        Candidate::new(job.id.as_str(), &about)
    });
    jobs.collect()
}

async fn job_threads(config: &Config) -> Vec<(SystemTime, Candidate)> {
    let Ok(store) = work_list::inspect_store(config).await else {
        return Vec::new();
    };
    let jobs = store.with_threads(RECENT).await.unwrap_or_default();
    let threads = jobs.into_iter().filter_map(|job| {
        let id = job.summary.session_id?;
        Some(thread(job.summary.created_at, id, None, &job.prompt))
    });
    threads.collect()
}

fn thread(
    last_active: SystemTime,
    id: String,
    repository: Option<&str>,
    about: &str,
) -> (SystemTime, Candidate) {
    let description = match repository {
        Some(repository) => format!("{repository}: {about}"),
        None => about.to_owned(),
    };
    (last_active, Candidate::new(id, &description))
}
