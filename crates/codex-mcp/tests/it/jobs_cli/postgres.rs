//! The same on a server.

use job_queue::logic::Ending;
use testkit::postgres::{Durability, Postgres};

use super::*;

#[tokio::test]
async fn jobs_of_a_server_are_found_and_cared_for() {
    let server = Postgres::start(Durability::Unsynced);
    let location = server.database("jobs").parse().unwrap();
    let stage = Stage::at(Home::new(""), location).await;

    let id = stage.told(&["submit", "Fix it."]);
    let id: JobId = id.trim_end().parse().unwrap();
    let mut waiting = stage.start(&["wait", short(&id)]);
    waiting.hears("queued");
    let claim = stage.claim().await;
    stage.append(&claim, &events()).await;
    waiting.hears("It is done.");
    stage.finish(&claim, Ending::Completed, report()).await;
    let said = waiting.ends();
    assert_eq!((said.code, said.stdout.as_str()), (0, "It is\ndone.\n"));

    let listed = stage.told(&["list"]);
    assert!(
        listed.contains(short(&id)) && listed.ends_with("1 of 1\n"),
        "{listed}"
    );
    let shown = stage.json(&["show", "--json", short(&id)]);
    assert_eq!(shown["metadata"], report());
    assert_eq!(stage.told(&["logs", short(&id)]).lines().count(), 4);
    let resumed = stage.told(&["resume", short(&id), "more"]);
    let told = stage.told(&["cancel", resumed.trim_end()]);
    assert!(told.contains("cancelled before it began"), "{told}");
    let pruned = stage.json(&["prune", "--older-than", "0s", "--json"]);
    assert_eq!(pruned["removed"], 2);
}

#[tokio::test]
async fn whoever_waits_gets_over_a_server_that_is_started_again() {
    let mut server = Postgres::start(Durability::Synced);
    let location = server.database("jobs").parse().unwrap();
    let stage = Stage::at(Home::new(""), location).await;
    let id = stage.queued("p").await;
    let mut waiting = stage.start(&["wait", short(&id)]);
    waiting.hears("queued");
    server.stop();
    waiting.hears("can't be reached");
    server.start_again();
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Completed, report()).await;
    let said = waiting.ends();
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (0, "It is\ndone.\n"),
        "{}",
        said.stderr
    );
}
