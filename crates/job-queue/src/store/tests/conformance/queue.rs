//! Submitting, claiming, renewing, finishing and cancelling jobs.

use super::*;
use crate::logic::JobId;

fn full_request() -> Request {
    Request {
        tool_name: "tool".to_owned(),
        task_name: "task".to_owned(),
        agent_source: Some("source".to_owned()),
        agent_instance: "codex".to_owned(),
        model_override: Some("model".to_owned()),
        timeout_ms: u32::MAX,
        tool_timeout_ms: 7,
        expose_stream: true,
        fire_and_forget: true,
        continue_latest: true,
        resume_session_id: Some("session".to_owned()),
        sandbox: Some("read-only".to_owned()),
        effort: Some("low".to_owned()),
        profile: Some("profile".to_owned()),
        images: vec!["a.png".to_owned(), "b c.png".to_owned()],
        output_schema: Some(json!({"type": "object", "n": 1.5})),
        codex_home: Some("/home/codex".to_owned()),
        codex_bin: Some("/bin/codex".to_owned()),
        host: Some("here".to_owned()),
        submitted_by: Some("somebody".to_owned()),
        run_on: Some("here".to_owned()),
        retry: 2,
        run: Some(json!({"task": "prompt\n", "exit_criteria": {"commits": 1}})),
        ..Request::new("prompt\n", "/a b")
    }
}

pub(super) async fn job_is_stored_as_requested(stage: &TestStore) {
    let store = stage.open().await;
    let new = NewJob::new(full_request());
    assert_eq!(store.submit(&new).await.unwrap(), new.id);

    let waiting = store.get(&new.id).await.unwrap().unwrap();
    assert_eq!(waiting.request, new.request);
    assert_eq!(waiting.summary.state, JobState::Queued);
    assert_eq!((waiting.attempts, &waiting.worker), (0, &None));
    assert_eq!(waiting.summary.started_at, None);

    let worker = new_worker_id();
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(claimed.job.request, new.request);
    assert_eq!(claimed.job.summary.state, JobState::Running);
    assert_eq!(claimed.job.worker.as_ref(), Some(&worker));
    assert_eq!(claimed.claim.attempt, 1);

    let noted = store.note_session(&claimed.claim, "a session").await;
    assert_eq!(noted.unwrap(), WriteOutcome::Done);
    let how = FinishedJob {
        exchange_id: Some("x".to_owned()),
        result: Some(json!({"response": "done\u{0}", "usage": {"input": 1}})),
        ..finished(Ending::Completed)
    };
    let written = store.finish(&claimed.claim, &how).await.unwrap();
    assert_eq!(written, WriteOutcome::Done);
    let again = store.finish(&claimed.claim, &how).await.unwrap();
    assert_eq!(again, WriteOutcome::Lost);

    let done = store.get(&new.id).await.unwrap().unwrap();
    assert_eq!(done.summary.state, JobState::Completed);
    assert_eq!(done.summary.session_id.as_deref(), Some("a session"));
    assert_eq!(done.exchange_id, how.exchange_id);
    assert_eq!(done.result, how.result);
    assert!(done.summary.duration().unwrap() < LONG);
    assert!(done.summary.created_at <= done.summary.completed_at.unwrap());
    assert_eq!(store.get(&new_job("").id).await.unwrap(), None);
}

pub(super) async fn job_submitted_twice_is_stored_once(stage: &TestStore) {
    let store = stage.open().await;
    let new = new_job("once");
    store.submit(&new).await.unwrap();
    let worker = new_worker_id();
    claim(&store, &worker).await.unwrap();
    store.submit(&new).await.unwrap();
    assert_eq!(claim(&store, &worker).await, None);
    let all = store.list(&JobFilter::default(), 10).await.unwrap();
    assert_eq!(all.total, 1);
}

pub(super) async fn oldest_job_is_claimed_first(stage: &TestStore) {
    let store = stage.open().await;
    let jobs: Vec<NewJob> = (0..5).map(|n| new_job(&n.to_string())).collect();
    for job in &jobs {
        store.submit(job).await.unwrap();
    }
    let worker = new_worker_id();
    for job in &jobs {
        assert_eq!(claim(&store, &worker).await.unwrap().claim.job, job.id);
    }
    assert_eq!(claim(&store, &worker).await, None);
}

