//! Attackers who can write to a shared database, and the workers and users of this machine.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use job_queue::logic::{JobId, JobState, WORKER_LOST};
use job_queue::machine;
use job_queue::store::{Job, JobStore, NewJob, Ownership, Request, new_worker_id};
use serde_json::{Value, json};
use settings::store_access::{Access, OthersJobs};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::postgres::{Durability, Postgres};
use testkit::{Home, write_program};

use crate::jobs::{Worker, play_codex, wait_for, wait_for_file, wait_until};

/// The script of a played Codex: notes its prompt and CODEX_HOME.
const CODEX: &str = r#"echo "$1" >> NOTES/NAME
echo "${CODEX_HOME}" >> NOTES/NAME.home
case "$1" in wait*) while [ ! -e NOTES/go ]; do sleep 0.02; done;; esac
"#;

/// Longer than any test takes.
const LEASE: Duration = Duration::from_secs(600);

/// A host: a home with a key, and programs that note that they were run.
struct Host {
    home: Home,
    location: String,
}

impl Host {
    fn new(location: &str, others: OthersJobs) -> Self {
        let host = Self {
            home: Home::new(""),
            location: location.to_owned(),
        };
        fs::create_dir(host.note("")).unwrap();
        for name in ["honest", "evil"] {
            let script = host.adapted(name, CODEX);
            play_codex(&host.home, &host.program(name), &script);
        }
        host.script("notify", "#!/bin/sh\necho told >> NOTES/NAME\n");
        let directory = host.home.atm_home().join(".config/atm");
        fs::create_dir_all(&directory).unwrap();
        let word = serde_json::to_value(others).unwrap();
        let setting = format!("[plugins.codex-mcp]\njobs_of_others = {word}\n");
        fs::write(directory.join("config.toml"), setting).unwrap();
        host
    }

    fn adapted(&self, name: &str, text: &str) -> String {
        let notes = self.note("");
        let notes = notes.to_str().unwrap().trim_end_matches('/');
        text.replace("NOTES", notes).replace("NAME", name)
    }

    fn script(&self, name: &str, text: &str) {
        let text = self.adapted(name, text);
        let path = self.program(name);
        write_program(&path, &text);
    }

    fn program(&self, name: &str) -> PathBuf {
        self.home.root().join(format!("{name}.sh"))
    }

    /// The file with the notes of a program.
    fn note(&self, name: &str) -> PathBuf {
        self.home.root().join("notes").join(name)
    }

    fn notes_of(&self, name: &str) -> String {
        fs::read_to_string(self.note(name)).unwrap_or_default()
    }

    fn access(&self) -> Access {
        Access::of(self.home.state_home().join("codex-mcp"))
    }

    async fn open(&self) -> JobStore {
        let location = self.location.parse().unwrap();
        JobStore::open(&location, &self.access()).await.unwrap()
    }

    fn worker(&self) -> Worker {
        let times = ["--heartbeat-ms", "50", "--lease-ms", "5000"];
        Worker::start(&self.home, &self.location, &self.program("honest"), &times)
    }

    fn request(&self, prompt: &str) -> Request {
        Request {
            host: Some(machine::name()),
            timeout_ms: 600_000,
            ..Request::new(prompt, self.home.work().to_str().unwrap())
        }
    }

    /// A job that names the program and the CODEX_HOME of the attacker.
    fn evil_request(&self) -> Request {
        Request {
            codex_bin: Some(self.program("evil").to_str().unwrap().to_owned()),
            codex_home: Some("/evil/home".to_owned()),
            ..self.request("evil")
        }
    }

    /// A run whose notifier is a program. The run ends because its turns have no Codex, and the
    /// notifier is told so.
    fn evil_run(&self) -> Request {
        let notifier = format!("command:{}", self.program("notify").display());
        Request {
            tool_name: "codex_run".to_owned(),
            run: Some(json!({ "order": {
                "task": "evil", "repo": self.home.work(), "notify": [notifier],
            }})),
            ..self.request("evil")
        }
    }

