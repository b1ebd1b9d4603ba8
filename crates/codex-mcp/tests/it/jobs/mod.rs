//! Worker processes on a real store, which are killed, stopped, and left without their store. Codex
//! is a fake whose prompt is a line of shell that it runs.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "figures, and the worker's log if a test fails"
)]

mod cancelled;
mod event_flood;
mod killed;
mod lost_store;
mod slot_release;
mod stopping;
// It mounts a disk that is full.
#[cfg(target_os = "linux")]
mod store_outage;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use job_queue::logic::{JobId, JobState};
use job_queue::report::Report;
use job_queue::store::{Job, JobStore, NewJob, Request, StoredEvent};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use settings::store_access::Access;
use settings::store_location::Location;
use tempfile::TempDir;
use testkit::fake::{Action, PLAN, Plan, VERSION, fake_codex_path};
use testkit::postgres::Postgres;
use testkit::process::{self, Process};
use testkit::wait::TIME_LIMIT;
pub(crate) use testkit::wait::{wait_for, wait_for_file};
use testkit::{Home, write_program};
use tokio::time::{Instant, sleep};

/// How often a condition is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A prompt that waits for a file.
fn wait_command(name: &str) -> String {
    format!("while [ ! -e {name} ]; do sleep 0.02; done")
}

/// A store, and a work directory for jobs that is no repository, so that git is not run.
struct WorkerFixture {
    home: Home,
    directory: TempDir,
    location: String,
}

