//! Rows that nobody has signed, or that were changed afterwards.

use job_queue::logic::{JobState, WORKER_LOST};
use job_queue::store::{Ownership, Request, new_worker_id};
use serde_json::json;
use settings::store_access::OthersJobs;

use super::{Database, get, submit, wait_until_failed};
use crate::jobs::{wait_for_file, wait_until};

/// The control: a signed row works, so the other tests fail only for the signature.
#[tokio::test]
async fn signed_row_runs_the_programs_that_it_names() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let evil = submit(&store, machine.evil_request()).await;
    let run = submit(&store, machine.evil_run()).await;
    let worker = machine.worker();
    wait_until(&store, &evil, JobState::Completed).await;
    wait_until(&store, &run, JobState::Failed).await;
    assert_eq!(machine.notes_of("evil"), "evil\n");
    assert_eq!(machine.notes_of("evil.home"), "/evil/home\n");
    assert_eq!(machine.notes_of("notify"), "told\n");
    machine.finish(worker).await;
}

/// The attacker's role may only SELECT and INSERT (H3).
#[tokio::test]
async fn forged_row_is_not_claimed() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let mut mallory = database.outsider().await;
    let evil = mallory.forge(&machine.evil_request()).await;
    let run = mallory.forge(&machine.evil_run()).await;
    // A copy that claims to be this machine's.
    let honest = submit(&store, machine.request("honest")).await;
    let program = format!("'{}'", machine.program("evil").display());
    let claimed = [("codex_bin", program), ("owner_role", "'postgres'".into())];
    let copy = mallory.copy(&honest, &claimed).await;
    let last = submit(&store, machine.request("last")).await;
    let worker = machine.worker();
    for own in [&honest, &last] {
        wait_until(&store, own, JobState::Completed).await;
    }
    for id in [&evil, &run, &copy] {
        let job = get(&store, id).await;
        assert_eq!((job.summary.state, job.attempts), (JobState::Queued, 0));
        assert_eq!(job.summary.owner.ownership, Ownership::Others);
        assert_eq!(job.summary.owner.role.as_deref(), Some("mallory"));
    }
    // The two jobs run at the same time, so their order is open.
    let noted = machine.notes_of("honest");
    let mut noted: Vec<&str> = noted.lines().collect();
    noted.sort_unstable();
    assert_eq!(noted, ["honest", "last"]);
    assert_eq!(
        (machine.notes_of("evil"), machine.notes_of("notify")),
        Default::default()
    );
    machine.finish(worker).await;
}

#[tokio::test]
async fn host_that_runs_foreign_jobs_runs_none_of_their_programs() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Run);
    let store = machine.open().await;
    let mut mallory = database.outsider().await;
    let evil = mallory.forge(&machine.evil_request()).await;
    let notifying = mallory.forge(&machine.evil_run()).await;
    let mut request = machine.evil_run();
    request.run = Some(json!({ "order": {
        "task": "evil", "repo": machine.home.work(),
        "exit_criteria": { "command": machine.program("notify") },
    }}));
    let judging = mallory.forge(&request).await;
    let worker = machine.worker();
    wait_until(&store, &evil, JobState::Completed).await;
    for (id, part) in [
        (&notifying, "the notifier"),
        (&judging, "the exit criterion"),
    ] {
        let error = wait_until_failed(&store, id).await;
        assert!(
            error.contains("not signed with the key of this machine"),
            "{error}"
        );
        assert!(
            error.contains(part) && error.contains("notify.sh"),
            "{error}"
        );
    }
    // The job ran with this machine's own Codex and CODEX_HOME.
    assert_eq!(machine.notes_of("honest"), "evil\n");
    let home = machine.home.codex_home();
    assert_eq!(
        machine.notes_of("honest.home"),
        format!("{}\n", home.display())
    );
    assert_eq!(
        (machine.notes_of("evil"), machine.notes_of("notify")),
        Default::default()
    );
    machine.finish(worker).await;
}

