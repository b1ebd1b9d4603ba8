//! `codex-mcp run --detach`.

use std::fs;

use codex_protocol::codex::ApprovalPolicy;
use goal_run::Caller;
use goal_run::logic::machine::Limits;
use goal_run::logic::snapshot::Preexisting;
use goal_run::spec::{Approve, RunSpec, WorkspaceMode};
use job_queue::logic::JobState;
use job_queue::run::spec::StoredRun;
use job_queue::store::Job;

use super::*;
use crate::trust;

impl JobsFixture {
    fn run_detached(&self, args: &[&str]) -> CommandOutput {
        let mut command = self.program(&[&["run", "--detach"], args].concat());
        command.output().unwrap().into()
    }

    /// The job whose ID is all of stdout.
    async fn detached(&self, args: &[&str]) -> Job {
        let output = self.run_detached(args);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}");
        let id = output.stdout.strip_suffix('\n').unwrap().parse().unwrap();
        self.store.get(&id).await.unwrap().unwrap()
    }

    /// Writes the configuration of the user.
    fn configure(&self, settings: &str) {
        let directory = self.home.atm_home().join(".config/atm");
        fs::create_dir_all(&directory).unwrap();
        let text = format!("[plugins.codex-mcp]\n{settings}\n");
        fs::write(directory.join("config.toml"), text).unwrap();
    }
}

fn spec_of(job: &Job) -> RunSpec {
    StoredRun::of(&job.request).unwrap().unwrap().spec
}

#[tokio::test]
async fn detached_run_is_stored_with_its_options() {
    let stage = JobsFixture::new().await;
    fs::create_dir(stage.home.work().join("below")).unwrap();
    fs::write(stage.home.codex_home().join("p.config.toml"), "").unwrap();
    let job = stage
        .detached(&[
            "--cwd",
            "below",
            "--until",
            "files=*.md",
            "--until",
            "command=true",
            "--allow-preexisting",
            "--max-turns",
            "3",
            "--turn-timeout",
            "90s",
            "--total-timeout",
            "1h",
            "--stall-after",
            "2",
            "--max-tokens",
            "1000",
            "--worktree",
            "--sandbox",
            "workspace-write",
            "--model",
            "m",
            "--effort",
            "high",
            "--profile",
            "p",
            "--approve",
            "always",
            "--notify",
            "command:true",
            "--name",
            "a name",
            "--retry",
            "2",
            "--identity",
            "me",
            "Do it",
        ])
        .await;
    let request = &job.request;
    assert_eq!(job.summary.state, JobState::Queued);
    assert_eq!(request.tool_name, "codex_run");
    assert_eq!(request.prompt, "Do it");
    assert!(request.cwd.ends_with("/below"), "{}", request.cwd);
    assert_eq!(request.task_name, "a name");
    assert_eq!(request.model_override.as_deref(), Some("m"));
    assert_eq!(request.sandbox.as_deref(), Some("workspace-write"));
    assert_eq!(request.effort.as_deref(), Some("high"));
    assert_eq!(request.profile.as_deref(), Some("p"));
    assert_eq!(request.retry, 2);
    assert_eq!(request.submitted_by.as_deref(), Some("me"));
    assert_eq!(request.agent_source.as_deref(), Some("codex-mcp run"));

    let spec = spec_of(&job);
    let criteria: Vec<String> = spec.criteria.iter().map(ToString::to_string).collect();
    assert_eq!(criteria, ["files=*.md", "command=true"]);
    let limits = Limits::new(3, Duration::from_secs(90), Duration::from_secs(3600));
    let limits = limits.unwrap().stalling_after(2).unwrap();
    assert_eq!(spec.limits, limits.within_tokens(Some(1000)).unwrap());
    assert_eq!(spec.preexisting, Preexisting::Counts);
    assert_eq!(spec.workspace, WorkspaceMode::Worktree);
    assert_eq!(spec.approve, Approve::Always);
    let notify: Vec<String> = spec.notify.iter().map(ToString::to_string).collect();
    assert_eq!(notify, ["command:true"]);
}

