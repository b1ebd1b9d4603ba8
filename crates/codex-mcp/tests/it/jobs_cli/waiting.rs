//! `wait`, `logs`, `cancel`.

use std::io::Read;

use job_queue::logic::{Ending, JobState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

#[tokio::test]
async fn exit_code_tells_how_the_job_ended() {
    let stage = JobsFixture::new().await;
    let mut ids = Vec::new();
    for (ending, code, stdout, words) in [
        (Ending::Completed, 0, "It is\ndone.\n", "completed after"),
        (Ending::Failed, 1, "", "failed after"),
        (Ending::Cancelled, 2, "", "cancelled after"),
    ] {
        let id = stage.ended("p", ending).await;
        let output = stage.run(&["wait", short(&id)]);
        assert_eq!((output.code, output.stdout.as_str()), (code, stdout));
        assert!(output.stderr.contains(words), "{}", output.stderr);
        let output = stage.run(&["wait", "--json", short(&id)]);
        let record: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!((output.code, &record["job_id"]), (code, &json!(id)));
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
        let output = stage.run(&[&["wait", "--timeout", "0s"], args].concat());
        assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    }
    let output = stage.run(&["wait", completed, cancelled, failed]);
    let heading = format!("--- {completed} call_codex\nIt is\ndone.\n");
    assert_eq!(output.stdout, heading);
    let output = stage.run(&["wait", "--json", completed, failed]);
    let states: Vec<Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["status"].clone())
        .collect();
    assert_eq!(states, ["completed", "failed"]);
    for args in [&["wait", "--help"][..], &["--help"]] {
        assert!(stage.stdout_of(args).contains("Exit codes: 0 "));
    }
}

#[tokio::test]
async fn wait_shows_what_codex_does() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let mut waiting = stage.start(&["wait", short(&id)]);
    waiting.wait_for_line(&format!("{} queued", short(&id)));
    let claim = stage.claim().await;
    waiting.wait_for_line(&format!("{} running", short(&id)));
    stage.append(&claim, &[command("started", None)]).await;
    waiting.wait_for_line("$ make test");
    stage.append(&claim, &[command("completed", Some(3))]).await;
    waiting.wait_for_line("exit code 3: make test");
    stage.finish(&claim, Ending::Completed, report()).await;
    waiting.wait_for_line("completed after");
    let output = waiting.ends();
    assert_eq!((output.code, output.stdout.as_str()), (0, "It is\ndone.\n"));
}

/// A job can begin and end between two looks at it.
#[tokio::test]
async fn all_steps_of_a_short_job_are_printed_before_its_end() {
    let stage = JobsFixture::new().await;
    for is_new in [true, false] {
        let mut waiting = match is_new {
            true => stage.start(&["submit", "--wait", "p"]),
            false => stage.start(&["wait", short(&stage.queued("p").await)]),
        };
        waiting.wait_for_line(" queued");
        let claim = stage.claim().await;
        stage.append(&claim, &events()).await;
        stage.finish(&claim, Ending::Completed, report()).await;
        let output = waiting.ends();
        assert_eq!((output.code, output.stdout.as_str()), (0, "It is\ndone.\n"));
        let lines: Vec<&str> = output.stderr.lines().collect();
        let thread = format!("thread {SESSION}");
        let steps = [
            "running",
            thread.as_str(),
            "$ make test",
            "exit code 3: make test",
            "It is done.",
        ];
        let id = short(&claim.job);
        assert_eq!(lines[..5], steps.map(|step| format!("{id} {step}")));
        let end = format!("{id} completed after");
        assert!(lines[5].starts_with(&end), "{}", output.stderr);
    }
}

#[tokio::test]
async fn wait_warns_of_notifications_that_failed() {
    let stage = JobsFixture::new().await;
    let failed = json!([{ "to": "command:false", "error": "it failed" }]);
    for ending in [Ending::Completed, Ending::Failed] {
        let id = stage.queued("p").await;
        let claim = stage.claim().await;
        let mut result = report();
        result["notified"] = failed.clone();
        stage.finish(&claim, ending, result).await;
        let output = stage.run(&["wait", short(&id)]);
        let told = format!("{} cannot notify command:false: it failed", short(&id));
        assert!(output.stderr.contains(&told), "{}", output.stderr);
    }
}

