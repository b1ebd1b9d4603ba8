//! Clients that request more than the operator allows.

use std::path::PathBuf;

use scripted_model::{Reply, Script, ScriptedModel};
use serde_json::{Value, json};
use testkit::{Home, McpClient};

use crate::VERSION;
use crate::jobs::Worker;
use crate::notify::fake_web::{Answer, WebServer};

/// The bounds of the operator; the directory is the work directory.
const BOUNDS: [&str; 5] = [
    "--max-sandbox",
    "workspace-write",
    "--no-commands",
    "--allow-dir",
    ".",
];

/// A model that tries to write outside of the work directory.
struct BoundsFixture {
    home: Home,
    model: ScriptedModel,
    release: &'static str,
}

impl BoundsFixture {
    async fn new(release: &'static str, config: &str) -> Self {
        let replies = [Reply::shell("touch ../escaped"), Reply::say("done")];
        let model = ScriptedModel::start(Script::new().otherwise(replies));
        let model = model.await.unwrap();
        let config = format!("features.plugins = false\napproval_policy = \"never\"\n{config}");
        let home = Home::new(&format!("{}\n{config}", model.codex_config()));
        Self {
            home,
            model,
            release,
        }
    }

    async fn client(&self, args: &[&str]) -> McpClient {
        let launch = self
            .home
            .launch(env!("CARGO_BIN_EXE_codex-mcp"))
            .args(["serve"])
            .args(args.iter().copied())
            .env(
                "CODEX_MCP_CODEX_BIN",
                testkit::codex::native_binary(self.release),
            );
        let mut client = McpClient::start(&launch);
        client.ignore("codex/event");
        client.ignore("notifications/tools/list_changed");
        client.initialize(VERSION, json!({})).await;
        client
    }

    /// A worker without bounds.
    fn worker(&self) -> Worker {
        let codex = testkit::codex::native_binary(self.release);
        let store = self.home.state_home().join("codex-mcp/jobs.db");
        Worker::start(&self.home, store.to_str().unwrap(), &codex, &[])
    }

    fn escaped(&self) -> PathBuf {
        self.home.root().join("escaped")
    }

    /// Whether the model has written outside. Removes the file.
    fn has_escaped(&self) -> bool {
        std::fs::remove_file(self.escaped()).is_ok()
    }
}

