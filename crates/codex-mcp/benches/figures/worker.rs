//! A running worker on either database: the time from submitting a job until Codex works, and the
//! time that storing 10,000 events adds to a job.
//!
//! The worker is a process of its own. Codex is played by a fake one, as the real one
//! would spend most of the time; the directory is a small repository, as git is asked
//! about it meanwhile.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use codex_engine::binary::Source;
use codex_engine::logic::session::Timeouts;
use codex_engine::{Engine, Launch, Options};
use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use job_queue::call;
use job_queue::logic::{JobId, JobState};
use job_queue::store::{Job, JobStore, NewJob, Request};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::{Value, json};
use settings::store_access::Access;
use supervise::spawn::set_guard_executable;
use testkit::fake::{Action, PLAN, Plan, VERSION, fake_codex_path};
use testkit::{Home, write_program};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::fixture::{TIME_LIMIT, program};
use crate::model::PROMPT;
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// In seconds.
const START: f64 = 0.020;

const EVENTS_COST: f64 = 1.02;

/// Jobs that are submitted in a round, and jobs with events of each side.
const SUBMITS: u16 = 20;
const PAIRS: u16 = 5;

/// Events of a job, how many come at once, and the seconds until the next ones: all
/// come in a second and a half, beside what Codex says of any job.
const EVENTS: usize = 10_000;
const BURST: usize = 100;
const PACE: &str = "0.012";
const FRAME: usize = 4;

/// A release whose app-servers no other worker can take over: the fake has no port.
const WITHOUT_TAKEOVER: &str = "0.129.0";

/// The polling interval for the end of a job.
const LOOK: Duration = Duration::from_millis(20);

/// Its steps in a burst: two commands, a thought, a message.
const STEPS: usize = 4;

/// Both figures on a fresh store.
pub(crate) fn measure(place: &str, rounds: u16, names: [&'static str; 2]) -> Vec<Row> {
    let fixture = WorkerFixture::new(place);
    let started = crate::block_on(started(&fixture, rounds * SUBMITS));
    let (stored, unstored) = crate::block_on(with_events(&fixture, rounds * PAIRS));
    vec![
        Row {
            figure: names[0],
            unit: Unit::Seconds,
            ours: Summary::of(started),
            direct: None,
            target: Target::AtMost(START),
            notes: vec!["until its turn runs, with a worker that is up".to_owned()],
        },
        Row {
            figure: names[1],
            unit: Unit::Seconds,
            ours: Summary::of(stored),
            direct: Some(Summary::of(unstored)),
            target: Target::RatioAtMost(EVENTS_COST),
            notes: vec![
                "from the claim to the end; direct: the same run, nothing stored".to_owned(),
            ],
        },
    ]
}

/// Seconds from submitting a job to Codex saying that it runs.
async fn started(fixture: &WorkerFixture, jobs: u16) -> Vec<f64> {
    let mut runs = fixture.fifo("runs");
    fixture.play("echo >../runs");
    let _worker = fixture.worker();
    let store = fixture.open().await;
    // The first one waits for the worker, and that for Codex to tell its release.
    start(fixture, &store, &mut runs).await;
    let mut took = Vec::new();
    for number in 0..jobs {
        // The varying pause keeps the submissions out of step with the worker's polling.
        sleep(LOOK + Duration::from_millis(u64::from(number % 10))).await;
        took.push(start(fixture, &store, &mut runs).await);
    }
    took
}

async fn start(fixture: &WorkerFixture, store: &JobStore, runs: &mut Receiver) -> f64 {
    let begin = Instant::now();
    let id = fixture.submit(store).await;
    let told = timeout(TIME_LIMIT, runs.read_u8()).await;
    let took = begin.elapsed().as_secs_f64();
    told.unwrap().unwrap();
    completed(store, &id).await;
    took
}

/// Seconds for a job with many events in the hands of the worker, and for the same
/// run with nobody who listens.
async fn with_events(fixture: &WorkerFixture, pairs: u16) -> (Vec<f64>, Vec<f64>) {
    set_guard_executable(&program());
    fixture.write_bursts();
    let bursts = EVENTS / BURST;
    fixture.play(&format!(
        "for i in $(seq {bursts}); do cat ../bursts/$i; sleep {PACE}; done"
    ));
    let _worker = fixture.worker();
    let store = fixture.open().await;
    fixture.stored(&store).await;
    let (mut stored, mut unstored) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // Each side goes first as often as the other.
        if pair % 2 == 0 {
            stored.push(fixture.stored(&store).await);
            unstored.push(fixture.unstored().await);
        } else {
            unstored.push(fixture.unstored().await);
            stored.push(fixture.stored(&store).await);
        }
    }
    (stored, unstored)
}

/// A store, and a home whose repository the jobs work in.
struct WorkerFixture {
    home: Home,
    place: String,
}

impl WorkerFixture {
    fn new(place: &str) -> Self {
        Self {
            home: Home::new(""),
            place: place.to_owned(),
        }
    }

    fn codex(&self) -> PathBuf {
        self.home.root().join("codex.sh")
    }