pub(super) async fn job_for_one_host_waits_for_it(stage: &TestStore) {
    let store = stage.open().await;
    let mut there = new_job("there");
    there.request.run_on = Some("there".to_owned());
    store.submit(&there).await.unwrap();
    let anywhere = new_job("anywhere");
    store.submit(&anywhere).await.unwrap();
    let worker = new_worker_id();
    let first = claim(&store, &worker).await.unwrap();
    assert_eq!(first.claim.job, anywhere.id);
    assert_eq!(claim(&store, &worker).await, None);
    let second = store.claim(&worker, "there", LONG).await.unwrap().unwrap();
    assert_eq!(second.claim.job, there.id);
    assert_eq!(second.job.worker_host.as_deref(), Some("there"));
}

pub(super) async fn job_is_claimed_once(stage: &TestStore) {
    const JOBS: usize = 300;
    let first = stage.open().await;
    for n in 0..JOBS {
        first.submit(&new_job(&n.to_string())).await.unwrap();
    }
    let stores = [first, stage.open().await].map(Arc::new);
    let mut tasks = Vec::new();
    for task in 0..8 {
        let store = Arc::clone(&stores[task % 2]);
        tasks.push(tokio::spawn(async move {
            let worker = new_worker_id();
            let mut mine = Vec::new();
            while let Some(claimed) = claim(&store, &worker).await {
                let how = finished(Ending::Completed);
                let written = store.finish(&claimed.claim, &how).await.unwrap();
                assert_eq!(written, WriteOutcome::Done);
                mine.push(claimed.claim.job);
            }
            mine
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    assert_eq!(all.len(), JOBS);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len(), JOBS);
}

pub(super) async fn worker_without_its_lease_changes_nothing(stage: &TestStore) {
    let store = stage.open().await;
    let mut new = new_job("p");
    new.request.retry = 1;
    store.submit(&new).await.unwrap();
    let (slow, quick) = (new_worker_id(), new_worker_id());
    let old = store.claim(&slow, "here", NONE).await.unwrap().unwrap();
    // A worker keeps its claim after the end of the lease until the job is recovered.
    let renewed = store.renew(&old.claim, NONE).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Held(Cancellation::NotRequested));
    reap_one(&store).await;
    let now = claim(&store, &quick).await.unwrap();
    assert_eq!(now.claim.attempt, 2);

    let before = store.get(&new.id).await.unwrap();
    let mut stale = vec![old.claim.clone(), now.claim.clone(), now.claim.clone()];
    stale[1].attempt = 1;
    stale[2].worker = slow;
    let event = NewEvent {
        kind: "k".to_owned(),
        data: "{}".to_owned(),
    };
    for claim in &stale {
        let how = finished(Ending::Failed);
        assert_eq!(store.renew(claim, LONG).await.unwrap(), RenewOutcome::Lost);
        assert_eq!(store.finish(claim, &how).await.unwrap(), WriteOutcome::Lost);
        assert_eq!(
            store.note_session(claim, "s").await.unwrap(),
            WriteOutcome::Lost
        );
        assert_eq!(store.give_up(claim, "why").await.unwrap(), None);
        let appended = store.append(claim, std::slice::from_ref(&event)).await;
        assert_eq!(appended.unwrap(), AppendOutcome::Lost);
    }
    assert_eq!(store.get(&new.id).await.unwrap(), before);
    assert_eq!(store.events(&new.id, 0, 10).await.unwrap(), []);
}

pub(super) async fn job_with_expired_lease_fails_or_runs_again(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let mut new = new_job("p");
    new.request.retry = 1;
    store.submit(&new).await.unwrap();
    for expected in [JobState::Queued, JobState::Failed] {
        let claimed = store.claim(&worker, "here", NONE).await.unwrap().unwrap();
        store.note_session(&claimed.claim, "session").await.unwrap();
        let reaped = reap_one(&store).await;
        assert_eq!((reaped.job, reaped.state), (new.id.clone(), expected));
        assert_eq!(reaped.worker.as_ref(), Some(&worker));
    }
    let lost = store.get(&new.id).await.unwrap().unwrap();
    assert_eq!(lost.summary.error.as_deref(), Some(WORKER_LOST));
    assert_eq!(lost.summary.session_id.as_deref(), Some("session"));
    assert_eq!(lost.attempts, 2);

    // A cancelled job does not run again.
    new = new_job("q");
    new.request.retry = 9;
    store.submit(&new).await.unwrap();
    store.claim(&worker, "here", NONE).await.unwrap().unwrap();
    store.request_cancel(&new.id).await.unwrap();
    assert_eq!(reap_one(&store).await.state, JobState::Cancelled);

    // A job with a valid lease is not recovered.
    store.submit(&new_job("r")).await.unwrap();
    claim(&store, &worker).await.unwrap();
    assert_eq!(store.reap(&[]).await.unwrap(), []);
}

pub(super) async fn given_up_job_fails_or_runs_again(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let mut new = new_job("p");
    new.request.retry = 1;
    store.submit(&new).await.unwrap();
    for expected in [JobState::Queued, JobState::Failed] {
        let claimed = claim(&store, &worker).await.unwrap();
        let became = store.give_up(&claimed.claim, "the worker ends").await;
        assert_eq!(became.unwrap(), Some(expected));
    }
    let failed = store.get(&new.id).await.unwrap().unwrap();
    assert_eq!(failed.summary.error.as_deref(), Some("the worker ends"));
}

pub(super) async fn cancellation_is_answered_in_every_state(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let cancel = async |job| store.request_cancel(job).await.unwrap();
    let queued = new_job("queued");
    store.submit(&queued).await.unwrap();
    assert_eq!(cancel(&queued.id).await, Some(CancelResponse::Cancelled));
    let again = cancel(&queued.id).await;
    assert_eq!(again, Some(CancelResponse::AlreadyCancelled));
    let ended = store.get(&queued.id).await.unwrap().unwrap();
    assert_eq!(ended.summary.state, JobState::Cancelled);
    assert!(ended.summary.completed_at.is_some());
    assert_eq!(claim(&store, &worker).await, None);

    let running = new_job("running");
    store.submit(&running).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(store.jobs_to_cancel(&worker).await.unwrap(), []);
    for _ in 0..2 {
        assert_eq!(cancel(&running.id).await, Some(CancelResponse::Requested));
    }
    let jobs_to_cancel = store.jobs_to_cancel(&worker).await.unwrap();
    assert_eq!(jobs_to_cancel, std::slice::from_ref(&running.id));
    assert_eq!(store.jobs_to_cancel(&new_worker_id()).await.unwrap(), []);
    let renewed = store.renew(&claimed.claim, LONG).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Held(Cancellation::Requested));
    let how = finished(Ending::Cancelled);
    store.finish(&claimed.claim, &how).await.unwrap();
    let again = cancel(&running.id).await;
    assert_eq!(again, Some(CancelResponse::AlreadyCancelled));

    let done = new_job("done");
    store.submit(&done).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    let how = finished(Ending::Completed);
    store.finish(&claimed.claim, &how).await.unwrap();
    let refused = CancelResponse::Refused(JobState::Completed);
    assert_eq!(cancel(&done.id).await, Some(refused));
    assert_eq!(cancel(&new_job("unknown").id).await, None);
}

/// Changes of a job's row to what no program writes.
fn unreadable_changes(stage: &TestStore) -> Vec<String> {
    let long = format!("prompt = {}", too_long(stage));
    let mut changes = vec![
        "images = 'x'",
        "run = '{'",
        "timeout_ms = -1",
        "retry = -1",
        "attempts = 9223372036854775807",
        "id = 'x'",
        &long,
    ];
    if stage.location.path().is_some() {
        // SQLite stores values of any type in a column.
        changes.extend(["timeout_ms = 'x'", "prompt = x'ff'"]);
    }
    changes.into_iter().map(str::to_owned).collect()
}

pub(super) async fn change_row(store: &JobStore, job: &JobId, change: &str) {
    let sql = format!("UPDATE codex_jobs SET {change} WHERE id = $1");
    let change = async |connection: &mut Connection| {
        let values = vec![job.as_str().into()];
        connection.run(&sql, values).await
    };
    assert_eq!(writing!(store, change).unwrap(), 1, "{sql}");
}

/// Checks that so many jobs have failed because of their rows, of which the one without a valid ID is
/// not in lists.
async fn assert_unreadable_rows_failed(store: &JobStore, number: usize) {
    let failed = JobFilter {
        status: Some(JobState::Failed),
        ..JobFilter::default()
    };
    let listed = store.list(&failed, 99).await.unwrap();
    let because = |job: &&JobSummary| {
        let error = job.error.as_deref().unwrap_or_default();
        let beginning = format!("job {} has failed, as the column `", job.id);
        error.starts_with(&beginning)
            && error.contains(" of its row in the job store is malformed: ")
    };
    assert_eq!(listed.jobs.iter().filter(because).count(), number - 1);
    let left_out = listed.total - listed.jobs.len() as u64;
    assert_eq!(left_out, 1, "{listed:#?}");
}

pub(super) async fn unreadable_rows_fail_and_other_jobs_are_claimed(stage: &TestStore) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let changes = unreadable_changes(stage);
    for change in &changes {
        let id = store.submit(&new_job("p")).await.unwrap();
        change_row(&store, &id, change).await;
    }
    let good = store.submit(&new_job("p")).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(claimed.claim.job, good);
    assert_eq!(claim(&store, &worker).await, None);
    assert_unreadable_rows_failed(&store, changes.len()).await;
}