#[tokio::test]
async fn wait_times_out_and_the_job_continues() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let output = stage.run(&["wait", "--timeout", "50ms", short(&id)]);
    assert_eq!((output.code, output.stdout.as_str()), (124, ""));
    let words = format!("the job continues; `codex-mcp jobs wait {}`", short(&id));
    assert!(output.stderr.contains(&words), "{}", output.stderr);
    let job = stage.store.summary(&id).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Queued);
}

#[tokio::test]
async fn ctrl_c_ends_the_wait_and_not_the_job() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let claim = stage.claim().await;
    stage.append(&claim, &events()).await;
    for (args, is_wait) in [
        (&["wait", short(&id)][..], true),
        (&["logs", "--follow", "--tail", "1", short(&id)], false),
    ] {
        let mut running = stage.start(args);
        if is_wait {
            running.wait_for_line("It is done.");
        } else {
            let stdout = running.child.stdout.as_mut().unwrap();
            stdout.read_exact(&mut [0]).unwrap();
        }
        let pid = Pid::from_raw(running.child.id().try_into().unwrap());
        kill(pid, Signal::SIGINT).unwrap();
        let output = running.ends();
        assert_eq!(output.code, 130, "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(" continue"), "{}", output.stderr);
    }
    let job = stage.store.summary(&id).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Running);
}