#[tokio::test]
async fn signed_row_with_a_changed_field_is_refused() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let mut insider = database.insider().await;
    let honest = submit(&store, machine.request("honest")).await;
    let quoted = |text: &str| format!("'{text}'");
    let program = quoted(machine.program("evil").to_str().unwrap());
    let mut copies = vec![insider.copy(&honest, &[]).await];
    for (column, value) in [
        ("prompt", quoted("evil")),
        ("cwd", quoted("/")),
        ("sandbox", quoted("danger-full-access")),
        ("codex_bin", program.clone()),
        ("codex_home", quoted("/evil/home")),
        ("profile", quoted("evil")),
        ("images", quoted("[\"/evil.png\"]")),
        ("tool_name", quoted("codex_run")),
        ("run", quoted(&machine.evil_run().run.unwrap().to_string())),
        ("submitted_by", quoted("team-lead")),
        (
            "resume_session_id",
            quoted("01a200a4-327e-7ce2-b260-3fbdb333d5f2"),
        ),
        ("model_override", quoted("evil")),
        ("retry", "7".to_owned()),
        ("timeout_ms", "600001".to_owned()),
        ("owner", quoted("root@evil")),
        ("signature", "ended_signature".to_owned()),
        ("signature", "NULL".to_owned()),
    ] {
        copies.push(insider.copy(&honest, &[(column, value)]).await);
    }
    let worker = machine.worker();
    for id in &copies {
        let error = wait_until_failed(&store, id).await;
        assert!(
            error.contains("not signed with the key of this machine"),
            "{error}"
        );
        assert!(error.contains("Submit it again"), "{error}");
    }
    wait_until(&store, &honest, JobState::Completed).await;
    assert_eq!(machine.notes_of("honest"), "honest\n");
    assert_eq!(
        (machine.notes_of("evil"), machine.notes_of("notify")),
        Default::default()
    );
    machine.finish(worker).await;
}

#[tokio::test]
async fn signature_is_valid_for_its_own_row_only() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let mut insider = database.insider().await;
    let changed = submit(&store, machine.request("honest")).await;
    let moved = submit(&store, machine.evil_request()).await;
    let robbed = submit(&store, machine.request("robbed")).await;
    let program = machine.program("evil").display().to_string();
    let update = format!(
        "UPDATE codex_jobs SET codex_bin = '{program}' WHERE id = '{changed}'; \
         UPDATE codex_jobs SET signature = (SELECT signature FROM codex_jobs WHERE id = \
         '{moved}') WHERE id = '{robbed}'; \
         UPDATE codex_jobs SET prompt = 'other' WHERE id = '{moved}'"
    );
    insider.run(&update).await;
    let done = submit(&store, machine.request("done")).await;
    let worker = machine.worker();
    for id in [&changed, &moved, &robbed] {
        let error = wait_until_failed(&store, id).await;
        assert!(
            error.contains("not signed with the key of this machine"),
            "{error}"
        );
    }
    wait_until(&store, &done, JobState::Completed).await;
    // A completed job is not run again.
    let again = format!("UPDATE codex_jobs SET state = 'queued' WHERE id = '{done}'");
    insider.run(&again).await;
    wait_until_failed(&store, &done).await;
    assert_eq!(machine.notes_of("honest"), "done\n");
    assert_eq!(machine.notes_of("evil"), "");
    machine.finish(worker).await;
}

#[tokio::test]
async fn worker_with_a_stolen_lease_ends_codex_and_runs_no_foreign_program() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let mut insider = database.insider().await;
    let id = submit(&store, machine.request("wait")).await;
    let worker = machine.worker();
    wait_for_file(&machine.note("honest")).await;
    let thief = new_worker_id();
    let steal = format!("UPDATE codex_jobs SET worker = '{thief}' WHERE id = '{id}'");
    insider.run(&steal).await;
    worker.says("no longer belongs to this worker").await;
    let stolen = get(&store, &id).await;
    assert_eq!(stolen.summary.state, JobState::Running);
    assert_eq!((stolen.worker, stolen.result), (Some(thief), None));
    let program = machine.program("evil").display().to_string();
    let give_back = format!(
        "UPDATE codex_jobs SET state = 'queued', codex_bin = '{program}' WHERE id = '{id}'"
    );
    insider.run(&give_back).await;
    let error = wait_until_failed(&store, &id).await;
    assert!(error.contains("not signed"), "{error}");
    assert_eq!(machine.notes_of("evil"), "");
    machine.finish(worker).await;
}

