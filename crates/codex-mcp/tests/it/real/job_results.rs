//! The default permissions of `call_codex` jobs, and their results.

use std::fs;
use std::time::Duration;

use scripted_model::{Patch, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::McpClient;

use super::{CodexFixture, assert_error, on_oldest_and_newest, structured};

on_oldest_and_newest!(
    call_codex_without_sandbox_writes_and_records_no_trust,
    call_codex_applies_config_directories_and_network,
    tables_of_a_call_do_not_replace_variables_of_ours,
    table_of_a_profile_does_not_replace_what_the_call_says,
    worker_reads_the_bounds_anew_for_each_job,
    end_of_a_job_is_notified,
    tool_timeout_ends_a_tool_call,
    call_codex_uses_the_sandbox_of_codex_configuration,
    job_without_an_answer_fails,
    refused_and_failed_commands_are_listed_as_problems,
    command_blocked_at_once_is_listed_as_a_problem,
    command_that_outlives_the_answer_is_killed_and_listed_as_a_problem,
);

impl CodexFixture {
    /// A stage with more lines for both configurations, whose idle worker leaves soon.
    async fn for_jobs(release: &str, script: Script, codex: &str, ours: &str) -> Self {
        let stage = Self::with_config(release, script, codex).await;
        stage.configure(&format!("worker_idle_secs = 1\n{ours}"));
        stage
    }

    /// Submits a job and waits for its end; returns its record.
    async fn job(&self, client: &mut McpClient, more: Value) -> Value {
        let mut arguments = json!({ "prompt": "work", "cwd": self.home.work() });
        let given = arguments.as_object_mut().unwrap();
        given.extend(more.as_object().unwrap().clone());
        let queued = client.call_tool("call_codex", arguments).await;
        assert_ne!(queued["isError"], true, "{queued:#}");
        let status = json!({ "job_id": structured(&queued)["job_id"], "wait_ms": 60_000 });
        let ended = client.call_tool("call_status", status).await;
        structured(&ended).clone()
    }

    fn codex_config(&self) -> String {
        fs::read_to_string(self.home.codex_home().join("config.toml")).unwrap()
    }
}

fn file_model() -> Script {
    Script::new().otherwise([Reply::shell("echo x > made.txt"), Reply::say("Done.")])
}

async fn call_codex_without_sandbox_writes_and_records_no_trust(release: &str) {
    let stage = CodexFixture::for_jobs(release, file_model(), "", "").await;
    let before = stage.codex_config();
    let mut client = stage.client(&[]).await;
    let job = stage.job(&mut client, json!({})).await;
    assert_eq!(job["status"], "completed", "{job:#}");
    assert_eq!(job["sandbox"], Value::Null);
    assert_eq!(job["sandbox_in_force"], "workspace-write");
    let id = job["job_id"].as_str().unwrap();
    let events = stage.jobs(&["logs", "--json", id]).await;
    let begun = events.lines().find(|line| line.contains("thread.started"));
    assert!(begun.unwrap().contains("workspace-write"), "{events}");
    assert_eq!(fs::read_to_string(stage.file("made.txt")).unwrap(), "x\n");
    assert_eq!(stage.codex_config(), before);
    let page = stage.jobs(&["show", job["job_id"].as_str().unwrap()]).await;
    assert!(page.contains("Sandbox   workspace-write\n"), "{page}");
    stage.finish_with_worker(client).await;

    let bounded = "max_sandbox = \"read-only\"";
    let stage = CodexFixture::for_jobs(release, file_model(), "", bounded).await;
    let mut client = stage.client(&[]).await;
    let job = stage.job(&mut client, json!({})).await;
    assert_eq!(job["sandbox_in_force"], "read-only", "{job:#}");
    assert!(!stage.file("made.txt").exists());
    stage.finish_with_worker(client).await;
}

async fn call_codex_uses_the_sandbox_of_codex_configuration(release: &str) {
    let codex = "sandbox_mode = \"read-only\"";
    let stage = CodexFixture::for_jobs(release, file_model(), codex, "").await;
    let mut client = stage.client(&[]).await;
    let job = stage.job(&mut client, json!({})).await;
    assert_eq!(job["sandbox_in_force"], "read-only", "{job:#}");
    assert!(!stage.file("made.txt").exists());
    stage.finish_with_worker(client).await;
}

/// The job is completed since there is an answer.
async fn refused_and_failed_commands_are_listed_as_problems(release: &str) {
    // Codex 0.153.4 may miss output that a command writes at its beginning or end.
    let script = Script::new().otherwise([
        Reply::shell("false"),
        Reply::shell("sleep 0.3; touch blocked.txt || { sleep 0.3; exit 1; }"),
        Reply::shell(Shell::escalated("touch escalated.txt", "it is needed")),
        Reply::patch(Patch::new().add("patched.txt", "hello\n")),
        Reply::shell("sleep 0.3; echo no such rule; sleep 0.3; exit 3"),
        Reply::say("Done."),
    ]);
    let stage = CodexFixture::for_jobs(release, script, "", "").await;
    let mut client = stage.client(&[]).await;
    stage.codex_is_ready(&mut client).await;
    let job = stage
        .job(&mut client, json!({ "sandbox": "read-only" }))
        .await;
    assert_eq!(
        (&job["status"], &job["response"]),
        (&json!("completed"), &json!("Done.")),
        "{job:#}"
    );
    let problems: Vec<&str> = strings(&job["problems"]);
    for (beginning, words) in [
        ("blocked by the sandbox read-only: ", "touch blocked.txt"),
        ("refused: touch escalated.txt: ", "approval policy is Never"),
        ("the last command failed: ", "no such rule (exit code 3)"),
    ] {
        let told = |line: &&str| line.starts_with(beginning) && line.contains(words);
        assert_eq!(
            problems.iter().filter(|line| told(line)).count(),
            1,
            "{job:#}"
        );
    }
    assert_eq!(problems.len(), 4, "{job:#}");
    let steps = job["metadata"]["failed_steps"].as_array().unwrap();
    assert_eq!(steps.len(), 5, "{job:#}");
    assert_eq!(job["warnings"], job["metadata"]["warnings"]);
    assert_eq!(strings(&job["warnings"]).len(), 1, "{job:#}");
    let page = stage.jobs(&["show", job["job_id"].as_str().unwrap()]).await;
    for words in [
        "State     completed, with problems (see below)\n",
        "Problems\n  blocked by the sandbox read-only: ",
        "Warnings\n  ",
    ] {
        assert!(page.contains(words), "{words:?} is missing: {page}");
    }
    stage.finish_with_worker(client).await;
}

/// Codex reports no step if the sandbox ends a command at its very beginning, and in a resumed
/// thread not even the output that the model got.
async fn command_blocked_at_once_is_listed_as_a_problem(release: &str) {
    let turn = || [Reply::shell("echo x > blocked.txt"), Reply::say("Done.")];
    let script = Script::new().otherwise(turn().into_iter().chain(turn()));
    let stage = CodexFixture::for_jobs(release, script, "", "").await;
    let mut client = stage.client(&[]).await;
    let mut wanted = json!({ "sandbox": "read-only" });
    for _ in 0..2 {
        let job = stage.job(&mut client, wanted.clone()).await;
        assert_eq!(job["status"], "completed", "{job:#}");
        // 0.153.4 may miss the words that distinguish a blocked command from a failed one.
        let problems = strings(&job["problems"]);
        assert_eq!(problems.len(), 1, "{job:#}");
        assert!(problems[0].contains("echo x > blocked.txt"), "{job:#}");
        assert_eq!(
            job["metadata"]["failed_steps"].as_array().map(Vec::len),
            Some(1),
            "{job:#}"
        );
        wanted["resume_session_id"] = job["session_id"].clone();
    }
    stage.finish_with_worker(client).await;
}

async fn command_that_outlives_the_answer_is_killed_and_listed_as_a_problem(release: &str) {
    let sleep = Shell::new("exec sleep 1000").waiting(Duration::from_millis(250));
    let script = Script::new().otherwise([Reply::shell(sleep), Reply::say("It runs.")]);
    let stage = CodexFixture::for_jobs(release, script, "", "").await;
    let mut client = stage.client(&[]).await;
    let job = stage.job(&mut client, json!({})).await;
    assert_eq!(job["status"], "completed", "{job:#}");
    let told = "still ran when Codex answered, and was killed: exec sleep 1000";
    assert_eq!(strings(&job["problems"]), [told], "{job:#}");
    let page = stage.jobs(&["show", job["job_id"].as_str().unwrap()]).await;
    assert!(page.contains("killed   $ exec sleep 1000"), "{page}");
    stage.finish_with_worker(client).await;
}

fn strings(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|text| text.as_str().unwrap()).collect()
}

