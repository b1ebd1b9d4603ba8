//! Tests of opening stores: new ones, newer ones, other files, and many processes at once.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use testkit::wait::TIME_LIMIT;
use testkit::worker_process::{WorkerProcess, done, variable};

use super::*;

/// The variable with the store's path, for the child processes.
const STORE: &str = "CODEX_MCP_TEST_STORE";

const PROCESSES: usize = 8;
const TIMES: usize = 100;

#[test]
fn new_store_is_opened_by_many_processes_at_once() {
    let directory = tempfile::tempdir().unwrap();
    for time in 0..TIMES {
        let path = directory.path().join(format!("{time}/jobs.db"));
        let start = || {
            let test = "store::tests::opening::opening_process";
            WorkerProcess::start(test, &[(STORE, path.as_os_str())])
        };
        let mut processes: Vec<WorkerProcess> = (0..PROCESSES).map(|_| start()).collect();
        for process in &mut processes {
            assert_eq!(process.until(1), 1);
        }
        fs::write(go(&path), "").unwrap();
        for process in processes {
            process.wait();
        }
        let access = Access::of(directory.path());
        let all = block_on(async {
            let store = JobStore::open(&Location::Sqlite(path), &access)
                .await
                .unwrap();
            store.list(&JobFilter::default(), 1).await.unwrap().total
        });
        assert_eq!(all, PROCESSES as u64, "time {time}");
    }
}

fn go(store: &Path) -> PathBuf {
    store.parent().unwrap().with_extension("go")
}

#[test]
#[ignore = "a process of another test"]
fn opening_process() {
    let path = variable(STORE);
    done(1);
    // Not `wait_for_blocking`: its longer interval would spread the opens.
    let deadline = Instant::now() + TIME_LIMIT;
    while !go(&path).exists() {
        assert!(Instant::now() < deadline, "no signal to open the store");
        std::thread::sleep(Duration::from_micros(100));
    }
    let access = Access::of(path.parent().unwrap());
    block_on(async {
        let store = JobStore::open(&Location::Sqlite(path), &access)
            .await
            .unwrap();
        store.submit(&new_job("p")).await.unwrap();
    });
}

#[test]
fn new_store_is_private_to_its_user() {
    let stage = TestStore::sqlite();
    let path = stage.location.path().unwrap().to_owned();
    block_on(async {
        let store = stage.open().await;
        store.submit(&new_job("p")).await.unwrap();
        let directory = path.parent().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(directory), 0o700);
        let mut seen = 0;
        for file in fs::read_dir(directory).unwrap() {
            let file = file.unwrap().path();
            assert_eq!(mode(&file), 0o600, "{}", file.display());
            seen += 1;
        }
        assert_eq!(seen, 4, "the database, its lock, and two files of SQLite's");
    });
}

#[test]
fn newer_store_is_refused() {
    let stage = TestStore::sqlite();
    block_on(async {
        drop(stage.open().await);
        let (mut connection, lock) = pool::first(&stage.location).await.unwrap();
        connection.script("PRAGMA user_version = 99").await.unwrap();
        drop((connection, lock));
        let error = JobStore::open(&stage.location, &stage.access())
            .await
            .unwrap_err();
        let newer = matches!(error, StoreError::Newer { found: 99, .. });
        assert!(newer, "{error}");
        assert!(!error.is_retryable());
    });
}

#[test]
fn file_of_another_program_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let notes = directory.path().join("notes.txt");
    fs::write(&notes, "not a database ".repeat(1000)).unwrap();
    let short = directory.path().join("short.txt");
    fs::write(&short, "no store").unwrap();
    let other = directory.path().join("other.db");
    let access = Access::of(directory.path());
    block_on(async {
        let options = SqliteConnectOptions::new().filename(&other);
        let mut connection = options.create_if_missing(true).connect().await.unwrap();
        let table = sqlx::raw_sql("CREATE TABLE mine (a)");
        table.execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let before = contents(directory.path());
        for path in [notes, short, other] {
            let error = JobStore::open(&Location::Sqlite(path), &access)
                .await
                .unwrap_err();
            let other = matches!(error, StoreError::NotAStore { .. });
            assert!(other, "{error}");
        }
        assert_eq!(contents(directory.path()), before);
    });
}