/// The worker that recovers a lost job runs the notifiers of rows that this machine has signed. The
/// control is such a row.
#[tokio::test]
async fn lost_row_with_a_changed_notifier_is_not_notified() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    machine.script("spy", "#!/bin/sh\necho told >> NOTES/NAME\n");
    let store = machine.open().await;
    let notifying = |name: &str| {
        let notifier = format!("command:{}", machine.program(name).display());
        json!({ "notify": [notifier] })
    };
    let signed = Request {
        settings: Some(notifying("notify")),
        ..machine.request("signed")
    };
    let signed = submit(&store, signed).await;
    let changed = submit(&store, machine.request("changed")).await;
    let mut insider = database.insider().await;
    let lost = format!(
        "UPDATE codex_jobs SET state = 'running', attempts = 1, lease_until = 1, worker = '{}'; \
         UPDATE codex_jobs SET settings = '{}' WHERE id = '{changed}'",
        new_worker_id(),
        notifying("spy"),
    );
    insider.run(&lost).await;
    let copy = insider.copy(&signed, &[]).await;
    let worker = machine.worker();
    for id in [&signed, &changed, &copy] {
        let error = wait_until_failed(&store, id).await;
        assert_eq!(error, WORKER_LOST);
    }
    wait_for_file(&machine.note("notify")).await;
    // Once the worker has ended, it has notified of all of them.
    machine.finish(worker).await;
    assert_eq!(machine.notes_of("notify"), "told\n");
    assert_eq!(machine.notes_of("spy"), "");
}

/// A row that nobody can read ends itself, and neither stops the worker nor hides other jobs.
#[tokio::test]
async fn unreadable_row_stops_no_other_job() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let mut insider = database.insider().await;
    let honest = submit(&store, machine.request("honest")).await;
    let broken = insider.copy(&honest, &[("images", "'x'".to_owned())]).await;
    let nameless = insider.copy(&honest, &[]).await;
    let rename = format!("UPDATE codex_jobs SET id = 'x' WHERE id = '{nameless}'");
    insider.run(&rename).await;
    let last = submit(&store, machine.request("last")).await;
    let worker = machine.worker();
    for own in [&honest, &last] {
        wait_until(&store, own, JobState::Completed).await;
    }
    let summary = store.summary(&broken).await.unwrap().unwrap();
    assert_eq!(summary.state, JobState::Failed);
    let error = summary.error.unwrap();
    let expected = format!("job {broken} has failed, as the column `images` of its row");
    assert!(error.starts_with(&expected), "{error}");
    let spoil = format!("UPDATE codex_jobs SET images = 'x' WHERE id = '{last}'");
    insider.run(&spoil).await;
    let (code, listed, _) = machine.run_jobs(&["list"]);
    assert_eq!(code, 0);
    for shown in [&honest, &broken, &last] {
        assert!(listed.contains(&shown.as_str()[..8]), "{listed}");
    }
    machine.finish(worker).await;
}

/// An event that nobody can read hides neither its job nor another one. The control is the same list
/// before there is such an event.
#[tokio::test]
async fn unreadable_event_hides_no_job() {
    let database = Database::new().await;
    let machine = database.machine(OthersJobs::Leave);
    let store = machine.open().await;
    let mut insider = database.insider().await;
    let spoiled = submit(&store, machine.request("wait")).await;
    let other = submit(&store, machine.request("wait too")).await;
    let worker = machine.worker();
    for running in [&spoiled, &other] {
        wait_until(&store, running, JobState::Running).await;
    }
    let assert_listed = || {
        let (code, listed, said) = machine.run(&["ps"]);
        assert_eq!(code, 0, "{said}");
        for shown in [&spoiled, &other] {
            assert!(listed.contains(&shown.as_str()[..8]), "{listed}");
        }
    };
    assert_listed();
    insider
        .run(&format!(
            "INSERT INTO codex_events (job, sequence, at, kind, data) \
             SELECT seq, 1099511627776, 0, 'k', '{{}}' FROM codex_jobs WHERE id = '{spoiled}'"
        ))
        .await;
    assert_listed();
    let (code, log, said) = machine.run_jobs(&["logs", spoiled.as_str()]);
    assert_eq!(code, 0, "{said}");
    assert!(log.contains("an event that cannot be read"), "{log}");
    machine.finish(worker).await;
}