#[tokio::test]
async fn detached_run_has_the_configured_settings_and_asks_nobody() {
    let stage = JobsFixture::new().await;
    stage.configure(
        "sandbox = \"read-only\"\n[plugins.codex-mcp.roles.r]\nmodel = \"of-role\"\n\
        approval_policy = \"untrusted\"\nbase_prompt_file = \"base.md\"\n\
        extra_instructions_file = \"extra.md\"",
    );
    let configuration = stage.home.atm_home().join(".config/atm");
    fs::write(configuration.join("base.md"), "BASE-WORDS").unwrap();
    fs::write(configuration.join("extra.md"), "EXTRA-WORDS").unwrap();
    let job = stage.detached(&["--role", "r", "Do it.\nNow."]).await;
    let request = &job.request;
    assert_eq!(request.task_name, "Do it.");
    assert_eq!(request.model_override.as_deref(), Some("of-role"));
    assert_eq!(request.sandbox.as_deref(), Some("read-only"));
    let work = stage.home.work().canonicalize().unwrap();
    assert_eq!(request.cwd, work.to_str().unwrap());
    let spec = spec_of(&job);
    assert_eq!(
        (spec.limits, spec.approve),
        (Limits::default(), Approve::Never)
    );
    let settings = &spec.settings;
    let thread = &settings.thread;
    assert_eq!(thread.approval_policy, Some(ApprovalPolicy::Untrusted));
    assert_eq!(thread.base_instructions.as_deref(), Some("BASE-WORDS"));
    assert_eq!(settings.added.before.as_deref(), Some("EXTRA-WORDS"));

    stage.configure("max_sandbox = \"workspace-write\"");
    let output = stage.run_detached(&["--sandbox", "danger-full-access", "x"]);
    assert_eq!((output.code, output.stdout.as_str()), (3, ""));
    assert!(output.stderr.contains("max_sandbox"), "{}", output.stderr);
}

