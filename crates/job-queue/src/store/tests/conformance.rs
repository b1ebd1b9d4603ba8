//! What holds for a store on either database.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::counting::{
    a_store_of_the_first_form_is_brought_up_to_date, counts_are_right_in_a_storm,
    waiting_job_of_step_7_is_looked_at_after_the_migration,
};
use super::*;
use crate::logic::{
    CancelAnswer, Ending, JobState, WORKER_LOST, Wait, WaitHistory, WaitReason, Waiting, Wanted,
};

/// No lease at all: it ends at the next moment of the database's clock.
pub(super) const NONE: Duration = Duration::ZERO;

/// How long a busy machine may take to close the files of a store.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);

/// Texts that would change a statement if they were a part of it, or that a
/// database may not keep.
const HOSTILE: [&str; 7] = [
    "'; DROP TABLE codex_jobs; --",
    "' OR '1'='1",
    "$1 ?1 {now} {job} %s \\",
    "\"quoted\" 'quoted' `quoted`",
    "a\u{0}b",
    "\u{1f600}\u{202e}\u{feff}",
    "%_%",
];

/// Runs everything, each on a store of its own.
pub(super) async fn all(make: &mut dyn FnMut(&str) -> Stage) {
    macro_rules! run {
        ($($check:ident)*) => { $(
            let stage = make(stringify!($check));
            $check(&stage).await;
        )* };
    }
    run! {
        a_job_is_kept_as_it_was_asked_for
        a_job_submitted_twice_is_one
        the_oldest_is_claimed_first
        a_job_for_one_machine_waits_for_it
        no_job_is_claimed_twice
        a_worker_without_its_lease_changes_nothing
        an_expired_lease_fails_or_runs_again
        a_job_that_is_given_up
        waiting_job_is_not_claimed_before_its_time
        waiting_job_can_be_called_off
        waiting_job_is_looked_at_before_its_time
        lost_look_keeps_the_job_waiting
        wait_that_is_not_new_ends_when_it_did_before
        moment_beyond_the_calendar_is_shown_as_its_end
        every_state_can_be_called_off
        events_are_numbered_and_read_in_parts
        lists_are_newest_first_and_count_all
        counts_are_right_in_a_storm
        a_store_of_the_first_form_is_brought_up_to_date
        waiting_job_of_step_7_is_looked_at_after_the_migration
        hostile_texts_are_only_texts
        the_latest_of_a_directory
        a_job_is_found_by_how_its_id_begins
        old_jobs_are_pruned
        credentials_are_masked_when_a_job_ends
        workers_come_and_go
        demand_is_what_a_machine_may_run
        questions_are_there_while_their_attempt_runs
        question_that_was_changed_is_unproven
        instruction_is_taken_once_by_its_attempt
        question_has_one_answer
        instruction_of_another_host_is_unproven
        whoever_waits_is_woken
        what_is_too_long_is_refused
        it_is_there_when_opened_again
    }
}

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

pub(super) fn finished(ending: Ending) -> Finished {
    Finished {
        ending,
        error: None,
        session_id: None,
        exchange_id: None,
        result: None,
    }
}

async fn a_job_is_kept_as_it_was_asked_for(stage: &Stage) {
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
    assert_eq!(noted.unwrap(), Written::Done);
    let how = Finished {
        exchange_id: Some("x".to_owned()),
        result: Some(json!({"response": "done\u{0}", "usage": {"input": 1}})),
        ..finished(Ending::Completed)
    };
    let written = store.finish(&claimed.claim, &how).await.unwrap();
    assert_eq!(written, Written::Done);
    let again = store.finish(&claimed.claim, &how).await.unwrap();
    assert_eq!(again, Written::Lost);

    let done = store.get(&new.id).await.unwrap().unwrap();
    assert_eq!(done.summary.state, JobState::Completed);
    assert_eq!(done.summary.session_id.as_deref(), Some("a session"));
    assert_eq!(done.exchange_id, how.exchange_id);
    assert_eq!(done.result, how.result);
    assert!(done.summary.duration().unwrap() < LONG);
    assert!(done.summary.created_at <= done.summary.completed_at.unwrap());
    assert_eq!(store.get(&new_job("").id).await.unwrap(), None);
}

async fn a_job_submitted_twice_is_one(stage: &Stage) {
    let store = stage.open().await;
    let new = new_job("once");
    store.submit(&new).await.unwrap();
    let worker = new_worker_id();
    claim(&store, &worker).await.unwrap();
    store.submit(&new).await.unwrap();
    assert_eq!(claim(&store, &worker).await, None);
    let all = store.list(&Filter::default(), 10).await.unwrap();
    assert_eq!(all.total, 1);
}

