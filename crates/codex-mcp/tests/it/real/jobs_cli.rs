//! Jobs at a shell, with the real Codex and a worker that is started on demand.

use scripted_model::{Reply, Script};
use serde_json::Value;
use tokio::process::Command;

use super::{CodexFixture, on_oldest_and_newest, said};

on_oldest_and_newest!(job_is_submitted_waited_for_shown_and_resumed);

impl CodexFixture {
    /// Runs `codex-mcp jobs`, which must succeed; returns its stdout.
    pub(super) async fn jobs(&self, args: &[&str]) -> String {
        said(self.jobs_command(args)).await
    }

    pub(super) fn jobs_command(&self, args: &[&str]) -> Command {
        self.program(&[&["jobs"], args].concat())
    }
}

async fn job_is_submitted_waited_for_shown_and_resumed(release: &str) {
    let script = Script::new()
        .on("go on", [Reply::say("Two.")])
        .otherwise([Reply::shell("echo more >> README.md"), Reply::say("One.")]);
    let stage = CodexFixture::new(release, script).await;
    let submit = ["submit", "--sandbox", "workspace-write", "the number is 7"];
    let id = stage.jobs(&submit).await;
    let id = id.trim_end();
    assert_eq!(stage.jobs(&["wait", id]).await, "One.\n");
    let page = stage.jobs(&["show", &id[..8]]).await;
    for words in [
        "State     completed",
        "Final message\n  One.\n",
        "Changed files\n  modified README.md\n",
        "exit 0   $ echo more >> README.md",
    ] {
        assert!(page.contains(words), "{words:?} is missing: {page}");
    }
    let log = stage.jobs(&["logs", "--follow", id]).await;
    for words in [
        "  thread ",
        "  $ echo more",
        "  exit code 0: echo",
        "  One.\n",
    ] {
        assert!(log.contains(words), "{words:?} is missing: {log}");
    }
    let resume = ["resume", id, "--wait", "go on"];
    assert_eq!(stage.jobs(&resume).await, "Two.\n");
    let asked = stage.model.requests().pop().unwrap();
    assert!(asked.user_messages().contains(&"the number is 7"));
    assert!(asked.assistant_messages().contains(&"One."));
    assert!(stage.jobs(&["list"]).await.ends_with("\n2 of 2\n"));
}

/// `codex-mcp threads` lists it too.
#[tokio::test]
async fn thread_of_a_job_says_why_it_has_no_summary() {
    let script = Script::new().otherwise([Reply::say("One.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    stage.jobs(&["submit", "--wait", "say one"]).await;
    let listed = said(stage.program(&["threads", "--json"])).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let thread = listed["threads"][0]["thread_id"].as_str().unwrap();
    for name in [thread, &thread[..8]] {
        let output = stage.program(&["summary", name]).output().await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("jobs don't ask for one"), "{stderr}");
        assert!(stderr.contains("codex-mcp jobs show "), "{stderr}");
    }
    stage.jobs(&["submit", "--wait", "say one"]).await;
    let output = stage.program(&["summary", "01"]).output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("several threads of jobs begin with 01"),
        "{stderr}"
    );
}

/// The names allow to filter the log of one job.
#[tokio::test]
async fn lines_of_the_log_name_their_job_and_thread() {
    let script = Script::new().otherwise([Reply::say("One.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let id = stage.jobs(&["submit", "say one"]).await;
    let id = id.trim_end();
    stage.jobs(&["wait", id]).await;
    let job = stage.jobs(&["show", "--json", id]).await;
    let job: Value = serde_json::from_str(&job).unwrap();
    let thread = job["thread_id"].as_str().unwrap();
    let log = stage.home.root().join("state/codex-mcp/worker.log");
    let log = std::fs::read_to_string(log).unwrap();
    let begins = log.lines().find(|line| line.contains("a session begins"));
    let begins = begins.unwrap_or_else(|| panic!("{log}"));
    for words in [
        format!("job{{id={id}}}"),
        "session{id=sess_".to_owned(),
        format!("thread={thread}}}"),
    ] {
        assert!(begins.contains(&words), "{words} is missing: {begins}");
    }
}

/// Git hooks set GIT_DIR for all that they start.
#[tokio::test]
async fn job_works_in_its_own_repository_despite_git_dir() {
    let asks = Reply::shell("git rev-parse --absolute-git-dir");
    let script = Script::new().otherwise([asks, Reply::say("Asked.")]);
    let stage = CodexFixture::new(testkit::codex::newest(), script).await;
    let other = stage.home.root().join("other");
    stage
        .home
        .git(&["init", "--quiet", other.to_str().unwrap()]);
    let mut submit = stage.jobs_command(&["submit", "--wait", "ask git"]);
    submit.env("GIT_DIR", other.join(".git"));
    assert_eq!(said(submit).await, "Asked.\n");
    let asked = stage.model.requests().pop().unwrap();
    let own = stage.file(".git").display().to_string();
    let [told] = &asked.tool_outputs()[..] else {
        panic!("{:?}", asked.tool_outputs());
    };
    assert!(told.text.contains(&own), "{told:?}");
}
