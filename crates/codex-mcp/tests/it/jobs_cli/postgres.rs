//! The verbs on a PostgreSQL server.

use job_queue::logic::Ending;
use testkit::postgres::{Durability, Postgres};

use super::*;

#[tokio::test]
async fn jobs_on_postgres_are_listed_shown_and_pruned() {
    let server = Postgres::start(Durability::Unsynced);
    let location = server.database("jobs").parse().unwrap();
    let stage = JobsFixture::at(Home::new(""), location).await;

    let id = stage.stdout_of(&["submit", "Fix it."]);
    let id: JobId = id.trim_end().parse().unwrap();
    let mut waiting = stage.start(&["wait", short(&id)]);
    waiting.wait_for_line("queued");
    let claim = stage.claim().await;
    stage.append(&claim, &events()).await;
    waiting.wait_for_line("It is done.");
    stage.finish(&claim, Ending::Completed, report()).await;
    let output = waiting.ends();
    assert_eq!((output.code, output.stdout.as_str()), (0, "It is\ndone.\n"));

    let listed = stage.stdout_of(&["list"]);
    assert!(
        listed.contains(short(&id)) && listed.ends_with("1 of 1\n"),
        "{listed}"
    );
    let shown = stage.json(&["show", "--json", short(&id)]);
    assert_eq!(shown["metadata"], report());
    assert_eq!(stage.stdout_of(&["logs", short(&id)]).lines().count(), 4);
    let resumed = stage.stdout_of(&["resume", short(&id), "more"]);
    let told = stage.stdout_of(&["cancel", resumed.trim_end()]);
    assert!(told.contains("cancelled before it began"), "{told}");
    let pruned = stage.json(&["prune", "--older-than", "0s", "--json"]);
    assert_eq!(pruned["removed"], 2);
}

#[tokio::test]
async fn schema_for_a_role_is_printed() {
    let stage = JobsFixture::new().await;
    let made = stage.stdout_of(&["schema", "--role", "me"]);
    assert!(made.contains("CREATE TABLE codex_jobs"), "{made}");
    assert!(made.contains("TO \"me\";"), "{made}");
    let unknown = stage.run(&["schema", "--from", "99"]);
    assert_eq!(unknown.code, 3);
    assert!(unknown.stderr.contains("version 99"), "{}", unknown.stderr);
}

#[tokio::test]
async fn wait_survives_a_restart_of_postgres() {
    let mut server = Postgres::start(Durability::Synced);
    let location = server.database("jobs").parse().unwrap();
    let stage = JobsFixture::at(Home::new(""), location).await;
    let id = stage.queued("p").await;
    let mut waiting = stage.start(&["wait", short(&id)]);
    waiting.wait_for_line("queued");
    server.stop();
    waiting.wait_for_line("cannot be reached");
    server.start_again();
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Completed, report()).await;
    let output = waiting.ends();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (0, "It is\ndone.\n"),
        "{}",
        output.stderr
    );
}
