//! A job that is submitted just when an idle worker leaves.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codex_engine::binary::Source;
use job_queue::logic::JobState;
use job_queue::store::{JobStore, NewJob, Request};
use job_queue::worker::{GRACE, Options, Retaken, Timing, ToolsOfJobs, WorkerSlot, run};
use mcp_server::OurTools;
use settings::CONCURRENCY;
use settings::bounds::Bounds;
use settings::store_access::{Access, OthersJobs};
use settings::store_location::Location;
use supervise::spawn::guards_are;
use tokio_util::sync::CancellationToken;

use super::{Stage, get};

/// A post for which somebody submits a job when it is let go.
struct Contested {
    location: Location,
    access: Access,
    jobs: Vec<Request>,
    next: Retaken,
    hold: Retaken,
    log: Log,
}

type Log = Arc<Mutex<Vec<String>>>;

impl Contested {
    fn note(&self, what: &str) {
        self.log.lock().unwrap().push(what.to_owned());
    }
}

impl WorkerSlot for Contested {
    fn ready(&mut self) -> io::Result<()> {
        self.note("ready");
        Ok(())
    }

    fn release(&mut self) {
        if self.hold == Retaken::Theirs {
            return;
        }
        self.hold = Retaken::Theirs;
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

    fn retake(&mut self) -> Retaken {
        self.note("retake");
        self.hold = self.next;
        self.next
    }
}

/// What was done with the post, and how many jobs of two were done.
async fn worked(next: Retaken) -> (Vec<String>, usize) {
    guards_are(Path::new(env!("CARGO_BIN_EXE_codex-mcp")));
    let stage = Stage::sqlite();
    let log = Log::default();
    let post = Contested {
        location: stage.location(),
        access: stage.access(),
        jobs: vec![stage.request("touch second"), stage.request("touch first")],
        next,
        hold: Retaken::Ours,
        log: Arc::clone(&log),
    };
    let options = Options {
        location: stage.location(),
        host: "here".to_owned(),
        codex: Some((stage.codex(), Source::FlagOrVariable)),
        codex_home: stage.home.codex_home(),
        tools: ToolsOfJobs::new(|_| Arc::new(OurTools::default())),
        bounds: Bounds::default().into(),
        state: stage.home.state_home().join("codex-mcp"),
        stall: Duration::from_secs(300),
        concurrency: CONCURRENCY,
        idle: Some(Duration::from_millis(50)),
        grace: GRACE,
        others: OthersJobs::Leave,
        timing: Timing::default(),
    };
    let never = CancellationToken::new();
    run(options, post, never.clone(), never).await.unwrap();
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
async fn a_worker_that_sees_a_job_stays() {
    let (post, done) = worked(Retaken::Ours).await;
    assert_eq!(done, 2);
    assert_eq!(
        post,
        ["ready", "release", "retake", "release", "retake", "release"]
    );
}

/// The job that it has taken is done; the rest is for who has its post.
#[tokio::test]
async fn a_worker_whose_post_is_taken_leaves_when_its_job_is_done() {
    let (post, done) = worked(Retaken::Theirs).await;
    assert_eq!(done, 1);
    assert_eq!(post, ["ready", "release", "retake"]);
}