    fn run_jobs(&self, args: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_codex-mcp"))
            .arg("jobs")
            .args(args)
            .env_clear()
            .envs(self.home.env())
            .env("CODEX_MCP_STORE", &self.location)
            .env("CODEX_MCP_CODEX_BIN", self.program("honest"))
            .current_dir(self.home.work())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    async fn finish(&self, worker: Worker) {
        worker.finish().await;
        wait_for("all processes are gone", async || {
            self.home.processes().is_empty().then_some(())
        })
        .await;
    }
}

/// A server with a database for jobs.
struct Database {
    server: Postgres,
    url: String,
}

impl Database {
    /// Starts a server, and has a host create the tables of a store.
    async fn new() -> Self {
        let server = Postgres::start(Durability::Unsynced);
        let url = server.database("jobs");
        let database = Self { server, url };
        drop(database.host(OthersJobs::Leave).open().await);
        database
    }

    fn host(&self, others: OthersJobs) -> Host {
        Host::new(&self.url, others)
    }

    /// An attacker with the role of the hosts.
    async fn insider(&self) -> Intruder {
        Intruder(PgConnection::connect(&self.url).await.unwrap())
    }

    /// An attacker with a role that may only SELECT and INSERT.
    async fn outsider(&self) -> Intruder {
        self.server.sql("CREATE ROLE mallory LOGIN");
        let grants = "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO mallory; \
                      GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO mallory";
        self.insider().await.run(grants).await;
        let url = self.url.replacen("postgres@", "mallory@", 1);
        Intruder(PgConnection::connect(&url).await.unwrap())
    }
}

struct Intruder(PgConnection);

impl Intruder {
    async fn run(&mut self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        sql.execute(&mut self.0).await.unwrap();
    }

    /// Copies a row with changes in these columns; returns the ID of the copy.
    async fn copy(&mut self, id: &JobId, changes: &[(&str, String)]) -> JobId {
        let new = NewJob::new(Request::new("", "")).id;
        let of = "SELECT string_agg(quote_ident(column_name), ',') FROM \
                  information_schema.columns WHERE table_name = 'codex_jobs' \
                  AND column_name NOT IN ('seq', 'id')";
        let columns: (String,) = sqlx::query_as(of).fetch_one(&mut self.0).await.unwrap();
        let columns: Vec<&str> = columns.0.split(',').collect();
        let values = columns.iter().map(|column| {
            let changed = changes.iter().find(|(changed, _)| changed == column);
            changed.map_or((*column).to_owned(), |(_, value)| value.clone())
        });
        let values: Vec<String> = values.collect();
        let (columns, values) = (columns.join(","), values.join(","));
        self.run(&format!(
            "INSERT INTO codex_jobs (id, {columns}) SELECT '{new}', {values} FROM codex_jobs \
             WHERE id = '{id}'"
        ))
        .await;
        new
    }

