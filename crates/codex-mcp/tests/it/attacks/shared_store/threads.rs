//! Threads of Codex that this machine has not signed.

use std::time::Duration;

use job_queue::logic::JobState;
use job_queue::store::{Request, new_worker_id};
use settings::store_access::OthersJobs;

use super::{Database, submit};
use crate::jobs::wait_until;

/// Longer than any test takes.
const LEASE: Duration = Duration::from_secs(600);

/// The threads of this machine's own attempt and of the attacker.
const OWN: &str = "01a200a4-327e-7ce2-b260-3fbdb333d5f1";
const THEIRS: &str = "01a200a4-327e-7ce2-b260-3fbdb333d5f2";

/// The control is a job whose first attempt was lost: the second one continues its thread.
#[tokio::test]
async fn attempt_continues_no_thread_that_this_host_has_not_signed() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let honest = Request {
        retry: 1,
        ..machine.request("honest")
    };
    let honest = submit(&store, honest).await;
    let lost = store.claim(&new_worker_id(), "here", LEASE).await.unwrap();
    let lost = lost.unwrap().claim;
    store.note_session(&lost, OWN).await.unwrap();
    let given_up = store.give_up(&lost, "lost").await.unwrap();
    assert_eq!(given_up, Some(JobState::Queued));
    let named = submit(&store, machine.request("named")).await;
    let moved = submit(&store, machine.request("moved")).await;
    let choose = format!(
        "UPDATE codex_jobs SET attempts = 1, session_id = '{THEIRS}' WHERE id = '{named}'; \
         UPDATE codex_jobs SET attempts = 1, session_id = '{OWN}', session_signature = \
         (SELECT session_signature FROM codex_jobs WHERE id = '{honest}') WHERE id = '{moved}'"
    );
    database.insider().await.run(&choose).await;
    let worker = machine.worker();
    let mut sessions = Vec::new();
    for id in [&honest, &named, &moved] {
        let job = wait_until(&store, id, JobState::Completed).await;
        assert_eq!(job.attempts, 2);
        sessions.push(job.summary.session_id.unwrap());
    }
    assert_eq!(sessions[0], OWN);
    for chosen in &sessions[1..] {
        assert!(![OWN, THEIRS].contains(&chosen.as_str()), "{chosen}");
    }
    worker.says("it is not signed with the key").await;
    machine.finish(worker).await;
}

/// The controls are the same commands once the thread is put back.
#[tokio::test]
async fn changed_thread_of_an_ended_job_is_not_continued() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let first = submit(&store, machine.request("first")).await;
    let worker = machine.worker();
    let ended = wait_until(&store, &first, JobState::Completed).await;
    machine.finish(worker).await;
    let own = ended.summary.session_id.unwrap();
    let mut insider = database.insider().await;
    let mut set = async |session: &str| {
        let sql = format!("UPDATE codex_jobs SET session_id = '{session}' WHERE id = '{first}'");
        insider.run(&sql).await;
    };
    for args in [
        ["resume", first.as_str(), "resumed"],
        ["submit", "--continue", "continued"],
    ] {
        set(THEIRS).await;
        let (code, _, said) = machine.run_jobs(&args);
        assert_eq!(code, 3, "{said}");
        assert!(
            said.contains("is not signed with this machine's key"),
            "{said}"
        );
        assert!(said.contains("--thread"), "{said}");
    }
    set(&own).await;
    let (code, resumed, said) = machine.run_jobs(&["resume", first.as_str(), "resumed"]);
    assert_eq!(code, 0, "{said}");
    let resumed = resumed.trim_end().parse().unwrap();
    wait_until(&store, &resumed, JobState::Completed).await;
    let (code, continued, said) = machine.run_jobs(&["submit", "--continue", "continued"]);
    assert_eq!(code, 0, "{said}");
    let continued = continued.trim_end().parse().unwrap();
    for id in [&resumed, &continued] {
        let job = wait_until(&store, id, JobState::Completed).await;
        assert_eq!(job.request.resume_session_id.as_ref(), Some(&own));
        assert_eq!(job.summary.session_id.as_ref(), Some(&own));
    }
    // The worker that `resume` started ends with the home.
}
