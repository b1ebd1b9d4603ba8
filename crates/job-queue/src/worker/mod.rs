//! A worker: takes jobs from a store and has Codex do them, several at once.
//!
//! ```text
//!           claim             events, session
//!  store ─────────► attempt ──► journal ──────► store
//!    │                 ▲ │ outcome
//!    │ unwanted,       │ └──► finish, or give up ──► store
//!    └─────────────► cancel ◄── lease over, worker ends
//!      not ours
//!
//!  store ◄── open questions ── dialog ◄── attempt
//!    └────── instructions ───────┴──────► attempt
//! ```
//!
//! Each attempt is a task of its own on the one thread, which renews its own lease and
//! writes its own events; the store being slow or away holds up none of them. What an
//! attempt is cancelled for is kept by its `cancel_handle`. Beside them the worker has a
//! `heartbeat`: it says that it is there, takes jobs from workers that are lost, and
//! hears of cancellations and instructions. Jobs share `engines`; a Codex that dies is to its jobs what a
//! lost worker is.
//!
//! # When the store can't be used
//!
//! The worker asks again and again, and says so once (`trouble`). Codex goes on
//! meanwhile, unless the job would be run again elsewhere when its lease has ended,
//! see [`Lease`](crate::logic::Lease). Events that there is no room for any
//! more are left out and counted. Jobs are taken from other workers only when the
//! store, and this machine, have been there for as long as those may take to renew
//! their leases. A worker that leaves when it is idle also leaves a store that cannot be
//! used for that long, once no job is worked on.
//!
//! # When the account is used up
//!
//! An attempt that begins or ends with a usage limit of the account reached is put back into
//! the queue, and not claimed before the limit is reset
//! ([`Wait`](crate::logic::Wait)). A worker does not leave while there is such a job.
//!
//! # When the worker ends
//!
//! When it is told to, it takes no more jobs and lets those finish that run, for a
//! grace time; then their Codexes are ended, and the jobs given up: they run again
//! where they may, and fail as "worker stopped" otherwise. When it is killed, its
//! guards end the Codexes, and another worker takes the jobs when their leases end.

mod admission;
mod attempt;
mod cancel_handle;
mod claiming;
mod dialog;
mod ended;
mod engines;
mod heartbeat;
mod journal;
pub mod lock;
mod order;
mod reporter;
mod result;
mod running;
mod slot;
mod stalls;
pub mod start;
mod telling;
mod trouble;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use agent_team::Member;
use codex_engine::ThreadTools;
use codex_engine::binary::Source;
use settings::bounds::CurrentBounds;
use settings::store_access::{Access, OthersJobs};
use settings::store_location::Location;
use tokio::task::LocalSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::cancel_handle::CancelHandle;
use self::engines::{Engines, Login};
use self::trouble::Trouble;
use super::store::{JobStore, NewWorker, StoreError, new_worker_id};
use crate::logic::{JobId, WorkerId};

pub use self::dialog::{ASKED, TOLD, UNANSWERED};
pub use self::journal::{AGAIN, DROPPED, QUEUE_LIMIT, WAITS};
pub use self::reporter::{BEGINS, STEP, THREAD, TURN, TURN_ENDED};
pub use self::slot::{Announcement, LockedSlot, Retaken, WorkerSlot};

/// How long jobs may go on when their worker was told to end, if nothing else is said.
pub const GRACE: Duration = Duration::from_secs(30);

/// How long what is left to write may take when a worker ends.
const PARTING: Duration = Duration::from_secs(10);

/// A member whose mail the threads of a job may use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MailOf {
    /// The member.
    pub member: Member,
    /// The home directory of teams.
    pub atm_home: PathBuf,
}

/// What makes the tools of ours for the threads of a job.
#[derive(Clone)]
pub struct ToolsOfJobs(Arc<MakeTools>);

type MakeTools = dyn Fn(Option<&MailOf>) -> Arc<dyn ThreadTools> + Send + Sync;

impl ToolsOfJobs {
    /// `make` is given whose mail is among them, if anybody's is.
    pub fn new(
        make: impl Fn(Option<&MailOf>) -> Arc<dyn ThreadTools> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }

    fn with(&self, mail: Option<&MailOf>) -> Arc<dyn ThreadTools> {
        (self.0)(mail)
    }
}

impl fmt::Debug for ToolsOfJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolsOfJobs")
    }
}