#[tokio::test]
async fn wait_fails_when_its_job_is_pruned() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let other = stage.queued("q").await;
    let mut waiting = stage.start(&["wait", short(&id), short(&other)]);
    waiting.wait_for_line("queued");
    waiting.wait_for_line("queued");
    stage.store.request_cancel(&id).await.unwrap();
    waiting.wait_for_line("cancelled");
    stage.store.prune(Duration::ZERO).await.unwrap();
    stage.store.request_cancel(&other).await.unwrap();
    let output = waiting.ends();
    assert_eq!(output.code, 3);
    assert!(
        output.stderr.contains("was removed meanwhile"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn log_of_a_job_that_failed_without_events_has_its_error() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Failed, report()).await;
    for args in [&["logs"][..], &["logs", "--json"], &["logs", "--follow"]] {
        let output = stage.run(&[args, &[short(&id)]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{args:?}");
        let show = format!("`codex-mcp jobs show {}`", short(&id));
        for words in ["no events of this job", "the model is away", &show] {
            let count = output.stderr.matches(words).count();
            assert_eq!(count, 1, "{args:?}: {}", output.stderr);
        }
    }
}

#[tokio::test]
async fn log_is_printed_in_words_or_as_raw_events() {
    let stage = JobsFixture::new().await;
    let id = stage.ended("p", Ending::Failed).await;
    let told = stage.stdout_of(&["logs", short(&id)]);
    let words: Vec<&str> = told
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .map(|(_, rest)| {
            rest.trim_start()
                .split_once("  ")
                .map_or(rest, |(_, words)| words)
        })
        .collect();
    let thread = format!("thread {SESSION}");
    assert_eq!(
        words,
        [
            &thread,
            "$ make test",
            "exit code 3: make test",
            "It is done."
        ],
        "{told}"
    );
    let told = stage.stdout_of(&["logs", "--tail", "1", short(&id)]);
    assert!(told.ends_with("It is done.\n") && told.lines().count() == 1);
    let raw = stage.stdout_of(&["logs", "--json", short(&id)]);
    let raw: Vec<Value> = raw
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(raw, events());
    // An ended job has no log to follow.
    let output = stage.run(&["logs", "--follow", "--tail", "0", short(&id)]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""));
    assert!(output.stderr.contains("failed after"), "{}", output.stderr);
}

#[tokio::test]
async fn log_of_a_cancelled_job_says_so() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let claim = stage.claim().await;
    stage.append(&claim, &[message("begun")]).await;
    stage.finish(&claim, Ending::Cancelled, report()).await;
    let output = stage.run(&["logs", short(&id)]);
    assert!(output.stdout.ends_with("begun\n"), "{}", output.stdout);
    assert!(
        output.stderr.contains("cancelled after"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn log_is_followed_until_the_job_has_ended() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    let output = stage.run(&["logs", short(&id)]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""));
    assert!(output.stderr.contains("nothing yet"), "{}", output.stderr);

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
    let output = following.ends();
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!((output.code, lines.len()), (0, 181));
    let last: Value = serde_json::from_str(lines[180]).unwrap();
    assert_eq!(last, json!({"type": "codex-mcp/dropped", "dropped": 7}));
    assert!(
        output.stderr.contains("completed after"),
        "{}",
        output.stderr
    );
}

/// `approve`, `decline`, `steer` and `cancel` agree.
#[tokio::test]
async fn verb_for_a_job_that_does_not_run_names_its_state_and_the_next_command() {
    let stage = JobsFixture::new().await;
    let refused = |args: &[&str], work: &str| {
        let output = stage.run(args);
        let words = match args[0] {
            "steer" | "cancel" => args[0].to_owned(),
            verb => format!("{verb} anything in"),
        };
        assert_eq!(output.stderr, format!("error: cannot {words} {work}\n"));
        assert_eq!(output.stdout, "");
        output.code
    };
    for ending in [Ending::Completed, Ending::Failed, Ending::Cancelled] {
        let id = stage.ended("p", ending).await;
        let id = short(&id);
        let state = JobState::from(ending);
        let mut work = format!(
            "job {id}: it is {state}; `codex-mcp jobs resume {id} \"…\"` continues its thread"
        );
        if ending != Ending::Completed {
            work += &format!(", `codex-mcp jobs retry {id}` submits it once more");
        }
        for args in [&["approve", id][..], &["decline", id], &["steer", id, "x"]] {
            assert_eq!(refused(args, &work), 3);
        }
        if ending != Ending::Cancelled {
            assert_eq!(refused(&["cancel", id], &work), 1);
        }
    }

    let request = Request {
        run: Some(json!({})),
        ..Request::new("p", stage.home.work().to_str().unwrap())
    };
    let id = stage.submit(request).await;
    let run = short(&id);
    let work = format!(
        "job {run}: it is a run, which takes no messages and answers Codex's questions as its \
         --approve says; `codex-mcp jobs cancel {run}` cancels it, then `codex-mcp jobs resume \
         {run} \"…\"` continues its thread"
    );
    for args in [
        &["approve", run][..],
        &["decline", run],
        &["steer", run, "x"],
    ] {
        assert_eq!(refused(args, &work), 3);
    }
    stage.store.request_cancel(&id).await.unwrap();
    let retry = format!("`codex-mcp jobs retry {run}` submits the run once more");
    let work = format!("run {run}: it is cancelled; {retry} with the same options");
    assert_eq!(refused(&["steer", run, "x"], &work), 3);

    let queued = stage.queued("p").await;
    let queued = short(&queued);
    let logs = format!("`codex-mcp jobs logs -f {queued}` shows when it runs");
    let work = format!("job {queued}: it is queued; {logs}");
    assert_eq!(refused(&["approve", queued], &work), 3);
}

#[tokio::test]
async fn jobs_are_cancelled() {
    let stage = JobsFixture::new().await;
    let queued = stage.queued("p").await;
    for words in ["Job cancelled before it began", "Job already cancelled"] {
        let told = stage.stdout_of(&["cancel", short(&queued)]);
        assert_eq!(told, format!("{}: {words}\n", short(&queued)));
    }
    let ended = stage.ended("p", Ending::Completed).await;
    let output = stage.run(&["cancel", short(&ended), short(&queued)]);
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains(": it is completed; "),
        "{}",
        output.stderr
    );
    assert!(
        output.stdout.contains("already cancelled"),
        "{}",
        output.stdout
    );

    let running = stage.queued("p").await;
    let claim = stage.claim().await;
    let cancelling = stage.start(&["cancel", short(&running)]);
    let mut watch = stage.store.watch();
    while stage
        .store
        .jobs_to_cancel(&claim.worker)
        .await
        .unwrap()
        .is_empty()
    {
        watch.changed().await;
    }
    stage.finish(&claim, Ending::Cancelled, report()).await;
    let output = cancelling.ends();
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(
        output
            .stdout
            .contains("Job cancelled; its turn and commands have ended")
    );
}