    /// Inserts a row that no host has signed.
    async fn forge(&mut self, request: &Request) -> JobId {
        let new = NewJob::new(Request::new("", "")).id;
        let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let maybe = |value: &Option<String>| value.as_deref().map_or("NULL".to_owned(), text);
        let run = request.run.as_ref().map(Value::to_string);
        self.run(&format!(
            "INSERT INTO codex_jobs (id, state, tool_name, task_name, agent_instance, created_at, \
             retry, timeout_ms, tool_timeout_ms, expose_stream, fire_and_forget, continue_latest, \
             images, cwd, prompt, host, codex_bin, codex_home, run) VALUES ('{new}', 'queued', {}, \
             't', 'codex', 0, 0, 60000, 60000, 0, 0, 0, '[]', {}, {}, {}, {}, {}, {})",
            text(&request.tool_name),
            text(&request.cwd),
            text(&request.prompt),
            maybe(&request.host),
            maybe(&request.codex_bin),
            maybe(&request.codex_home),
            maybe(&run),
        ))
        .await;
        new
    }
}

async fn submit(store: &JobStore, request: Request) -> JobId {
    store.submit(&NewJob::new(request)).await.unwrap()
}

async fn wait_until_failed(store: &JobStore, id: &JobId) -> String {
    let job = wait_until(store, id, JobState::Failed).await;
    job.summary.error.unwrap()
}

async fn get(store: &JobStore, id: &JobId) -> Job {
    store.get(id).await.unwrap().unwrap()
}

/// The control: a signed row works, so the other tests fail only for the signature.
#[tokio::test]
async fn signed_row_runs_the_programs_that_it_names() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Leave);
    let store = host.open().await;
    let evil = submit(&store, host.evil_request()).await;
    let run = submit(&store, host.evil_run()).await;
    let worker = host.worker();
    wait_until(&store, &evil, JobState::Completed).await;
    wait_until(&store, &run, JobState::Failed).await;
    assert_eq!(host.notes_of("evil"), "evil\n");
    assert_eq!(host.notes_of("evil.home"), "/evil/home\n");
    assert_eq!(host.notes_of("notify"), "told\n");
    host.finish(worker).await;
}

/// The attacker's role may only SELECT and INSERT (H3).
#[tokio::test]
async fn forged_row_is_left_alone() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Leave);
    let store = host.open().await;
    let mut mallory = database.outsider().await;
    let evil = mallory.forge(&host.evil_request()).await;
    let run = mallory.forge(&host.evil_run()).await;
    // A copy that claims to be this machine's.
    let honest = submit(&store, host.request("honest")).await;
    let program = format!("'{}'", host.program("evil").display());
    let claimed = [("codex_bin", program), ("owner_role", "'postgres'".into())];
    let copy = mallory.copy(&honest, &claimed).await;
    let last = submit(&store, host.request("last")).await;
    let worker = host.worker();
    for own in [&honest, &last] {
        wait_until(&store, own, JobState::Completed).await;
    }
    for id in [&evil, &run, &copy] {
        let job = get(&store, id).await;
        assert_eq!((job.summary.state, job.attempts), (JobState::Queued, 0));
        assert_eq!(job.summary.owner.ownership, Ownership::Others);
        assert_eq!(job.summary.owner.role.as_deref(), Some("mallory"));
    }
    // The two jobs run at the same time, so their order is open.
    let noted = host.notes_of("honest");
    let mut noted: Vec<&str> = noted.lines().collect();
    noted.sort_unstable();
    assert_eq!(noted, ["honest", "last"]);
    assert_eq!(
        (host.notes_of("evil"), host.notes_of("notify")),
        Default::default()
    );
    host.finish(worker).await;
}

#[tokio::test]
async fn host_that_runs_foreign_jobs_runs_none_of_their_programs() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Run);
    let store = host.open().await;
    let mut mallory = database.outsider().await;
    let evil = mallory.forge(&host.evil_request()).await;
    let notifying = mallory.forge(&host.evil_run()).await;
    let mut request = host.evil_run();
    request.run = Some(json!({ "order": {
        "task": "evil", "repo": host.home.work(),
        "exit_criteria": { "command": host.program("notify") },
    }}));
    let judging = mallory.forge(&request).await;
    let worker = host.worker();
    wait_until(&store, &evil, JobState::Completed).await;
    for (id, part) in [
        (&notifying, "the notifier"),
        (&judging, "the exit criterion"),
    ] {
        let error = wait_until_failed(&store, id).await;
        assert!(
            error.contains("not signed with the key of this machine"),
            "{error}"
        );
        assert!(
            error.contains(part) && error.contains("notify.sh"),
            "{error}"
        );
    }
    // The job ran with this machine's own Codex and CODEX_HOME.
    assert_eq!(host.notes_of("honest"), "evil\n");
    let home = host.home.codex_home();
    assert_eq!(
        host.notes_of("honest.home"),
        format!("{}\n", home.display())
    );
    assert_eq!(
        (host.notes_of("evil"), host.notes_of("notify")),
        Default::default()
    );
    host.finish(worker).await;
}