async fn job_without_an_answer_fails(release: &str) {
    let script = Script::new().otherwise([Reply::shell("touch x"), Reply::say("")]);
    let stage = CodexFixture::for_jobs(release, script, "", "").await;
    let mut client = stage.client(&[]).await;
    let job = stage.job(&mut client, json!({})).await;
    assert_eq!(job["status"], "failed", "{job:#}");
    assert_eq!(job["metadata"]["failure"]["class"], "empty_output");
    stage.finish_with_worker(client).await;
}

async fn call_codex_applies_config_directories_and_network(release: &str) {
    let writes = "echo ${CODEX_SANDBOX_NETWORK_DISABLED:-open} $GREETING > ../other/made.txt";
    let script = Script::new().otherwise([Reply::shell(writes), Reply::say("Done.")]);
    let stage = CodexFixture::for_jobs(release, script, "", "").await;
    let other = stage.home.work().parent().unwrap().join("other");
    fs::create_dir(&other).unwrap();
    let mut client = stage.client(&[]).await;
    let more = json!({
        "add_dirs": ["../other"], "network": true,
        "config": { "shell_environment_policy.set.GREETING": "hello" },
    });
    let job = stage.job(&mut client, more).await;
    assert_eq!(job["status"], "completed", "{job:#}");
    let made = fs::read_to_string(other.join("made.txt"));
    assert_eq!(made.unwrap_or_default(), "open hello\n", "{job:#}");
    let exchange = job["exchange_id"].as_str().unwrap();
    assert_eq!(exchange, format!("{}.1", job["job_id"].as_str().unwrap()));
    stage.finish_with_worker(client).await;

    let work = stage.home.work();
    let bounded = ["--allow-dir", work.to_str().unwrap()];
    let mut client = stage.client(&bounded).await;
    for more in [
        json!({ "add_dirs": ["../other"] }),
        json!({ "config": { "mcp_servers.x.command": "sh" } }),
    ] {
        let mut arguments = json!({ "prompt": "work", "cwd": work });
        let given = arguments.as_object_mut().unwrap();
        given.extend(more.as_object().unwrap().clone());
        let refused = client.call_tool("call_codex", arguments).await;
        assert_error(&refused, "OUT_OF_BOUNDS");
    }
    stage.finish_with_worker(client).await;
}

