//! `submit`, `resume`, `retry`.

use std::fs;

use job_queue::logic::{Ending, JobState};
use job_queue::store::{Job, LONGEST_TEXT};
use testkit::write_program;

use super::*;

impl JobsFixture {
    /// The job whose ID is all of `stdout`.
    async fn printed(&self, stdout: &str) -> Job {
        let id = stdout.strip_suffix('\n').unwrap().parse().unwrap();
        self.store.get(&id).await.unwrap().unwrap()
    }

    async fn submitted(&self, args: &[&str]) -> Job {
        self.printed(&self.stdout_of(args)).await
    }
}

/// The beginning of a PNG, which is all that `submit` reads.
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

#[tokio::test]
async fn job_is_submitted_with_the_defaults_of_the_shell() {
    let stage = JobsFixture::new().await;
    let job = stage.submitted(&["submit", "Fix it.\nNow."]).await;
    let request = &job.request;
    assert_eq!(job.summary.state, JobState::Queued);
    assert_eq!(request.prompt, "Fix it.\nNow.");
    assert_eq!(request.task_name, "Fix it.");
    let work = stage.home.work().canonicalize().unwrap();
    assert_eq!(request.cwd, work.to_str().unwrap());
    assert_eq!(
        (request.timeout_ms, request.tool_timeout_ms),
        (600_000, 300_000)
    );
    assert_eq!(request.agent_source.as_deref(), Some("codex-mcp jobs"));
    assert_eq!(request.submitted_by.as_deref(), Some("codex"));
    let page = stage.stdout_of(&["show", job.summary.id.as_str()]);
    let from = "From      codex-mcp jobs, with the identity codex\n";
    assert!(page.contains(from), "{page}");
    let codex_home = stage.home.codex_home();
    assert_eq!(request.codex_home.as_deref(), codex_home.to_str());
    assert_eq!((&request.sandbox, request.retry), (&None, 0));
    let audit = stage.home.atm_home();
    let audit = audit.join(".config/atm/codex-sessions/codex/audit.jsonl");
    let audit = fs::read_to_string(audit).unwrap();
    assert!(
        audit.contains("call_codex") && audit.contains("Fix it."),
        "{audit}"
    );
}

#[tokio::test]
async fn job_without_a_login_is_submitted_with_a_hint() {
    let stage = JobsFixture::new().await;
    let codex = stage.home.root().join("codex-program");
    let run = |args: &[&str], login: &str| {
        let text = format!(
            "#!/bin/sh\ncase $1 in\n--version) echo 'codex-cli 0.171.0' ;;\n\
             login) {login} ;;\n*) exit 2 ;;\nesac\n"
        );
        write_program(&codex, &text);
        let mut command = stage.command(args);
        let output = command.env("CODEX_MCP_CODEX_BIN", &codex).output();
        CommandOutput::from(output.unwrap())
    };
    let submit = |args: &[&str], login: &str| run(&[&["submit", "p"], args].concat(), login);
    let logged_out = "echo 'Not logged in' >&2; exit 1";
    let output = submit(&[], logged_out);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_eq!(stage.printed(&output.stdout).await.request.prompt, "p");
    let login = format!("`{} login`", codex.display());
    for words in ["hint: Codex has no login", &login, "codex-mcp jobs retry"] {
        assert!(output.stderr.contains(words), "{}", output.stderr);
    }
    let output = submit(&["--json"], logged_out);
    let told: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(told["status"], "queued");
    assert!(output.stderr.contains(&login), "{}", output.stderr);

    let ended = stage.queued("again").await;
    stage.stdout_of(&["cancel", ended.as_str()]);
    let output = run(&["retry", ended.as_str()], logged_out);
    assert_eq!(stage.printed(&output.stdout).await.request.prompt, "again");
    assert!(output.stderr.contains(&login), "{}", output.stderr);
    let output = run(&["retry", ended.as_str()], "echo 'Logged in using ChatGPT'");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));

    let provider = ["--config", "model_provider=own"];
    for (args, login) in [
        (&[][..], "echo 'Logged in using ChatGPT'"),
        (&[], "echo 'a new release says something else'; exit 1"),
        (&provider, logged_out),
    ] {
        let output = submit(args, login);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{login}");
    }
}

