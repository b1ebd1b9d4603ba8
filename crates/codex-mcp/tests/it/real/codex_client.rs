//! The real Codex as the client of this server, and another Codex of the same release behind it.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use scripted_model::{Gate, Reply, Request, Script, Shell};
use serde_json::{Value, json};
use testkit::AppServer;
use testkit::codex::is_since;

use super::setup::run;
use super::{CodexFixture, on_each_release};
use crate::jobs::wait_for;

on_each_release!(
    model_reads_the_status_and_a_resource,
    model_has_another_codex_work,
    approval_of_the_other_codex_is_asked_for_in_the_client,
    approval_is_not_given_where_nobody_is_asked,
    other_codex_does_not_get_this_server,
    nested_calls_end_with_the_client,
);

/// The name of the server in the configuration of Codex. With a dash, which the names of its tools
/// have not.
const SERVER: &str = "codex-mcp";

/// What the model of the other Codex is asked for.
const INNER: &str = "make the file";

/// Says what the last tool has answered.
fn last_output() -> Reply {
    Reply::with(|request: &Request| {
        let outputs = request.tool_outputs();
        Reply::say(
            outputs
                .last()
                .map_or_else(String::new, |last| last.text.clone()),
        )
    })
}

/// The first of the releases above whose app-server passes on the questions of its MCP servers.
const ASKS_SINCE: [u32; 3] = [0, 153, 4];

/// How many calls are inside each other.
const LEVELS: usize = 3;

/// A Codex whose configuration has this server, which approves the calls of its tools.
async fn stage(release: &str, script: Script) -> CodexFixture {
    let stage = CodexFixture::new(release, script).await;
    append(&stage, &entry(&stage));
    stage
}

/// Adds to the end of the configuration, which is the server's entry.
fn append(stage: &CodexFixture, lines: &str) {
    let config = stage.home.codex_home().join("config.toml");
    let mut config = OpenOptions::new().append(true).open(config).unwrap();
    config.write_all(lines.as_bytes()).unwrap();
}

/// Codex passes only a few variables to its servers, so the entry names all.
fn entry(stage: &CodexFixture) -> String {
    let codex = testkit::codex::native_binary(&stage.release);
    let codex = ("CODEX_MCP_CODEX_BIN".into(), codex.into());
    let variables = stage.home.env().into_iter().chain([codex]);
    let variables: Vec<String> = variables
        .map(|(name, value)| {
            let (name, value) = (name.into_string().unwrap(), value.into_string().unwrap());
            format!("{name} = {value:?}")
        })
        .collect();
    format!(
        "\n[mcp_servers.{SERVER}]\ncommand = {:?}\nargs = [\"serve\"]\nstartup_timeout_sec = 60\n\
         default_tools_approval_mode = \"approve\"\nenv = {{ {} }}\n",
        env!("CARGO_BIN_EXE_codex-mcp"),
        variables.join(", ")
    )
}

/// The Codex of the user. Its questions are answered so.
async fn codex(
    stage: &CodexFixture,
    answer: impl Fn(&Value) -> Option<Value> + Send + Sync + 'static,
) -> AppServer {
    let launch = stage
        .home
        .launch(testkit::codex::native_binary(&stage.release))
        .args(["app-server"]);
    let server = AppServer::start(&launch, answer);
    server.initialize().await;
    server
}

/// The last message of a turn with this prompt.
async fn turn(server: &AppServer, prompt: &str) -> String {
    server.hello_turn(prompt).await
}

async fn finish(stage: &CodexFixture, server: AppServer) {
    drop(server);
    stage.until_processes_end().await;
}

async fn model_reads_the_status_and_a_resource(release: &str) {
    let resource = json!({ "server": SERVER, "uri": "codex-mcp:///quickstart" });
    let script = Script::new()
        .on(
            "status",
            [Reply::mcp(SERVER, "codex_status", json!({})), last_output()],
        )
        .on(
            "quickstart",
            [Reply::call("read_mcp_resource", resource), last_output()],
        );
    let stage = stage(release, script).await;
    let server = codex(&stage, |_| None).await;
    let status = turn(&server, "status").await;
    assert!(status.contains("activeThreads"), "{status}");
    let read = turn(&server, "quickstart").await;
    assert!(read.contains("codex_check"), "{read}");
    finish(&stage, server).await;
}

async fn model_has_another_codex_work(release: &str) {
    let work = json!({ "prompt": INNER, "sandbox": "workspace-write", "approval-policy": "never" });
    let script = Script::new()
        .on(
            INNER,
            [Reply::shell("touch made.txt"), Reply::say("it is made")],
        )
        .on(
            "delegate",
            [Reply::mcp(SERVER, "codex", work), last_output()],
        );
    let stage = stage(release, script).await;
    let server = codex(&stage, |_| None).await;
    let said = turn(&server, "delegate").await;
    assert!(said.contains("it is made"), "{said}");
    assert!(stage.file("made.txt").exists());
    let requests = stage.model.requests();
    let threads: BTreeSet<&str> = requests.iter().map(Request::thread_id).collect();
    assert_eq!(threads.len(), 2, "{threads:?}");
    finish(&stage, server).await;
}