fn words(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

/// Excessive calls: the tool, its arguments except the required ones, and the setting that refuses
/// the call.
const EXCESSIVE_CALLS: [(&str, &str, &str); 23] = [
    (
        "codex",
        r#"{"sandbox": "danger-full-access"}"#,
        "max_sandbox",
    ),
    (
        "codex",
        r#"{"config": {"sandbox_mode": "danger-full-access"}}"#,
        "max_sandbox",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write", "cwd": ".."}"#,
        "allow_dirs",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write", "cwd": "link"}"#,
        "allow_dirs",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write",
            "config": {"default_permissions": ":danger-full-access"}}"#,
        "allow_commands",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write", "config": {"mcp_servers.x.command": "sh"}}"#,
        "allow_commands",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write",
            "config": {"notify": ["sh", "-c", "touch ../escaped"]}}"#,
        "allow_commands",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write",
            "config": {"sandbox_workspace_write": {"writable_roots": ["/"]}}}"#,
        "allow_dirs",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write",
            "config": {"sandbox_workspace_write.network_access": true}}"#,
        "network",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write",
            "config": {"sandbox_workspace_write": {"network_access": true}}}"#,
        "network",
    ),
    (
        "codex",
        r#"{"sandbox": "workspace-write", "config": {"approval_policy": "on-request"}}"#,
        "approval_policy",
    ),
    ("call_codex", r#"{"network": true}"#, "network"),
    ("call_codex", r#"{"add_dirs": [".."]}"#, "allow_dirs"),
    (
        "codex_run",
        r#"{"exit_criteria": {"pushed": true}}"#,
        "the criterion pushed",
    ),
    (
        "call_codex",
        r#"{"sandbox": "danger-full-access"}"#,
        "max_sandbox",
    ),
    ("call_codex", r#"{"cwd": ".."}"#, "allow_dirs"),
    (
        "codex_run",
        r#"{"sandbox": "danger-full-access"}"#,
        "max_sandbox",
    ),
    ("codex_run", r#"{"approve": "always"}"#, "max_sandbox"),
    ("codex_run", r#"{"repo": ".."}"#, "allow_dirs"),
    (
        "codex_run",
        r#"{"exit_criteria": {"command": "touch ../escaped"}}"#,
        "allow_commands",
    ),
    (
        "codex_run",
        r#"{"notify": ["command:touch ../escaped"]}"#,
        "allow_commands",
    ),
    (
        "call_codex",
        r#"{"notify": ["webhook:https://evil.example/x"]}"#,
        "the notifier webhook:",
    ),
    (
        "codex_run",
        r#"{"notify": ["mail:lead", "ntfy:evil"]}"#,
        "the notifier ntfy:",
    ),
];

/// The arguments of a call, with those that the tool requires.
fn with_required(tool: &str, more: &str) -> Value {
    let mut arguments = match tool {
        "call_codex" => json!({ "prompt": "x", "cwd": "." }),
        "codex_run" => json!({ "task": "x", "wait_ms": 0 }),
        _ => json!({ "prompt": "x" }),
    };
    let more: Value = serde_json::from_str(more).unwrap();
    let more = more.as_object().unwrap().clone();
    arguments.as_object_mut().unwrap().extend(more);
    arguments
}

#[tokio::test]
async fn call_out_of_bounds_is_refused_with_the_name_of_the_setting() {
    for (release, backend) in [
        (testkit::codex::newest(), "app-server"),
        ("0.153.4", "mcp-server"),
    ] {
        let stage = BoundsFixture::new(release, "").await;
        std::os::unix::fs::symlink("..", stage.home.work().join("link")).unwrap();
        let args = [&["--backend", backend], BOUNDS.as_slice()].concat();
        let mut client = stage.client(&args).await;
        for (tool, more, setting) in EXCESSIVE_CALLS {
            let arguments = with_required(tool, more);
            let result = client.call_tool(tool, arguments.clone()).await;
            let case = format!("{backend} {tool} {arguments}: {result:#}");
            assert_eq!(result["isError"], true, "{case}");
            let error = &result["structuredContent"]["error"];
            assert_eq!(error["code"], "OUT_OF_BOUNDS", "{case}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(setting), "{case}");
            let has_source = |flag: &&str| message.contains(*flag);
            let flags = ["--max-sandbox", "--no-commands", "--allow-dir"];
            assert!(flags.iter().any(has_source), "{case}");
        }
        assert_eq!(stage.model.request_count(), 0);
        assert!(!stage.has_escaped());
        assert!(client.finish().await.success());
    }
}

#[tokio::test]
async fn sessions_api_returns_the_out_of_bounds_code() {
    let stage = BoundsFixture::new(testkit::codex::newest(), "").await;
    let args = ["--api", "sessions", "--max-sandbox", "read-only"];
    let mut client = stage.client(&args).await;
    let arguments = json!({ "prompt": "x", "approvalPolicy": "never",
        "sandbox": "danger-full-access" });
    let refused = client.call_tool("codex", arguments).await;
    assert_eq!(refused["isError"], true, "{refused:#}");
    let error = &refused["structuredContent"]["error"];
    assert_eq!(error["code"], "OUT_OF_BOUNDS", "{refused:#}");
    assert!(client.finish().await.success());
}

/// The control: without bounds, the same calls escape.
#[tokio::test]
async fn same_calls_work_without_bounds() {
    let stage = BoundsFixture::new(testkit::codex::newest(), "").await;
    let mut client = stage.client(&[]).await;
    let danger = "danger-full-access";
    for arguments in [
        json!({ "prompt": "x", "sandbox": danger }),
        json!({ "prompt": "x", "config": { "sandbox_mode": danger } }),
    ] {
        client.call_tool("codex", arguments.clone()).await;
        assert!(stage.has_escaped(), "{arguments}");
    }
    let run = json!({
        "task": "x", "sandbox": "read-only", "max_turns": 1, "wait_ms": 60_000,
        "exit_criteria": { "command": "touch ../escaped" },
    });
    let result = client.call_tool("codex_run", run).await;
    assert!(stage.has_escaped(), "{result:#}");
    assert!(client.finish().await.success());
}

/// A client that is misled sends what Codex says to a server of somebody else, or a request into
/// the network around the machine.
#[tokio::test]
async fn client_does_not_choose_servers_under_the_bound() {
    for (args, reached) in [(&[][..], 2), (&["--no-commands"][..], 0)] {
        let server = WebServer::start(Answer::ok()).await;
        let stage = BoundsFixture::new(testkit::codex::newest(), "").await;
        let mut client = stage.client(args).await;
        let run = json!({
            "task": "x", "sandbox": "read-only", "max_turns": 1, "wait_ms": 60_000,
            "notify": [
                format!("webhook:{}", server.url("http", "x")),
                format!("ntfy:{}", server.url("http", "x")),
            ],
        });
        let result = client.call_tool("codex_run", run).await;
        assert_eq!(server.requests().len(), reached, "{result:#}");
        assert!(client.finish().await.success());
    }
}

#[tokio::test]
async fn sandbox_of_codex_configuration_is_bounded() {
    let config = "sandbox_mode = \"danger-full-access\"\n";
    let prompt = json!({ "prompt": "x" });
    for (release, backend) in [
        ("0.104.0", "app-server"),
        (testkit::codex::newest(), "app-server"),
        ("0.153.4", "mcp-server"),
    ] {
        for (args, escapes) in [(&[][..], true), (&BOUNDS[..2], false)] {
            let stage = BoundsFixture::new(release, config).await;
            let args = [&["--backend", backend], args].concat();
            let mut client = stage.client(&args).await;
            let result = client.call_tool("codex", prompt.clone()).await;
            assert_eq!(words(&result), "done", "{result:#}");
            assert_eq!(stage.has_escaped(), escapes, "{release} {backend}");
            assert!(client.finish().await.success());
        }
    }
}

#[tokio::test]
async fn older_thread_is_bounded() {
    for (args, escapes) in [(&[][..], true), (&BOUNDS[..2], false)] {
        let stage = BoundsFixture::new(testkit::codex::newest(), "").await;
        let mut before = stage.client(&[]).await;
        let begin = json!({ "prompt": "x", "sandbox": "danger-full-access" });
        let begun = before.call_tool("codex", begin).await;
        let thread = begun["structuredContent"]["threadId"].clone();
        assert!(stage.has_escaped());
        assert!(before.finish().await.success());
        let mut client = stage.client(args).await;
        let reply = json!({ "prompt": "again", "threadId": thread });
        let result = client.call_tool("codex-reply", reply).await;
        assert_eq!(words(&result), "done", "{result:#}");
        assert_eq!(stage.has_escaped(), escapes);
        assert!(client.finish().await.success());
    }
}

/// A thread without a sandbox, whose user has configured permissions since.
async fn older_thread() -> (BoundsFixture, Value) {
    let before = "sandbox_mode = \"danger-full-access\"";
    let stage = BoundsFixture::new(testkit::codex::newest(), &format!("{before}\n")).await;
    let mut client = stage.client(&[]).await;
    let begin = json!({ "prompt": "x", "approval-policy": "never" });
    let begun = client.call_tool("codex", begin).await;
    let thread = begun["structuredContent"]["threadId"].clone();
    assert!(stage.has_escaped());
    assert!(client.finish().await.success());
    let config = stage.home.codex_home().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace(before, "default_permissions = \":read-only\"");
    std::fs::write(&config, text).unwrap();
    (stage, thread)
}

/// The newest release resumes a thread with its earlier sandbox, even where the user has configured
/// permissions instead of a sandbox since.
#[tokio::test]
async fn older_thread_is_bounded_by_the_users_permissions() {
    for (args, escapes) in [(&[][..], true), (&BOUNDS[..2], false)] {
        let (stage, thread) = older_thread().await;
        let mut client = stage.client(args).await;
        let reply = json!({ "prompt": "again", "threadId": thread });
        let result = client.call_tool("codex-reply", reply).await;
        assert_eq!(words(&result), "done", "{result:#}");
        assert_eq!(stage.has_escaped(), escapes);
        assert!(client.finish().await.success());
    }
}

/// So does a run, whose worker has no bounds of its own.
#[tokio::test]
async fn older_thread_of_a_run_is_bounded_by_the_users_permissions() {
    for (args, escapes) in [(&[][..], true), (&BOUNDS[..2], false)] {
        let (stage, thread) = older_thread().await;
        let worker = stage.worker();
        let mut client = stage.client(args).await;
        let run = json!({ "task": "again", "thread_id": thread, "max_turns": 1 });
        let result = client.call_tool("codex_run", run).await;
        let turns = &result["structuredContent"]["turns"];
        assert_eq!(*turns, 1, "{result:#}");
        assert_eq!(stage.has_escaped(), escapes, "{result:#}");
        assert!(client.finish().await.success());
        worker.finish().await;
    }
}

/// A job carries the bound on its sandbox, and no other: its worker allows what its server does.
#[tokio::test]
async fn job_within_the_bounds_of_its_server_runs() {
    let stage = BoundsFixture::new(testkit::codex::newest(), "").await;
    let worker = stage.worker();
    let more = stage.home.work().join("more");
    std::fs::create_dir(&more).unwrap();
    let mut client = stage.client(&BOUNDS).await;
    let work = stage.home.work();
    let job =
        json!({ "prompt": "x", "cwd": work, "add_dirs": [more], "sandbox": "workspace-write" });
    let queued = client.call_tool("call_codex", job).await;
    let job = queued["structuredContent"]["job_id"].clone();
    let wait = json!({ "job_id": job, "wait_ms": 60_000 });
    let ended = client.call_tool("call_status", wait).await;
    assert_eq!(
        ended["structuredContent"]["status"], "completed",
        "{ended:#}"
    );
    assert!(!stage.has_escaped());
    assert!(client.finish().await.success());
    worker.finish().await;
}

#[tokio::test]
async fn session_cannot_be_widened_later() {
    let stage = BoundsFixture::new(testkit::codex::newest(), "").await;
    let args = [&["--api", "sessions"], BOUNDS.as_slice()].concat();
    let mut client = stage.client(&args).await;
    let begin =
        |sandbox: &str| json!({ "prompt": "x", "approvalPolicy": "never", "sandbox": sandbox });
    let refused = client.call_tool("codex", begin("danger-full-access")).await;
    assert!(words(&refused).contains("max_sandbox"), "{refused:#}");
    let begun = client.call_tool("codex", begin("read-only")).await;
    let session = begun["structuredContent"]["sessionId"].clone();
    let thread = begun["structuredContent"]["threadId"].clone();
    for (more, setting) in [
        (json!({ "sandbox": "danger-full-access" }), "max_sandbox"),
        (json!({ "cwd": "/" }), "allow_dirs"),
    ] {
        let mut reply = json!({ "sessionId": session, "prompt": "x" });
        let mut resume = json!({ "action": "resume", "threadId": thread });
        for call in [&mut reply, &mut resume] {
            let more = more.as_object().unwrap().clone();
            call.as_object_mut().unwrap().extend(more);
        }
        for (tool, arguments) in [("codex_reply", reply), ("codex_session", resume)] {
            let refused = client.call_tool(tool, arguments).await;
            assert!(words(&refused).contains(setting), "{tool}: {refused:#}");
        }
    }
    let list = json!({ "action": "wait_any", "sessionIds": [session] });
    client.call_tool("codex_session", list).await;
    assert!(!stage.has_escaped());
    assert!(client.finish().await.success());
}

/// The user's permissions deny a directory that every sandbox can read. The control: a
/// sandbox that the client names.
#[tokio::test]
async fn bound_does_not_replace_the_users_permissions() {
    for (release, backend) in [
        (testkit::codex::newest(), "app-server"),
        ("0.153.4", "mcp-server"),
    ] {
        let read = Reply::shell("cat \"$HOME/secret/key\"");
        let model = ScriptedModel::start(Script::new().otherwise([read, Reply::say("done")]));
        let stage = BoundsFixture {
            model: model.await.unwrap(),
            home: Home::new(""),
            release,
        };
        let secret = stage.home.home().join("secret");
        std::fs::create_dir_all(&secret).unwrap();
        std::fs::write(secret.join("key"), "SECRET-WORDS").unwrap();
        let config = format!(
            "{}\nfeatures.plugins = false\napproval_policy = \"never\"\n\
             default_permissions = \"careful\"\n[permissions.careful.filesystem]\n\
             \":root\" = \"read\"\n{secret:?} = \"deny\"\n\":workspace_roots\" = \"write\"\n",
            stage.model.codex_config()
        );
        std::fs::write(stage.home.codex_home().join("config.toml"), config).unwrap();
        let has_read = || {
            let requests = stage.model.requests();
            let mut bodies = requests.iter().map(|request| request.body().to_string());
            bodies.any(|body| body.contains("SECRET-WORDS"))
        };
        let bounded = ["--backend", backend, "--max-sandbox"];
        let mut client = stage.client(&[&bounded[..], &["read-only"]].concat()).await;
        let refused = client.call_tool("codex", json!({ "prompt": "x" })).await;
        for setting in ["default_permissions", "max_sandbox"] {
            assert!(words(&refused).contains(setting), "{backend}: {refused:#}");
        }
        client.finish().await;
        assert_eq!(stage.model.request_count(), 0);

        let mut client = stage
            .client(&[&bounded[..], &["workspace-write"]].concat())
            .await;
        let result = client.call_tool("codex", json!({ "prompt": "x" })).await;
        assert_eq!(words(&result), "done", "{backend}: {result:#}");
        assert!(!has_read(), "{backend}");
        let named = json!({ "prompt": "x", "sandbox": "read-only" });
        client.call_tool("codex", named).await;
        assert!(has_read(), "{backend}");
        client.finish().await;
    }
}

/// Of two members with the same name, Codex takes the last. The control sends the same message to
/// Codex's own server.
#[tokio::test]
async fn duplicate_member_does_not_pass_a_bound() {
    for release in ["0.104.0", "0.153.4"] {
        let stage = BoundsFixture::new(release, "").await;
        let args = ["--backend", "mcp-server", "--max-sandbox", "read-only"];
        let mut client = stage.client(&args).await;
        let danger = r#""sandbox":"danger-full-access""#;
        let call = |id: &str, arguments: &str| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id:?},\"method\":\"tools/call\",\"params\":{{\
                 \"name\":\"codex\",\"arguments\":{arguments}}}}}\n"
            )
        };
        let twice = format!(r#"{{"prompt":"x","sandbox":"read-only",{danger}}}"#);
        for (id, arguments) in [
            ("plain", twice.clone()),
            (
                "escaped",
                format!(r#"{{"prompt":"x","s\u0061ndbox":"read-only",{danger}}}"#),
            ),
            (
                "nested",
                r#"{"prompt":"x","config":{"sandbox_mode":"read-only","sandbox_mode":"danger-full-access"}}"#
                    .to_owned(),
            ),
            (
                "arguments",
                format!(r#"{{"prompt":"x"}},"arguments":{{"prompt":"x",{danger}}}"#),
            ),
        ] {
            client.send_raw(call(id, &arguments));
            let error = client.error(&json!(id)).await;
            let told = error["message"].as_str().unwrap();
            assert!(told.contains("is there twice"), "{id}: {error}");
        }
        client.finish().await;
        assert_eq!(stage.model.request_count(), 0, "{release}");
        assert!(!stage.has_escaped(), "{release}");

        let launch = stage
            .home
            .launch(testkit::codex::native_binary(release))
            .args(["mcp-server"]);
        let mut client = McpClient::start(&launch);
        client.ignore("codex/event");
        client.initialize(VERSION, json!({})).await;
        client.send_raw(call("control", &twice));
        client.result(&json!("control")).await;
        assert!(stage.has_escaped(), "{release}");
        client.finish().await;
    }
}