#[tokio::test]
async fn submit_options_are_stored_in_the_request() {
    let stage = JobsFixture::new().await;
    let work = stage.home.work();
    fs::create_dir(work.join("below")).unwrap();
    fs::write(work.join("a b.png"), PICTURE).unwrap();
    fs::write(work.join("schema.json"), r#"{"type": "object"}"#).unwrap();
    fs::write(stage.home.codex_home().join("p.config.toml"), "").unwrap();
    let job = stage
        .submitted(&[
            "submit",
            "--cwd",
            "below",
            "--name",
            "a name",
            "--model",
            "m",
            "--sandbox",
            "workspace-write",
            "--effort",
            "high",
            "--profile",
            "p",
            "--image",
            "a b.png",
            "--output-schema",
            "schema.json",
            "--resume",
            SESSION,
            "--timeout",
            "1h",
            "--tool-timeout",
            "90s",
            "--retry",
            "2",
            "--",
            "--not-a-flag",
        ])
        .await;
    let request = &job.request;
    assert_eq!(request.prompt, "--not-a-flag");
    assert!(request.cwd.ends_with("/below"), "{}", request.cwd);
    assert_eq!(request.task_name, "a name");
    assert_eq!(request.model_override.as_deref(), Some("m"));
    assert_eq!(request.sandbox.as_deref(), Some("workspace-write"));
    assert_eq!(request.effort.as_deref(), Some("high"));
    assert_eq!(request.profile.as_deref(), Some("p"));
    // The path of a picture is relative to the shell's directory, not to `--cwd`.
    assert!(request.images[0].ends_with("/a b.png"), "{request:?}");
    assert_eq!(request.output_schema, Some(json!({"type": "object"})));
    assert_eq!(request.resume_session_id.as_deref(), Some(SESSION));
    assert_eq!(
        (request.timeout_ms, request.tool_timeout_ms),
        (3_600_000, 90_000)
    );
    assert_eq!(request.retry, 2);
}

#[tokio::test]
async fn prompt_is_read_from_stdin() {
    let stage = JobsFixture::new().await;
    let long = "x".repeat(LONGEST_TEXT);
    for (args, prompt) in [
        (&["submit", "-"][..], "from ß\n"),
        (&["submit"], "without a dash"),
        (&["submit", "-"], long.as_str()),
    ] {
        let output = stage.run_with_stdin(args, prompt.as_bytes());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        let job = stage.printed(&output.stdout).await;
        assert!(job.request.prompt == prompt);
    }
    let longer = vec![b'x'; LONGEST_TEXT + 1];
    for (stdin, words) in [
        (&b""[..], "the prompt is empty"),
        (b" \n", "the prompt is empty"),
        (b"a\xff", "is not UTF-8"),
        (&longer, "has more than 16777216 bytes"),
    ] {
        let output = stage.run_with_stdin(&["submit", "-"], stdin);
        assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{words}");
        assert!(output.stderr.contains(words), "{}", output.stderr);
    }
    let all = stage.json(&["list", "--json"]);
    assert_eq!(all["total"], 3);
}

#[tokio::test]
async fn invalid_submit_options_are_refused() {
    let stage = JobsFixture::new().await;
    let work = stage.home.work();
    fs::write(work.join("list.json"), "[]").unwrap();
    fs::write(work.join("text.png"), "no picture").unwrap();
    let long = "n".repeat(201);
    for (args, words) in [
        (&["--cwd", "nowhere"][..], "--cwd names another"),
        (&["--name", ""], "--name must have 1 to 200"),
        (&["--name", "a\u{1b}b"], "--name must have 1 to 200"),
        (&["--name", &long], "--name must have 1 to 200"),
        (
            &["--add-dir", "nowhere"],
            "--add-dir: there is no directory",
        ),
        (&["--sandbox", "none"], "workspace-write"),
        (&["--effort", "most"], "xhigh"),
        (&["--profile", "../x"], "a profile's name"),
        (&["--image", "nowhere.png"], "error: --image: the image "),
        (&["--image", "text.png"], "is not a PNG"),
        (&["--output-schema", "nowhere"], "--output-schema nowhere: "),
        (&["--output-schema", "README.md"], "it is no JSON"),
        (&["--output-schema", "list.json"], "is an object"),
        (&["--resume", "x"], "\"x\" is not a thread ID"),
        (&["--resume", SESSION, "--continue"], "cannot be used with"),
        (&["--thread", "01234567"], "there is no thread 01234567 in"),
        (&["--profile", "nope"], "there is no profile nope in"),
        (&["--continue"], "leave --continue out"),
        (&["--timeout", "0s"], "between 1ms and 49d"),
        (&["--timeout", "soon"], "such as 90s, 2m"),
        (&["--retry", "11"], "it is not a number from 0 to 10"),
        (&["--bogus"], "--bogus"),
        (&["another"], "another"),
    ] {
        let output = stage.run(&[&["submit", "p"], args].concat());
        assert_eq!((output.code, output.stdout.as_str()), (3, ""), "{args:?}");
        assert!(output.stderr.contains(words), "{args:?}: {}", output.stderr);
        assert!(!output.stderr.contains('\u{1b}'), "{args:?}");
    }
    let output = stage.run(&["submit", ""]);
    assert_eq!(output.code, 3);
    assert!(
        output.stderr.contains("the prompt is empty"),
        "{}",
        output.stderr
    );
    assert_eq!(stage.json(&["list", "--json"])["total"], 0);
}

#[tokio::test]
async fn latest_job_of_the_directory_is_continued() {
    let stage = JobsFixture::new().await;
    stage.ended("p", Ending::Completed).await;
    let job = stage.submitted(&["submit", "--continue", "q"]).await;
    assert_eq!(job.request.resume_session_id.as_deref(), Some(SESSION));
    assert!(job.request.continue_latest);
    let output = stage.run(&["submit", "--continue", "r"]);
    assert_eq!(output.code, 3);
    let words = format!("codex-mcp jobs wait {}", job.summary.id);
    assert!(output.stderr.contains(&words), "{}", output.stderr);
}

/// A directory in place of the worker's lock file keeps workers from starting.
#[tokio::test]
async fn job_without_a_worker_waits_with_a_warning() {
    let stage = JobsFixture::new().await;
    let store = stage.home.state_home().join("other.db");
    fs::create_dir(store.with_extension("db.worker")).unwrap();
    let store = store.to_str().unwrap();
    let output = stage.run(&["submit", "p", "--store", store]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    for words in [
        "warning: no worker could be started",
        "other.db.worker",
        "codex-mcp worker",
    ] {
        assert!(output.stderr.contains(words), "{}", output.stderr);
    }
    let id = output.stdout.trim();
    let shown = stage.run(&["show", id, "--json", "--store", store]);
    let record: Value = shown.stdout.parse().unwrap();
    assert_eq!(record["status"], "queued");
    assert!(
        shown
            .stderr
            .starts_with("warning: no worker could be started"),
        "{}",
        shown.stderr
    );
    let output = stage.run(&["submit", "p", "--json", "--store", store]);
    let told: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(told["status"], "queued");
    assert!(told["message"].as_str().unwrap().contains("no worker"));
    let output = stage.run(&["wait", id, "--timeout", "0s", "--store", store]);
    assert_eq!(output.code, 124);
    let mut waiting = stage.start(&["wait", id, "--store", store]);
    waiting.wait_for_line("warning: no worker could be started");
    waiting.child.kill().unwrap();
    waiting.child.wait().unwrap();
}

#[tokio::test]
async fn submit_can_wait_for_its_job() {
    let stage = JobsFixture::new().await;
    for (ending, code, stdout) in [
        (Ending::Completed, 0, "It is\ndone.\n"),
        (Ending::Failed, 1, ""),
        (Ending::Cancelled, 2, ""),
    ] {
        let mut waiting = stage.start(&["submit", "--wait", "p"]);
        waiting.wait_for_line("submitted: ");
        let claim = stage.claim().await;
        stage.finish(&claim, ending, report()).await;
        let output = waiting.ends();
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (code, stdout),
            "{}",
            output.stderr
        );
    }
    let mut waiting = stage.start(&["submit", "--wait", "--json", "p"]);
    waiting.wait_for_line("submitted: ");
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Failed, report()).await;
    let output = waiting.ends();
    let record: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((output.code, &record["status"]), (1, &json!("failed")));
}