#[tokio::test]
async fn signed_row_with_a_changed_field_is_refused() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Leave);
    let store = host.open().await;
    let mut insider = database.insider().await;
    let honest = submit(&store, host.request("honest")).await;
    let quoted = |text: &str| format!("'{text}'");
    let program = quoted(host.program("evil").to_str().unwrap());
    let mut copies = vec![insider.copy(&honest, &[]).await];
    for (column, value) in [
        ("prompt", quoted("evil")),
        ("cwd", quoted("/")),
        ("sandbox", quoted("danger-full-access")),
        ("codex_bin", program.clone()),
        ("codex_home", quoted("/evil/home")),
        ("profile", quoted("evil")),
        ("images", quoted("[\"/evil.png\"]")),
        ("tool_name", quoted("codex_run")),
        ("run", quoted(&host.evil_run().run.unwrap().to_string())),
        ("submitted_by", quoted("team-lead")),
        (
            "resume_session_id",
            quoted("01a200a4-327e-7ce2-b260-3fbdb333d5f2"),
        ),
        ("model_override", quoted("evil")),
        ("retry", "7".to_owned()),
        ("timeout_ms", "600001".to_owned()),
        ("owner", quoted("root@evil")),
        ("signature", "ended_signature".to_owned()),
        ("signature", "NULL".to_owned()),
    ] {
        copies.push(insider.copy(&honest, &[(column, value)]).await);
    }
    let worker = host.worker();
    for id in &copies {
        let error = wait_until_failed(&store, id).await;
        assert!(
            error.contains("not signed with the key of this machine"),
            "{error}"
        );
        assert!(error.contains("Submit it again"), "{error}");
    }
    wait_until(&store, &honest, JobState::Completed).await;
    assert_eq!(host.notes_of("honest"), "honest\n");
    assert_eq!(
        (host.notes_of("evil"), host.notes_of("notify")),
        Default::default()
    );
    host.finish(worker).await;
}

#[tokio::test]
async fn signature_is_valid_for_its_own_row_only() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Leave);
    let store = host.open().await;
    let mut insider = database.insider().await;
    let changed = submit(&store, host.request("honest")).await;
    let moved = submit(&store, host.evil_request()).await;
    let robbed = submit(&store, host.request("robbed")).await;
    let program = host.program("evil").display().to_string();
    let update = format!(
        "UPDATE codex_jobs SET codex_bin = '{program}' WHERE id = '{changed}'; \
         UPDATE codex_jobs SET signature = (SELECT signature FROM codex_jobs WHERE id = \
         '{moved}') WHERE id = '{robbed}'; \
         UPDATE codex_jobs SET prompt = 'other' WHERE id = '{moved}'"
    );
    insider.run(&update).await;
    let done = submit(&store, host.request("done")).await;
    let worker = host.worker();
    for id in [&changed, &moved, &robbed] {
        let error = wait_until_failed(&store, id).await;
        assert!(
            error.contains("not signed with the key of this machine"),
            "{error}"
        );
    }
    wait_until(&store, &done, JobState::Completed).await;
    // A completed job is not run again.
    let again = format!("UPDATE codex_jobs SET state = 'queued' WHERE id = '{done}'");
    insider.run(&again).await;
    wait_until_failed(&store, &done).await;
    assert_eq!(host.notes_of("honest"), "done\n");
    assert_eq!(host.notes_of("evil"), "");
    host.finish(worker).await;
}

