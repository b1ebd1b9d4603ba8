//! The picture in docs/top.md.

use testkit::docs::check;

use super::*;

/// A session that asks, one that runs, a run and a failed job.
fn example() -> App {
    let asking = Work {
        task: Some("Add a greeting, and publish it".to_owned()),
        ..asking_to("git push origin main")
    };
    let step = |words: &str, since| StepSummary {
        words: words.to_owned(),
        since: UNIX_EPOCH + Duration::from_secs(since),
    };
    let running = Work {
        task: Some("Find the flaky test".to_owned()),
        step: Some(step("cargo test", 58)),
        ..work("sess_running", Kind::Session, "running")
    };
    let run = Work {
        task: Some("Move the parser".to_owned()),
        step: Some(step("Codex is thinking", 105)),
        directory: "/home/me/parser".to_owned(),
        ..work("job_2", Kind::Run, "running")
    };
    let failed = Work {
        task: Some("nightly".to_owned()),
        note: Some("usage limit reached".to_owned()),
        ..work("job_1", Kind::Job, "failed")
    };
    let mut app = App::new(UNIX_EPOCH + Duration::from_secs(120));
    app.set_work(AllWork {
        work: vec![failed, run, running, asking],
        failure: None,
    });
    app
}

#[test]
fn list_is_that_of_the_page() {
    let picture = picture(&mut example(), 80, 10);
    let lines = picture
        .lines()
        .map(|line| line.trim_matches('"').trim_end());
    let lines: Vec<&str> = lines.collect();
    check(
        "top.md",
        [("list", format!("```text\n{}\n```", lines.join("\n")))],
    );
}