async fn the_oldest_is_claimed_first(stage: &Stage) {
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

async fn a_job_for_one_machine_waits_for_it(stage: &Stage) {
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

async fn no_job_is_claimed_twice(stage: &Stage) {
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
                assert_eq!(written, Written::Done);
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

async fn a_worker_without_its_lease_changes_nothing(stage: &Stage) {
    let store = stage.open().await;
    let mut new = new_job("p");
    new.request.retry = 1;
    store.submit(&new).await.unwrap();
    let (slow, quick) = (new_worker_id(), new_worker_id());
    let old = store.claim(&slow, "here", NONE).await.unwrap().unwrap();
    // A lease that has ended is still held until somebody takes the job away.
    let renewed = store.renew(&old.claim, NONE).await.unwrap();
    assert_eq!(renewed, Renewed::Held(Wanted::Yes));
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
        assert_eq!(store.renew(claim, LONG).await.unwrap(), Renewed::Lost);
        assert_eq!(store.finish(claim, &how).await.unwrap(), Written::Lost);
        assert_eq!(store.note_session(claim, "s").await.unwrap(), Written::Lost);
        assert_eq!(store.give_up(claim, "why").await.unwrap(), None);
        let appended = store.append(claim, std::slice::from_ref(&event)).await;
        assert_eq!(appended.unwrap(), Appended::Lost);
    }
    assert_eq!(store.get(&new.id).await.unwrap(), before);
    assert_eq!(store.events(&new.id, 0, 10).await.unwrap(), []);
}

/// Waits until the database's clock has moved on.
async fn reap_one(store: &JobStore) -> Reaped {
    loop {
        if let Some(reaped) = store.reap().await.unwrap().pop() {
            return reaped;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn an_expired_lease_fails_or_runs_again(stage: &Stage) {
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

    // One that nobody wants any more doesn't run again.
    new = new_job("q");
    new.request.retry = 9;
    store.submit(&new).await.unwrap();
    store.claim(&worker, "here", NONE).await.unwrap().unwrap();
    store.request_cancel(&new.id).await.unwrap();
    assert_eq!(reap_one(&store).await.state, JobState::Cancelled);

    // One whose lease lasts is left alone.
    store.submit(&new_job("r")).await.unwrap();
    claim(&store, &worker).await.unwrap();
    assert_eq!(store.reap().await.unwrap(), []);
}

async fn a_job_that_is_given_up(stage: &Stage) {
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

async fn every_state_can_be_called_off(stage: &Stage) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let cancel = async |job| store.request_cancel(job).await.unwrap();
    let queued = new_job("queued");
    store.submit(&queued).await.unwrap();
    assert_eq!(cancel(&queued.id).await, Some(CancelAnswer::Cancelled));
    let again = cancel(&queued.id).await;
    assert_eq!(again, Some(CancelAnswer::AlreadyCancelled));
    let ended = store.get(&queued.id).await.unwrap().unwrap();
    assert_eq!(ended.summary.state, JobState::Cancelled);
    assert!(ended.summary.completed_at.is_some());
    assert_eq!(claim(&store, &worker).await, None);

    let running = new_job("running");
    store.submit(&running).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(store.unwanted(&worker).await.unwrap(), []);
    for _ in 0..2 {
        assert_eq!(cancel(&running.id).await, Some(CancelAnswer::Asked));
    }
    let unwanted = store.unwanted(&worker).await.unwrap();
    assert_eq!(unwanted, std::slice::from_ref(&running.id));
    assert_eq!(store.unwanted(&new_worker_id()).await.unwrap(), []);
    let renewed = store.renew(&claimed.claim, LONG).await.unwrap();
    assert_eq!(renewed, Renewed::Held(Wanted::No));
    let how = finished(Ending::Cancelled);
    store.finish(&claimed.claim, &how).await.unwrap();
    let again = cancel(&running.id).await;
    assert_eq!(again, Some(CancelAnswer::AlreadyCancelled));

    let done = new_job("done");
    store.submit(&done).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    let how = finished(Ending::Completed);
    store.finish(&claimed.claim, &how).await.unwrap();
    let refused = CancelAnswer::Refused(JobState::Completed);
    assert_eq!(cancel(&done.id).await, Some(refused));
    assert_eq!(cancel(&new_job("unknown").id).await, None);
}

async fn events_are_numbered_and_read_in_parts(stage: &Stage) {
    let store = stage.open().await;
    let new = new_job("p");
    store.submit(&new).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    let events: Vec<NewEvent> = (1..=1001)
        .map(|n| NewEvent {
            kind: "item".to_owned(),
            data: json!({"n": n, "text": HOSTILE}).to_string(),
        })
        .collect();
    for some in events.chunks(450) {
        let appended = store.append(&claimed.claim, some).await.unwrap();
        assert_eq!(appended, Appended::Done { dropped: 0 });
    }
    let appended = store.append(&claimed.claim, &[]).await.unwrap();
    assert_eq!(appended, Appended::Done { dropped: 0 });
    let all = store.events(&new.id, 0, 5000).await.unwrap();
    assert!(all.iter().map(|event| event.sequence).eq(1..=1001));
    assert!(all.iter().zip(&events).all(|(a, b)| a.data == b.data));
    let part = store.events(&new.id, 999, 1).await.unwrap();
    assert_eq!(part, [all[999].clone()]);
    assert_eq!(store.events(&new.id, 1001, 9).await.unwrap(), []);
    assert_eq!(store.tail(&new.id, 3).await.unwrap(), all[998..]);
    assert_eq!(store.tail(&new_job("").id, 3).await.unwrap(), []);
}

async fn lists_are_newest_first_and_count_all(stage: &Stage) {
    let store = stage.open().await;
    let mut ids = Vec::new();
    for n in 0..30 {
        let mut new = new_job("p");
        new.request.tool_name = ["a", "b", "c"][n % 3].to_owned();
        new.request.cwd = ["/x", "/y"][n % 2].to_owned();
        ids.push(store.submit(&new).await.unwrap());
    }
    for id in ids.iter().take(6) {
        store.request_cancel(id).await.unwrap();
    }
    ids.reverse();
    let all = store.list(&Filter::default(), 20).await.unwrap();
    assert_eq!((all.jobs.len(), all.total), (20, 30));
    assert!(all.jobs.iter().map(|job| &job.id).eq(&ids[..20]));
    let filter = |status, tool: Option<&str>, cwd: Option<&str>| Filter {
        status,
        tool_name: tool.map(str::to_owned),
        cwd: cwd.map(str::to_owned),
    };
    for (filter, total) in [
        (filter(Some(JobState::Cancelled), None, None), 6),
        (filter(None, Some("b"), None), 10),
        (filter(None, None, Some("/x")), 15),
        (filter(Some(JobState::Queued), Some("a"), Some("/y")), 4),
        (filter(Some(JobState::Failed), None, None), 0),
    ] {
        let listed = store.list(&filter, 3).await.unwrap();
        assert_eq!(listed.total, total, "{filter:?}");
        assert_eq!(listed.jobs.len() as u64, total.min(3));
    }
}

async fn hostile_texts_are_only_texts(stage: &Stage) {
    let store = stage.open().await;
    let harmless = new_job("harmless");
    store.submit(&harmless).await.unwrap();
    for text in HOSTILE {
        let mut new = new_job(text);
        new.request.tool_name = text.to_owned();
        new.request.cwd = text.to_owned();
        new.request.submitted_by = Some(text.to_owned());
        store.submit(&new).await.unwrap();
        let filter = Filter {
            status: None,
            tool_name: Some(text.to_owned()),
            cwd: Some(text.to_owned()),
        };
        let listed = store.list(&filter, 100).await.unwrap();
        assert_eq!((listed.jobs.len(), listed.total), (1, 1), "{text}");
        let kept = store.latest_of(text).await.unwrap().unwrap();
        assert_eq!(kept.summary.id, new.id);
        assert_eq!(kept.request.prompt, text.replace('\0', "\u{fffd}"));
    }
    let total = store.list(&Filter::default(), 1).await.unwrap().total;
    assert_eq!(total, 1 + HOSTILE.len() as u64);
    assert!(store.get(&harmless.id).await.unwrap().is_some());
}

async fn the_latest_of_a_directory(stage: &Stage) {
    let store = stage.open().await;
    assert_eq!(store.latest_of("/repo").await.unwrap(), None);
    store.submit(&new_job("1")).await.unwrap();
    let latest = new_job("2");
    store.submit(&latest).await.unwrap();
    let mut other = new_job("3");
    other.request.cwd = "/repo/".to_owned();
    store.submit(&other).await.unwrap();
    let found = store.latest_of("/repo").await.unwrap().unwrap();
    assert_eq!(found.summary.id, latest.id);

    // Also one that has ended without a session.
    store.request_cancel(&latest.id).await.unwrap();
    let found = store.latest_of("/repo").await.unwrap().unwrap();
    assert_eq!(found.summary.id, latest.id);
    assert_eq!(found.summary.state, JobState::Cancelled);
    assert_eq!(found.summary.session_id, None);
}

async fn a_job_is_found_by_how_its_id_begins(stage: &Stage) {
    let store = stage.open().await;
    // Where an order of texts by a language would find too little or too much.
    let ids = [
        "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa",
        "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaab",
        "aaaaaaaa-b000-4000-8000-000000000000",
        "aaaaaaab-0000-4000-8000-000000000000",
        "ffffffff-ffff-4fff-bfff-ffffffffffff",
    ];
    for id in ids {
        let request = Request::new("p", "/repo");
        let id = id.parse().unwrap();
        store.submit(&NewJob { id, request }).await.unwrap();
    }
    let find = async |prefix: &str, most| {
        let found = store.find_by_prefix(&prefix.parse().unwrap(), most).await;
        let ids = found.unwrap().into_iter().map(|job| job.id.to_string());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(find("aaaaaaaa", 9).await, [ids[2], ids[1], ids[0]]);
    assert_eq!(find("aaaaaaaa", 2).await, [ids[2], ids[1]]);
    assert_eq!(find("AAAAAAAA-", 9).await.len(), 3);
    assert_eq!(find("aaaaaaaa-a", 9).await, [ids[1], ids[0]]);
    assert_eq!(find("aaaaaaab", 9).await, [ids[3]]);
    assert_eq!(
        find("ffffffff-ffff-4fff-bfff-fffffffffff", 9).await,
        [ids[4]]
    );
    assert_eq!(find(ids[1], 9).await, [ids[1]]);
    assert_eq!(find("00000000", 9).await, [""; 0]);
    assert_eq!(find("ffffffff-f000", 9).await, [""; 0]);
    let summary = store.summary(&ids[0].parse().unwrap()).await.unwrap();
    assert_eq!(summary.unwrap().id.as_str(), ids[0]);
    assert_eq!(store.summary(&new_job("p").id).await.unwrap(), None);
}

async fn old_jobs_are_pruned(stage: &Stage) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let new = new_job("p");
        jobs.push(store.submit(&new).await.unwrap());
    }
    let claimed = claim(&store, &worker).await.unwrap();
    let event = NewEvent {
        kind: "k".to_owned(),
        data: "{}".to_owned(),
    };
    store.append(&claimed.claim, &[event]).await.unwrap();
    let how = finished(Ending::Completed);
    store.finish(&claimed.claim, &how).await.unwrap();
    claim(&store, &worker).await.unwrap();
    let told = store.prunable(LONG, 9).await.unwrap();
    assert_eq!((told.jobs.len(), told.total), (0, 0));
    assert_eq!(store.prune(LONG).await.unwrap(), 0);
    let told = store.prunable(NONE, 9).await.unwrap();
    assert_eq!((&told.jobs[0].id, told.total), (&jobs[0], 1));
    assert_eq!(store.prunable(NONE, 0).await.unwrap().total, 1);
    assert_eq!(store.prune(NONE).await.unwrap(), 1);
    assert_eq!(store.get(&jobs[0]).await.unwrap(), None);
    assert_eq!(store.events(&jobs[0], 0, 9).await.unwrap(), []);
    assert_eq!(store.list(&Filter::default(), 9).await.unwrap().total, 2);
}

async fn workers_come_and_go(stage: &Stage) {
    let store = stage.open().await;
    let about = NewWorker {
        id: new_worker_id(),
        host: "here".to_owned(),
        pid: 4_194_304,
        concurrency: 4,
    };
    assert_eq!(store.heartbeat(&about.id).await.unwrap(), Written::Lost);
    store.register(&about).await.unwrap();
    store.register(&about).await.unwrap();
    assert_eq!(store.heartbeat(&about.id).await.unwrap(), Written::Done);
    let workers = store.workers().await.unwrap();
    assert_eq!(workers.len(), 1);
    assert_eq!(workers[0].about, about);
    assert!(workers[0].silent_for < LONG);
    assert_eq!(store.forget_workers(LONG).await.unwrap(), 0);
    assert_eq!(store.remove_worker(&about.id).await.unwrap(), Written::Done);
    assert_eq!(store.workers().await.unwrap(), []);
}

async fn demand_is_what_a_machine_may_run(stage: &Stage) {
    let store = stage.open().await;
    let demand = async || {
        let here = store.demand("here").await.unwrap();
        (here, store.demand("there").await.unwrap())
    };
    let worker = new_worker_id();
    let finish = async |claimed: &Claimed| {
        let how = finished(Ending::Completed);
        let written = store.finish(&claimed.claim, &how).await.unwrap();
        assert_eq!(written, Written::Done);
    };
    assert_eq!(demand().await, (Demand::Nothing, Demand::Nothing));

    store.submit(&new_job("anywhere")).await.unwrap();
    assert_eq!(demand().await, (Demand::Waiting, Demand::Waiting));
    let anywhere = claim(&store, &worker).await.unwrap();
    assert_eq!(demand().await, (Demand::Running, Demand::Elsewhere));

    let mut there = new_job("there");
    there.request.run_on = Some("there".to_owned());
    store.submit(&there).await.unwrap();
    assert_eq!(demand().await, (Demand::Running, Demand::Waiting));
    finish(&anywhere).await;
    assert_eq!(demand().await, (Demand::Nothing, Demand::Waiting));
    let there = store.claim(&worker, "there", LONG).await.unwrap().unwrap();
    assert_eq!(demand().await, (Demand::Elsewhere, Demand::Running));
    finish(&there).await;
    assert_eq!(demand().await, (Demand::Nothing, Demand::Nothing));
}

fn waiting(long: Duration) -> Waiting {
    let until = SystemTime::now() + long;
    Waiting {
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

async fn waiting_job_is_not_claimed_before_its_time(stage: &Stage) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let (first, mut second) = (new_job("waits"), new_job("does not"));
    second.request.retry = 1;
    for job in [&first, &second] {
        store.submit(job).await.unwrap();
    }
    let claimed = claim(&store, &worker).await.unwrap();
    let put_back = async |claimed: &Claimed, long| {
        let put_back = store.put_back(&claimed.claim, &waiting(long), None).await;
        put_back.unwrap()
    };
    assert_eq!(put_back(&claimed, LONG).await, Some(Wanted::Yes));
    let shown = store.summary(&first.id).await.unwrap().unwrap();
    assert_eq!(
        shown.wait.map(|wait| wait.reason),
        Some(WaitReason::LimitReset)
    );
    assert_eq!(store.demand("here").await.unwrap(), Demand::Waiting);
    // It is no more that worker's.
    assert_eq!(put_back(&claimed, LONG).await, None);
    let other = claim(&store, &worker).await.unwrap();
    assert_eq!(other.job.request.prompt, "does not");
    assert!(claim(&store, &worker).await.is_none());

    // Another goes first whose time has come.
    let written = put_back(&other, Duration::from_millis(20)).await;
    assert_eq!(written, Some(Wanted::Yes));
    let claimed = claimed_in_time(&store, &worker).await;
    assert_eq!(claimed.claim.job, other.claim.job);
    assert_eq!(
        claimed.claim.attempt, 2,
        "what the first writes late counts for nothing"
    );
    assert_eq!((claimed.job.waits, claimed.job.counted_attempts()), (1, 1));
    assert_eq!(claimed.job.summary.wait, None);
    // The attempt at whose end it waited is none of those that its retries allow.
    let given_up = store.give_up(&claimed.claim, "why").await.unwrap();
    assert_eq!(given_up, Some(JobState::Queued));
}

/// A job that waits for a short time only.
async fn claimed_in_time(store: &JobStore, worker: &WorkerId) -> Claimed {
    let claimed = async {
        loop {
            match claim(store, worker).await {
                Some(claimed) => return claimed,
                None => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    timeout(LONG, claimed).await.unwrap()
}

async fn waiting_job_can_be_called_off(stage: &Stage) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let job = new_job("p");
    store.submit(&job).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    let event = NewEvent {
        kind: "waits".to_owned(),
        data: "{}".to_owned(),
    };
    let put_back = async |claimed: &Claimed| {
        let waiting = waiting(LONG);
        let put_back = store.put_back(&claimed.claim, &waiting, Some(&event));
        put_back.await.unwrap()
    };
    assert_eq!(put_back(&claimed).await, Some(Wanted::Yes));
    let events = store.events(&job.id, 0, 9).await.unwrap();
    assert_eq!(events.len(), 1);
    let waiting_jobs = store.waiting().await.unwrap();
    assert!(waiting_jobs.len() == 1 && waiting_jobs.contains(&job.id));
    let answer = store.request_cancel(&job.id).await.unwrap();
    assert_eq!(answer, Some(CancelAnswer::Cancelled));
    assert!(store.waiting().await.unwrap().is_empty());

    // One that was called off before does not wait, and is finished with its result.
    let job = new_job("p");
    store.submit(&job).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    store.request_cancel(&job.id).await.unwrap();
    assert_eq!(put_back(&claimed).await, Some(Wanted::No));
    assert_eq!(store.events(&job.id, 0, 9).await.unwrap(), []);
    let how = Finished {
        result: Some(json!({ "class": "rate_limit" })),
        ..finished(Ending::Cancelled)
    };
    let written = store.finish(&claimed.claim, &how).await.unwrap();
    assert_eq!(written, Written::Done);
    let job = store.get(&job.id).await.unwrap().unwrap();
    assert_eq!(job.result, how.result);
    assert_eq!(store.demand("here").await.unwrap(), Demand::Nothing);
}

async fn waiting_job_is_looked_at_before_its_time(stage: &Stage) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let mut job = new_job("waits");
    job.request.retry = 1;
    store.submit(&job).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(claimed.job.wait_history, WaitHistory::default());
    let wait = Waiting {
        look_at: SystemTime::now(),
        pauses: 3,
        ..waiting(LONG * 2)
    };
    store.put_back(&claimed.claim, &wait, None).await.unwrap();
    let shown = store.summary(&job.id).await.unwrap().unwrap();
    assert!(shown.wait.is_some());
    let claimed = claimed_in_time(&store, &worker).await;
    // It does not wait while it is looked at, but its worker knows for what it has waited.
    assert_eq!(claimed.job.summary.wait, None);
    let history = claimed.job.wait_history;
    assert_eq!((history.resets, history.pauses), (1, 3));
    assert!(history.since.is_some() && history.refused_until() > Some(SystemTime::now()));
    store
        .put_back(&claimed.claim, &waiting(LONG), None)
        .await
        .unwrap();
    assert!(claim(&store, &worker).await.is_none());
    store.look_now(&job.id).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    // A turn that is lost leaves nothing to wait for.
    store.note_session(&claimed.claim, "session").await.unwrap();
    let given_up = store.give_up(&claimed.claim, "why").await.unwrap();
    assert_eq!(given_up, Some(JobState::Queued));
    let shown = store.summary(&job.id).await.unwrap().unwrap();
    assert_eq!(shown.wait, None);
}

/// A wait that is over stands for a worker whose clock is ahead of the database's.
async fn wait_that_is_not_new_ends_when_it_did_before(stage: &Stage) {
    let store = stage.open().await;
    let worker = new_worker_id();
    store.submit(&new_job("waits")).await.unwrap();
    let claimed = claim(&store, &worker).await.unwrap();
    let wait = waiting(Duration::from_millis(20));
    store.put_back(&claimed.claim, &wait, None).await.unwrap();
    let claimed = claimed_in_time(&store, &worker).await;
    let last = claimed.job.wait_history.last.unwrap();
    let same = Waiting {
        wait: last,
        is_new: false,
        ..wait
    };
    store.note_session(&claimed.claim, "session").await.unwrap();
    store.put_back(&claimed.claim, &same, None).await.unwrap();
    let again = claimed_in_time(&store, &worker).await;
    assert_eq!(again.job.wait_history.last, Some(last));
    assert_eq!(again.job.counted_attempts(), 1);
}

/// Neither of the jobs may run again.
async fn lost_look_keeps_the_job_waiting(stage: &Stage) {
    let store = stage.open().await;
    let worker = new_worker_id();
    let job = new_job("waits");
    store.submit(&job).await.unwrap();
    let first = claim(&store, &worker).await.unwrap();
    let wait = waiting(LONG);
    store.put_back(&first.claim, &wait, None).await.unwrap();
    let waits = store.summary(&job.id).await.unwrap().unwrap().wait;
    assert!(waits.is_some());
    let look = async |lease| {
        store.look_now(&job.id).await.unwrap();
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

    // One that nobody wants any more does not wait.
    let job = new_job("unwanted");
    store.submit(&job).await.unwrap();
    let first = claim(&store, &worker).await.unwrap();
    store.put_back(&first.claim, &wait, None).await.unwrap();
    store.look_now(&job.id).await.unwrap();
    store.claim(&worker, "here", NONE).await.unwrap().unwrap();
    store.request_cancel(&job.id).await.unwrap();
    assert_eq!(reap_one(&store).await.state, JobState::Cancelled);
}

async fn moment_beyond_the_calendar_is_shown_as_its_end(stage: &Stage) {
    let store = stage.open().await;
    let job = new_job("waits");
    store.submit(&job).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    let far = waiting(Duration::from_millis(9_000_000_000_000_000));
    store.put_back(&claimed.claim, &far, None).await.unwrap();
    let shown = store.summary(&job.id).await.unwrap().unwrap();
    let words = shown.wait.unwrap().to_string();
    assert!(
        words.starts_with("waits until 9999-12-31 23:59 UTC"),
        "{words}"
    );
}

async fn whoever_waits_is_woken(stage: &Stage) {
    let (here, there) = (stage.open().await, stage.open().await);
    let mut watch = here.watch();
    let new = new_job("p");
    there.submit(&new).await.unwrap();
    while claim(&here, &new_worker_id()).await.is_none() {
        watch.changed().await;
    }
    // Waiting ends also where nothing happens.
    for _ in 0..3 {
        watch.changed().await;
    }
    drop(watch);
    here.watch().changed().await;
}

async fn what_is_too_long_is_refused(stage: &Stage) {
    let store = stage.open().await;
    let long = "x".repeat(LONGEST_TEXT + 1);
    let refused = store.submit(&new_job(&long)).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooLong { .. }), "{refused}");
    let new = new_job(&long[1..]);
    store.submit(&new).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    assert_eq!(claimed.job.request.prompt.len(), LONGEST_TEXT);
    let how = Finished {
        result: Some(json!(long)),
        ..finished(Ending::Completed)
    };
    store.finish(&claimed.claim, &how).await.unwrap_err();
    let how = finished(Ending::Completed);
    let written = store.finish(&claimed.claim, &how).await.unwrap();
    assert_eq!(written, Written::Done);
}

async fn it_is_there_when_opened_again(stage: &Stage) {
    let new = new_job("p");
    stage.open().await.submit(&new).await.unwrap();
    let again = stage.open().await;
    assert!(again.get(&new.id).await.unwrap().is_some());
}

/// In each of the ways in which a job ends; one that runs again keeps its prompt.
async fn credentials_are_masked_when_a_job_ends(stage: &Stage) {
    const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ";
    let store = stage.open().await;
    let worker = new_worker_id();
    let prompt = format!("push with {TOKEN}");
    let submit = async |retry| {
        let mut new = new_job(&prompt);
        new.request.retry = retry;
        new.request.run = Some(json!({"order": {"task": prompt, "n": 0.1}, "x": [1e300]}));
        store.submit(&new).await.unwrap();
        new.id
    };
    let get = async |id| store.get(&id).await.unwrap().unwrap();
    let finish = submit(0).await;
    let waiting = get(finish.clone()).await;
    assert_eq!(waiting.request.prompt, prompt);
    assert_eq!(waiting.prompt, PromptText::Whole);
    assert_eq!(waiting.origin, Origin::ThisHost);
    let claimed = claim(&store, &worker).await.unwrap();
    assert_eq!(claimed.job.request.prompt, prompt);
    let how = finished(Ending::Completed);
    store.finish(&claimed.claim, &how).await.unwrap();

    let give_up = submit(0).await;
    let claimed = claim(&store, &worker).await.unwrap();
    store.give_up(&claimed.claim, "why").await.unwrap();

    let cancel = submit(0).await;
    store.request_cancel(&cancel).await.unwrap();

    let lost = submit(0).await;
    store.claim(&worker, "here", NONE).await.unwrap().unwrap();
    reap_one(&store).await;

    let again = submit(1).await;
    store.claim(&worker, "here", NONE).await.unwrap().unwrap();
    reap_one(&store).await;
    let again = get(again).await;
    assert_eq!(again.summary.state, JobState::Queued);
    assert_eq!(
        (&again.request.prompt, again.prompt),
        (&prompt, PromptText::Whole)
    );

    for id in [finish, give_up, cancel, lost] {
        let ended = get(id).await;
        assert!(ended.summary.state.has_ended());
        assert_eq!(ended.request.prompt, "push with [masked]");
        let run = json!({"order": {"task": "push with [masked]", "n": 0.1}, "x": [1e300]});
        assert_eq!(ended.request.run, Some(run));
        assert_eq!(ended.prompt, PromptText::Masked);
        // It can still be told from what others write.
        assert_eq!(ended.origin, Origin::ThisHost);
    }
    if let Some(path) = stage.location.path() {
        store.request_cancel(&again.summary.id).await.unwrap();
        drop(store);
        // The last connection to be closed writes it all into the file. Where two close
        // at once, neither is the last: then the next one to be closed does.
        let log = path.with_file_name("jobs.db-wal");
        let closed = async {
            while log.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                drop(stage.open().await);
            }
        };
        tokio::time::timeout(CLOSED_WITHIN, closed).await.unwrap();
        let bytes = std::fs::read(path).unwrap();
        let found = bytes.windows(TOKEN.len()).any(|at| at == TOKEN.as_bytes());
        assert!(!found, "the token is still in a free page");
    }
}

fn asked(id: &str) -> NewQuestion {
    NewQuestion {
        id: id.to_owned(),
        question: json!({ "text": HOSTILE }).to_string(),
    }
}

fn ids(questions: &[Question]) -> Vec<&str> {
    questions.iter().map(|one| one.id.as_str()).collect()
}

async fn running(store: &JobStore, lease: Duration) -> Claim {
    store.submit(&new_job("p")).await.unwrap();
    let claimed = store.claim(&new_worker_id(), "here", lease).await.unwrap();
    claimed.unwrap().claim
}

async fn questions_are_there_while_their_attempt_runs(stage: &Stage) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let questions = async || store.questions(&claim.job).await.unwrap();
    let set = async |open: &[NewQuestion]| store.set_questions(&claim, open).await.unwrap();
    assert_eq!(set(&[asked("a"), asked("b")]).await, Written::Done);
    let open = questions().await;
    assert_eq!(ids(&open), ["a", "b"]);
    assert_eq!(open[0].question, json!({ "text": HOSTILE }));
    assert_eq!(open[0].origin, Origin::ThisHost);
    // Those that stay keep their place.
    assert_eq!(set(&[asked("b"), asked("c")]).await, Written::Done);
    let later = questions().await;
    assert_eq!(ids(&later), ["b", "c"]);
    assert_eq!(later[0].asked_at, open[1].asked_at);
    let of_another = Claim {
        worker: new_worker_id(),
        ..claim.clone()
    };
    let set_by_another = store.set_questions(&of_another, &[]).await.unwrap();
    assert_eq!(set_by_another, Written::Lost);
    assert_eq!(ids(&questions().await), ["b", "c"]);
    let end = finished(Ending::Completed);
    assert_eq!(store.finish(&claim, &end).await.unwrap(), Written::Done);
    assert_eq!(questions().await, []);

    // Nobody who could read an answer may be there.
    let claim = running(&store, NONE).await;
    let set = store.set_questions(&claim, &[asked("a")]).await.unwrap();
    assert_eq!(set, Written::Done);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(store.questions(&claim.job).await.unwrap(), []);
}

async fn question_that_was_changed_is_unproven(stage: &Stage) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let set = store.set_questions(&claim, &[asked("a")]).await.unwrap();
    assert_eq!(set, Written::Done);
    let change = async |connection: &mut Connection| {
        let sql = "UPDATE codex_questions SET question = '{\"text\":\"harmless\"}'";
        connection.run(sql, Vec::new()).await
    };
    writing!(store, change).unwrap();
    let open = store.questions(&claim.job).await.unwrap();
    assert_eq!(open[0].question["text"], "harmless");
    assert_eq!(open[0].origin, Origin::Unproven);
}

fn instruction(question: Option<&str>) -> NewInstruction {
    NewInstruction {
        id: uuid::Uuid::new_v4(),
        question: question.map(str::to_owned),
        data: HOSTILE.concat(),
    }
}

async fn instruction_is_taken_once_by_its_attempt(stage: &Stage) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let new = instruction(None);
    for _ in 0..2 {
        let given = store.instruct(&claim.job, &new).await.unwrap();
        assert_eq!(given, Some(Instructed::Given));
    }
    assert_eq!(store.progress(&new).await.unwrap(), Progress::Waiting);
    let called = store.instructed(&claim.worker).await.unwrap();
    assert_eq!(called, std::slice::from_ref(&claim.job));
    assert_eq!(store.instructed(&new_worker_id()).await.unwrap(), []);
    let taken = store.take_instructions(&claim).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].data, new.data.replace('\0', "\u{fffd}"));
    assert_eq!(store.take_instructions(&claim).await.unwrap(), []);
    assert_eq!(store.instructed(&claim.worker).await.unwrap(), []);
    assert_eq!(store.progress(&new).await.unwrap(), Progress::Taken);
    assert_eq!(store.withdraw(&new).await.unwrap(), Written::Lost);
    let concluded = store.conclude(&claim, &taken[0].id, "no").await.unwrap();
    assert_eq!(concluded, Written::Done);
    let no = Progress::Concluded("no".to_owned());
    assert_eq!(store.progress(&new).await.unwrap(), no);

    let withdrawn = instruction(None);
    store.instruct(&claim.job, &withdrawn).await.unwrap();
    assert_eq!(store.withdraw(&withdrawn).await.unwrap(), Written::Done);
    assert_eq!(store.take_instructions(&claim).await.unwrap(), []);

    // What came of one can be read when the job has ended; what was not taken is gone.
    let late = instruction(None);
    store.instruct(&claim.job, &late).await.unwrap();
    store
        .finish(&claim, &finished(Ending::Completed))
        .await
        .unwrap();
    assert_eq!(store.progress(&new).await.unwrap(), no);
    assert_eq!(store.progress(&late).await.unwrap(), Progress::Gone);
    let ended = store.instruct(&claim.job, &instruction(None)).await;
    let completed = Instructed::NotRunning(JobState::Completed);
    assert_eq!(ended.unwrap(), Some(completed));
    let nobody = new_job("p").id;
    assert_eq!(
        store.instruct(&nobody, &instruction(None)).await.unwrap(),
        None
    );
}

