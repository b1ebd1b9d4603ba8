//! Jobs that wait for a usage limit.

use super::*;

fn waiting(long: Duration) -> NextWait {
    let until = SystemTime::now() + long;
    NextWait {
        wait: Wait {
            until,
            reason: WaitReason::LimitReset,
        },
        look_at: until,
        is_new: true,
        resets: 1,
        pauses: 0,
    }
}

pub(super) async fn waiting_job_is_not_claimed_before_its_time(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let (first, mut second) = (new_job("waits"), new_job("does not"));
    second.request.retry = 1;
    for job in [&first, &second] {
        store.submit(job).await.unwrap();
    }
    let claimed = claim(&store, &worker).await.unwrap();
    let requeue = async |claimed: &ClaimedJob, long| {
        let requeue = store.requeue(&claimed.claim, &waiting(long), None).await;
        requeue.unwrap()
    };
    assert_eq!(
        requeue(&claimed, LONG).await,
        Some(Cancellation::NotRequested)
    );
    let shown = store.summary(&first.id).await.unwrap().unwrap();
    assert_eq!(
        shown.wait.map(|wait| wait.reason),
        Some(WaitReason::LimitReset)
    );
    assert_eq!(store.demand("here").await.unwrap(), Demand::Waiting);
    // The worker no longer has the job.
    assert_eq!(requeue(&claimed, LONG).await, None);
    let other = claim(&store, &worker).await.unwrap();
    assert_eq!(other.job.request.prompt, "does not");
    assert!(claim(&store, &worker).await.is_none());

    // A job whose time has come goes first.
    let written = requeue(&other, Duration::from_millis(20)).await;
    assert_eq!(written, Some(Cancellation::NotRequested));
    let claimed = claimed_in_time(&store, &worker).await;
    assert_eq!(claimed.claim.job, other.claim.job);
    assert_eq!(
        claimed.claim.attempt, 2,
        "what the first writes late counts for nothing"
    );
    assert_eq!((claimed.job.waits, claimed.job.counted_attempts()), (1, 1));
    assert_eq!(claimed.job.summary.wait, None);
    // The attempt that ended with the wait uses up no retry.
    let given_up = store.give_up(&claimed.claim, "why").await.unwrap();
    assert_eq!(given_up, Some(JobState::Queued));
}

/// Claims a job that waits for a short time only.
async fn claimed_in_time(store: &JobStore, worker: &WorkerId) -> ClaimedJob {
    wait_for("the end of the wait", async || claim(store, worker).await).await
}

pub(super) async fn waiting_job_can_be_cancelled(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let job = new_job("p");
    store.submit(&job).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    let event = NewEvent {
        kind: "waits".to_owned(),
        data: "{}".to_owned(),
    };
    let requeue = async |claimed: &ClaimedJob| {
        let waiting = waiting(LONG);
        let requeue = store.requeue(&claimed.claim, &waiting, Some(&event));
        requeue.await.unwrap()
    };
    assert_eq!(requeue(&claimed).await, Some(Cancellation::NotRequested));
    let events = store.events(&job.id, 0, 9).await.unwrap();
    assert_eq!(events.len(), 1);
    let waiting_jobs = store.waiting().await.unwrap();
    assert!(waiting_jobs.len() == 1 && waiting_jobs.contains(&job.id));
    let answer = store.request_cancel(&job.id).await.unwrap();
    assert_eq!(answer, Some(CancelResponse::Cancelled));
    assert!(store.waiting().await.unwrap().is_empty());

    // A cancelled job does not wait; it is finished with its result.
    let job = new_job("p");
    store.submit(&job).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    store.request_cancel(&job.id).await.unwrap();
    assert_eq!(requeue(&claimed).await, Some(Cancellation::Requested));
    assert_eq!(store.events(&job.id, 0, 9).await.unwrap(), []);
    let how = FinishedJob {
        result: Some(json!({ "class": "rate_limit" })),
        ..finished(Ending::Cancelled)
    };
    let written = store.finish(&claimed.claim, &how).await.unwrap();
    assert_eq!(written, WriteOutcome::Done);
    let job = store.get(&job.id).await.unwrap().unwrap();
    assert_eq!(job.result, how.result);
    assert_eq!(store.demand("here").await.unwrap(), Demand::Nothing);
}