#[tokio::test]
async fn worker_with_a_stolen_lease_ends_codex_and_runs_no_foreign_program() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Leave);
    let store = host.open().await;
    let mut insider = database.insider().await;
    let id = submit(&store, host.request("wait")).await;
    let worker = host.worker();
    wait_for_file(&host.note("honest")).await;
    let thief = new_worker_id();
    let steal = format!("UPDATE codex_jobs SET worker = '{thief}' WHERE id = '{id}'");
    insider.run(&steal).await;
    worker.says("no longer belongs to this worker").await;
    let stolen = get(&store, &id).await;
    assert_eq!(stolen.summary.state, JobState::Running);
    assert_eq!((stolen.worker, stolen.result), (Some(thief), None));
    let program = host.program("evil").display().to_string();
    let give_back = format!(
        "UPDATE codex_jobs SET state = 'queued', codex_bin = '{program}' WHERE id = '{id}'"
    );
    insider.run(&give_back).await;
    let error = wait_until_failed(&store, &id).await;
    assert!(error.contains("not signed"), "{error}");
    assert_eq!(host.notes_of("evil"), "");
    host.finish(worker).await;
}

/// The threads of this machine's own attempt and of the attacker.
const OWN: &str = "01a200a4-327e-7ce2-b260-3fbdb333d5f1";
const THEIRS: &str = "01a200a4-327e-7ce2-b260-3fbdb333d5f2";

/// The control is a job whose first attempt was lost: the second one continues its thread.
#[tokio::test]
async fn attempt_continues_no_thread_that_this_host_has_not_signed() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Leave);
    let store = host.open().await;
    let honest = Request {
        retry: 1,
        ..host.request("honest")
    };
    let honest = submit(&store, honest).await;
    let lost = store.claim(&new_worker_id(), "here", LEASE).await.unwrap();
    let lost = lost.unwrap().claim;
    store.note_session(&lost, OWN).await.unwrap();
    let given_up = store.give_up(&lost, "lost").await.unwrap();
    assert_eq!(given_up, Some(JobState::Queued));
    let named = submit(&store, host.request("named")).await;
    let moved = submit(&store, host.request("moved")).await;
    let choose = format!(
        "UPDATE codex_jobs SET attempts = 1, session_id = '{THEIRS}' WHERE id = '{named}'; \
         UPDATE codex_jobs SET attempts = 1, session_id = '{OWN}', session_signature = \
         (SELECT session_signature FROM codex_jobs WHERE id = '{honest}') WHERE id = '{moved}'"
    );
    database.insider().await.run(&choose).await;
    let worker = host.worker();
    let mut sessions = Vec::new();
    for id in [&honest, &named, &moved] {
        let job = wait_until(&store, id, JobState::Completed).await;
        assert_eq!(job.attempts, 2);
        sessions.push(job.summary.session_id.unwrap());
    }
    assert_eq!(sessions[0], OWN);
    for chosen in &sessions[1..] {
        assert!(![OWN, THEIRS].contains(&chosen.as_str()), "{chosen}");
    }
    worker.says("it is not signed with the key").await;
    host.finish(worker).await;
}

