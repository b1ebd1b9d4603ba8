//! Codex without a login.

use std::io::Write;
use std::process::{Command, Stdio};

use scripted_model::{Reply, Script, ScriptedModel};
use serde_json::json;
use testkit::{Home, McpClient};

use super::{
    CodexFixture, assert_completed, assert_error, on_oldest_and_newest, structured, thread_of,
};

on_oldest_and_newest!(
    missing_login_is_reported_before_the_first_prompt,
    missing_login_ends_a_run_before_its_first_turn,
    missing_login_fails_a_job_before_its_first_request,
    configuration_that_codex_cannot_load_is_no_missing_login,
    refused_key_is_reported_with_the_remedy,
    login_is_checked_again_when_the_configuration_has_changed,
    thread_with_a_provider_of_its_own_needs_no_login,
);

/// A Codex with its built-in provider, at the address of a scripted model.
pub(super) async fn stage(release: &str) -> CodexFixture {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let model = ScriptedModel::start(script).await.unwrap();
    let config = format!(
        "openai_base_url = \"{}\"\nfeatures.plugins = false\n",
        model.base_url()
    );
    CodexFixture {
        home: Home::new(&config),
        model,
        release: release.to_owned(),
    }
}

impl CodexFixture {
    /// 0.104.0 takes the address of the built-in provider from the environment.
    pub(super) async fn client_of_openai(&self) -> McpClient {
        let launch = self.launch(&[]);
        let launch = launch.env("OPENAI_BASE_URL", self.model.base_url());
        McpClient::connect(&launch, super::VERSION, json!({})).await
    }

    fn log_in(&self) {
        let mut login = Command::new(testkit::codex::native_binary(&self.release))
            .args(["login", "--with-api-key"])
            .env_clear()
            .envs(self.home.env())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        login.stdin.take().unwrap().write_all(b"sk-test").unwrap();
        assert!(login.wait().unwrap().success());
    }
}

