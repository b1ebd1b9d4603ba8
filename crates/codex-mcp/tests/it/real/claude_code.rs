//! The real Claude Code as the client, on a scripted model of its own: in print mode, and in a
//! terminal, where it runs long calls as MCP Tasks. `plugin` has it install our plugin.
//!
//! Claude Code falls back to the old handshake, which has no tasks, if a server does not answer
//! `server/discover` within three seconds.

mod plugin;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use scripted_model::{Gate, Reply, Script, Shell};
use serde_json::{Value, json};
use testkit::claude_code::native_binary;
use testkit::messages_api::{Answer, MessagesApi, MessagesRequest};
use testkit::process::{self, Process, wait_until_gone};
use testkit::{Home, Tmux};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::eyes::texts;
use super::tasks::{job_in, stage};
use super::typescript::TypeScriptClient;
use super::{CodexFixture, structured};
use crate::jobs::wait_for;
use crate::setup::Setup;

/// The prompt that has the model call a tool.
const PROMPT: &str = "hand it over";

/// The model's answer to a tool's result, and to everything else.
const NOTED: &str = "Noted.";

/// Codex's answer.
const RESULT: &str = "the result of Codex";

/// The limit of each wait.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two keys of a person who types fast.
const KEY_INTERVAL: Duration = Duration::from_millis(300);

/// No account has this key. Claude Code asks about a key unless its configuration approves the last
/// 20 characters.
const KEY: &str = "sk-ant-api03-no-account-has-this-key-0000";

/// The size of the terminal.
const COLUMNS: u16 = 120;
const ROWS: u16 = 50;

/// Runs Claude Code, without the prompt of the test's shell.
const RUN: &str = "\
unset PS1
$EXPORTS
exec $CLAUDE \"$@\" $FLAGS
";

/// It has our server alone, and asks about calls.
const FLAGS: &str = "--mcp-config ~/mcp.json --strict-mcp-config --permission-mode default";

/// A home with Claude Code, its model, and the newest Codex with its own model.
struct ClaudeCode {
    stage: CodexFixture,
    model: MessagesApi,
}

impl ClaudeCode {
    /// Claude Code's model calls this tool when it is given [`PROMPT`]. Codex's follows the script.
    async fn new(script: Script, tool: &str, arguments: Value) -> Self {
        Self::with_args(script, tool, arguments, &[]).await
    }

    /// The same with more arguments for `codex-mcp serve`.
    async fn with_args(script: Script, tool: &str, arguments: Value, args: &[&str]) -> Self {
        let stage = stage(testkit::codex::newest(), script).await;
        let tool = format!("mcp__codex__{tool}");
        let call = Answer::Call {
            tool: tool.clone(),
            arguments: job_in(&stage, "work", arguments),
        };
        let answer = move |request: &MessagesRequest| match request.texts().contains(&PROMPT) {
            true => call.clone(),
            false => Answer::Say(NOTED.to_owned()),
        };
        let model = MessagesApi::start(answer).await;
        let claude = Self { stage, model };
        claude.configure(&tool);
        claude.add_server(args);
        claude
    }

    /// Has Claude Code ask nothing at its start, and nothing about calls of this tool.
    fn configure(&self, tool: &str) {
        fs::create_dir(self.stage.home.home().join(".claude")).unwrap();
        let work = self.stage.home.work().display().to_string();
        let approved = KEY.split_at(KEY.len() - 20).1;
        let configuration = json!({
            "hasCompletedOnboarding": true,
            "customApiKeyResponses": { "approved": [approved], "rejected": [] },
            "projects": { work: { "hasTrustDialogAccepted": true } },
        });
        self.write(".claude.json", &configuration);
        let settings = json!({ "permissions": { "allow": [tool] } });
        self.write(".claude/settings.json", &settings);
    }

    /// Has Claude Code start our server with these arguments.
    fn add_server(&self, args: &[&str]) {
        let codex = testkit::codex::native_binary(&self.stage.release);
        let args = [&["serve"], args].concat();
        let server = json!({ "command": env!("CARGO_BIN_EXE_codex-mcp"), "args": args,
            "env": { "CODEX_MCP_CODEX_BIN": codex } });
        self.write("mcp.json", &json!({ "mcpServers": { "codex": server } }));
        self.write_script(&self.variables(), FLAGS);
    }

    /// Writes a file of the home.
    fn write(&self, name: &str, value: &Value) {
        fs::write(self.stage.home.home().join(name), value.to_string()).unwrap();
    }

