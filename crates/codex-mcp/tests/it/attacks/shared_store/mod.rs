//! Attackers who can write to a shared database, and the workers and users of this machine.

mod connection;
mod rows;
mod threads;
mod verbs;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use job_queue::logic::{JobId, JobState};
use job_queue::machine;
use job_queue::store::{Job, JobStore, NewJob, Request};
use serde_json::{Value, json};
use settings::store_access::{Access, OthersJobs};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testkit::postgres::{Durability, Postgres};
use testkit::{Home, write_program};

use crate::jobs::{Worker, play_codex, wait_for, wait_until};

/// The script of a played Codex: notes its prompt and CODEX_HOME.
const CODEX: &str = r#"echo "$1" >> NOTES/NAME
echo "${CODEX_HOME}" >> NOTES/NAME.home
case "$1" in wait*) while [ ! -e NOTES/go ]; do sleep 0.02; done;; esac
"#;

/// A machine: a home with a key, and programs that note that they were run.
struct Machine {
    home: Home,
    location: String,
}

impl Machine {
    fn new(location: &str, others: OthersJobs) -> Self {
        let machine = Self {
            home: Home::new(""),
            location: location.to_owned(),
        };
        fs::create_dir(machine.note("")).unwrap();
        for name in ["honest", "evil"] {
            let script = machine.adapted(name, CODEX);
            play_codex(&machine.home, &machine.program(name), &script);
        }
        machine.script("notify", "#!/bin/sh\necho told >> NOTES/NAME\n");
        let directory = machine.home.atm_home().join(".config/atm");
        fs::create_dir_all(&directory).unwrap();
        let word = serde_json::to_value(others).unwrap();
        let setting = format!("[plugins.codex-mcp]\njobs_of_others = {word}\n");
        fs::write(directory.join("config.toml"), setting).unwrap();
        machine
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
        self.run(&[&["jobs"], args].concat())
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let output = self
            .home
            .command(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(args)
            .env("CODEX_MCP_STORE", &self.location)
            .env("CODEX_MCP_CODEX_BIN", self.program("honest"))
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
    /// Starts a server, and has a machine create the tables of a store.
    async fn new() -> Self {
        let server = Postgres::start(Durability::Unsynced);
        let url = server.database("jobs");
        let database = Self { server, url };
        drop(database.machine(OthersJobs::Leave).open().await);
        database
    }

    fn machine(&self, others: OthersJobs) -> Machine {
        Machine::new(&self.url, others)
    }

    /// An attacker with the role of the machines.
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

    /// Inserts a row that no machine has signed.
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
