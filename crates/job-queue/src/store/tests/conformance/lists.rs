//! Lists, searches and pruning of jobs.

use super::*;

pub(super) async fn lists_are_newest_first_and_count_all(stage: &TestStore) {
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
    let all = store.list(&JobFilter::default(), 20).await.unwrap();
    assert_eq!((all.jobs.len(), all.total), (20, 30));
    assert!(all.jobs.iter().map(|job| &job.id).eq(&ids[..20]));
    let filter = |status, tool: Option<&str>, cwd: Option<&str>| JobFilter {
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

pub(super) async fn latest_job_of_a_directory_is_found(stage: &TestStore) {
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

    // A job that has ended without a thread is found too.
    store.request_cancel(&latest.id).await.unwrap();
    let found = store.latest_of("/repo").await.unwrap().unwrap();
    assert_eq!(found.summary.id, latest.id);
    assert_eq!(found.summary.state, JobState::Cancelled);
    assert_eq!(found.summary.session_id, None);
}

pub(super) async fn job_is_found_by_id_prefix(stage: &TestStore) {
    let store = stage.open().await;
    // A collation by language would find too few or too many.
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

pub(super) async fn old_jobs_of_others_are_not_removed_unasked(stage: &TestStore) {
    let store = stage.open().await;
    let id = store.submit(&new_job("p")).await.unwrap();
    let claimed = claim(&store, &new_worker_id()).await.unwrap();
    let how = finished(Ending::Completed);
    store.finish(&claimed.claim, &how).await.unwrap();
    // All who can open a file are the same user.
    if stage.location.path().is_none() {
        let state = tempfile::tempdir().unwrap();
        let managing = Access {
            others: OthersJobs::Manage,
            ..Access::of(state.path())
        };
        let other = JobStore::open(&stage.location, &managing).await.unwrap();
        assert_eq!(other.remove_old(NONE).await.unwrap(), 0);
        assert_eq!(other.prunable(NONE, 9).await.unwrap().total, 1);
    }
    assert_eq!(store.remove_old(LONG).await.unwrap(), 0);
    assert_eq!(store.remove_old(NONE).await.unwrap(), 1);
    assert_eq!(store.get(&id).await.unwrap(), None);
}

pub(super) async fn old_jobs_are_pruned(stage: &TestStore) {
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
    assert_eq!(store.list(&JobFilter::default(), 9).await.unwrap().total, 2);
}