pub(super) async fn waiting_job_is_rechecked_early(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let mut job = new_job("waits");
    job.request.retry = 1;
    store.submit(&job).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(claimed.job.wait_history, WaitHistory::default());
    let wait = NextWait {
        look_at: SystemTime::now(),
        pauses: 3,
        ..waiting(LONG * 2)
    };
    store.requeue(&claimed.claim, &wait, None).await.unwrap();
    let shown = store.summary(&job.id).await.unwrap().unwrap();
    assert!(shown.wait.is_some());
    let claimed = claimed_in_time(&store, &worker).await;
    // The job does not wait during the check, but its worker knows the reason of the wait.
    assert_eq!(claimed.job.summary.wait, None);
    let history = claimed.job.wait_history;
    assert_eq!((history.resets, history.pauses), (1, 3));
    assert!(history.since.is_some() && history.refused_until() > Some(SystemTime::now()));
    store
        .requeue(&claimed.claim, &waiting(LONG), None)
        .await
        .unwrap();
    assert!(claim(&store, &worker).await.is_none());
    store.recheck_now(&job.id).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    // A lost turn ends the wait.
    store.note_session(&claimed.claim, "session").await.unwrap();
    let given_up = store.give_up(&claimed.claim, "why").await.unwrap();
    assert_eq!(given_up, Some(JobState::Queued));
    let shown = store.summary(&job.id).await.unwrap().unwrap();
    assert_eq!(shown.wait, None);
}

/// A wait that is over simulates a worker whose clock is ahead of the database's.
pub(super) async fn continued_wait_keeps_its_end(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    store.submit(&new_job("waits")).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    let wait = waiting(Duration::from_millis(20));
    store.requeue(&claimed.claim, &wait, None).await.unwrap();
    let claimed = claimed_in_time(&store, &worker).await;
    let last = claimed.job.wait_history.last.unwrap();
    let same = NextWait {
        wait: last,
        is_new: false,
        ..wait
    };
    store.note_session(&claimed.claim, "session").await.unwrap();
    store.requeue(&claimed.claim, &same, None).await.unwrap();
    let again = claimed_in_time(&store, &worker).await;
    assert_eq!(again.job.wait_history.last, Some(last));
    assert_eq!(again.job.counted_attempts(), 1);
}

/// Neither of the jobs may run again.
pub(super) async fn lost_recheck_keeps_the_job_waiting(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let job = new_job("waits");
    store.submit(&job).await.unwrap();
    let first = claim(&store, &worker).await.unwrap();
    let wait = waiting(LONG);
    store.requeue(&first.claim, &wait, None).await.unwrap();
    let waits = store.summary(&job.id).await.unwrap().unwrap().wait;
    assert!(waits.is_some());
    let look = async |lease| {
        store.recheck_now(&job.id).await.unwrap();
        let claimed = store.claim(&worker, "here", lease).await.unwrap();
        claimed.unwrap()
    };
    look(NONE).await;
    assert_eq!(reap_one(&store).await.state, JobState::Queued);
    let claimed = look(LONG).await;
    assert_eq!(claimed.job.counted_attempts(), 1);
    let given_up = store.give_up(&claimed.claim, "why").await.unwrap();
    assert_eq!(given_up, Some(JobState::Queued));
    let shown = store.summary(&job.id).await.unwrap().unwrap();
    assert_eq!(shown.wait, waits);
    assert!(claim(&store, &worker).await.is_none());

    // An attempt that has opened its thread counts.
    let claimed = look(NONE).await;
    store.note_session(&claimed.claim, "session").await.unwrap();
    assert_eq!(reap_one(&store).await.state, JobState::Failed);

    // A cancelled job does not wait.
    let job = new_job("unwanted");
    store.submit(&job).await.unwrap();
    let first = claim(&store, &worker).await.unwrap();
    store.requeue(&first.claim, &wait, None).await.unwrap();
    store.recheck_now(&job.id).await.unwrap();
    store.claim(&worker, "here", NONE).await.unwrap().unwrap();
    store.request_cancel(&job.id).await.unwrap();
    assert_eq!(reap_one(&store).await.state, JobState::Cancelled);
}

pub(super) async fn moment_beyond_the_calendar_is_clamped(stage: &TestStore) {
    let store = stage.open().await;
    let job = new_job("waits");
    store.submit(&job).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    let far = waiting(Duration::from_millis(9_000_000_000_000_000));
    store.requeue(&claimed.claim, &far, None).await.unwrap();
    let shown = store.summary(&job.id).await.unwrap().unwrap();
    let words = shown.wait.unwrap().to_string();
    assert!(
        words.starts_with("waits until 9999-12-31 23:59 UTC"),
        "{words}"
    );
}