async fn question_has_one_answer(stage: &Stage) {
    let store = Arc::new(stage.open().await);
    let claim = running(&store, LONG).await;
    let give = async |id: &str| {
        let given = store.instruct(&claim.job, &instruction(Some(id))).await;
        given.unwrap().unwrap()
    };
    assert_eq!(give("a").await, Instructed::NoQuestion);
    let open = [asked("a"), asked("b")];
    store.set_questions(&claim, &open).await.unwrap();
    let all = (0..16).map(|_| {
        let (store, job) = (Arc::clone(&store), claim.job.clone());
        tokio::spawn(async move { store.instruct(&job, &instruction(Some("a"))).await })
    });
    let mut given = 0;
    for one in futures::future::join_all(all).await {
        match one.unwrap().unwrap().unwrap() {
            Instructed::Given => given += 1,
            other => assert_eq!(other, Instructed::Answered),
        }
    }
    assert_eq!(given, 1);
    let taken = store.take_instructions(&claim).await.unwrap();
    assert_eq!(taken.len(), 1);
    // One that did not fit leaves the question open, one that was used does not.
    store.conclude(&claim, &taken[0].id, "no").await.unwrap();
    assert_eq!(give("a").await, Instructed::Given);
    let taken = store.take_instructions(&claim).await.unwrap();
    store.conclude(&claim, &taken[0].id, DONE).await.unwrap();
    assert_eq!(give("a").await, Instructed::Answered);
    assert_eq!(give("b").await, Instructed::Given);
}

async fn instruction_of_another_host_is_unproven(stage: &Stage) {
    let store = stage.open().await;
    let claim = running(&store, LONG).await;
    let state = tempfile::tempdir().unwrap();
    let access = Access::of(state.path());
    let other = JobStore::open(&stage.location, &access).await.unwrap();
    if stage.location.path().is_none() {
        let refused = other.instruct(&claim.job, &instruction(None)).await;
        assert!(matches!(refused, Err(StoreError::OfOthers { .. })));
    }
    let managing = Access {
        others: OthersJobs::Manage,
        ..access
    };
    let other = JobStore::open(&stage.location, &managing).await.unwrap();
    let given = other.instruct(&claim.job, &instruction(None)).await;
    assert_eq!(given.unwrap(), Some(Instructed::Given));
    let taken = store.take_instructions(&claim).await.unwrap();
    assert_eq!(taken[0].origin, Origin::Unproven);
    store.set_questions(&claim, &[asked("a")]).await.unwrap();
    let seen = other.questions(&claim.job).await.unwrap();
    assert_eq!(seen[0].origin, Origin::Unproven);
}
