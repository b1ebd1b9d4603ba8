//! Compares the counts of lists with the stored jobs.

use std::sync::Arc;

use super::conformance::{NONE, finished};
use super::sql::{Dialect, Value};
use super::*;
use crate::logic::{Ending, JobState};

const TOOLS: [&str; 3] = ["call_codex", "other", "third"];
const DIRECTORIES: [&str; 3] = ["/repo", "/repo/", "/a b"];

/// A job as its row has it.
struct ListedJob {
    id: String,
    state: JobState,
    tool: String,
    cwd: String,
}

async fn rows(store: &JobStore, sql: &str) -> Vec<sql::Row> {
    let look = async |connection: &mut Connection| connection.rows(sql, Vec::new()).await;
    reading!(store, look).unwrap()
}

pub(super) async fn number(store: &JobStore, sql: &str) -> i64 {
    let row = rows(store, sql).await.remove(0);
    row.number("n").unwrap().unwrap()
}

/// All jobs, newest first.
async fn all_jobs(store: &JobStore) -> Vec<ListedJob> {
    let sql = "SELECT id, state, tool_name, cwd FROM codex_jobs ORDER BY seq DESC";
    let text = |row: &sql::Row, column| row.text(column).unwrap().unwrap();
    let rows = rows(store, sql).await;
    let seen = rows.iter().map(|row| ListedJob {
        id: text(row, "id"),
        state: text(row, "state").parse().unwrap(),
        tool: text(row, "tool_name"),
        cwd: text(row, "cwd"),
    });
    seen.collect()
}

fn or_any<T: Clone>(some: impl IntoIterator<Item = T>) -> Vec<Option<T>> {
    std::iter::once(None)
        .chain(some.into_iter().map(Some))
        .collect()
}

/// Checks the jobs and the count of every filter.
async fn lists_are_right(store: &JobStore) {
    const SHOWN: u32 = 3;
    let all = all_jobs(store).await;
    for status in or_any(JobState::ALL.iter().copied()) {
        for tool in or_any(TOOLS) {
            for cwd in or_any(DIRECTORIES) {
                let filter = JobFilter {
                    status,
                    tool_name: tool.map(str::to_owned),
                    cwd: cwd.map(str::to_owned),
                };
                let fits = |job: &&ListedJob| {
                    status.is_none_or(|status| job.state == status)
                        && tool.is_none_or(|tool| job.tool == tool)
                        && cwd.is_none_or(|cwd| job.cwd == cwd)
                };
                let fit: Vec<&ListedJob> = all.iter().filter(fits).collect();
                let listed = store.list(&filter, SHOWN).await.unwrap();
                assert_eq!(listed.total, fit.len() as u64, "{filter:?}");
                let shown = listed.jobs.iter().map(|job| job.id.as_str());
                let newest = fit.iter().map(|job| job.id.as_str());
                assert!(shown.eq(newest.take(SHOWN as usize)), "{filter:?}");
            }
        }
    }
}

/// A user of a store, who acts in a pseudo-random but fixed order.
struct User {
    store: Arc<JobStore>,
    number: u64,
    worker: WorkerId,
    submitted: Vec<NewJob>,
    claims: Vec<Claim>,
}

impl User {
    fn pick(&mut self, below: usize) -> usize {
        // Knuth's MMIX; its low bits are poor.
        let next = self.number.wrapping_mul(6_364_136_223_846_793_005);
        self.number = next.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.number >> 33).unwrap() % below
    }

    async fn go_on(&mut self) {
        match self.pick(12) {
            0..=3 => self.submit().await,
            4..=6 => self.claim().await,
            7 | 8 => self.finish().await,
            9 => self.cancel().await,
            10 => self.give_up().await,
            _ => self.tidy().await,
        }
    }

    async fn submit(&mut self) {
        let mut new = new_job("p");
        new.request.tool_name = TOOLS[self.pick(TOOLS.len())].to_owned();
        new.request.cwd = DIRECTORIES[self.pick(DIRECTORIES.len())].to_owned();
        new.request.retry = u32::try_from(self.pick(2)).unwrap();
        for _ in 0..=self.pick(2) {
            self.store.submit(&new).await.unwrap();
        }
        self.submitted.push(new);
    }

    async fn claim(&mut self) {
        let lease = [LONG, NONE][self.pick(2)];
        let claimed = self.store.claim(&self.worker, "here", lease).await;
        self.claims.extend(claimed.unwrap().map(|got| got.claim));
    }

    async fn finish(&mut self) {
        let endings = [Ending::Completed, Ending::Failed, Ending::Cancelled];
        let how = finished(endings[self.pick(endings.len())]);
        if let Some(claim) = self.claims.pop() {
            self.store.finish(&claim, &how).await.unwrap();
        }
    }

    async fn cancel(&mut self) {
        if !self.submitted.is_empty() {
            let job = self.pick(self.submitted.len());
            let job = &self.submitted[job].id;
            self.store.request_cancel(job).await.unwrap();
        }
    }

    async fn give_up(&mut self) {
        if let Some(claim) = self.claims.pop() {
            self.store.give_up(&claim, "why").await.unwrap();
        }
    }

    async fn tidy(&mut self) {
        match self.pick(4) {
            0 => {
                self.store.prune(NONE).await.unwrap();
            }
            _ => {
                self.store.reap(&[]).await.unwrap();
            }
        }
    }
}