/// The control is the same repository after the user has trusted it.
#[tokio::test]
async fn untrusted_repository_adds_no_instructions_to_a_detached_run() {
    let stage = JobsFixture::new().await;
    let work = stage.home.work();
    let settings = "[plugins.codex-mcp]\nextra_instructions_file = \"extra.md\"\n";
    fs::write(work.join(".atm.toml"), settings).unwrap();
    fs::write(work.join("extra.md"), "EXTRA-WORDS").unwrap();
    let added = async || {
        let output = stage.run_detached(&["x"]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        let id = output.stdout.trim_end().parse().unwrap();
        let job = stage.store.get(&id).await.unwrap().unwrap();
        spec_of(&job).settings.added.before
    };
    assert_eq!(added().await, None);
    trust(&stage.home, &work);
    assert_eq!(added().await.as_deref(), Some("EXTRA-WORDS"));
}

#[tokio::test]
async fn retry_beyond_the_bounds_of_the_user_is_refused() {
    let stage = JobsFixture::new().await;
    let job = stage.detached(&["--sandbox", "workspace-write", "x"]).await;
    let id = job.summary.id.as_str();
    stage.stdout_of(&["cancel", id]);
    stage.configure("max_sandbox = \"read-only\"");
    let output = stage.run(&["retry", id]);
    assert_eq!((output.code, output.stdout.as_str()), (3, ""));
    assert!(output.stderr.contains("max_sandbox"), "{}", output.stderr);
}

#[tokio::test]
async fn run_of_a_client_that_is_retried_at_a_shell_has_the_words_of_the_shell() {
    let stage = JobsFixture::new().await;
    let mut request = stage.detached(&["x"]).await.request;
    request.run.as_mut().unwrap()["caller"] = json!("client");
    let id = stage.submit(request).await;
    stage.stdout_of(&["cancel", id.as_str()]);
    let retried = stage.stdout_of(&["retry", id.as_str()]);
    let retried = retried.trim_end().parse().unwrap();
    let retried = stage.store.get(&retried).await.unwrap().unwrap();
    let stored = StoredRun::of(&retried.request).unwrap().unwrap();
    assert_eq!(stored.caller, Caller::Shell);
}

#[tokio::test]
async fn refusal_of_automatic_approval_names_the_option() {
    let stage = JobsFixture::new().await;
    stage.configure("max_sandbox = \"workspace-write\"");
    let output = stage.run_detached(&["--approve", "always", "x"]);
    assert_eq!((output.code, output.stdout.as_str()), (3, ""));
    let (option, bound) = ("--approve always lets commands", "max_sandbox");
    let stderr = &output.stderr;
    assert!(
        stderr.contains(option) && stderr.contains(bound),
        "{stderr}"
    );
}

#[tokio::test]
async fn detached_run_with_json_prints_what_submit_prints() {
    let stage = JobsFixture::new().await;
    let output = stage.run_detached(&["--json", "x"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let run: Value = output.stdout.parse().unwrap();
    assert_eq!(run["status"], "queued");
    let job = stage.json(&["submit", "--json", "x"]);
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&run), keys(&job));
    let shown = stage.json(&["show", "--json", run["job_id"].as_str().unwrap()]);
    assert_eq!(shown["tool_name"], "codex_run");

    let output = stage.run_detached(&["--json", "--name", "", "x"]);
    assert_eq!(output.code, 3);
    let refused: Value = output.stdout.parse().unwrap();
    assert_eq!(refused["reason"], "could_not_run");
    let why = refused["why"].as_str().unwrap();
    assert!(why.contains("--name must have 1 to 200"), "{why}");
}

#[tokio::test]
async fn next_commands_name_the_store_of_the_option() {
    let stage = JobsFixture::new().await;
    let store = stage.location.to_string();
    let output = stage.run_detached(&["--json", "--store", &store, "x"]);
    let run: Value = output.stdout.parse().unwrap();
    let next = format!(
        "`codex-mcp jobs wait {} --store {store}`",
        run["job_id"].as_str().unwrap()
    );
    let message = run["message"].as_str().unwrap();
    assert!(message.starts_with(&next), "{message}");
}

#[tokio::test]
async fn detached_run_whose_id_cannot_be_printed_names_it_on_stderr() {
    let stage = JobsFixture::new().await;
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = stage.program(&["run", "--detach", "x"]);
    let output = CommandOutput::from(command.stdout(full).output().unwrap());
    assert_eq!(output.code, 3, "{}", output.stderr);
    let listed = stage.json(&["list", "--json"]);
    assert_eq!(listed["total"], 1);
    let line = format!(
        "submitted: {}\n",
        listed["jobs"][0]["job_id"].as_str().unwrap()
    );
    assert!(output.stderr.contains(&line), "{}", output.stderr);
}

#[tokio::test]
async fn wrong_options_of_a_detached_run_are_refused() {
    let stage = JobsFixture::new().await;
    for (args, words) in [
        (&["--evidence", "e.jsonl"][..], "cannot be used with"),
        (&["--approve", "ask"], "leave it out"),
        (&["--name", ""], "--name must have 1 to 200"),
        (&["--retry", "11"], "it is not a number from 0 to 10"),
        (&["--cwd", "nowhere"], "--cwd names the repository"),
        (&["--profile", "nope"], "there is no profile nope in"),
        (&["--thread", "01234567"], "there is no thread 01234567 in"),
        (&["--max-turns", "0"], "--max-turns: "),
        (
            &["--sandbox", "read-only", "--until", "commits=1"],
            "`--sandbox read-only` says so; use --sandbox workspace-write",
        ),
    ] {
        let output = stage.run_detached(&[&["x"], args].concat());
        assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{args:?}");
        assert!(output.stderr.contains(words), "{args:?}: {}", output.stderr);
    }
    // These options belong to the job.
    for args in [
        &["run", "--name", "n", "x"][..],
        &["run", "--retry", "1", "x"],
    ] {
        let output = CommandOutput::from(stage.program(args).output().unwrap());
        assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{args:?}");
        assert!(output.stderr.contains("--detach"), "{}", output.stderr);
    }
    assert_eq!(stage.json(&["list", "--json"])["total"], 0);
}

#[tokio::test]
async fn detached_run_without_its_worker_names_the_commands_of_the_shell() {
    let stage = JobsFixture::new().await;
    let job = stage.detached(&["x"]).await;
    let lost = FinishedJob {
        ending: Ending::Failed,
        error: Some("worker lost".to_owned()),
        session_id: Some(SESSION.to_owned()),
        exchange_id: None,
        result: None,
    };
    let claim = stage.claim().await;
    let written = stage.store.finish(&claim, &lost).await.unwrap();
    assert_eq!(written, WriteOutcome::Done);
    let page = stage.stdout_of(&["show", job.summary.id.as_str()]);
    for words in [
        "Result\n  not done: worker lost\n",
        "`codex-mcp jobs resume` continues its thread; with --retry a run continues by itself",
    ] {
        assert!(page.contains(words), "{words:?} is missing: {page}");
    }
}

/// `jobs retry` takes no `--sandbox`, for example.
#[tokio::test]
async fn failed_run_names_the_command_that_takes_other_options() {
    let stage = JobsFixture::new().await;
    let job = stage.detached(&["--sandbox", "read-only", "x"]).await;
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Failed, json!({})).await;
    let id = short(&job.summary.id);
    let page = stage.stdout_of(&["show", id]);
    let retry =
        format!("`codex-mcp jobs retry {id}` submits the run once more with the same options");
    for words in [retry.as_str(), "`codex-mcp run --detach` with others."] {
        assert!(page.contains(words), "{words:?} is missing: {page}");
    }
}

#[tokio::test]
async fn run_is_shown_with_its_warnings() {
    let stage = JobsFixture::new().await;
    let job = stage.detached(&["x"]).await;
    let claim = stage.claim().await;
    let warning = "another run works in this repository";
    let result = json!({"run": {"ok": true, "turns": 1, "warnings": [warning]}});
    stage.finish(&claim, Ending::Completed, result).await;
    let page = stage.stdout_of(&["show", job.summary.id.as_str()]);
    let section = format!("Warnings of the run\n  {warning}\n");
    assert!(page.contains(&section), "{page}");
}