/// Codex merges overrides in random order, so several times.
async fn tables_of_a_call_do_not_replace_variables_of_ours(release: &str) {
    let writes = "echo ${CODEX_MCP_TURN:+marked} $GREETING > made.txt";
    let script = Script::new().otherwise([Reply::shell(writes), Reply::say("Done.")]);
    let stage = CodexFixture::for_jobs(release, script, "", "").await;
    let mut client = stage.client(&[]).await;
    let greeting = json!({ "GREETING": "hello" });
    for config in [
        json!({ "shell_environment_policy": { "ignore_default_excludes": true } }),
        json!({ "shell_environment_policy": { "set": greeting } }),
        json!({ "shell_environment_policy.set": greeting }),
        json!({ "shell_environment_policy.set": greeting }),
        json!({ "shell_environment_policy.set": greeting }),
    ] {
        let said = config.to_string().contains("hello");
        let more = json!({ "config": config.clone(), "sandbox": "workspace-write" });
        let job = stage.job(&mut client, more).await;
        assert_eq!(job["status"], "completed", "{job:#}");
        let made = fs::read_to_string(stage.file("made.txt")).unwrap();
        let expected = if said { "marked hello" } else { "marked" };
        assert_eq!(made.trim(), expected, "{config}");
    }
    stage.finish_with_worker(client).await;
}

/// Codex merges overrides in random order, so several times.
async fn table_of_a_profile_does_not_replace_what_the_call_says(release: &str) {
    let writes = "echo ${CODEX_SANDBOX_NETWORK_DISABLED:-open} > made.txt";
    let script = Script::new().otherwise([Reply::shell(writes), Reply::say("Done.")]);
    let stage = CodexFixture::for_jobs(release, script, "", "").await;
    let profile = stage.home.codex_home().join("online.config.toml");
    fs::write(
        profile,
        "[sandbox_workspace_write]\nnetwork_access = true\n",
    )
    .unwrap();
    let mut client = stage.client(&[]).await;
    let closed = json!({ "network": false });
    for (more, made) in [
        (json!({}), "open"),
        (closed.clone(), "1"),
        (closed.clone(), "1"),
        (closed.clone(), "1"),
        (closed, "1"),
    ] {
        let mut given = json!({ "profile": "online", "sandbox": "workspace-write" });
        given
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let job = stage.job(&mut client, given).await;
        assert_eq!(job["status"], "completed", "{job:#}");
        let written = fs::read_to_string(stage.file("made.txt")).unwrap();
        assert_eq!(written.trim(), made, "{more}");
    }
    stage.finish_with_worker(client).await;
}