/// At every moment, the count equals the number of listed jobs.
async fn counts_are_right(store: &JobStore) {
    let jobs = "(SELECT COUNT(*) FROM codex_jobs WHERE state IN ('queued', 'running'))";
    let sum = |table| format!("(SELECT COALESCE(SUM(jobs), 0) FROM {table} WHERE state = 'open')");
    for counts in ["codex_counts", "codex_folder_counts"] {
        let (counts, changes) = (sum(counts), sum("codex_changes"));
        let sql = format!("SELECT CAST({counts} + {changes} - {jobs} AS BIGINT) AS n");
        assert_eq!(number(store, &sql).await, 0);
    }
}

pub(super) async fn counts_are_right_in_a_storm(stage: &TestStore) {
    const USERS: usize = 6;
    const STEPS: usize = 150;
    let stores = [stage.open().await, stage.open().await].map(Arc::new);
    let users = (0..USERS).map(|number| {
        let mut user = User {
            store: Arc::clone(&stores[number % 2]),
            number: number as u64,
            worker: new_worker_id(),
            submitted: Vec::new(),
            claims: Vec::new(),
        };
        tokio::spawn(async move {
            for _ in 0..STEPS {
                user.go_on().await;
            }
        })
    });
    let users: Vec<_> = users.collect();
    while !users.iter().all(|user| user.is_finished()) {
        counts_are_right(&stores[0]).await;
    }
    for user in users {
        user.await.unwrap();
    }
    counts_are_right(&stores[0]).await;
    lists_are_right(&stores[1]).await;
    // PostgreSQL has added the changes up, and removed jobs leave no count.
    assert!(number(&stores[0], "SELECT COUNT(*) AS n FROM codex_counts").await > 0);
    let gone = "SELECT COUNT(*) AS n FROM codex_folder_counts WHERE jobs <= 0";
    assert_eq!(number(&stores[0], gone).await, 0);
}