/// The controls are the same commands once the thread is put back.
#[tokio::test]
async fn changed_thread_of_an_ended_job_is_not_continued() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Leave);
    let store = host.open().await;
    let first = submit(&store, host.request("first")).await;
    let worker = host.worker();
    let ended = wait_until(&store, &first, JobState::Completed).await;
    host.finish(worker).await;
    let own = ended.summary.session_id.unwrap();
    let mut insider = database.insider().await;
    let mut set = async |session: &str| {
        let sql = format!("UPDATE codex_jobs SET session_id = '{session}' WHERE id = '{first}'");
        insider.run(&sql).await;
    };
    for args in [
        ["resume", first.as_str(), "resumed"],
        ["submit", "--continue", "continued"],
    ] {
        set(THEIRS).await;
        let (code, _, said) = host.run_jobs(&args);
        assert_eq!(code, 3, "{said}");
        assert!(
            said.contains("is not signed with this machine's key"),
            "{said}"
        );
        assert!(said.contains("--thread"), "{said}");
    }
    set(&own).await;
    let (code, resumed, said) = host.run_jobs(&["resume", first.as_str(), "resumed"]);
    assert_eq!(code, 0, "{said}");
    let resumed = resumed.trim_end().parse().unwrap();
    wait_until(&store, &resumed, JobState::Completed).await;
    let (code, continued, said) = host.run_jobs(&["submit", "--continue", "continued"]);
    assert_eq!(code, 0, "{said}");
    let continued = continued.trim_end().parse().unwrap();
    for id in [&resumed, &continued] {
        let job = wait_until(&store, id, JobState::Completed).await;
        assert_eq!(job.request.resume_session_id.as_ref(), Some(&own));
        assert_eq!(job.summary.session_id.as_ref(), Some(&own));
    }
    // The worker that `resume` started ends with the home.
}

/// The worker that recovers a lost job runs the notifiers of rows that this machine has signed. The
/// control is such a row.
#[tokio::test]
async fn lost_row_with_a_changed_notifier_is_not_notified() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Leave);
    host.script("spy", "#!/bin/sh\necho told >> NOTES/NAME\n");
    let store = host.open().await;
    let notifying = |name: &str| {
        let notifier = format!("command:{}", host.program(name).display());
        json!({ "notify": [notifier] })
    };
    let signed = Request {
        settings: Some(notifying("notify")),
        ..host.request("signed")
    };
    let signed = submit(&store, signed).await;
    let changed = submit(&store, host.request("changed")).await;
    let mut insider = database.insider().await;
    let lost = format!(
        "UPDATE codex_jobs SET state = 'running', attempts = 1, lease_until = 1, worker = '{}'; \
         UPDATE codex_jobs SET settings = '{}' WHERE id = '{changed}'",
        new_worker_id(),
        notifying("spy"),
    );
    insider.run(&lost).await;
    let copy = insider.copy(&signed, &[]).await;
    let worker = host.worker();
    for id in [&signed, &changed, &copy] {
        let error = wait_until_failed(&store, id).await;
        assert_eq!(error, WORKER_LOST);
    }
    wait_for_file(&host.note("notify")).await;
    // Once the worker has ended, it has notified of all of them.
    host.finish(worker).await;
    assert_eq!(host.notes_of("notify"), "told\n");
    assert_eq!(host.notes_of("spy"), "");
}

#[tokio::test]
async fn jobs_of_another_host_are_shown_and_left_alone() {
    let database = Database::new().await;
    let (ours, other) = (
        database.host(OthersJobs::Leave),
        database.host(OthersJobs::Leave),
    );
    let (store, theirs) = (ours.open().await, other.open().await);
    let waiting = submit(&store, ours.request("waiting")).await;
    let ended = submit(&store, ours.request("ended")).await;
    assert!(store.request_cancel(&ended).await.unwrap().is_some());

    // The other host's worker runs only its own job.
    let last = submit(&theirs, other.request("last")).await;
    let worker = other.worker();
    wait_until(&theirs, &last, JobState::Completed).await;
    assert_eq!(get(&theirs, &waiting).await.summary.state, JobState::Queued);
    assert_eq!(other.notes_of("honest"), "last\n");

    let (code, _, said) = other.run_jobs(&["cancel", waiting.as_str()]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("leaves the jobs of others alone"), "{said}");
    assert!(said.contains("jobs_of_others = \"manage\""), "{said}");
    for args in [
        ["retry", ended.as_str(), "--json"],
        ["resume", ended.as_str(), "more"],
    ] {
        let (code, _, said) = other.run_jobs(&args);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("has not submitted it"), "{said}");
    }
    let (code, said, _) = other.run_jobs(&["prune", "--older-than", "0s", "--json"]);
    let pruned: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &pruned["removed"]), (0, &json!(1)), "{said}");
    let (_, listed, _) = other.run_jobs(&["list"]);
    assert!(listed.contains("OWNER"), "{listed}");
    let (_, listed, _) = other.run_jobs(&["list", "--json"]);
    let owner = format!("@{}\"", machine::name());
    assert!(listed.contains(&owner), "{listed}");
    let (_, shown, _) = other.run_jobs(&["show", waiting.as_str()]);
    assert!(shown.contains("(role postgres)"), "{shown}");
    assert_eq!(get(&store, &waiting).await.summary.state, JobState::Queued);
    assert_eq!(get(&store, &ended).await.summary.state, JobState::Cancelled);
    other.finish(worker).await;

    // The controls: a host that may manage the jobs of others, and their owner.
    let manager = database.host(OthersJobs::Manage);
    let (code, _, said) = manager.run_jobs(&["cancel", waiting.as_str()]);
    assert_eq!(code, 0, "{said}");
    let (_, said, _) = ours.run_jobs(&["prune", "--older-than", "0s", "--json"]);
    let pruned: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(pruned["removed"], 2, "{said}");
}