pub(super) async fn unreadable_rows_fail_and_other_jobs_are_recovered(stage: &TestStore) {
    let store = stage.open().await;
    // Only these decide what becomes of a lost job.
    let changes = ["retry = -1", "attempts = -1", "id = 'x'"];
    for change in changes {
        let claim = running(&store, NONE).await;
        change_row(&store, &claim.job, change).await;
    }
    let good = running(&store, NONE).await;
    let reaped = reap_one(&store).await;
    assert_eq!((reaped.job, reaped.state), (good.job, JobState::Failed));
    assert_unreadable_rows_failed(&store, changes.len()).await;

    // Claims whose answers were lost.
    let worker = new_worker_id();
    let mut claimed = Vec::new();
    for _ in 0..3 {
        store.submit(&new_job("p")).await.unwrap();
        claimed.push(claim(&store, &worker).await.unwrap().claim);
    }
    change_row(&store, &claimed[0].job, "images = 'x'").await;
    let found = store.reclaim(&worker, &[], LONG).await.unwrap();
    assert_eq!(found.unwrap().claim, claimed[1]);
    // A job that its worker gives up.
    change_row(&store, &claimed[2].job, "retry = -1").await;
    let given_up = store.give_up(&claimed[2], "why").await.unwrap();
    assert_eq!(given_up, None);
    assert_unreadable_rows_failed(&store, changes.len() + 2).await;
}

