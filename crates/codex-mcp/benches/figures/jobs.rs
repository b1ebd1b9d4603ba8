//! The job store on either database: 10,000 jobs that wait are claimed and finished by four
//! workers, 100,000 are listed, and 10,000 events of one job are stored. `worker` measures a real
//! worker.
//!
//! A worker is a thread with a store of its own, as a process would have, and runs
//! four jobs at once. PostgreSQL has its usual settings, and waits for the disk.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use job_queue::logic::{Ending, JobId, JobState};
use job_queue::store::{
    FinishedJob, JobFilter, JobStore, NewEvent, NewJob, Request, WriteOutcome, new_worker_id,
};
use settings::store_access::Access;
use sqlx::{Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testkit::postgres::{Durability, Postgres};

use crate::stats::Summary;
use crate::table::{Row, Target, Unit};
use crate::{block_on, worker};

/// The load that has a target.
pub(crate) const LOAD: Load = Load {
    waiting: 10_000,
    stored: 0,
    workers: 4,
    at_once: 4,
    finishes: true,
};

pub(crate) const LISTED: usize = 100_000;
const EVENTS: usize = 10_000;

/// Jobs per second.
const SQLITE: f64 = 2000.0;
const POSTGRES: f64 = 1000.0;

/// In seconds.
const LIST: f64 = 0.010;
const STORE_EVENTS: f64 = 0.5;

/// The working directory of all the jobs.
const DIRECTORY: &str = "/home/somebody/repository";

/// How often a list is asked for in a round, and how many events come at once.
pub(crate) const LOOKS: u32 = 20;
const BATCH: usize = 50;

/// The path or URL of a store.
pub(crate) type StoreUrl = String;

const LEASE: Duration = Duration::from_secs(30);

/// The jobs in a store, and those who take them.
pub(crate) struct Load {
    pub(crate) waiting: usize,
    /// Jobs that have ended before.
    pub(crate) stored: usize,
    pub(crate) workers: usize,
    /// The jobs that each worker has at once.
    pub(crate) at_once: usize,
    /// Whether a worker finishes the jobs that it has claimed.
    pub(crate) finishes: bool,
}

pub(crate) fn measure(rounds: u16) -> Vec<Row> {
    let server = Postgres::start(Durability::Synced);
    let directory = tempfile::tempdir_in(testkit::target_dir()).unwrap();
    let number = Cell::new(0);
    let next = || number.replace(number.get() + 1);
    let mut sqlite = || {
        let path = directory.path().join(format!("{}/jobs.db", next()));
        path.to_str().unwrap().to_owned()
    };
    let mut rows = of(&mut sqlite, rounds, NAMES[0], SQLITE);
    rows.extend(worker::measure(&sqlite(), rounds, WORKER_NAMES[0]));
    let mut postgres = || server.database(&format!("jobs{}", next()));
    rows.extend(of(&mut postgres, rounds, NAMES[1], POSTGRES));
    rows.extend(worker::measure(&postgres(), rounds, WORKER_NAMES[1]));
    rows
}

const NAMES: [[&str; 3]; 2] = [
    [
        "jobs claimed and finished, SQLite",
        "a list of 100,000 jobs, SQLite",
        "10,000 events of a job, SQLite",
    ],
    [
        "jobs claimed and finished, PostgreSQL",
        "a list of 100,000 jobs, PostgreSQL",
        "10,000 events of a job, PostgreSQL",
    ],
];

const WORKER_NAMES: [[&str; 2]; 2] = [
    [
        "from submitting a job to Codex, SQLite",
        "a job with 10,000 events, SQLite",
    ],
    [
        "from submitting a job to Codex, PostgreSQL",
        "a job with 10,000 events, PostgreSQL",
    ],
];

fn of(
    store_url: &mut dyn FnMut() -> StoreUrl,
    rounds: u16,
    names: [&'static str; 3],
    claims: f64,
) -> Vec<Row> {
    let row = |figure, unit, ours, target, note: String| Row {
        figure,
        unit,
        ours: Summary::of(ours),
        direct: None,
        target,
        notes: vec![note],
    };
    let claimed = (0..rounds).map(|_| claimed(&store_url(), &LOAD)).collect();
    let (listed, filtered) = listed(&store_url(), rounds);
    let stored = (0..rounds).map(|_| stored(&store_url())).collect();
    let Load {
        workers, at_once, ..
    } = LOAD;
    let workers = format!("{workers} workers, {at_once} jobs at once each; no job twice");
    let medians = filtered.into_iter().map(|of| Summary::of(of).median);
    let slowest = Unit::Seconds.show(medians.fold(0.0, f64::max));
    let filtered = format!("and {slowest} with the slowest filter by state, tool and directory");
    let batches = format!("{BATCH} at a time");
    vec![
        row(
            names[0],
            Unit::PerSecond,
            claimed,
            Target::AtLeast(claims),
            workers,
        ),
        row(
            names[1],
            Unit::Seconds,
            listed,
            Target::AtMost(LIST),
            filtered,
        ),
        row(
            names[2],
            Unit::Seconds,
            stored,
            Target::AtMost(STORE_EVENTS),
            batches,
        ),
    ]
}

/// Jobs per second.
pub(crate) fn claimed(store_url: &StoreUrl, load: &'static Load) -> f64 {
    filled(store_url, load.stored + load.waiting);
    end_oldest(store_url, load.stored);
    worked_off(store_url, load, async |store_url, number| {
        work(&store_url, load, number).await
    })
}

/// Jobs per second, taken by the threads of a load. No job may be taken twice.
pub(crate) fn worked_off<J: Eq + Hash + Send + 'static>(
    store_url: &StoreUrl,
    load: &'static Load,
    work: impl AsyncFn(StoreUrl, usize) -> Vec<J> + Copy + Send + 'static,
) -> f64 {
    let begin = Instant::now();
    let workers = (0..load.workers).map(|number| {
        let store_url = store_url.clone();
        thread::spawn(move || block_on(work(store_url, number)))
    });
    let workers: Vec<_> = workers.collect();
    let done: Vec<J> = workers
        .into_iter()
        .flat_map(|worker| worker.join().unwrap())
        .collect();
    let took = begin.elapsed().as_secs_f64();
    assert_eq!(done.len(), load.waiting);
    assert_eq!(done.iter().collect::<HashSet<_>>().len(), load.waiting);
    f64::from(u32::try_from(load.waiting).unwrap()) / took
}

/// Takes jobs until there are none, on a host of its own.
async fn work(store_url: &StoreUrl, load: &Load, number: usize) -> Vec<JobId> {
    let store = open(store_url).await;
    let (worker, host) = (new_worker_id(), format!("host{number}"));
    let one = async || {
        let mut done = Vec::new();
        while let Some(claimed) = store.claim(&worker, &host, LEASE).await.unwrap() {
            if load.finishes {
                let written = store.finish(&claimed.claim, &completed()).await.unwrap();
                assert_eq!(written, WriteOutcome::Done);
            }
            done.push(claimed.claim.job);
        }
        done
    };
    join_all((0..load.at_once).map(|_| one())).await.concat()
}

/// Ends the oldest jobs of a store that has just been filled.
fn end_oldest(store_url: &StoreUrl, jobs: usize) {
    let sql = format!(
        "UPDATE codex_jobs SET state = 'completed', completed_at = created_at \
         WHERE seq < (SELECT min(seq) FROM codex_jobs) + {jobs}"
    );
    if jobs > 0 {
        run(store_url, &sql);
    }
}

fn completed() -> FinishedJob {
    FinishedJob {
        ending: Ending::Completed,
        error: None,
        session_id: Some("01a1fc80-a9f5-7b73-ab58-0123456789ab".to_owned()),
        exchange_id: None,
        result: Some(serde_json::json!({"response": "Done."})),
    }
}

/// Seconds for the newest 20 of all jobs, and with each filter by state, tool and
/// directory.
pub(crate) fn listed(store_url: &StoreUrl, rounds: u16) -> (Vec<f64>, Vec<Vec<f64>>) {
    filled(store_url, LISTED);
    block_on(async {
        let store = open(store_url).await;
        let mut all = Vec::new();
        let mut filtered = vec![Vec::new(); 7];
        for _ in 0..u32::from(rounds) * LOOKS {
            all.push(look(&store, &filter(0)).await);
            for (number, times) in (1..).zip(&mut filtered) {
                times.push(look(&store, &filter(number)).await);
            }
        }
        (all, filtered)
    })
}

/// A filter by what the bits of a number say; all jobs fit.
fn filter(number: u8) -> JobFilter {
    JobFilter {
        status: (number & 1 != 0).then_some(JobState::Queued),
        tool_name: (number & 2 != 0).then(|| "call_codex".to_owned()),
        cwd: (number & 4 != 0).then(|| DIRECTORY.to_owned()),
    }
}

/// Seconds for one list.
async fn look(store: &JobStore, filter: &JobFilter) -> f64 {
    let begin = Instant::now();
    let found = store.list(filter, 20).await.unwrap();
    let took = begin.elapsed().as_secs_f64();
    assert_eq!((found.jobs.len(), found.total), (20, LISTED as u64));
    took
}

/// Seconds for the events of one job.
fn stored(store_url: &StoreUrl) -> f64 {
    filled(store_url, 1);
    block_on(async {
        let store = open(store_url).await;
        let claimed = store.claim(&new_worker_id(), "here", LEASE).await.unwrap();
        let claim = claimed.unwrap().claim;
        let event = NewEvent {
            kind: "item.completed".to_owned(),
            data: format!("{{\"text\":\"{}\"}}", "word ".repeat(60)),
        };
        let batch = vec![event; BATCH];
        let begin = Instant::now();
        for _ in 0..EVENTS / BATCH {
            store.append(&claim, &batch).await.unwrap();
        }
        begin.elapsed().as_secs_f64()
    })
}

/// Makes a store with so many jobs that wait. One is submitted; the others are
/// copies of it, as each would wait for the disk.
fn filled(store_url: &StoreUrl, jobs: usize) {
    block_on(async {
        let store = open(store_url).await;
        let request = Request::new("Say hello. ".repeat(20), DIRECTORY);
        store.submit(&NewJob::new(request)).await.unwrap();
    });
    let columns = "state, tool_name, task_name, agent_instance, created_at, retry, timeout_ms, \
                   tool_timeout_ms, expose_stream, fire_and_forget, continue_latest, cwd, images, \
                   prompt, owner, signer, signature, ended_signature";
    let copies = jobs - 1;
    let numbers = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {copies})"
    );
    let hex = match is_postgres(store_url) {
        false => "printf('%08x', i)",
        true => "lpad(to_hex(i), 8, '0')",
    };
    let sql = format!(
        "{numbers} INSERT INTO codex_jobs (id, {columns}) \
         SELECT {hex} || '-0000-4000-8000-000000000000', {columns} FROM codex_jobs, n \
         WHERE {copies} > 0"
    );
    run(store_url, &sql);
}

fn run(store_url: &StoreUrl, sql: &str) {
    block_on(async {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
        if is_postgres(store_url) {
            let mut connection = PgConnection::connect(store_url).await.unwrap();
            sql.execute(&mut connection).await.unwrap();
            // As its own tidying up does after a while.
            let tidy = sqlx::raw_sql("VACUUM ANALYZE codex_jobs");
            tidy.execute(&mut connection).await.unwrap();
        } else {
            let url = format!("sqlite://{store_url}");
            let mut connection = SqliteConnection::connect(&url).await.unwrap();
            sql.execute(&mut connection).await.unwrap();
        }
    });
}

pub(crate) fn is_postgres(store_url: &str) -> bool {
    store_url.starts_with("postgres:")
}

async fn open(store_url: &StoreUrl) -> JobStore {
    static STATE: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
    JobStore::open(&store_url.parse().unwrap(), &Access::of(STATE.path()))
        .await
        .unwrap()
}