#[tokio::test]
async fn resumed_job_keeps_the_settings_of_the_first() {
    let stage = JobsFixture::new().await;
    let work = stage.home.work();
    let codex_home = stage.home.root().join("another-codex");
    std::fs::create_dir(&codex_home).unwrap();
    std::fs::write(codex_home.join("p.config.toml"), "").unwrap();
    let host = nix::unistd::gethostname().unwrap();
    let first = stage
        .submit(Request {
            model_override: Some("m".to_owned()),
            sandbox: Some("read-only".to_owned()),
            effort: Some("low".to_owned()),
            profile: Some("p".to_owned()),
            timeout_ms: 7_000,
            tool_timeout_ms: 8_000,
            settings: Some(json!({ "tool_timeout": "asked" })),
            retry: 3,
            output_schema: Some(json!({"type": "object"})),
            host: host.to_str().map(str::to_owned),
            codex_home: codex_home.to_str().map(str::to_owned),
            ..Request::new("first", work.canonicalize().unwrap().to_str().unwrap())
        })
        .await;
    let output = stage.run(&["resume", short(&first), "q"]);
    assert_eq!(output.code, 3);
    assert!(
        output.stderr.contains("is still under way"),
        "{}",
        output.stderr
    );
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Completed, report()).await;
    let before = stage.store.get(&first).await.unwrap().unwrap().request;

    let resumed = stage.submitted(&["resume", short(&first), "and now"]).await;
    let expected = Request {
        prompt: "and now".to_owned(),
        task_name: "and now".to_owned(),
        resume_session_id: Some(SESSION.to_owned()),
        output_schema: None,
        ..before.clone()
    };
    let kept = |request: Request| Request {
        agent_source: None,
        submitted_by: None,
        codex_bin: None,
        ..request
    };
    assert_eq!(kept(resumed.request), kept(expected));
    let output = stage.run_with_stdin(&["resume", short(&first), "--timeout", "1h"], b"from stdin");
    let resumed = stage.printed(&output.stdout).await;
    assert_eq!(resumed.request.prompt, "from stdin");
    assert_eq!(resumed.request.timeout_ms, 3_600_000);

    let retried = stage.submitted(&["retry", short(&first)]).await;
    assert_eq!(kept(retried.request), kept(before));
}