/// The earlier worker can write nothing any more. A job that has ended is not given.
pub(super) async fn running_job_is_given_to_another_worker_once(stage: &TestStore) {
    let store = stage.open().await;
    let earlier = running(&store, NONE).await;
    let (next, third) = (new_worker_id(), new_worker_id());
    let taken = store.take_over(&earlier, &next, LONG).await.unwrap();
    let ClaimedJob { claim, job } = taken.unwrap();
    assert_eq!(claim.worker, next);
    assert_eq!(
        (claim.attempt, job.attempts),
        (earlier.attempt, earlier.attempt)
    );
    assert!(
        store.reap(&[]).await.unwrap().is_empty(),
        "its lease is new"
    );
    let again = store.take_over(&earlier, &third, LONG).await.unwrap();
    assert_eq!(again, None);
    let written = store.finish(&earlier, &finished(Ending::Failed)).await;
    assert_eq!(written.unwrap(), WriteOutcome::Lost);
    let written = store.finish(&claim, &finished(Ending::Completed)).await;
    assert_eq!(written.unwrap(), WriteOutcome::Done);
    let ended = store.take_over(&claim, &third, LONG).await.unwrap();
    assert_eq!(ended, None);
}

/// SQLite alone stores values of any type in a column. The control is the first renewal.
pub(super) async fn renewal_of_an_unreadable_row_fails_its_job(stage: &TestStore) {
    if stage.location.path().is_none() {
        return;
    }
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let renewed = store.renew(&claim, LONG).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Held(Cancellation::NotRequested));
    change_row(&store, &claim.job, "cancel_requested = 'x'").await;
    assert_eq!(store.renew(&claim, LONG).await.unwrap(), RenewOutcome::Lost);
    let state = async |connection: &mut Connection| {
        let sql = "SELECT state, error FROM codex_jobs";
        let row = connection.row(sql, Vec::new()).await?.unwrap();
        Ok((row.text("state")?, row.text("error")?.unwrap_or_default()))
    };
    let (state, error) = writing!(store, state).unwrap();
    assert_eq!(state.as_deref(), Some("failed"));
    assert!(error.contains("`cancel_requested`"), "{error}");
}
