//! The threads of jobs, which are not in the registry of any server.

use std::collections::BTreeMap;
use std::path::Path;

use agent_team::logic::registry::{Entry, Settings, Status, TurnState};
use agent_team::logic::{AgentName, ThreadName};
use codex_config::trust::top_of;
use common::secrets::mask;
use common::text::one_line;
use job_queue::logic::JobState;
use job_queue::store::{JobStore, JobThread, Ownership, StoreError};
use serde_json::{Map, json};
use settings::JobSettings;

use crate::cli::runtime;
use crate::cli::stored::{StorageSettings, complain};

/// How many jobs are read, newest first.
const MOST: u32 = 500;

/// How much of a prompt is kept, in bytes.
const PROMPT: usize = 2000;

/// The threads of this user's jobs, each once. Prints a warning if the store cannot be read.
pub(in crate::cli) fn job_threads(storage: &StorageSettings) -> Vec<Entry> {
    let Some((settings, identity)) = &storage.jobs else {
        return Vec::new();
    };
    let read = runtime::block_on(read(settings));
    let jobs = match read {
        Ok(Ok(jobs)) => jobs,
        Ok(Err(error)) => {
            complain(
                "warning",
                &format!("the threads of jobs are left out: {error}"),
            );
            return Vec::new();
        }
        Err(error) => {
            complain(
                "warning",
                &format!("the threads of jobs are left out: {error}"),
            );
            return Vec::new();
        }
    };
    let ours = jobs
        .into_iter()
        .filter(|job| job.summary.owner.ownership == Ownership::Ours);
    let mut threads: BTreeMap<ThreadName, Entry> = BTreeMap::new();
    for entry in ours.filter_map(|job| entry(job, identity)) {
        match threads.get_mut(&entry.thread_id) {
            // Jobs come newest first: this one is an earlier job of the thread.
            Some(known) => {
                known.started_at = entry.started_at;
                known.prompt = entry.prompt;
                known.turns += 1;
            }
            None => {
                threads.insert(entry.thread_id.clone(), entry);
            }
        }
    }
    threads.into_values().collect()
}

async fn read(settings: &JobSettings) -> Result<Vec<JobThread>, StoreError> {
    if !JobStore::exists(&settings.store)? {
        return Ok(Vec::new());
    }
    let store = JobStore::open(&settings.store.value, &settings.access()).await?;
    store.with_threads(MOST).await
}

/// A job's thread as an entry of the registry. Threads of jobs have no summaries.
fn entry(job: JobThread, identity: &AgentName) -> Option<Entry> {
    let JobThread {
        summary,
        prompt,
        submitted_by,
    } = job;
    let submitter = submitted_by.and_then(|name| name.parse().ok());
    let top = top_of(Path::new(&summary.cwd));
    let name = top
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    Some(Entry {
        thread_id: summary.session_id?.parse().ok()?,
        identity: submitter.unwrap_or_else(|| identity.clone()),
        team: None,
        repo_root: Some(top.display().to_string()),
        repo_name: name,
        branch: None,
        cwd: Some(summary.cwd),
        started_at: summary.created_at,
        last_active: summary
            .completed_at
            .or(summary.started_at)
            .unwrap_or(summary.created_at),
        status: match summary.state.has_ended() {
            true => Status::Interrupted,
            false => Status::Active,
        },
        tag: None,
        role: None,
        backend: Some(summary.tool_name),
        turns: 1,
        prompt: Some(one_line(&mask(&prompt), PROMPT)),
        last_turn: Some(match summary.state {
            JobState::Queued | JobState::Running => TurnState::Running,
            JobState::Completed => TurnState::Completed,
            JobState::Cancelled => TurnState::Interrupted,
            JobState::Failed => TurnState::Failed,
        }),
        no_summary: None,
        settings: Settings::default(),
        rest: Map::from_iter([("job_id".to_owned(), json!(summary.id))]),
    })
}