#[test]
fn database_of_another_program_with_a_lock_is_refused() {
    let stage = TestStore::sqlite();
    block_on(async {
        let (mut connection, lock) = pool::first(&stage.location).await.unwrap();
        connection.script("CREATE TABLE mine (a)").await.unwrap();
        drop((connection, lock));
        let error = JobStore::open(&stage.location, &stage.access())
            .await
            .unwrap_err();
        let other = matches!(error, StoreError::NotAStore { .. });
        assert!(other, "{error}");
    });
}

/// A user without rights, called `nobody` on most systems.
const NOBODY: u32 = 65_534;

#[test]
fn read_only_store_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state/jobs.db");
    let location = Location::Sqlite(path.clone());
    let access = Access::of(directory.path());
    block_on(async {
        let store = JobStore::open(&location, &access).await.unwrap();
        store.submit(&new_job("p")).await.unwrap();
    });
    let state = path.parent().unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(directory.path(), 0o755);
    mode(state, 0o555);
    for file in fs::read_dir(state).unwrap() {
        mode(&file.unwrap().path(), 0o444);
    }
    let missing = directory.path().join("state/new/jobs.db");
    for store in [&path, &missing] {
        let test = "store::tests::opening::process_without_write_access";
        let variables: [(&str, &OsStr); 1] = [(STORE, store.as_os_str())];
        WorkerProcess::start(test, &variables).wait();
    }
    mode(state, 0o755);
    mode(&path, 0o644);
    mode(&state.join("jobs.db.lock"), 0o644);
    block_on(async {
        let store = JobStore::open(&location, &access).await.unwrap();
        store.submit(&new_job("q")).await.unwrap();
        let all = store.list(&JobFilter::default(), 1).await.unwrap();
        assert_eq!(all.total, 2);
    });
}

#[test]
#[ignore = "a process of another test"]
fn process_without_write_access() {
    if nix::unistd::Uid::effective().is_root() {
        // Nothing is read-only for root.
        nix::unistd::setuid(nix::unistd::Uid::from_raw(NOBODY)).unwrap();
    }
    let path = variable(STORE);
    let key = tempfile::tempdir().unwrap();
    let access = Access::of(key.path());
    let error = block_on(async {
        let store = JobStore::open(&Location::Sqlite(path.clone()), &access).await?;
        store.submit(&new_job("p")).await
    });
    let error = error.unwrap_err();
    let clear = matches!(error, StoreError::ReadOnly { .. });
    assert!(clear, "{error:?}");
    let said = error.to_string();
    assert!(said.contains(path.to_str().unwrap()), "{said}");
    assert!(said.contains("--store"), "{said}");
}

/// A file that only this user can access has no jobs of others, even if its key was replaced.
/// Programs are nevertheless not taken from a row that the key has not signed.
#[test]
fn file_that_others_can_write_has_jobs_of_others() {
    let stage = TestStore::sqlite();
    let path = stage.location.path().unwrap().to_owned();
    let key = tempfile::tempdir().unwrap();
    block_on(async {
        let ours = stage.open().await;
        let worker = new_worker_id();
        for _ in 0..2 {
            ours.submit(&new_job("p")).await.unwrap();
        }
        let private = JobStore::open(&stage.location, &Access::of(key.path())).await;
        let claimed = claim(&private.unwrap(), &worker).await.unwrap();
        assert_eq!(claimed.job.summary.owner.ownership, Ownership::Ours);
        assert_eq!(claimed.job.origin, Origin::Unproven);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let shared = JobStore::open(&stage.location, &Access::of(key.path())).await;
        assert_eq!(claim(&shared.unwrap(), &worker).await, None);
        let claimed = claim(&stage.open().await, &worker).await.unwrap();
        assert_eq!(claimed.job.summary.owner.ownership, Ownership::Ours);
        assert_eq!(claimed.job.origin, Origin::ThisMachine);
    });
}

/// Waits until a store is closed and its file has all changes.
async fn wait_until_closed(stage: &TestStore) {
    let log = log_of(stage);
    // The log stays if the connection that only reads is the last to be closed.
    testkit::wait::wait_for("a closed store", async || {
        if log.exists() {
            drop(stage.open().await);
            return None;
        }
        Some(())
    })
    .await;
}