/// A model that has another Codex touch a file, for which that one needs an approval.
fn asking() -> Script {
    let work = json!({ "prompt": INNER, "sandbox": "read-only", "approval-policy": "on-request" });
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    Script::new().on(INNER, [touch, Reply::say("it ends")]).on(
        "delegate",
        [Reply::mcp(SERVER, "codex", work), last_output()],
    )
}

async fn approval_of_the_other_codex_is_asked_for_in_the_client(release: &str) {
    let stage = stage(release, asking()).await;
    // A call whose question reaches nobody is given up by Codex.
    if !is_since(release, ASKS_SINCE) {
        append(&stage, "tool_timeout_sec = 3\n");
    }
    let server = codex(&stage, |request| {
        assert_eq!(
            request["method"], "mcpServer/elicitation/request",
            "{request:#}"
        );
        assert!(
            request.to_string().contains("touch made.txt"),
            "{request:#}"
        );
        Some(json!({ "action": "accept", "content": { "decision": "accept" } }))
    })
    .await;
    let said = turn(&server, "delegate").await;
    let expected = match is_since(release, ASKS_SINCE) {
        true => "it ends",
        false => "timed out",
    };
    assert!(said.contains(expected), "{said}");
    assert_eq!(
        stage.file("made.txt").exists(),
        is_since(release, ASKS_SINCE)
    );
    finish(&stage, server).await;
}

/// In `codex exec`, the question is declined, or the call returns with it.
async fn approval_is_not_given_where_nobody_is_asked(release: &str) {
    let stage = stage(release, asking()).await;
    let said = run(&stage, &["exec", "delegate"]).await;
    let expected = match is_since(release, ASKS_SINCE) {
        true => "it ends",
        false => "waiting_approval",
    };
    assert!(said.contains(expected), "{said}");
    assert!(!stage.file("made.txt").exists());
    stage.until_processes_end().await;
}

/// A model that has another Codex call the status of this server, with these overrides.
fn nesting(overrides: &Value) -> Script {
    let work = json!({ "prompt": INNER, "config": overrides });
    let status = Reply::mcp(SERVER, "codex_status", json!({}));
    Script::new().on(INNER, [status, last_output()]).on(
        "delegate",
        [Reply::mcp(SERVER, "codex", work), last_output()],
    )
}

/// Overrides that let the other Codex start this server once more.
fn nested() -> Value {
    json!({ format!("mcp_servers.{SERVER}.enabled"): true })
}

/// The other Codex has the same configuration.
async fn other_codex_does_not_get_this_server(release: &str) {
    let more = json!({ "mcp_servers": { "docs": { "command": "true" } } });
    // Codex merges overrides in random order: a table beside the switch would undo it every other time.
    for (overrides, gets_it) in [
        (json!({}), false),
        (nested(), true),
        (more.clone(), false),
        (more.clone(), false),
        (more, false),
    ] {
        let stage = stage(release, nesting(&overrides)).await;
        let server = codex(&stage, |_| None).await;
        let said = turn(&server, "delegate").await;
        assert_eq!(
            said.contains("activeThreads"),
            gets_it,
            "{overrides}: {said}"
        );
        // Of what is not on offer, the scripted model makes no call.
        assert!(gets_it || said.contains("the request offers"), "{said}");
        finish(&stage, server).await;
    }
}

/// When the outer Codex is killed, nothing stays of those below it.
async fn nested_calls_end_with_the_client(release: &str) {
    let gate = Gate::new();
    let begun = Arc::new(AtomicUsize::new(0));
    let (counter, closed) = (Arc::clone(&begun), gate.clone());
    let script = Script::by(move |_| match counter.fetch_add(1, Ordering::SeqCst) {
        LEVELS => Reply::say("the last").behind(&closed),
        _ => {
            let deeper = json!({ "prompt": "deeper", "config": nested() });
            Reply::mcp(SERVER, "codex", deeper)
        }
    });
    let stage = stage(release, script).await;
    let server = codex(&stage, |_| None).await;
    let thread = server.start_thread(json!({})).await;
    let input = json!([{ "type": "text", "text": "begin" }]);
    let begin = json!({ "threadId": thread, "input": input });
    server.call("turn/start", begin).await;
    wait_for("the innermost call", async || {
        (begun.load(Ordering::SeqCst) > LEVELS).then_some(())
    })
    .await;
    drop(server);
    stage.until_processes_end().await;
    assert_eq!(begun.load(Ordering::SeqCst), LEVELS + 1);
}