async fn worker_reads_the_bounds_anew_for_each_job(release: &str) {
    let stage = CodexFixture::for_jobs(release, file_model(), "", "").await;
    let file = stage.home.atm_home().join(".config/atm/config.toml");
    let bound = |bound: &str| stage.configure(&format!("worker_idle_secs = 5\n{bound}"));
    bound("");
    let mut client = stage.client(&[]).await;
    let writes = json!({ "sandbox": "workspace-write" });
    for (setting, status) in [
        ("", "completed"),
        ("max_sandbox = \"read-only\"", "failed"),
        ("", "completed"),
        ("max_sandbox = 7", "failed"),
    ] {
        bound(setting);
        let job = stage.job(&mut client, writes.clone()).await;
        assert_eq!(job["status"], status, "{setting}: {job:#}");
        if status == "failed" {
            let told = job.to_string();
            assert!(told.contains("max_sandbox"), "{job:#}");
            assert!(told.contains(file.to_str().unwrap()), "{job:#}");
        }
    }
    bound("");
    stage.finish_with_worker(client).await;
}

/// An MCP server that never answers a call.
const SLOW: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"slow","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"hang","description":"Hangs.","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true}}]}}' ;;
    esac
done
"#;

async fn tool_timeout_ends_a_tool_call(release: &str) {
    let script =
        Script::new().otherwise([Reply::mcp("slow", "hang", json!({})), Reply::say("Done.")]);
    let args = json!(["-c", SLOW]);
    let server = format!("[mcp_servers.slow]\ncommand = \"sh\"\nargs = {args}");
    let stage = CodexFixture::for_jobs(release, script, &server, "").await;
    let mut client = stage.client(&[]).await;
    let job = stage
        .job(&mut client, json!({ "tool_timeout_ms": 900 }))
        .await;
    assert_eq!(job["status"], "completed", "{job:#}");
    let failed = &job["metadata"]["failed_steps"][0];
    assert_eq!(
        (&failed["kind"], &failed["what"]),
        (&json!("tool_call"), &json!("slow.hang"))
    );
    stage.finish_with_worker(client).await;
}

async fn end_of_a_job_is_notified(release: &str) {
    let stage = CodexFixture::for_jobs(release, file_model(), "", "").await;
    let told = stage.home.root().join("told");
    let script = stage.home.root().join("tell.sh");
    fs::write(
        &script,
        format!("echo \"$1\" > {0}\ncat >> {0}\n", told.display()),
    )
    .unwrap();
    let command = format!("command:sh {}", script.display());
    let name = [
        "submit",
        "--wait",
        "--name",
        "make it",
        "--notify",
        &command,
        "--notify",
        "command:false",
        "work",
    ];
    assert_eq!(stage.jobs(&name).await, "Done.\n");
    let told = fs::read_to_string(told).unwrap();
    let (line, result) = told.split_once('\n').unwrap();
    assert!(line.starts_with("DONE job "), "{told}");
    assert!(line.ends_with(" :: make it"), "{told}");
    let result: Value = serde_json::from_str(result).unwrap();
    assert_eq!(
        (&result["status"], &result["response"]),
        (&json!("completed"), &json!("Done."))
    );
    let job = stage
        .jobs(&["show", "--json", result["job_id"].as_str().unwrap()])
        .await;
    let job: Value = serde_json::from_str(&job).unwrap();
    let notified = &job["metadata"]["notified"];
    assert_eq!(notified[0], json!({ "to": command }));
    assert_eq!(notified[1]["to"], "command:false");
    let warnings = strings(&job["warnings"]);
    let is_named = |text: &&str| text.starts_with("cannot notify command:false: ");
    assert!(warnings.iter().any(is_named), "{job:#}");
    stage.until_processes_end().await;
}