/// What a worker is to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the jobs are.
    pub location: Location,
    /// The name of this machine, see [`host`](super::host).
    pub host: String,
    /// The Codex for jobs of other machines, and for those that name none; the first
    /// on PATH if there is none here either.
    pub codex: Option<(PathBuf, Source)>,
    /// The home of Codex for such jobs.
    pub codex_home: PathBuf,
    /// The tools of ours that Codex's threads get.
    pub tools: ToolsOfJobs,
    /// What jobs may ask for at most, whoever has submitted them; read anew for each job.
    pub bounds: CurrentBounds,
    /// The directory of what is kept of this machine: the worktrees of runs, and their
    /// evidence.
    pub state: PathBuf,
    /// How many jobs run at once.
    pub concurrency: NonZeroU32,
    /// After how long without work it leaves; `None` is never.
    pub idle: Option<Duration>,
    /// After which silence a job counts as stalled.
    pub stall: Duration,
    /// How long jobs may go on when it was told to end.
    pub grace: Duration,
    /// What it does with the jobs of others.
    pub others: OthersJobs,
    /// When it says that it is still there.
    pub timing: Timing,
}

impl Options {
    /// As whom it opens its store.
    fn access(&self) -> Access {
        Access {
            others: self.others,
            ..Access::of(&self.state)
        }
    }
}

/// When a worker says that it is still there. All workers of a store should say so
/// equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long it has a job without saying so.
    pub lease: Duration,
    /// How often it does.
    pub heartbeat: Duration,
    /// How long before the end of a lease that can't be renewed a job is ended that
    /// may run elsewhere after it: more than Codex takes to end.
    pub ending: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            ending: Duration::from_secs(3),
        }
    }
}

/// Why a worker can't work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its store can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It doesn't get its post.
    #[error("the worker can't begin: {0}")]
    Slot(io::Error),
}

/// Works until it is told to end, or has been idle for long enough. Once `closing` is
/// cancelled it takes no more jobs, and lets those that run finish for the grace time;
/// once `hurry` is, not even that. To be run on the thread that lives longest, see
/// [`spawn`](supervise::spawn).
///
/// # Errors
///
/// [`WorkerError`], if it can't begin. Later trouble with the store is told in the
/// log, and waited out.
pub async fn run(
    options: Options,
    mut post: impl WorkerSlot,
    closing: CancellationToken,
    hurry: CancellationToken,
) -> Result<(), WorkerError> {
    let store = JobStore::open(&options.location, &options.access()).await?;
    let worker = Rc::new(Worker::new(store, options));
    worker.store.register(&worker.about).await?;
    if let Err(error) = post.ready() {
        worker.leave().await;
        return Err(WorkerError::Slot(error));
    }
    tracing::info!(
        "the worker {} takes jobs from {}, {} at once",
        worker.about.id,
        worker.store.location(),
        worker.about.concurrency
    );
    let tasks = LocalSet::new();
    // On the heap, as together they are larger than a thread's stack may be.
    let working = async {
        tokio::select! {
            () = Box::pin(worker.run_heartbeat()) => {}
            never = worker.engines.tend() => match never {},
            () = Box::pin(claiming::work(&worker, &mut post, &closing, &hurry)) => {}
            () = worker.until_the_store_is_given_up() => {}
        }
    };
    tasks.run_until(working).await;
    worker.engines.shut_down().await;
    worker.leave().await;
    Ok(())
}

/// What the parts of a worker share.
struct Worker {
    store: JobStore,
    about: NewWorker,
    options: Options,
    /// Those of the jobs that run.
    cancel_handles: RefCell<HashMap<JobId, Rc<CancelHandle>>>,
    /// The logins of the jobs that this worker has put back to wait for a usage limit.
    logins: RefCell<HashMap<JobId, Login>>,
    trouble: Trouble,
    work: Work,
    engines: Engines,
}

/// The jobs that are worked on: those whose outcome waits to be written are not.
struct Work {
    jobs: Cell<usize>,
    ended: Cell<Instant>,
}

impl Work {
    fn new() -> Self {
        Self {
            jobs: Cell::new(0),
            ended: Cell::new(Instant::now()),
        }
    }

    /// For how long no job has been worked on.
    fn idle_for(&self) -> Duration {
        match self.jobs.get() {
            0 => self.ended.get().elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Counts a job while it is worked on.
    async fn on<T>(&self, job: impl Future<Output = T>) -> T {
        self.jobs.set(self.jobs.get() + 1);
        let done = job.await;
        self.jobs.set(self.jobs.get().saturating_sub(1));
        self.ended.set(Instant::now());
        done
    }
}

impl Worker {
    fn new(store: JobStore, options: Options) -> Self {
        let about = NewWorker {
            id: new_worker_id(),
            host: options.host.clone(),
            pid: std::process::id(),
            concurrency: options.concurrency.get(),
        };
        Self {
            store,
            about,
            options,
            cancel_handles: RefCell::default(),
            logins: RefCell::default(),
            trouble: Trouble::new(),
            work: Work::new(),
            engines: Engines::default(),
        }
    }

    fn id(&self) -> &WorkerId {
        &self.about.id
    }

    async fn leave(&self) {
        match timeout(PARTING, self.store.remove_worker(self.id())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!("the worker could not sign off: {error}"),
            Err(_) => tracing::warn!("the worker could not sign off in time"),
        }
        tracing::info!("the worker {} has ended", self.id());
    }
}
