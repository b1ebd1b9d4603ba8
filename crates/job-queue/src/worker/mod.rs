//! A worker process: takes jobs from a store and runs them with Codex, several at once.
//!
//! ```text
//!           claim             events, session
//!  store ─────────► attempt ──► journal ──────► store
//!    │                 ▲ │ outcome
//!    │ cancelled,      │ └──► finish, or give up ──► store
//!    └─────────────► cancel ◄── lease over, worker ends
//!      claim lost
//!
//!  store ◄── open questions ── dialog ◄── attempt
//!    └────── instructions ───────┴──────► attempt
//! ```
//!
//! Each attempt is a task on the only thread. It renews its own lease and writes its own events,
//! and a slow or missing store delays no other attempt. Its `cancel_handle` keeps the reason of
//! a cancellation. The worker's `heartbeat` shows that the worker is alive, recovers jobs of
//! lost workers, and polls for cancellations and instructions. Jobs share `engines`; the death
//! of a Codex affects its jobs like the loss of a worker.
//!
//! # When the store cannot be used
//!
//! The worker retries, and logs the trouble once (`store_health`). Codex continues meanwhile,
//! unless the job would run again elsewhere when its lease has ended, see
//! [`Lease`](crate::logic::Lease). Events beyond the limit of the queue are dropped and counted.
//! Jobs of other workers are recovered only after the store, and this machine, have been
//! available for as long as those workers may take to renew their leases, and the store's clock,
//! by which leases end, was not set forward meanwhile. A worker with an idle time also gives up a
//! store that cannot be used for that time, once no job is worked on.
//!
//! # When the account has reached a usage limit
//!
//! A job whose attempt starts or ends at a usage limit of the account is put back into the
//! queue, and not claimed before the limit is reset ([`Wait`](crate::logic::Wait)). A worker
//! does not leave while there is such a job.
//!
//! # When the worker ends
//!
//! When it is told to end, the worker takes no more jobs and lets the running ones finish for a
//! grace time. Then it ends their Codexes and gives the jobs up: they run again where they may,
//! and fail as "worker stopped" otherwise. The worker that ends a job in this way sends its
//! notification.
//!
//! When the worker is killed, its guards wait 14 s for the next worker of the machine, which continues
//! the turns of calls, where Codex can listen on a port (`takeover`). Otherwise they end the Codexes,
//! and another worker recovers the jobs when their leases end.

mod admission;
mod attempt;
mod attempt_end;
mod attempt_record;
mod attempt_spec;
mod cancel_handle;
mod claiming;
mod dialog;
mod engines;
mod heartbeat;
mod journal;
mod left_turn;
pub mod lock;
mod mail_question;
mod notifications;
mod reporter;
mod result;
mod run_attempt;
mod run_result;
mod slot;
mod stalls;
pub mod start;
mod store_health;
mod takeover;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
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
use tokio::sync::Notify;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::cancel_handle::CancelHandle;
use self::engines::{Engines, Login};
use self::store_health::StoreHealth;
use super::store::{JobStore, NewWorker, StoreError, new_worker_id};
use crate::logic::{JobId, WorkerId};

pub use self::dialog::{ASKED, TOLD, UNANSWERED};
pub use self::journal::{AGAIN, CONTINUES, DROPPED, QUEUE_LIMIT, WAITS};
pub use self::notifications::UsualNotifiers;
pub use self::reporter::{BEGINS, STEP, THREAD, TURN, TURN_ENDED};
pub use self::slot::{Announcement, LockedSlot, RetakeOutcome, WorkerSlot};

/// How long jobs may continue by default when their worker is told to end.
pub const GRACE: Duration = Duration::from_secs(30);

/// How long the last writes to the store may take when a worker ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The access of a job's threads to a member's mail.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MailAccess {
    /// The member.
    pub member: Member,
    /// The home directory of teams.
    pub atm_home: PathBuf,
}

/// Creates our own tools for the threads of a job.
#[derive(Clone)]
pub struct JobTools(Arc<MakeTools>);

type MakeTools = dyn Fn(Option<&MailAccess>) -> Arc<dyn ThreadTools> + Send + Sync;

impl JobTools {
    /// `make` gets the mail that the threads may use, if there is any.
    pub fn new(
        make: impl Fn(Option<&MailAccess>) -> Arc<dyn ThreadTools> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }

    fn with(&self, mail: Option<&MailAccess>) -> Arc<dyn ThreadTools> {
        (self.0)(mail)
    }
}

impl fmt::Debug for JobTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolsOfJobs")
    }
}

