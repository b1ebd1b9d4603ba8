//! Continues the jobs of an earlier worker of this machine that was killed.
//!
//! ```text
//!   earlier worker ── AttemptRecord ──► guard of its app-server
//!        ✗ killed                            │ within some 14 s
//!   this worker ◄────────────────────────────┘
//!        ├─ take_over ──► store: the same attempt, with this worker
//!        └─ LeftWork ───► attempt, which continues the turn
//! ```
//!
//! The guard hands an app-server to one worker only, and the store gives a job to it only while the
//! earlier worker still has the job: so a turn is continued once, and no prompt is sent again. A run has
//! an app-server of its own, calls share theirs.

use std::collections::HashSet;
use std::io;
use std::iter::once;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use codex_engine::{LeftAppServer, LeftAppServerError};
use futures::future::join_all;
use safe_files::state_directory::make_directory;
use sha2::{Digest, Sha256};
use supervise::adoptable::AdoptionSockets;
use supervise::private_socket::check_directory;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::attempt::{HeldJob, attempt};
use super::attempt_record::AttemptRecord;
use super::engines::EngineHandle;
use super::left_turn::{LeftRun, LeftTurn, LeftWork};
use super::lock::WorkerLock;
use super::{Options, Timing, Worker, attempt_spec, engines};
use crate::call::CallRecord;
use crate::run::spec::StoredRun;
use crate::store::{Claim, ClaimedJob, StoreError};

/// The directory of the adoption sockets, in the state directory.
const DIRECTORY: &str = "workers";

/// The outcome of a message to the turn that the earlier worker was passing on.
const MAY_HAVE_ARRIVED: &str = "its worker was killed while it passed the message on, so the \
    message may have arrived: see `codex-mcp jobs logs`";

/// A job that was taken over, with its record.
struct TakenJob<R> {
    held: HeldJob,
    claimed: ClaimedJob,
    asked: Instant,
    record: R,
}

/// The adoption sockets of the workers of a store on a machine, and how long their app-servers run
/// without a worker; `None` if no other worker can continue the turns of this one.
pub(super) fn sockets(options: &Options) -> Option<(AdoptionSockets, Duration)> {
    let directory = options.state.join(DIRECTORY);
    let made = make_directory(&directory).and_then(|()| check_directory(&directory));
    if let Err(error) = made {
        tracing::warn!("the turns of this worker end with it: {error}");
        return None;
    }
    // Machines may share a state directory, as on NFS, but not their sockets.
    let lock = WorkerLock::on(&options.host, &options.location, &options.state);
    let owner = Sha256::new()
        .chain_update(&options.host)
        .chain_update([0])
        .chain_update(lock.file().as_os_str().as_encoded_bytes())
        .finalize();
    let owner = owner.iter().take(8).map(|byte| format!("{byte:02x}"));
    let sockets = AdoptionSockets::new(directory, owner.collect::<String>());
    Some((sockets, wait(&options.timing)))
}

/// How long an app-server runs without a worker. A worker is killed up to a heartbeat after it has
/// renewed its leases, if it can reach the store; once a lease has ended, another worker may run the job
/// again, so the app-server must have ended before. `ending` is left twice: for the store to give the jobs
/// to the next worker ([`take_jobs`]), and for the app-server to end if it does not.
fn wait(timing: &Timing) -> Duration {
    timing
        .lease
        .saturating_sub(timing.heartbeat + 2 * timing.ending)
}

/// The adoption sockets that workers have left, or that belong to workers that live.
pub(super) fn left_sockets(worker: &Worker) -> Vec<PathBuf> {
    let Some(sockets) = worker.engines.sockets() else {
        return Vec::new();
    };
    sockets.left().unwrap_or_else(|error| {
        tracing::error!("cannot look for running app-servers: {error}");
        Vec::new()
    })
}

/// Takes over the app-server with this adoption socket, and continues its jobs to their ends.
pub(super) async fn continue_jobs(worker: &Rc<Worker>, socket: &Path, closing: &CancellationToken) {
    let left = match LeftAppServer::take(socket).await {
        Ok(Some(left)) => left,
        Ok(None) => return,
        // Its worker lives, as one does that is about to end.
        Err(LeftAppServerError::Guard(error)) if error.kind() == io::ErrorKind::TimedOut => {
            return tracing::debug!("the app-server of {} has a worker", socket.display());
        }
        Err(error) => return tracing::error!("cannot take over a running app-server: {error}"),
    };
    let mut calls = Vec::new();
    for taken in take_jobs(worker, &left, closing).await {
        let TakenJob {
            held,
            claimed,
            asked,
            record,
        } = taken;
        match record {
            AttemptRecord { run: Some(run), .. } => {
                // The app-server of a run has no other jobs.
                let left = LeftWork::Run(Box::new(LeftRun {
                    app_server: left,
                    record: *run,
                }));
                return attempt(held, claimed, asked, Some(left)).await;
            }
            AttemptRecord {
                call: Some(record), ..
            } => calls.push(TakenJob {
                held,
                claimed,
                asked,
                record,
            }),
            // A newer program has recorded other work. Its job is left to its lease.
            AttemptRecord { .. } => tracing::error!("cannot continue job {}", claimed.claim.job),
        }
    }
    match calls.is_empty() {
        true => left.end().await,
        false => continue_calls(worker, left, calls).await,
    }
}

