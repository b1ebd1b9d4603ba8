//! What becomes of jobs: `wait`, `logs`, `cancel`.

use std::io::Read;

use job_queue::logic::{Ending, JobState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

#[tokio::test]
async fn the_exit_code_tells_how_a_job_has_ended() {
    let stage = Stage::new().await;
    let mut ids = Vec::new();
    for (ending, code, stdout, words) in [
        (Ending::Completed, 0, "It is\ndone.\n", "completed after"),
        (Ending::Failed, 1, "", "failed after"),
        (Ending::Cancelled, 2, "", "cancelled after"),
    ] {
        let id = stage.ended("p", ending).await;
        let said = stage.say(&["wait", short(&id)]);
        assert_eq!((said.code, said.stdout.as_str()), (code, stdout));
        assert!(said.stderr.contains(words), "{}", said.stderr);
        let said = stage.say(&["wait", "--json", short(&id)]);
        let record: Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!((said.code, &record["job_id"]), (code, &json!(id)));
        ids.push(id);
    }
    let [completed, failed, cancelled] = [&ids[0], &ids[1], &ids[2]].map(|id| id.as_str());
    let queued = stage.queued("waits").await;
    for (args, code) in [
        (&[completed, completed][..], 0),
        (&[completed, cancelled], 2),
        (&[cancelled, failed, completed], 1),
        (&[failed, queued.as_str()], 124),
        (&[failed, "00000000"], 3),
        (&[], 3),
    ] {
        let said = stage.say(&[&["wait", "--timeout", "0s"], args].concat());
        assert_eq!(said.code, code, "{args:?}: {}", said.stderr);
    }
    let said = stage.say(&["wait", completed, cancelled, failed]);
    let heading = format!("--- {completed} call_codex\nIt is\ndone.\n");
    assert_eq!(said.stdout, heading);
    let said = stage.say(&["wait", "--json", completed, failed]);
    let states: Vec<Value> = said
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].clone())
        .collect();
    assert_eq!(states, ["completed", "failed"]);
    for args in [&["wait", "--help"][..], &["--help"]] {
        assert!(stage.told(args).contains("Exit codes: 0 "));
    }
}

#[tokio::test]
async fn whoever_waits_is_told_what_codex_does() {
    let stage = Stage::new().await;
    let id = stage.queued("p").await;
    let mut waiting = stage.start(&["wait", short(&id)]);
    waiting.hears(&format!("{} queued", short(&id)));
    let claim = stage.claim().await;
    waiting.hears(&format!("{} running", short(&id)));
    stage.append(&claim, &[command("started", None)]).await;
    waiting.hears("$ make test");
    stage.append(&claim, &[command("completed", Some(3))]).await;
    waiting.hears("exit code 3: make test");
    stage.finish(&claim, Ending::Completed, report()).await;
    waiting.hears("completed after");
    let said = waiting.ends();
    assert_eq!((said.code, said.stdout.as_str()), (0, "It is\ndone.\n"));
}

#[tokio::test]
async fn whoever_waits_too_long_is_told_and_the_job_goes_on() {
    let stage = Stage::new().await;
    let id = stage.queued("p").await;
    let said = stage.say(&["wait", "--timeout", "50ms", short(&id)]);
    assert_eq!((said.code, said.stdout.as_str()), (124, ""));
    let words = format!("goes on; `codex-mcp jobs wait {}`", short(&id));
    assert!(said.stderr.contains(&words), "{}", said.stderr);
    let job = stage.store.summary(&id).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Queued);
}

#[tokio::test]
async fn ctrl_c_ends_the_waiting_and_not_the_job() {
    let stage = Stage::new().await;
    let id = stage.queued("p").await;
    let claim = stage.claim().await;
    stage.append(&claim, &events()).await;
    for (args, is_wait) in [
        (&["wait", short(&id)][..], true),
        (&["logs", "--follow", "--tail", "1", short(&id)], false),
    ] {
        let mut running = stage.start(args);
        if is_wait {
            running.hears("It is done.");
        } else {
            let stdout = running.child.stdout.as_mut().unwrap();
            stdout.read_exact(&mut [0]).unwrap();
        }
        let pid = Pid::from_raw(running.child.id().try_into().unwrap());
        kill(pid, Signal::SIGINT).unwrap();
        let said = running.ends();
        assert_eq!(said.code, 130, "{args:?}: {}", said.stderr);
        assert!(said.stderr.contains("goes on"), "{}", said.stderr);
    }
    let job = stage.store.summary(&id).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Running);
}

