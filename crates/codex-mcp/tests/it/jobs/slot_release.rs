//! Jobs that are submitted just when an idle worker leaves.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codex_engine::binary::Source;
use job_queue::logic::JobState;
use job_queue::store::{JobStore, NewJob, Request};
use job_queue::worker::{
    GRACE, JobTools, Options, RetakeOutcome, Timing, UsualNotifiers, WorkerSlot, run,
};
use mcp_server::OwnThreadTools;
use settings::CONCURRENCY;
use settings::bounds::Bounds;
use settings::store_access::{Access, OthersJobs};
use settings::store_location::Location;
use supervise::spawn::set_guard_executable;
use tokio_util::sync::CancellationToken;

use super::{WorkerFixture, get};

/// A slot that submits a job the moment the worker releases it.
struct ContestedSlot {
    location: Location,
    access: Access,
    jobs: Vec<Request>,
    next: RetakeOutcome,
    hold: RetakeOutcome,
    log: Log,
}

type Log = Arc<Mutex<Vec<String>>>;

impl ContestedSlot {
    fn note(&self, what: &str) {
        self.log.lock().unwrap().push(what.to_owned());
    }
}

impl WorkerSlot for ContestedSlot {
    fn ready(&mut self) -> io::Result<()> {
        self.note("ready");
        Ok(())
    }

    fn is_held(&self) -> bool {
        self.hold == RetakeOutcome::Ours
    }

    fn release(&mut self) {
        if self.hold == RetakeOutcome::Theirs {
            return;
        }
        self.hold = RetakeOutcome::Theirs;
        self.note("release");
        let Some(job) = self.jobs.pop() else { return };
        let (location, access) = (self.location.clone(), self.access.clone());
        let submitting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let store = JobStore::open(&location, &access).await.unwrap();
                store.submit(&NewJob::new(job)).await.unwrap();
            });
        });
        submitting.join().unwrap();
    }

    fn retake(&mut self) -> RetakeOutcome {
        self.note("retake");
        self.hold = self.next;
        self.next
    }
}

/// Runs a worker on a contested slot; returns the calls of the slot and the number of jobs (of two)
/// that were done.
async fn run_on_contested_slot(next: RetakeOutcome) -> (Vec<String>, usize) {
    set_guard_executable(Path::new(env!("CARGO_BIN_EXE_codex-mcp")));
    let stage = WorkerFixture::sqlite();
    let log = Log::default();
    let slot = ContestedSlot {
        location: stage.location(),
        access: stage.access(),
        jobs: vec![stage.request("touch second"), stage.request("touch first")],
        next,
        hold: RetakeOutcome::Ours,
        log: Arc::clone(&log),
    };
    let options = Options {
        notifiers: UsualNotifiers {
            notify: Vec::new(),
            kinds: Vec::new(),
            answer_by_mail: false,
            user_identity: None,
            atm_home: PathBuf::new(),
            audit_limit: 10 << 20,
        },
        location: stage.location(),
        host: "here".to_owned(),
        codex: Some((stage.codex(), Source::FlagOrVariable)),
        codex_home: stage.home.codex_home(),
        tools: JobTools::new(|_| Arc::new(OwnThreadTools::default())),
        bounds: Bounds::default().into(),
        state: stage.home.state_home().join("codex-mcp"),
        keep_jobs: std::time::Duration::MAX,
        stall: Duration::from_secs(300),
        concurrency: CONCURRENCY,
        idle: Some(Duration::from_millis(50)),
        grace: GRACE,
        others: OthersJobs::Leave,
        timing: Timing::default(),
    };
    let never = CancellationToken::new();
    run(options, slot, never.clone(), never).await.unwrap();
    let store = stage.open().await;
    let listed = store.list(&Default::default(), 10).await.unwrap();
    for job in &listed.jobs {
        assert_eq!(
            get(&store, &job.id).await.summary.state,
            JobState::Completed
        );
    }
    (log.lock().unwrap().clone(), listed.jobs.len())
}

#[tokio::test]
async fn worker_stays_when_a_job_arrives_while_it_leaves() {
    let (slot, done) = run_on_contested_slot(RetakeOutcome::Ours).await;
    assert_eq!(done, 2);
    assert_eq!(
        slot,
        ["ready", "release", "retake", "release", "retake", "release"]
    );
}

/// The worker finishes the job that it has taken, and leaves the other to the new owner of the
/// slot.
#[tokio::test]
async fn worker_whose_slot_is_taken_leaves_when_its_job_is_done() {
    let (slot, done) = run_on_contested_slot(RetakeOutcome::Theirs).await;
    assert_eq!(done, 1);
    assert_eq!(slot, ["ready", "release", "retake"]);
}