/// Continues calls to their ends.
async fn continue_calls(
    worker: &Rc<Worker>,
    left: LeftAppServer,
    taken: Vec<TakenJob<CallRecord>>,
) {
    let (told, engine) = watch::channel(None);
    let (jobs, others): (Vec<_>, Vec<_>) = taken
        .into_iter()
        .partition(|taken| StoredRun::of(&taken.claimed.job.request).is_none());
    let continued: HashSet<_> = jobs
        .iter()
        .map(|taken| taken.record.session.clone())
        .collect();
    let first = jobs
        .first()
        .or(others.first())
        .map(|taken| taken.claimed.clone());
    let adopting = async {
        let adopted = match first {
            Some(first) => adopt(worker, left, &first).await,
            None => None,
        };
        let shared = adopted.as_ref().map(EngineHandle::shared);
        told.send_replace(Some(shared));
        if let Some(engine) = &adopted {
            engines::close_others(engine.engine(), &continued).await;
        }
        adopted
    };
    let attempts = jobs.into_iter().map(|taken| {
        let turn = LeftTurn {
            engine: engine.clone(),
            record: taken.record,
        };
        let left = LeftWork::Turn(Box::new(turn));
        (taken.held, taken.claimed, taken.asked, Some(left))
    });
    // The row of such a job was changed: a run has an app-server of its own. The attempt refuses it.
    let others = others.into_iter();
    let others = others.map(|taken| (taken.held, taken.claimed, taken.asked, None));
    let attempts = attempts.chain(others);
    let attempts = attempts.map(|(held, claimed, asked, left)| attempt(held, claimed, asked, left));
    let (engine, _) = tokio::join!(adopting, join_all(attempts));
    if let Some(engine) = engine {
        engine.tidy().await;
    }
}

/// Takes the jobs of an app-server over from the earlier worker, as far as the store gives them in time:
/// meanwhile nobody follows their turns.
async fn take_jobs(
    worker: &Rc<Worker>,
    left: &LeftAppServer,
    closing: &CancellationToken,
) -> Vec<TakenJob<AttemptRecord>> {
    let until = Instant::now() + worker.options.timing.ending;
    let mut taken = Vec::new();
    let records: Vec<AttemptRecord> = records(left).collect();
    for mut record in records {
        if closing.is_cancelled() {
            break;
        }
        let job = record.claim.job.clone();
        record.takers.push(worker.id().clone());
        // A worker that looks for claims whose answers were lost must not begin this job.
        worker.unsettled.borrow_mut().insert(job.clone());
        let asked = Instant::now();
        let take = async {
            left.keep(job.as_str(), &record).await;
            let take = async || worker.take_job(&record).await;
            worker
                .store_health
                .retry_until_cancelled(closing, take)
                .await
        };
        match timeout_at(until, take).await {
            Ok(Some(Some(claimed))) => {
                taken.extend(HeldJob::new(worker, &claimed.claim).map(|held| TakenJob {
                    held,
                    claimed,
                    asked,
                    record,
                }));
            }
            Ok(Some(None)) => {
                worker.unsettled.borrow_mut().remove(&job);
            }
            Ok(None) | Err(_) => {
                tracing::error!("cannot take over job {job} in time: its turn is ended");
            }
        }
    }
    taken
}

/// Takes over the app-server of a job, and of others that agree with the job in all that matters.
async fn adopt<'a>(
    worker: &'a Worker,
    left: LeftAppServer,
    first: &ClaimedJob,
) -> Option<EngineHandle<'a>> {
    let (options, job) = (&worker.options, &first.job);
    let mail = attempt_spec::attempt_spec(job, options).await;
    let mail = mail.ok().and_then(|spec| spec.mail);
    let codex = attempt_spec::chosen(job, options);
    let codex_home = attempt_spec::codex_home(job, options);
    let tools = options.tools.with(mail.as_ref());
    let adopting = worker.engines.adopt(left, codex, &codex_home, tools);
    let adopted = adopting.await;
    let adopted = adopted.map_err(|error| {
        tracing::error!("cannot take over a running app-server: {error}");
    });
    adopted.ok()
}

impl Worker {
    /// Takes a job over; `None` if it has ended, or a worker that did not take it from the guard has it.
    async fn take_job(&self, record: &AttemptRecord) -> Result<Option<ClaimedJob>, StoreError> {
        let AttemptRecord { claim, takers, .. } = record;
        // The last of the takers is this worker: the answer to an earlier try may have been lost.
        for worker in once(&claim.worker).chain(takers) {
            let held = Claim {
                worker: worker.clone(),
                ..claim.clone()
            };
            let (store, lease) = (&self.store, self.options.timing.lease);
            if let Some(taken) = store.take_over(&held, self.id(), lease).await? {
                store
                    .conclude_taken_messages(&taken.claim, MAY_HAVE_ARRIVED)
                    .await?;
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }
}

/// The attempts that the earlier owner of an app-server has noted.
fn records(left: &LeftAppServer) -> impl Iterator<Item = AttemptRecord> {
    let records = left.values().map(|(job, record)| {
        let read = serde_json::from_str(record);
        read.map_err(|error| tracing::warn!("cannot continue job {job}: {error}"))
    });
    records.filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_server_ends_before_another_worker_may_run_its_jobs() {
        let timing = Timing::default();
        let least_left = timing.lease - timing.heartbeat;
        let (to_take, to_end) = (timing.ending, timing.ending);
        assert!(wait(&timing) + to_take + to_end <= least_left);
        assert_eq!(wait(&timing), Duration::from_secs(14));
        let short = Timing {
            heartbeat: timing.lease,
            ..timing
        };
        assert_eq!(wait(&short), Duration::ZERO);
    }
}