#[tokio::test]
async fn job_without_a_thread_cannot_be_resumed() {
    let stage = JobsFixture::new().await;
    let id = stage.queued("p").await;
    stage.stdout_of(&["cancel", id.as_str()]);
    let output = stage.run(&["resume", id.as_str(), "q"]);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("has no thread"), "{}", output.stderr);
    assert!(
        output.stderr.contains("codex-mcp jobs retry"),
        "{}",
        output.stderr
    );
    let retried = stage.submitted(&["retry", id.as_str()]).await;
    assert_eq!(retried.request.prompt, "p");
}

#[tokio::test]
async fn job_whose_prompt_was_masked_is_resumed_and_not_retried() {
    let stage = JobsFixture::new().await;
    let prompt = "push with ghp_0123456789abcdefghijABCDEFGHIJ";
    let id = stage.ended(prompt, Ending::Failed).await;
    let shown = stage.stdout_of(&["show", short(&id)]);
    assert!(shown.contains("push with [masked]"), "{shown}");
    assert!(shown.contains("takes it as a new job"), "{shown}");
    let output = stage.run(&["retry", short(&id)]);
    assert_eq!(output.code, 3);
    assert!(
        output.stderr.contains("credentials in it were masked"),
        "{}",
        output.stderr
    );
    let resumed = stage.stdout_of(&["resume", short(&id), "more"]);
    let resumed: JobId = resumed.trim_end().parse().unwrap();
    let resumed = stage.json(&["show", "--json", short(&resumed)]);
    assert_eq!(resumed["prompt"], "more");
    assert_eq!(resumed["resume_session_id"], SESSION);
}

#[tokio::test]
async fn resumed_job_goes_without_settings_that_were_masked() {
    let stage = JobsFixture::new().await;
    let work = stage.home.work();
    let settings = json!({
        "config": {
            "mcp_servers.x.env": { "API_KEY": "hunter2hunter2" },
            "model_verbosity": "low",
        },
        "notify": ["webhook:https://hooks.slack.com/services/T0/B0/s3cret", "command:true"],
    });
    let id = stage
        .submit(Request {
            settings: Some(settings),
            ..Request::new("p", work.to_str().unwrap())
        })
        .await;
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Completed, report()).await;
    let ended = stage.store.get(&id).await.unwrap().unwrap();
    let masked = ended.request.settings.unwrap();
    let key = &masked["config"]["mcp_servers.x.env"]["API_KEY"];
    assert_eq!(key, "[masked]");

    let output = stage.run(&["resume", short(&id), "q"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let names = "mcp_servers.x.env, webhook:https://hooks.slack.com/…";
    assert!(output.stderr.contains(names), "{}", output.stderr);
    let resumed = stage.printed(&output.stdout).await;
    let settings = resumed.request.settings.unwrap();
    assert_eq!(settings["config"], json!({ "model_verbosity": "low" }));
    assert_eq!(settings["notify"], json!(["command:true"]));
}

#[tokio::test]
async fn job_is_submitted_again_without_recipients_that_cannot_work() {
    let stage = JobsFixture::new().await;
    let work = stage.home.work();
    let settings = json!({ "notify": ["mail:lead@dissolved", "command:true"] });
    let id = stage
        .submit(Request {
            settings: Some(settings),
            ..Request::new("p", work.to_str().unwrap())
        })
        .await;
    let claim = stage.claim().await;
    stage.finish(&claim, Ending::Completed, report()).await;
    for args in [&["resume", short(&id), "q"][..], &["retry", short(&id)]] {
        let output = stage.run(args);
        assert_eq!(output.code, 0, "{}", output.stderr);
        let warning = "warning: notifiers that cannot work are left out of the new job: \
                       mail:lead@dissolved (";
        assert!(output.stderr.contains(warning), "{}", output.stderr);
        let submitted = stage.printed(&output.stdout).await;
        let settings = submitted.request.settings.unwrap();
        assert_eq!(settings["notify"], json!(["command:true"]));
    }
}
