//! Jobs of `call_codex` on the real Codex: the time of one job with a running worker, beside a
//! turn on an equally warm app-server; and the memory of eight jobs at once, beside eight `codex
//! exec` and beside an app-server with eight turns.

use std::fs;
use std::process::{Child, Command, Stdio};

use scripted_model::{Gate, Reply, Script};
use serde_json::{Value, json};

use crate::crowd::crowd_direct;
use crate::fixture::{Fixture, ServeClient, codex_binary, seconds};
use crate::memory::tree_memory;
use crate::model::{ANSWER, PROMPT};
use crate::stats::Summary;
use crate::table::{Row, Target, Unit};

/// In seconds, beyond the turn.
const ADDED: f64 = 0.025;

const MEMORY: f64 = 0.35;

const AT_ONCE: usize = 8;

/// Jobs before the measured ones: the first turns of an app-server take longer.
const WARM_UP: u16 = 5;

/// The jobs of each round, with a direct turn beside each.
const JOBS: u16 = 20;

/// The `wait_ms` of `call_status`, in milliseconds.
const WAIT: u32 = 60_000;

pub(crate) async fn measure(rounds: u16) -> Vec<Row> {
    vec![ended(rounds * JOBS).await, at_once(rounds).await]
}

async fn ended(jobs: u16) -> Row {
    let fixture = Fixture::new();
    let mut client = fixture.ours().await;
    let server = fixture.direct().await;
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + jobs {
        for turn in 0..2 {
            let (side, took) = if (number + turn) % 2 == 0 {
                (&mut ours, seconds(fixture.job(&mut client)).await)
            } else {
                (&mut direct, seconds(fixture.hello_direct(&server)).await)
            };
            if number >= WARM_UP {
                side.push(took);
            }
        }
    }
    client.finish().await;
    fixture.end_worker();
    Row {
        figure: "a job, from `call_codex` to `completed`",
        unit: Unit::Seconds,
        ours: Summary::of(ours),
        direct: Some(Summary::of(direct)),
        target: Target::AddedAtMost(ADDED),
        notes: vec!["waited for with `wait_ms`; the worker and its Codex are up".to_owned()],
    }
}

/// All have sent their prompt to the model, which does not answer yet.
async fn at_once(rounds: u16) -> Row {
    let (mut ours, mut direct, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare.push(turns_at_once().await);

        let gate = Gate::new();
        let answer = Reply::say(ANSWER).behind(&gate);
        let fixture = Fixture::with_script(Script::new().otherwise([answer]));
        fixture.configure(&format!("worker_concurrency = {AT_ONCE}"));
        let mut client = ServeClient::start(&fixture.serve_launch());
        client.initialize().await;
        let mut jobs = Vec::new();
        for _ in 0..AT_ONCE {
            jobs.push(fixture.submit(&mut client).await);
        }
        gate.reached(AT_ONCE).await;
        ours.push(tree_memory(fixture.worker()));

        let execs: Vec<Exec> = (0..AT_ONCE).map(|_| fixture.exec()).collect();
        gate.reached(2 * AT_ONCE).await;
        direct.push(execs.iter().map(|exec| tree_memory(exec.0.id())).sum());
        gate.release();
        drop(execs);
        for job in jobs {
            completed(&mut client, &job).await;
        }
        client.finish().await;
        fixture.end_worker();
    }
    let (direct, bare) = (Summary::of(direct), Summary::of(bare));
    let reference = format!(
        "for reference: {} ({:.3} × direct) for an app-server with 8 turns, without codex-mcp",
        Unit::Bytes.show(bare.median),
        bare.median / direct.median
    );
    Row {
        figure: "memory (PSS) of 8 jobs at once, all processes",
        unit: Unit::Bytes,
        ours: Summary::of(ours),
        direct: Some(direct),
        target: Target::RatioAtMost(MEMORY),
        notes: vec![
            "the worker and all below it; direct: 8 × `codex exec`".to_owned(),
            reference,
        ],
    }
}

/// The memory of an app-server, spoken to directly, with as many turns at once. An idle one
/// runs beside it and shares its pages, as that of `serve` does with the worker's.
async fn turns_at_once() -> f64 {
    let gate = Gate::new();
    let answer = Reply::say(ANSWER).behind(&gate);
    let fixture = Fixture::with_script(Script::new().otherwise([answer]));
    let _idle = fixture.fresh_direct().await;
    let server = fixture.fresh_direct().await;
    let measuring = async {
        gate.reached(AT_ONCE).await;
        let memory = tree_memory(server.pid());
        gate.release();
        memory
    };
    tokio::join!(measuring, crowd_direct(&fixture, &server, AT_ONCE)).0
}

impl Fixture {
    /// Writes settings to our section of the configuration.
    fn configure(&self, settings: &str) {
        let directory = self.home().atm_home().join(".config/atm");
        fs::create_dir_all(&directory).unwrap();
        let config = format!("[plugins.codex-mcp]\n{settings}\n");
        fs::write(directory.join("config.toml"), config).unwrap();
    }

    async fn job(&self, client: &mut ServeClient) {
        let job = self.submit(client).await;
        completed(client, &job).await;
    }

    /// Submits a job and returns its ID.
    async fn submit(&self, client: &mut ServeClient) -> Value {
        let arguments = json!({"prompt": PROMPT, "cwd": self.work()});
        client.call("call_codex", arguments).await["job_id"].take()
    }

    /// The process number of the worker of jobs.
    fn worker(&self) -> u32 {
        let processes = self.home().processes();
        let worker = processes.iter().find(|one| one.command.contains(" worker"));
        worker.unwrap().pid
    }

    fn end_worker(&self) {
        let pid = nix::unistd::Pid::from_raw(self.worker().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// Starts a `codex exec` with the same prompt.
    fn exec(&self) -> Exec {
        let mut command = Command::new(codex_binary());
        command
            .args(["exec", "--skip-git-repo-check", PROMPT])
            .env_clear()
            .envs(self.direct_env())
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Exec(command.spawn().unwrap())
    }
}

/// A `codex exec`, which is waited for when this is dropped.
struct Exec(Child);

impl Drop for Exec {
    fn drop(&mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

async fn completed(client: &mut ServeClient, job: &Value) {
    let status = json!({"job_id": job, "wait_ms": WAIT});
    let ended = client.call("call_status", status).await;
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(ended["response"], ANSWER, "{ended:#}");
}