    fn write_script(&self, variables: &[(&str, String)], flags: &str) {
        let binary = native_binary().display().to_string();
        let exports = variables
            .iter()
            .map(|(name, value)| format!("export {name}={value}"));
        let exports: Vec<String> = exports.collect();
        let run = RUN.replace("$EXPORTS", &exports.join("\n"));
        let run = run.replace("$CLAUDE", &binary);
        fs::write(self.script(), run.replace("$FLAGS", flags)).unwrap();
    }

    /// The variables of Claude Code. Its model is also its proxy, so that no request reaches another
    /// host. The classic renderer has no fullscreen mode.
    fn variables(&self) -> [(&'static str, String); 12] {
        let yes = || "1".to_owned();
        [
            ("ANTHROPIC_BASE_URL", self.model.url()),
            ("ANTHROPIC_API_KEY", KEY.to_owned()),
            ("HTTP_PROXY", self.model.url()),
            ("HTTPS_PROXY", self.model.url()),
            ("NO_PROXY", "127.0.0.1".to_owned()),
            // A terminal sets it.
            ("SHELL", "/bin/sh".to_owned()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", yes()),
            (
                "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL",
                yes(),
            ),
            ("CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN", yes()),
            ("DISABLE_TELEMETRY", yes()),
            ("DISABLE_ERROR_REPORTING", yes()),
            ("DISABLE_AUTOUPDATER", yes()),
        ]
    }

    /// The script that runs Claude Code.
    fn script(&self) -> PathBuf {
        self.stage.home.home().join("claude.sh")
    }

    /// The output of Claude Code with these arguments.
    async fn output(&self, args: &[&str]) -> String {
        let run = Command::from(self.stage.home.command("sh"))
            .arg(self.script())
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let ended = timeout(TIME_LIMIT, run).await;
        let output = ended.unwrap_or_else(|_| panic!("Claude Code does not end"));
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts Claude Code in a terminal with these arguments.
    async fn start(&self, args: &str) -> Tmux {
        let tmux = Tmux::start(&self.stage.home, COLUMNS, ROWS).await;
        tmux.enters(&format!("sh ~/claude.sh {args}")).await;
        tmux
    }

    /// Waits until the model knows that its call was answered by a task, and returns the task's ID.
    async fn task(&self) -> String {
        let id_in = |request: &MessagesRequest| {
            let results = request.tool_results();
            let (_, id) = results.first()?.split_once("started server-side task ")?;
            let (id, _) = id.split_once(". ")?;
            Some(id.to_owned())
        };
        let such = |request: &MessagesRequest| id_in(request).is_some();
        let request = self.model.request_such("with a started task", such).await;
        id_in(&request).unwrap()
    }

    /// Waits until the model is told the result of a task.
    async fn result_of(&self, task: &str) {
        let parts = ["<task-notification>", task, RESULT];
        let has_it = |text: &&str| parts.iter().all(|part| text.contains(part));
        let such = |request: &MessagesRequest| request.texts().iter().any(has_it);
        let what = format!("with the result of {task}");
        self.model.request_such(&what, such).await;
    }

    /// Waits until a task and the end of the first turn are on disk.
    async fn saves(&self, task: &str) {
        let conversations = self.stage.home.home().join(".claude/projects");
        let task = format!("\"mcpTaskId\":\"{task}\"");
        wait_for("the saved conversation", async || {
            let saved = texts(&conversations);
            (saved.contains(NOTED) && saved.contains(&task)).then_some(())
        })
        .await;
    }

    /// Sends Claude Code a signal, and waits for its end.
    async fn signal(&self, signal: Signal) {
        let path = native_binary().display().to_string();
        let mut own = self.stage.home.processes();
        own.retain(|process| process.command.starts_with(&path));
        // It also starts itself, as a helper.
        let pids: Vec<u32> = own.iter().map(|process| process.pid).collect();
        own.retain(|process| !pids.contains(&process.parent));
        let [Process { pid, .. }] = own[..] else {
            panic!("{own:?}")
        };
        process::signal(pid, signal);
        assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
    }

    /// Ends Claude Code in its terminal.
    async fn end(self, tmux: Tmux) {
        self.signal(Signal::SIGTERM).await;
        drop(tmux);
        self.finish().await;
    }

    /// The same where a host serves it.
    async fn end_with_host(self, tmux: Tmux) {
        self.signal(Signal::SIGTERM).await;
        drop(tmux);
        self.stage.stop_hosts().await;
        self.finish().await;
    }

    /// Kills the only process with these words in its command line.
    async fn kill(&self, words: &str) {
        let is_it = |process: &Process| process.command.contains(words);
        let mut found = self.stage.home.processes();
        found.retain(is_it);
        let [Process { pid, .. }] = found[..] else {
            panic!("{found:?}")
        };
        process::signal(pid, Signal::SIGKILL);
        assert_eq!(wait_until_gone(&[pid], TIME_LIMIT).await, []);
    }

    /// Waits until no process is left, and checks that no other host was asked for anything.
    async fn finish(self) {
        wait_for("the end of all processes", async || {
            self.stage.home.processes().is_empty().then_some(())
        })
        .await;
        assert_eq!(self.model.other_requests(), Vec::<String>::new());
    }
}

/// A job whose turn waits at the gate.
async fn with_job_behind(gate: &Gate) -> ClaudeCode {
    let script = Script::new().otherwise([Reply::say(RESULT).behind(gate)]);
    ClaudeCode::new(script, "call_codex", json!({ "timeout_ms": 120_000 })).await
}

/// Waits until the turn of the job has begun.
async fn begun(gate: &Gate) {
    let waited = timeout(TIME_LIMIT, gate.reached(1)).await;
    waited.unwrap_or_else(|_| panic!("Codex asks its model for nothing"));
}

/// The answer of this tool in print mode, which does not declare tasks.
async fn printed(tool: &str) -> Value {
    let script = Script::new().otherwise([Reply::say(RESULT)]);
    printed_by(ClaudeCode::new(script, tool, json!({})).await).await
}

async fn printed_by(claude: ClaudeCode) -> Value {
    let output = claude.output(&["-p", PROMPT]).await;
    assert_eq!(output.trim(), NOTED);
    let has_result = |request: &MessagesRequest| !request.tool_results().is_empty();
    let request = claude.model.request_such("with a result", has_result).await;
    let result: Value = serde_json::from_str(&request.tool_results()[0]).unwrap();
    claude.finish().await;
    serde_json::from_str(result.as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn classic_call_in_print_mode_gets_the_answer_of_codex() {
    let result = printed("codex").await;
    assert_eq!(result["content"], RESULT, "{result:#}");
    assert_eq!(result["status"], "completed", "{result:#}");
}

/// Where there is no file, Claude Code itself makes it.
#[test]
fn own_command_of_claude_code_makes_the_file() {
    let home = Home::new("");
    let mut setup = Setup::new(&home, testkit::codex::newest());
    setup.install("claude", &native_binary());
    let done = setup.json(&["claude-code", "--yes"]);
    assert_eq!(done["changes"][0].get("note"), None, "{done:#}");
    let file = home.home().join(".claude.json");
    let text = fs::read_to_string(&file).unwrap();
    let now: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        now["mcpServers"]["codex"]["command"],
        env!("CARGO_BIN_EXE_codex-mcp")
    );
    setup.json(&["claude-code", "--remove", "--yes"]);
    assert!(!file.exists());
}

#[tokio::test]
async fn entry_of_setup_is_used() {
    let script = Script::new().otherwise([Reply::say(RESULT)]);
    let claude = ClaudeCode::new(script, "codex", json!({})).await;
    // Claude Code hands its environment to our server.
    let codex = testkit::codex::native_binary(&claude.stage.release);
    let mut variables = claude.variables().to_vec();
    variables.push(("CODEX_MCP_CODEX_BIN", codex.display().to_string()));
    claude.write_script(&variables, "--permission-mode default");
    let mut setup = Setup::new(&claude.stage.home, &claude.stage.release);
    setup.install("claude", &native_binary());
    let done = setup.json(&["claude-code", "--yes"]);
    let change = &done["changes"][0];
    assert_eq!(
        (&change["action"], change.get("note")),
        (&json!("add"), None),
        "{done:#}"
    );
    assert!(done["checks"][0]["tools"].is_number(), "{done:#}");
    let result = printed_by(claude).await;
    assert_eq!(result["content"], RESULT, "{result:#}");
}

/// In a terminal, the same call is answered by a task.
#[tokio::test]
async fn job_in_print_mode_gets_a_plain_answer() {
    let result = printed("call_codex").await;
    assert_eq!(result["status"], "queued", "{result:#}");
    assert!(result["job_id"].is_string(), "{result:#}");
}

/// The call returns while the job runs; the result wakes the model.
#[tokio::test]
async fn task_wakes_the_model_with_its_result() {
    let gate = Gate::new();
    let claude = with_job_behind(&gate).await;
    let tmux = claude.start(&format!("'{PROMPT}'")).await;
    let task = claude.task().await;
    tmux.shows("1 MCP task").await;
    begun(&gate).await;
    gate.release();
    claude.result_of(&task).await;
    claude.end(tmux).await;
}

#[tokio::test]
async fn approval_of_a_task_is_given_in_the_native_dialog() {
    let touch = Reply::shell(Shell::escalated("touch made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say(RESULT)]);
    let asking = json!({ "approval": "ask", "sandbox": "read-only" });
    let claude = ClaudeCode::new(script, "call_codex", asking).await;
    let tmux = claude.start(&format!("'{PROMPT}'")).await;
    let task = claude.task().await;
    let screen = tmux.shows("Decision: ▸ Yes, once").await;
    assert!(screen.contains("requests your input"), "{screen}");
    assert!(screen.contains("touch made.txt"), "{screen}");
    assert!(!claude.stage.file("made.txt").exists());
    accept(&tmux, "touch made.txt").await;
    claude.result_of(&task).await;
    assert!(claude.stage.file("made.txt").exists());
    claude.end(tmux).await;
}

/// Accepts the question with these words. Enter confirms the decision, skips the reason and accepts.
/// A key that comes right after the one before can be ignored, so it is pressed again as long as the
/// question is shown.
async fn accept(tmux: &Tmux, words: &str) {
    wait_for("the end of the dialog", async || {
        tmux.presses(&["Enter"]).await;
        sleep(KEY_INTERVAL).await;
        (!tmux.screen().await.contains(words)).then_some(())
    })
    .await;
}

/// Both see one session in one host. Each decides once, and then the other is too late.
#[tokio::test]
async fn two_kinds_of_clients_work_on_one_session() {
    let ask = |file: &str| {
        let touch = format!("touch {file}");
        Reply::shell(Shell::escalated(&touch, "it is needed"))
    };
    let replies = [ask("one.txt"), ask("two.txt"), Reply::say(RESULT)];
    let script = Script::new().otherwise(replies);
    let asking = json!({ "approval-policy": "on-request", "sandbox": "read-only" });
    let claude = ClaudeCode::with_args(script, "codex", asking, &["--host"]).await;
    let tmux = claude.start(&format!("'{PROMPT}'")).await;
    let task = claude.task().await;
    tmux.shows("touch one.txt").await;

    // In the same environment, so that both have one host.
    let variables = claude.variables();
    let mut other = TypeScriptClient::start(&claude.stage, &["--host"], &variables).await;
    let listed = other
        .call("codex_session", json!({ "action": "list" }))
        .await;
    let session = &structured(&listed)["sessions"][0]["sessionId"];
    let session = session
        .as_str()
        .unwrap_or_else(|| panic!("{listed:#}"))
        .to_owned();
    let one = question(&mut other, &session, "touch one.txt").await;
    let decided = decide(&mut other, &session, &one).await;
    assert_ne!(decided["isError"], true, "{decided:#}");

    // Claude Code shows the old question until it is answered there, which is too late.
    let two = question(&mut other, &session, "touch two.txt").await;
    wait_for("the second question", async || {
        tmux.presses(&["Enter"]).await;
        sleep(KEY_INTERVAL).await;
        tmux.screen().await.contains("touch two.txt").then_some(())
    })
    .await;
    accept(&tmux, "touch two.txt").await;
    claude.result_of(&task).await;
    let late = decide(&mut other, &session, &two).await;
    assert_eq!(late["isError"], true, "{late:#}");

    let all = json!({ "action": "poll", "sessionId": session, "maxEvents": 200,
        "responseMode": "full" });
    let seen = other.call("codex_check", all).await;
    let seen = structured(&seen);
    assert_eq!(seen["result"]["output"], RESULT, "{seen:#}");
    for file in ["touch one.txt", "touch two.txt"] {
        assert!(seen["events"].to_string().contains(file), "{seen:#}");
    }
    for file in ["one.txt", "two.txt"] {
        assert!(claude.stage.file(file).exists());
    }
    assert_eq!(claude.stage.model.request_count(), 3);
    other.finish().await;
    claude.end_with_host(tmux).await;
}

/// Waits until the session asks with these words, and returns the ID of the question.
async fn question(client: &mut TypeScriptClient, session: &str, words: &str) -> String {
    let poll = json!({ "action": "poll", "sessionId": session, "waitMs": 1000,
        "pollOptions": { "includeEvents": false } });
    for _ in 0..60 {
        let seen = client.call("codex_check", poll.clone()).await;
        let action = &structured(&seen)["actions"][0];
        if action.to_string().contains(words) {
            return action["requestId"].as_str().unwrap().to_owned();
        }
    }
    panic!("no question with {words:?}");
}

async fn decide(client: &mut TypeScriptClient, session: &str, question: &str) -> Value {
    let accept = json!({ "action": "respond_permission", "sessionId": session,
        "requestId": question, "decision": "accept" });
    client.call("codex_check", accept).await
}

/// Kills Claude Code while its task waits at the gate, and continues the conversation, which gets the
/// result of this task. Returns the terminal.
async fn continued_after_a_kill(claude: &ClaudeCode, gate: &Gate) -> Tmux {
    let tmux = claude.start(&format!("'{PROMPT}'")).await;
    let task = claude.task().await;
    claude.saves(&task).await;
    begun(gate).await;
    claude.signal(Signal::SIGKILL).await;
    drop(tmux);
    let tmux = claude.start("--continue").await;
    tmux.shows("1 MCP task").await;
    gate.release();
    claude.result_of(&task).await;
    assert_eq!(claude.stage.model.request_count(), 1);
    tmux
}

/// The server that Claude Code starts after its restart is asked for the task of the killed one.
#[tokio::test]
async fn result_of_a_task_reaches_the_continued_conversation_after_a_kill() {
    let gate = Gate::new();
    let claude = with_job_behind(&gate).await;
    let tmux = continued_after_a_kill(&claude, &gate).await;
    claude.end(tmux).await;
}

/// A turn of `codex` that a host has and that waits at the gate.
async fn with_turn_behind(gate: &Gate) -> ClaudeCode {
    let script = Script::new().otherwise([Reply::say(RESULT).behind(gate)]);
    ClaudeCode::with_args(script, "codex", json!({}), &["--host"]).await
}

#[tokio::test]
async fn turn_of_a_host_reaches_the_continued_conversation_after_a_kill() {
    let gate = Gate::new();
    let claude = with_turn_behind(&gate).await;
    let tmux = continued_after_a_kill(&claude, &gate).await;
    claude.end_with_host(tmux).await;
}

#[tokio::test]
#[cfg_attr(portable, ignore = "without adoption, the turns of a killed host end")]
async fn killed_host_costs_claude_code_no_task() {
    let gate = Gate::new();
    let claude = with_turn_behind(&gate).await;
    let tmux = claude.start(&format!("'{PROMPT}'")).await;
    let task = claude.task().await;
    begun(&gate).await;
    claude.kill(" host run").await;
    gate.release();
    claude.result_of(&task).await;
    assert_eq!(claude.stage.model.request_count(), 1);
    claude.end_with_host(tmux).await;
}

#[tokio::test]
#[cfg_attr(portable, ignore = "without adoption, the turns of a killed host end")]
async fn host_is_killed_while_claude_code_shows_the_dialog() {
    let touch = Reply::shell(Shell::escalated("echo x >> made.txt", "it is needed"));
    let script = Script::new().otherwise([touch, Reply::say(RESULT)]);
    let asking = json!({ "approval-policy": "on-request", "sandbox": "read-only" });
    let claude = ClaudeCode::with_args(script, "codex", asking, &["--host"]).await;
    let tmux = claude.start(&format!("'{PROMPT}'")).await;
    let task = claude.task().await;
    tmux.shows("echo x >> made.txt").await;
    claude.kill(" host run").await;
    accept(&tmux, "echo x >> made.txt").await;
    claude.result_of(&task).await;
    let made = fs::read_to_string(claude.stage.file("made.txt")).unwrap();
    assert_eq!(made, "x\n");
    claude.end_with_host(tmux).await;
}

/// Claude Code says that the server has gone, and finds the task through the one that it starts when
/// it is told to reconnect.
#[tokio::test]
async fn killed_server_costs_claude_code_no_task() {
    let gate = Gate::new();
    let claude = with_turn_behind(&gate).await;
    let tmux = claude.start(&format!("'{PROMPT}'")).await;
    let task = claude.task().await;
    begun(&gate).await;
    claude.kill(" serve --host").await;
    tmux.enters("/mcp reconnect codex").await;
    gate.release();
    claude.result_of(&task).await;
    assert_eq!(claude.stage.model.request_count(), 1);
    claude.end_with_host(tmux).await;
}