pub(super) async fn store_of_the_first_version_is_upgraded(stage: &TestStore) {
    let (mut connection, lock) = pool::first(&stage.location).await.unwrap();
    let first = migrations::MIGRATIONS[0].script(connection.dialect());
    connection.begin(Purpose::WriteThrough).await.unwrap();
    connection.script(first).await.unwrap();
    let mut most = 0;
    for &state in JobState::ALL {
        for (tool, cwd) in [(0, 0), (0, 0), (1, 0), (0, 1), (2, 2)] {
            let new = NewJob::new(Request::new("p", DIRECTORIES[cwd]));
            let sql = "INSERT INTO codex_jobs (id, state, tool_name, cwd, task_name, \
                       agent_instance, created_at, lease_until, retry, timeout_ms, \
                       tool_timeout_ms, expose_stream, fire_and_forget, continue_latest, \
                       images, prompt) VALUES ($1, $2, $3, $4, 't', 'codex', {now}, {now}, 0, \
                       1, 1, 0, 0, 0, '[]', 'a ghp_0123456789abcdefghijABCDEFGHIJ')";
            let mut values: Vec<Value> = vec![new.id.as_str().into(), state.as_str().into()];
            values.extend([TOOLS[tool].into(), DIRECTORIES[cwd].into()]);
            connection.run(sql, values).await.unwrap();
            most += 1;
        }
    }
    connection.script("COMMIT").await.unwrap();
    drop((connection, lock));

    // The owner of a server's old jobs is unknown. Those of a file that nobody else can write
    // belong to its user.
    let (others, origin) = match stage.location {
        Location::Sqlite(_) => (OthersJobs::Leave, Origin::ThisMachine),
        Location::Postgres(_) => {
            let theirs = stage.open().await;
            assert_eq!(claim(&theirs, &new_worker_id()).await, None);
            (OthersJobs::Run, Origin::Unproven)
        }
    };
    let access = Access {
        others,
        ..stage.access()
    };
    let store = JobStore::open(&stage.location, &access).await.unwrap();
    let all = store.list(&JobFilter::default(), 1).await.unwrap();
    assert_eq!(all.total, most);
    lists_are_right(&store).await;
    let worker = new_worker_id();
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(claimed.job.origin, origin);
    assert_eq!(claimed.job.summary.owner.name, None);
    let how = finished(Ending::Completed);
    store.finish(&claimed.claim, &how).await.unwrap();
    let ended = JobFilter {
        status: Some(JobState::Failed),
        ..JobFilter::default()
    };
    for job in store.list(&ended, 100).await.unwrap().jobs {
        let job = store.get(&job.id).await.unwrap().unwrap();
        assert_eq!(job.request.prompt, "a [masked]");
        assert_eq!(job.prompt, PromptText::Masked);
    }
    store.submit(&new_job("q")).await.unwrap();
    lists_are_right(&store).await;
    assert_eq!(store.prune(LONG).await.unwrap(), 0);
    drop(store);
    lists_are_right(&stage.open().await).await;
}

/// Only waiting rows are changed: a trigger refuses changes of the others.
pub(super) async fn waiting_job_of_version_7_is_rechecked_after_the_migration(stage: &TestStore) {
    let (mut connection, lock) = pool::first(&stage.location).await.unwrap();
    let dialect = connection.dialect();
    connection.begin(Purpose::WriteThrough).await.unwrap();
    for step in &migrations::MIGRATIONS[..7] {
        connection.script(step.script(dialect)).await.unwrap();
    }
    let ids = ["waits", "is due", "does not wait"].map(|prompt| new_job(prompt).id);
    let waits = ["{now} + 600000", "{now} - 1", "NULL"];
    for (id, not_before) in ids.iter().zip(waits) {
        let sql = format!(
            "INSERT INTO codex_jobs (id, state, tool_name, task_name, cwd, agent_instance, \
             created_at, retry, timeout_ms, tool_timeout_ms, expose_stream, fire_and_forget, \
             continue_latest, images, prompt, not_before, waits_for) \
             VALUES ($1, 'queued', 'call_codex', 't', '/repo', 'codex', {{now}}, 0, 1, 1, 0, 0, 0, '[]', 'p', {not_before}, 'limit_reset')"
        );
        connection
            .run(&sql, vec![id.as_str().into()])
            .await
            .unwrap();
    }
    let refuse = match dialect {
        Dialect::Sqlite => {
            "CREATE TRIGGER refuse BEFORE UPDATE ON codex_jobs WHEN OLD.not_before IS NULL \
             BEGIN SELECT RAISE(ABORT, 'it does not wait'); END"
        }
        Dialect::Postgres => {
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN RAISE EXCEPTION 'it does not wait'; END$$; \
             CREATE TRIGGER refuse BEFORE UPDATE ON codex_jobs FOR EACH ROW \
             WHEN (OLD.not_before IS NULL) EXECUTE FUNCTION refuse()"
        }
    };
    connection.script(refuse).await.unwrap();
    let step = migrations::MIGRATIONS[7].script(dialect);
    connection.script(step).await.unwrap();
    let allow = match dialect {
        Dialect::Sqlite => "DROP TRIGGER refuse",
        Dialect::Postgres => "DROP TRIGGER refuse ON codex_jobs; DROP FUNCTION refuse()",
    };
    connection.script(allow).await.unwrap();
    connection.script("COMMIT").await.unwrap();
    drop((connection, lock));

    let store = stage.open().await;
    let sql = "SELECT id FROM codex_jobs WHERE look_at = not_before ORDER BY seq";
    assert_eq!(rows(&store, sql).await.len(), 2);
    let waits = store.summary(&ids[0]).await.unwrap().unwrap().wait;
    assert!(waits.is_some());
}