/// The options of a worker.
#[derive(Debug, Clone)]
pub struct Options {
    /// The store of the jobs.
    pub location: Location,
    /// The name of this machine, see [`machine`](super::machine).
    pub host: String,
    /// The Codex for jobs of other machines, and for jobs that name none; the first on PATH if
    /// `None`.
    pub codex: Option<(PathBuf, Source)>,
    /// The home of Codex for such jobs.
    pub codex_home: PathBuf,
    /// Our own tools for Codex's threads.
    pub tools: JobTools,
    /// The bounds on all jobs, whoever has submitted them; read anew for each job.
    pub bounds: CurrentBounds,
    /// The state directory of this machine, with the worktrees of runs and their evidence.
    pub state: PathBuf,
    /// How many jobs run at once.
    pub concurrency: NonZeroU32,
    /// After how long without work the worker leaves; never if `None`.
    pub idle: Option<Duration>,
    /// After how long a silence a job counts as stalled.
    pub stall: Duration,
    /// How long ended jobs of this machine are kept.
    pub keep_jobs: Duration,
    /// Who is notified of the jobs that name nobody.
    pub notifiers: UsualNotifiers,
    /// How long jobs may continue when the worker is told to end.
    pub grace: Duration,
    /// What the worker does with the jobs of others.
    pub others: OthersJobs,
    /// The times of leases and heartbeats.
    pub timing: Timing,
}

impl Options {
    /// The access with which the worker opens its store.
    fn access(&self) -> Access {
        Access {
            others: self.others,
            ..Access::of(&self.state)
        }
    }
}

/// The times of leases and heartbeats, which should be the same for all workers of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The length of a lease.
    pub lease: Duration,
    /// The time between two heartbeats, each of which renews the leases.
    pub heartbeat: Duration,
    /// How long before the end of a lease that cannot be renewed the job is cancelled, if it may
    /// then run elsewhere. Must exceed the time that Codex takes to end.
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

/// An error of starting a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The slot is not ready.
    #[error("the worker cannot start: {0}")]
    Slot(io::Error),
}

/// Runs a worker until it is told to end, or has been idle for long enough. Once `closing` is
/// cancelled, the worker takes no more jobs, and lets running ones finish for the grace time;
/// once `hurry` is cancelled, it cancels them at once. Must run on the thread that lives
/// longest, see [`spawn`](supervise::spawn).
///
/// # Errors
///
/// [`WorkerError`], if the worker cannot start. Later trouble with the store is logged, and
/// waited out.
pub async fn run(
    options: Options,
    mut slot: impl WorkerSlot,
    closing: CancellationToken,
    hurry: CancellationToken,
) -> Result<(), WorkerError> {
    let store = JobStore::open(&options.location, &options.access()).await?;
    let worker = Worker::new(store, options);
    let worker = Rc::new(match slot.is_held() {
        true => worker.adoptable(),
        false => worker,
    });
    worker.store.register(&worker.about).await?;
    if let Err(error) = slot.ready() {
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
    // On the heap, as the futures together may be larger than a thread's stack.
    let working = async {
        tokio::select! {
            () = Box::pin(worker.run_heartbeat()) => {}
            never = worker.engines.shut_down_unneeded() => match never {},
            () = Box::pin(claiming::work(&worker, &mut slot, &closing, &hurry)) => {}
            () = worker.until_store_is_given_up() => {}
        }
    };
    tasks.run_until(working).await;
    tasks.run_until(worker.finish_notices()).await;
    worker.engines.shut_down().await;
    worker.leave().await;
    Ok(())
}

/// The state that the parts of a worker share.
struct Worker {
    store: JobStore,
    about: NewWorker,
    options: Options,
    /// The handles of the running jobs.
    cancel_handles: RefCell<HashMap<JobId, Rc<CancelHandle>>>,
    /// The jobs whose attempts have ended before the store had the outcome, and those that are being
    /// taken over or were not in time: until their leases end, the store may say that this worker runs
    /// them.
    unsettled: RefCell<HashSet<JobId>>,
    /// The logins of the jobs that this worker has put back to wait for a usage limit.
    logins: RefCell<HashMap<JobId, Login>>,
    /// The notifications of lost jobs that this worker has ended.
    notices: RefCell<JoinSet<()>>,
    store_health: StoreHealth,
    claims: Cell<ClaimState>,
    /// Woken when an attempt has ended.
    job_ended: Notify,
    work: Work,
    engines: Engines,
}

/// Whether the worker knows all jobs that it has claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    Known,
    /// The answer to a claim has been lost.
    InDoubt,
}

/// Counts the jobs that are worked on, without those that only wait for their final write.
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

    /// How long no job has been worked on.
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
            cancel_handles: RefCell::default(),
            unsettled: RefCell::default(),
            logins: RefCell::default(),
            notices: RefCell::default(),
            store_health: StoreHealth::new(),
            claims: Cell::new(ClaimState::Known),
            job_ended: Notify::new(),
            work: Work::new(),
            engines: Engines::new(None),
            options,
        }
    }

    /// The same worker, whose turns the next holder of the slot continues if this one is killed.
    fn adoptable(self) -> Self {
        let engines = Engines::new(takeover::sockets(&self.options));
        Self { engines, ..self }
    }

    fn id(&self) -> &WorkerId {
        &self.about.id
    }

    async fn leave(&self) {
        match timeout(SHUTDOWN_TIMEOUT, self.store.remove_worker(self.id())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!("the worker could not sign off: {error}"),
            Err(_) => tracing::warn!("the worker could not sign off in time"),
        }
        tracing::info!("the worker {} has ended", self.id());
    }
}