    /// Has Codex do this in each turn.
    fn play(&self, script: &str) {
        let run = Action::Run {
            script: script.to_owned(),
        };
        let plan = Plan::new().on("turn/start", [Action::Answer, run]);
        let path = self.home.root().join("plan.json");
        fs::write(&path, serde_json::to_vec(&plan).unwrap()).unwrap();
        let fake = fake_codex_path();
        let script = format!(
            "#!/bin/sh\nexport {PLAN}={} {VERSION}={WITHOUT_TAKEOVER}\nexec {} \"$@\"\n",
            path.display(),
            fake.display()
        );
        write_program(&self.codex(), &script);
    }

    /// Beside the directory that Codex works in.
    fn fifo(&self, name: &str) -> Receiver {
        let path = self.home.root().join(name);
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        // Open to be written too, so that it has no end between two jobs.
        let open = fs::OpenOptions::new().read(true).write(true).open(path);
        Receiver::from_file(open.unwrap()).unwrap()
    }

    fn write_bursts(&self) {
        let directory = self.home.root().join("bursts");
        fs::create_dir(&directory).unwrap();
        for number in 1..=EVENTS / BURST {
            fs::write(directory.join(number.to_string()), burst(number)).unwrap();
        }
    }

    fn worker(&self) -> Worker {
        let mut command = Command::new(program());
        command
            .args(["worker", "--store", &self.place, "--codex-bin"])
            .arg(self.codex())
            .env_clear()
            .envs(self.home.env())
            .env("CODEX_MCP_LOG", "warn")
            .current_dir(self.home.root())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Worker(command.spawn().unwrap())
    }

    async fn open(&self) -> JobStore {
        let access = Access::of(self.home.state_home().join("codex-mcp"));
        JobStore::open(&self.place.parse().unwrap(), &access)
            .await
            .unwrap()
    }

    async fn submit(&self, store: &JobStore) -> JobId {
        let request = Request::new(PROMPT, self.home.work().to_str().unwrap());
        store.submit(&NewJob::new(request)).await.unwrap()
    }

    /// From the claim of a job to its end being written down.
    async fn stored(&self, store: &JobStore) -> f64 {
        let id = self.submit(store).await;
        let job = completed(store, &id).await;
        let last = store.latest_event(&id).await.unwrap();
        assert_eq!(usize::try_from(last).unwrap(), EVENTS + FRAME);
        job.summary.duration().unwrap().as_secs_f64()
    }

    /// From the start of the run to its end.
    async fn unstored(&self) -> f64 {
        let mut env = self.home.env();
        // Cargo sets it for this bench and the worker doesn't have it: with it, each
        // command of the script would take longer to start on this side alone.
        env.push(("LD_LIBRARY_PATH".into(), "".into()));
        let request = call::CallRequest {
            codex_home: self.home.codex_home(),
            env: env.clone(),
            prompt: PROMPT.to_owned(),
            cwd: self.home.work(),
            resume: None,
            model: None,
            sandbox: None,
            effort: None,
            profile: None,
            settings: job_queue::call_settings::CallSettings::default(),
            images: Vec::new(),
            output_schema: None,
            timeout: TIME_LIMIT,
            tool_limit: None,
            keep_stream: false,
            member: None,
            refused_until: None,
        };
        let options = Options {
            launch: Launch {
                codex: Some((self.codex(), Source::FlagOrVariable)),
                line_limit: DEFAULT_LINE_LIMIT,
            },
            codex_home: self.home.codex_home(),
            timeouts: Timeouts {
                approval: TIME_LIMIT,
                stall: TIME_LIMIT,
            },
        };
        let engine = Engine::new(options).with_env(env);
        // The worker has one that runs.
        engine.introduce().await.unwrap();
        let outcome = call::run(&engine, &request, |_| {}, CancellationToken::new()).await;
        engine.shut_down().await;
        assert!(outcome.failure.is_none(), "{outcome:?}");
        outcome.took.as_secs_f64()
    }
}

/// A worker, which ends when this is dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        self.0.wait().unwrap();
    }
}

/// Steps as Codex tells them.
fn burst(number: usize) -> String {
    let mut lines = String::new();
    for step in 0..BURST / STEPS {
        for item in items_of(&format!("{number}_{step}")) {
            writeln!(lines, "{item}").unwrap();
        }
    }
    lines
}

fn items_of(name: &str) -> [Value; STEPS] {
    let command = |id: &str, output: &str| {
        json!({"id": format!("{id}_{name}"), "type": "commandExecution",
            "command": "/bin/bash -lc 'cargo test --quiet --package parser'",
            "aggregatedOutput": output, "exitCode": 0, "status": "completed"})
    };
    let output = "test lexer::tests::numbers ... ok\n".repeat(15);
    let thought = "**Looking at how numbers are read** ".repeat(6);
    let message = "The lexer takes the sign for an operator of its own. ".repeat(4);
    [
        command("first", ""),
        command("second", &output),
        json!({"id": format!("thought_{name}"), "type": "reasoning", "summary": [thought]}),
        json!({"id": format!("message_{name}"), "type": "agentMessage", "text": message}),
    ]
}

/// Waits until a job has completed.
async fn completed(store: &JobStore, id: &JobId) -> Job {
    let until = Instant::now() + TIME_LIMIT;
    loop {
        let job = store.get(id).await.unwrap().unwrap();
        if job.summary.state == JobState::Completed {
            return job;
        }
        let goes_on = !job.summary.state.has_ended() && Instant::now() < until;
        assert!(goes_on, "not completed: {job:#?}");
        sleep(LOOK).await;
    }
}