fn log_of(stage: &TestStore) -> PathBuf {
    stage.location.path().unwrap().with_extension("db-wal")
}

/// Adds a job without a signature to a closed store by creating a log beside its file. The log was
/// written for a copy of the file; an attacker who cannot read the file would write a log that
/// replaces all of its pages.
async fn plant_job(stage: &TestStore) {
    let forged = TestStore::sqlite();
    let copy = forged.location.path().unwrap();
    fs::create_dir(copy.parent().unwrap()).unwrap();
    fs::copy(stage.location.path().unwrap(), copy).unwrap();
    let store = forged.open().await;
    store.submit(&new_job("planted")).await.unwrap();
    let remove_signature = async |connection: &mut Connection| {
        let sql = "UPDATE codex_jobs SET owner = NULL, signer = NULL, signature = NULL";
        connection.run(sql, Vec::new()).await
    };
    writing!(store, remove_signature).unwrap();
    fs::copy(log_of(&forged), log_of(stage)).unwrap();
}

/// The control is a directory in which only this user can create files. The store is opened by a
/// link from such a directory.
#[test]
fn job_planted_in_a_directory_that_others_can_write_is_not_ours() {
    for (mode, origin) in [
        (0o755, Some(Origin::ThisMachine)),
        (0o775, None),
        (0o757, None),
    ] {
        let stage = TestStore::sqlite();
        let path = stage.location.path().unwrap();
        let link = stage.state.path().join("jobs.db");
        block_on(async {
            drop(stage.open().await);
            wait_until_closed(&stage).await;
            plant_job(&stage).await;
            let directory = path.parent().unwrap();
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::symlink(path, &link).unwrap();
            let store = JobStore::open(&Location::Sqlite(link), &stage.access()).await;
            let claimed = claim(&store.unwrap(), &new_worker_id()).await;
            let found = claimed.map(|claimed| claimed.job.origin);
            assert_eq!(found, origin, "mode {mode:o}");
        });
    }
}

/// The files of a directory, and what is in them.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

async fn inspected_jobs(location: &Location, access: &Access) -> u64 {
    let store = JobStore::inspect(location, access).await.unwrap();
    store.list(&JobFilter::default(), 10).await.unwrap().total
}

#[test]
fn inspection_reads_and_writes_no_file() {
    block_on(async {
        let stage = TestStore::sqlite();
        let path = stage.location.path().unwrap().to_owned();
        let directory = path.parent().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let without_key = Access::of(elsewhere.path());

        let store = stage.open().await;
        store.submit(&new_job("p")).await.unwrap();
        // While another process works with it.
        assert_eq!(inspected_jobs(&stage.location, &stage.access()).await, 1);

        drop(store);
        wait_until_closed(&stage).await;
        let before = contents(directory);
        assert_eq!(inspected_jobs(&stage.location, &stage.access()).await, 1);
        assert_eq!(inspected_jobs(&stage.location, &without_key).await, 1);
        let store = JobStore::inspect(&stage.location, &without_key).await;
        let refused = store.unwrap().submit(&new_job("q")).await.unwrap_err();
        assert!(matches!(refused, StoreError::ReadOnly { .. }), "{refused}");
        assert_eq!(contents(elsewhere.path()), []);
        assert_eq!(contents(directory), before);
    });
}

#[test]
fn inspection_refuses_a_missing_and_an_older_store() {
    block_on(async {
        let stage = TestStore::sqlite();
        let access = Access::of(Path::new("/"));
        let inspect = || JobStore::inspect(&stage.location, &access);
        let missing = inspect().await.unwrap_err();
        assert!(matches!(missing, StoreError::ReadOnly { .. }), "{missing}");
        assert!(!stage.location.path().unwrap().exists());

        drop(stage.open().await);
        let (mut connection, _lock) = pool::first(&stage.location).await.unwrap();
        connection.script("PRAGMA user_version = 7").await.unwrap();
        let older = inspect().await.unwrap_err();
        let is_older = matches!(older, StoreError::Older { found: 7, .. });
        assert!(is_older, "{older}");
    });
}