/// `retry` does not submit the run of another in the user's name.
#[tokio::test]
async fn forged_run_cannot_be_retried() {
    let database = Database::new().await;
    let host = database.host(OthersJobs::Run);
    let store = host.open().await;
    let mut mallory = database.outsider().await;
    let run = mallory.forge(&host.evil_run()).await;
    store_as_ended(&mut database.insider().await, &run).await;
    let (code, _, said) = host.run_jobs(&["retry", run.as_str()]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("has not submitted it"), "{said}");
    // The control: the user's own run can be retried.
    let ours = submit(&store, host.evil_run()).await;
    store_as_ended(&mut database.insider().await, &ours).await;
    let (code, id, said) = host.run_jobs(&["retry", ours.as_str()]);
    assert_eq!(code, 0, "{said}");
    let again = get(&store, &id.trim_end().parse().unwrap()).await;
    assert!(again.request.run.is_some());
    wait_until(&store, &again.summary.id, JobState::Failed).await;
    // The worker that `retry` started ends with the home.
}

async fn store_as_ended(insider: &mut Intruder, id: &JobId) {
    let sql = format!(
        "UPDATE codex_jobs SET state = 'failed', completed_at = 1, started_at = 1 WHERE id = '{id}'"
    );
    insider.run(&sql).await;
}

/// A server without TLS, and the first bytes of its clients.
fn server_without_tls() -> (u16, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, first) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut bytes = vec![0; 1000];
            let length = client.read(&mut bytes).unwrap();
            bytes.truncate(length);
            sender.send(bytes).unwrap();
            client.write_all(b"N").unwrap();
        }
    });
    (port, first)
}

#[test]
fn plain_connection_beyond_loopback_is_refused() {
    let (port, first) = server_without_tls();
    // 0.0.0.0 is no loopback address, but leads to this machine.
    let url = format!("postgres://me:sesame@0.0.0.0:{port}/jobs");
    let host = Host::new(&url, OthersJobs::Leave);
    let (code, _, said) = host.run_jobs(&["list"]);
    assert_ne!(code, 0);
    assert!(said.contains("offers no TLS"), "{said}");
    assert!(said.contains("sslmode=disable"), "{said}");
    assert!(!said.contains("sesame"), "{said}");
    assert_eq!(first.recv().unwrap(), [0, 0, 0, 8, 4, 210, 22, 47]);
    // The control: with sslmode=disable, the user's name is sent in plain text.
    let host = Host::new(&format!("{url}?sslmode=disable"), OthersJobs::Leave);
    host.run_jobs(&["list"]);
    let sent = first.recv().unwrap();
    assert!(sent.windows(8).any(|part| part == b"user\0me\0"));
}