async fn missing_login_is_reported_before_the_first_prompt(release: &str) {
    let stage = stage(release).await;
    let mut client = stage.client_of_openai().await;
    let refused = client.call_tool("codex", json!({"prompt": "work"})).await;
    assert_error(&refused, "UNAUTHORIZED");
    let hint = structured(&refused)["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("codex login"), "{hint}");
    assert_eq!(stage.model.request_count(), 0);

    stage.log_in();
    let answer = client.call_tool("codex", json!({"prompt": "work"})).await;
    assert_completed(&answer, "hello");
    let thread = thread_of(&answer);
    stage.finish(client).await;

    std::fs::remove_file(stage.home.codex_home().join("auth.json")).unwrap();
    let mut client = stage.client_of_openai().await;
    let arguments = json!({"prompt": "go on", "threadId": thread});
    let refused = client.call_tool("codex-reply", arguments).await;
    assert_error(&refused, "UNAUTHORIZED");
    stage.finish(client).await;
}

async fn missing_login_ends_a_run_before_its_first_turn(release: &str) {
    let stage = stage(release).await;
    let ran = stage.run(&["--until", "files=new", "make a file"]).await;
    assert_eq!(ran.result["reason"], "could_not_run", "{:#}", ran.result);
    assert_eq!(ran.result["turns"], 0, "{:#}", ran.result);
    assert_eq!(
        ran.stderr.matches("codex login").count(),
        1,
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("turn 1"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("not met"), "{}", ran.stderr);
    assert_eq!(stage.model.request_count(), 0);
}

async fn missing_login_fails_a_job_before_its_first_request(release: &str) {
    let stage = stage(release).await;
    stage.configure("worker_idle_secs = 1");
    let mut client = stage.client_of_openai().await;
    // The job is not retried, as it would fail again.
    let arguments = json!({"prompt": "work", "cwd": stage.home.work(), "retry": 2});
    let queued = client.call_tool("call_codex", arguments).await;
    let status = json!({"job_id": structured(&queued)["job_id"], "wait_ms": 60_000});
    let ended = client.call_tool("call_status", status).await;
    let job = structured(&ended);
    assert_eq!(
        (&job["status"], &job["attempts"]),
        (&json!("failed"), &json!(1)),
        "{job:#}"
    );
    let told = job["error"].as_str().unwrap();
    assert_eq!(told.matches("`codex login`").count(), 1, "{told}");
    assert_eq!(job["metadata"]["failure"]["class"], "auth");
    assert_eq!(stage.model.request_count(), 0);
    stage.finish_with_worker(client).await;
}

/// Without the change, the worker would continue with its running Codex.
async fn login_is_checked_again_when_the_configuration_has_changed(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new(release, script).await;
    assert_eq!(stage.jobs(&["submit", "--wait", "work"]).await, "hello\n");
    let requests = stage.model.request_count();
    let config = format!("openai_base_url = \"{}\"\n", stage.model.base_url());
    std::fs::write(stage.home.codex_home().join("config.toml"), config).unwrap();
    let submit = ["jobs", "submit", "--wait", "--timeout", "20s", "work"];
    let output = stage.program(&submit).output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.matches("`codex login`").count(), 1, "{stderr}");
    assert_eq!(stage.model.request_count(), requests);
}

/// Codex also reports no account if it cannot load its configuration.
async fn configuration_that_codex_cannot_load_is_no_missing_login(release: &str) {
    let script = Script::new().otherwise([Reply::say("hello")]);
    let stage = CodexFixture::new(release, script).await;
    let file = stage.home.codex_home().join("config.toml");
    let correct = std::fs::read_to_string(&file).unwrap();
    for broken in ["this is [ not TOML", "approval_policy = 7"] {
        std::fs::write(&file, format!("{broken}\n{correct}")).unwrap();
        let mut client = stage.client(&[]).await;
        let failed = client.call_tool("codex", json!({"prompt": "work"})).await;
        let ran = stage.run_command(&["work"]).output().await.unwrap();
        let submit = ["jobs", "submit", "--wait", "work"];
        let submitted = stage.program(&submit).output().await.unwrap();
        for told in [
            structured(&failed).to_string(),
            String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap(),
            String::from_utf8(submitted.stderr).unwrap(),
        ] {
            assert!(told.contains("config"), "{broken}: {told}");
            assert!(!told.contains("codex login"), "{broken}: {told}");
        }
        std::fs::write(&file, &correct).unwrap();
        let answer = client.call_tool("codex", json!({"prompt": "work"})).await;
        assert_completed(&answer, "hello");
        assert!(client.finish().await.success());
    }
}

async fn refused_key_is_reported_with_the_remedy(release: &str) {
    let body = json!({ "error": { "message": "Incorrect API key", "code": "invalid_api_key" } });
    let refuses = Reply::fail(401, body.to_string());
    let stage = CodexFixture::new(release, Script::new().otherwise(vec![refuses; 20])).await;
    let arguments = ["--sandbox", "workspace-write", "make a file"];
    let ran = stage.run_command(&arguments).output().await.unwrap();
    let stdout = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(3), "{stdout}");
    assert!(stdout.contains("401 Unauthorized"), "{stdout}");
    assert_eq!(stdout.matches("`codex login`").count(), 1, "{stdout}");

    let mut client = stage.client(&[]).await;
    let failed = client.call_tool("codex", json!({"prompt": "work"})).await;
    assert_error(&failed, "UNAUTHORIZED");
    stage.finish(client).await;
}

async fn thread_with_a_provider_of_its_own_needs_no_login(release: &str) {
    let stage = stage(release).await;
    let mut client = stage.client(&[]).await;
    let config = json!({
        "model_provider": "own",
        "model_providers.own": {
            "name": "own",
            "base_url": stage.model.base_url(),
            "wire_api": "responses",
            "requires_openai_auth": false,
        },
    });
    let arguments = json!({"prompt": "work", "config": config});
    let answer = client.call_tool("codex", arguments).await;
    assert_completed(&answer, "hello");
    let arguments = json!({"prompt": "go on", "threadId": thread_of(&answer)});
    assert_completed(&client.call_tool("codex-reply", arguments).await, "hello");
    stage.finish(client).await;
}