impl WorkerFixture {
    fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let location = directory.path().join("state/jobs.db");
        Self::at(location.to_str().unwrap().to_owned(), directory)
    }

    fn postgres(server: &Postgres) -> Self {
        Self::at(server.database("jobs"), tempfile::tempdir().unwrap())
    }

    fn at(location: String, directory: TempDir) -> Self {
        let stage = Self {
            home: Home::new(""),
            directory,
            location,
        };
        play_codex(&stage.home, &stage.codex(), r#"eval "$1""#);
        fs::create_dir(stage.work()).unwrap();
        stage
    }

    fn codex(&self) -> PathBuf {
        self.home.root().join("codex.sh")
    }

    fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    fn make(&self, name: &str) {
        fs::write(self.file(name), "").unwrap();
    }

    fn location(&self) -> Location {
        self.location.parse().unwrap()
    }

    async fn open(&self) -> JobStore {
        JobStore::open(&self.location(), &self.access())
            .await
            .unwrap()
    }

    /// The same access as that of its workers.
    fn access(&self) -> Access {
        Access::of(self.home.state_home().join("codex-mcp"))
    }

    fn request(&self, prompt: &str) -> Request {
        Request {
            timeout_ms: 600_000,
            ..Request::new(prompt, self.work().to_str().unwrap())
        }
    }

    async fn submit(&self, store: &JobStore, prompt: &str) -> JobId {
        submit(store, self.request(prompt)).await
    }

    /// Settings of a call with a notifier that appends each line to the file `told`.
    fn notifying(&self) -> Value {
        let program = self.home.root().join("notify.sh");
        let told = self.file("told").display().to_string();
        write_program(&program, &format!("#!/bin/sh\necho \"$1\" >> {told}\n"));
        json!({ "notify": [format!("command:{}", program.display())] })
    }

    /// The lines of the notifications, sorted.
    fn told(&self) -> Vec<String> {
        let told = fs::read_to_string(self.file("told")).unwrap_or_default();
        let mut lines: Vec<String> = told.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Starts a worker with additional arguments.
    fn worker(&self, args: &[&str]) -> Worker {
        Worker::start(&self.home, &self.location, &self.codex(), args)
    }

    /// Waits until the workers and all that they have started are gone.
    async fn finish(&self) {
        wait_for("all processes are gone", async || {
            self.home.processes().is_empty().then_some(())
        })
        .await;
    }
}

/// A release whose app-servers no other worker can take over: the fake has no port.
const WITHOUT_TAKEOVER: &str = "0.129.0";

/// Writes a Codex that runs a script of `sh` in each turn, with the prompt as `$1`.
pub(crate) fn play_codex(home: &Home, codex: &Path, script: &str) {
    let run = Action::Run {
        script: script.to_owned(),
    };
    let plan = Plan::new().on("turn/start", [Action::Answer, run]);
    let path = codex.with_extension("plan");
    fs::write(&path, serde_json::to_vec(&plan).unwrap()).unwrap();
    let text = format!(
        "#!/bin/sh\nexport {PLAN}={} {VERSION}={WITHOUT_TAKEOVER}\nexec {} \"$@\"\n",
        path.display(),
        fake_codex_path().display()
    );
    assert!(path.starts_with(home.root()));
    write_program(codex, &text);
}

/// Kills the app-server below a guard.
pub(crate) fn kill_codex(home: &Home) {
    let processes = home.processes();
    let is_server = |one: &&Process| one.command.contains("app-server");
    let below = |one: &&Process| {
        let parents = processes.iter().filter(is_server);
        parents.into_iter().any(|parent| parent.pid == one.parent)
    };
    let codex = processes.iter().filter(is_server).find(below);
    process::signal(codex.unwrap().pid, Signal::SIGKILL);
}

async fn submit(store: &JobStore, request: Request) -> JobId {
    store.submit(&NewJob::new(request)).await.unwrap()
}

/// A worker process, which is killed when this is dropped.
pub(crate) struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    pub(crate) fn start(home: &Home, location: &str, codex: &Path, args: &[&str]) -> Self {
        let log = tempfile::Builder::new()
            .prefix("worker-")
            .tempfile_in(home.root())
            .unwrap();
        let (_, log) = log.keep().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["worker", "--store", location, "--codex-bin"])
            .arg(codex)
            .args(args)
            .env_clear()
            .envs(home.env())
            .current_dir(home.root())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.child.id(), signal);
    }

    /// Kills the worker with SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) async fn ended(mut self) -> (ExitStatus, String) {
        let status = wait_for("the worker has ended", async || {
            self.child.try_wait().unwrap()
        })
        .await;
        (status, self.log())
    }

    /// Sends SIGTERM, checks that the worker exits with success, and returns its log.
    pub(crate) async fn finish(self) -> String {
        self.signal(Signal::SIGTERM);
        let (status, log) = self.ended().await;
        assert!(status.success(), "{log}");
        log
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) async fn says(&self, words: &str) {
        wait_for(words, async || self.log().contains(words).then_some(())).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails if the worker has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// The beginning of a job's ID, as notifications have it.
fn short(id: &JobId) -> &str {
    &id.as_str()[..8]
}

async fn get(store: &JobStore, id: &JobId) -> Job {
    store.get(id).await.unwrap().unwrap()
}

/// Waits for a job to be in a state.
pub(crate) async fn wait_until(store: &JobStore, id: &JobId, state: JobState) -> Job {
    let until = Instant::now() + TIME_LIMIT;
    loop {
        let job = get(store, id).await;
        if job.summary.state == state {
            return job;
        }
        let goes_on = !job.summary.state.has_ended() && Instant::now() < until;
        assert!(goes_on, "not {state}: {job:#?}");
        sleep(POLL_INTERVAL).await;
    }
}

/// The events of a job. The store returns them in pages.
async fn all_events(store: &JobStore, id: &JobId) -> Vec<StoredEvent> {
    let mut events: Vec<StoredEvent> = Vec::new();
    loop {
        let read = events.last().map_or(0, |event| event.sequence);
        let page = store.events(id, read, u32::MAX).await.unwrap();
        if page.is_empty() {
            return events;
        }
        events.extend(page);
    }
}

pub(crate) fn report(job: &Job) -> Report {
    serde_json::from_value(job.result.clone().unwrap()).unwrap()
}
