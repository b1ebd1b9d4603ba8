//! Tests of full disks, servers that stop, and dropped calls.

use std::fs;

use testkit::SmallDisk;

use super::conformance::finished;
use super::counting::number;
use super::*;
use crate::logic::Ending;

#[test]
fn full_disk_loses_no_job() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SmallDisk::on(directory.path(), 1 << 10);
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![0; 256 << 10]).unwrap();
    let location = Location::Sqlite(disk.path().join("jobs.db"));
    let state = tempfile::tempdir().unwrap();
    let access = Access::of(state.path());
    block_on(async {
        let store = JobStore::open(&location, &access).await.unwrap();
        let mut kept = Vec::new();
        let error = loop {
            let new = new_job(&"x".repeat(20_000));
            match store.submit(&new).await {
                Ok(id) => kept.push(id),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        assert!(error.to_string().contains("Make room"), "{error}");
        let total = store.list(&JobFilter::default(), 1).await.unwrap().total;
        assert_eq!(total, kept.len() as u64);

        fs::remove_file(&ballast).unwrap();
        kept.push(store.submit(&new_job("there is room")).await.unwrap());
        drop(store);
        let again = JobStore::open(&location, &access).await.unwrap();
        for id in &kept {
            assert!(again.get(id).await.unwrap().is_some());
        }
    });
}

#[test]
fn store_recovers_when_its_server_returns() {
    let mut server = Postgres::start(Durability::Unsynced);
    block_on(async {
        let stage = TestStore::postgres(&server, "jobs");
        let store = stage.open().await;
        let mut watch = store.watch();
        let first = new_job("first");
        store.submit(&first).await.unwrap();
        let claimed = claim(&store, &new_worker_id()).await.unwrap();
        store.list(&JobFilter::default(), 1).await.unwrap();

        server.stop();
        let second = new_job("second");
        for _ in 0..2 {
            let error = store.submit(&second).await.unwrap_err();
            assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
            assert!(error.is_retryable());
            assert!(!error.to_string().contains("may have been made"), "{error}");
        }
        store.get(&first.id).await.unwrap_err();
        store.renew(&claimed.claim, LONG).await.unwrap_err();
        JobStore::open(&stage.location, &stage.access())
            .await
            .unwrap_err();
        watch.changed().await;

        server.start_again();
        let renewed = store.renew(&claimed.claim, LONG).await.unwrap();
        assert!(matches!(renewed, RenewOutcome::Held(_)));
        store.submit(&second).await.unwrap();
        while claim(&store, &new_worker_id()).await.is_none() {
            watch.changed().await;
        }

        // The server restarts while connections are idle: no call fails.
        server.stop();
        server.start_again();
        store.submit(&new_job("third")).await.unwrap();
        let all = store.list(&JobFilter::default(), 1).await.unwrap();
        assert_eq!(all.total, 3);
    });
}

#[test]
fn newer_postgres_store_is_refused() {
    let server = Postgres::start(Durability::Unsynced);
    block_on(async {
        let stage = TestStore::postgres(&server, "jobs");
        drop(stage.open().await);
        let (mut connection, _) = pool::first(&stage.location).await.unwrap();
        let newer = "UPDATE codex_store SET version = 99";
        connection.script(newer).await.unwrap();
        let error = JobStore::open(&stage.location, &stage.access())
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::Newer { .. }), "{error}");
    });
}

#[test]
fn new_database_is_opened_by_many_at_once() {
    let server = Postgres::start(Durability::Unsynced);
    block_on(async {
        for time in 0..5 {
            let stage = TestStore::postgres(&server, &format!("jobs{time}"));
            let access = stage.access();
            let opening = (0..8).map(|_| JobStore::open(&stage.location, &access));
            for opened in futures::future::join_all(opening).await {
                opened.unwrap();
            }
        }
    });
}

#[test]
fn dropped_call_leaves_no_transaction_open() {
    let stage = TestStore::sqlite();
    block_on(async {
        let store = stage.open().await;
        for micros in (0..2000).step_by(25) {
            let new = new_job("p");
            let submit = store.submit(&new);
            let limit = Duration::from_micros(micros);
            let _ = tokio::time::timeout(limit, submit).await;
        }
        let before = store.list(&JobFilter::default(), 1).await.unwrap().total;
        store.submit(&new_job("p")).await.unwrap();
        let after = store.list(&JobFilter::default(), 1).await.unwrap().total;
        assert!(after > before);
        assert!(claim(&store, &new_worker_id()).await.is_some());
    });
}

#[test]
fn events_beyond_the_limit_are_dropped() {
    let stage = TestStore::sqlite();
    block_on(async {
        let store = stage.open().await;
        let new = new_job("p");
        store.submit(&new).await.unwrap();
        let claimed = claim(&store, &new_worker_id()).await.unwrap();
        let event = NewEvent {
            kind: "k".to_owned(),
            data: "{}".to_owned(),
        };
        let many = vec![event; MOST_EVENTS as usize - 2];
        let append = async |events: &[NewEvent]| {
            let appended = store.append(&claimed.claim, events).await;
            appended.unwrap()
        };
        assert_eq!(append(&many).await, AppendOutcome::Done { dropped: 0 });
        assert_eq!(append(&many[..5]).await, AppendOutcome::Done { dropped: 4 });
        assert_eq!(append(&many[..5]).await, AppendOutcome::Done { dropped: 5 });
        let last = store.tail(&new.id, 2).await.unwrap();
        assert_eq!(last[1].sequence, MOST_EVENTS);
        assert_eq!(last[0].kind, "k");
        assert_eq!(last[1].kind, "codex-mcp/cut");
    });
}

/// The server counts the events that each transaction removes.
#[test]
fn old_jobs_are_removed_in_small_transactions() {
    let server = Postgres::start(Durability::Unsynced);
    block_on(async {
        let stage = TestStore::postgres(&server, "jobs");
        let store = stage.open().await;
        let event = NewEvent {
            kind: "k".to_owned(),
            data: "{}".to_owned(),
        };
        for events in [2500, 0, 10] {
            store.submit(&new_job("p")).await.unwrap();
            let claimed = claim(&store, &new_worker_id()).await.unwrap();
            let events = vec![event.clone(); events];
            store.append(&claimed.claim, &events).await.unwrap();
            let how = finished(Ending::Completed);
            store.finish(&claimed.claim, &how).await.unwrap();
        }
        server.sql_in(
            "jobs",
            "CREATE TABLE removals (transaction_id BIGINT); \
             CREATE FUNCTION note_removal() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN \
             INSERT INTO removals VALUES (txid_current()); RETURN OLD; END$$; \
             CREATE TRIGGER note_removal BEFORE DELETE ON codex_events FOR EACH ROW \
             EXECUTE FUNCTION note_removal()",
        );
        assert_eq!(store.prune(Duration::ZERO).await.unwrap(), 3);
        let all = "SELECT COUNT(*) AS n FROM removals";
        assert_eq!(number(&store, all).await, 2510);
        let largest = "SELECT MAX(removed) AS n FROM (SELECT COUNT(*) AS removed \
                       FROM removals GROUP BY transaction_id) AS transactions";
        assert!(number(&store, largest).await <= 1000);
        assert_eq!(store.list(&JobFilter::default(), 1).await.unwrap().total, 0);
    });
}