#[tokio::test]
async fn a_job_that_is_removed_meanwhile_cannot_be_told_of() {
    let stage = Stage::new().await;
    let id = stage.queued("p").await;
    let other = stage.queued("q").await;
    let mut waiting = stage.start(&["wait", short(&id), short(&other)]);
    waiting.hears("queued");
    waiting.hears("queued");
    stage.store.request_cancel(&id).await.unwrap();
    waiting.hears("cancelled");
    stage.store.prune(Duration::ZERO).await.unwrap();
    stage.store.request_cancel(&other).await.unwrap();
    let said = waiting.ends();
    assert_eq!(said.code, 3);
    assert!(
        said.stderr.contains("was removed meanwhile"),
        "{}",
        said.stderr
    );
}

#[tokio::test]
async fn the_log_is_in_words_or_as_it_came() {
    let stage = Stage::new().await;
    let id = stage.ended("p", Ending::Failed).await;
    let told = stage.told(&["logs", short(&id)]);
    let words: Vec<&str> = told
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(_, rest)| {
            rest.trim_start()
                .split_once("  ")
                .map_or(rest, |(_, words)| words)
        })
        .collect();
    let session = format!("session {SESSION}");
    assert_eq!(
        words,
        [
            &session,
            "$ make test",
            "exit code 3: make test",
            "It is done."
        ],
        "{told}"
    );
    let told = stage.told(&["logs", "--tail", "1", short(&id)]);
    assert!(told.ends_with("It is done.\n") && told.lines().count() == 1);
    let raw = stage.told(&["logs", "--json", short(&id)]);
    let raw: Vec<Value> = raw
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(raw, events());
    // Of an ended job there is nothing to follow.
    let said = stage.say(&["logs", "--follow", "--tail", "0", short(&id)]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    assert!(said.stderr.contains("failed after"), "{}", said.stderr);
}

#[tokio::test]
async fn a_log_is_followed_until_the_job_has_ended() {
    let stage = Stage::new().await;
    let id = stage.queued("p").await;
    let said = stage.say(&["logs", short(&id)]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    assert!(said.stderr.contains("nothing yet"), "{}", said.stderr);

    let following = stage.start(&["logs", "-f", "--json", short(&id)]);
    let claim = stage.claim().await;
    for _ in 0..3 {
        stage.append(&claim, &vec![message("again"); 60]).await;
    }
    let cut = NewEvent {
        kind: "codex-mcp/dropped".to_owned(),
        data: r#"{"dropped":7}"#.to_owned(),
    };
    stage.store.append(&claim, &[cut]).await.unwrap();
    stage.finish(&claim, Ending::Completed, report()).await;
    let said = following.ends();
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!((said.code, lines.len()), (0, 181));
    let last: Value = serde_json::from_str(lines[180]).unwrap();
    assert_eq!(last, json!({"type": "codex-mcp/dropped", "dropped": 7}));
    assert!(said.stderr.contains("completed after"), "{}", said.stderr);
}

#[tokio::test]
async fn jobs_are_called_off() {
    let stage = Stage::new().await;
    let queued = stage.queued("p").await;
    for words in ["Job cancelled before it began", "Job already cancelled"] {
        let told = stage.told(&["cancel", short(&queued)]);
        assert_eq!(told, format!("{}: {words}\n", short(&queued)));
    }
    let ended = stage.ended("p", Ending::Completed).await;
    let said = stage.say(&["cancel", short(&ended), short(&queued)]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("Cannot cancel job in 'completed'"));
    assert!(said.stdout.contains("already cancelled"), "{}", said.stdout);

    let running = stage.queued("p").await;
    let claim = stage.claim().await;
    let cancelling = stage.start(&["cancel", short(&running)]);
    let mut watch = stage.store.watch();
    while stage
        .store
        .unwanted(&claim.worker)
        .await
        .unwrap()
        .is_empty()
    {
        watch.changed().await;
    }
    stage.finish(&claim, Ending::Cancelled, report()).await;
    let said = cancelling.ends();
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(
        said.stdout
            .contains("Job cancelled; nothing of it runs any more")
    );
}
