//! Workers, their demand, and watching for changes.

use super::*;

pub(super) async fn workers_are_registered_and_removed(stage: &TestStore) {
    let store = stage.open().await;
    let about = NewWorker {
        id: new_worker_id(),
        host: "here".to_owned(),
        pid: 4_194_304,
        concurrency: 4,
    };
    assert_eq!(store.heartbeat(&about.id).await.unwrap(), None);
    store.register(&about).await.unwrap();
    store.register(&about).await.unwrap();
    let now = store.heartbeat(&about.id).await.unwrap().unwrap();
    let ours = SystemTime::now();
    assert!(now < ours + LONG && now > ours - LONG, "{now:?}, {ours:?}");
    let workers = store.workers().await.unwrap();
    assert_eq!(workers.len(), 1);
    assert_eq!(workers[0].about, about);
    assert!(workers[0].silent_for < LONG);
    assert_eq!(store.forget_workers(LONG).await.unwrap(), 0);
    assert_eq!(
        store.remove_worker(&about.id).await.unwrap(),
        WriteOutcome::Done
    );
    assert_eq!(store.workers().await.unwrap(), []);
}

/// The leases have ended as after a change of the database's clock.
pub(super) async fn held_job_with_expired_lease_is_not_recovered(stage: &TestStore) {
    let store = stage.open().await;
    let held = running(&store, LONG).await;
    let lost = running(&store, LONG).await;
    let expire = async |connection: &mut Connection| {
        let sql = "UPDATE codex_jobs SET lease_until = 1";
        connection.run(sql, Vec::new()).await
    };
    writing!(store, expire).unwrap();
    let reap = async || store.reap(std::slice::from_ref(&held.job)).await.unwrap();
    let reaped = reap().await;
    let reaped: Vec<_> = reaped.iter().map(|reaped| &reaped.job).collect();
    assert_eq!(reaped, [&lost.job]);
    assert_eq!(reap().await, []);
    let renewed = store.renew(&held, LONG).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Held(Cancellation::NotRequested));
}

pub(super) async fn demand_depends_on_the_host(stage: &TestStore) {
    let store = stage.open().await;
    let demand = async || {
        let here = store.demand("here").await.unwrap();
        (here, store.demand("there").await.unwrap())
    };
    let worker = new_worker_id();
    let finish = async |claimed: &ClaimedJob| {
        let how = finished(Ending::Completed);
        let written = store.finish(&claimed.claim, &how).await.unwrap();
        assert_eq!(written, WriteOutcome::Done);
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

pub(in crate::store::tests) async fn watcher_is_woken_by_changes(stage: &TestStore) {
    let (here, there) = (stage.open().await, stage.open().await);
    let mut watch = here.watch();
    let new = new_job("p");
    there.submit(&new).await.unwrap();
    while claim(&here, &new_worker_id()).await.is_none() {
        watch.changed().await;
    }
    // The wait for a change also ends without any change.
    for _ in 0..3 {
        watch.changed().await;
    }
    drop(watch);
    here.watch().changed().await;
}
