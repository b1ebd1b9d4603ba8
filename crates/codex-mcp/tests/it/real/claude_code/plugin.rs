//! Claude Code with our plugin, which it installs from a copy of the marketplace in the
//! repository, and with the prompts of our server.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use supervise::spawn::is_unknown_to_hosts;
use testkit::copy_directory;
use testkit::docs::root;
use testkit::write_program;

use super::*;

/// The names of our tools as the plugin's.
const PREFIX: &str = "mcp__plugin_codex-mcp_codex__";

/// What the plugin consists of, relative to the root of the repository.
const FILES: [&str; 2] = [".claude-plugin", "plugins"];

/// The answers of a model that calls a tool when its prompt has these words.
fn calling(
    words: &'static str,
    tool: String,
    arguments: Value,
) -> impl Fn(&MessagesRequest) -> Answer {
    move |request| {
        let is_asked = request.texts().iter().any(|text| text.contains(words));
        match is_asked {
            true => Answer::Call {
                tool: tool.clone(),
                arguments: arguments.clone(),
            },
            false => Answer::Say(NOTED.to_owned()),
        }
    }
}

/// A Claude Code that has the plugin, with `codex-mcp` on its PATH. It asks nothing about calls of
/// `allowed`.
async fn with_plugin(
    stage: CodexFixture,
    allowed: &str,
    answer: impl Fn(&MessagesRequest) -> Answer + Send + Sync + 'static,
) -> ClaudeCode {
    let model = MessagesApi::start(answer).await;
    let claude = ClaudeCode { stage, model };
    claude.configure(allowed);
    let path = claude.recording_server();
    let codex = testkit::codex::native_binary(&claude.stage.release);
    let mut variables = claude.variables().to_vec();
    variables.push(("PATH", path));
    variables.push(("CODEX_MCP_CODEX_BIN", codex.display().to_string()));
    claude.write_script(&variables, "");
    let market = claude.market();
    for name in FILES {
        copy_directory(&root().join(name), &market.join(name));
    }
    let market = market.display().to_string();
    claude
        .output(&["plugin", "marketplace", "add", &market])
        .await;
    claude
        .output(&["plugin", "install", "codex-mcp@codex-mcp"])
        .await;
    claude
}

impl ClaudeCode {
    /// The directory of the marketplace.
    fn market(&self) -> PathBuf {
        self.stage.home.home().join("market")
    }

    /// A PATH on which `codex-mcp` writes its environment into a file, and then serves.
    fn recording_server(&self) -> String {
        let directory = self.stage.home.home().join("bin");
        let script = directory.join("codex-mcp");
        let ours = env!("CARGO_BIN_EXE_codex-mcp");
        let text = format!("#!/bin/sh\nenv > ~/server.env\nexec '{ours}' \"$@\"\n");
        write_program(&script, &text);
        format!("{}:{}", directory.display(), env::var("PATH").unwrap())
    }

    /// The names of the variables that Claude Code has set for the server by itself.
    fn variables_of_the_server(&self) -> Vec<String> {
        let seen = fs::read_to_string(self.stage.home.home().join("server.env")).unwrap();
        let names = seen
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0));
        let given = self.variables();
        let is_own = |name: &&str| given.iter().all(|(given, _)| given != name);
        let own = names
            .filter(|name| name.starts_with("CLAUDE"))
            .filter(is_own);
        own.map(str::to_owned).collect()
    }
}

/// The text of a command with what the user has typed after it.
fn command(name: &str, typed: &str) -> String {
    let file = format!("plugins/codex-mcp/commands/{name}.md");
    let file = fs::read_to_string(root().join(file)).unwrap();
    let (_, text) = file.split_once("\n---\n").unwrap();
    text.trim().replace("$ARGUMENTS", typed)
}

/// Waits until the model is given the result of its call.
async fn result(claude: &ClaudeCode) -> String {
    let has_result = |request: &MessagesRequest| !request.tool_results().is_empty();
    let request = claude.model.request_such("with a result", has_result).await;
    request.tool_results().concat()
}

/// Waits until the model is given this text.
async fn is_told(claude: &ClaudeCode, text: &str) {
    let has_it = |request: &MessagesRequest| request.texts().iter().any(|one| one.trim() == text);
    claude.model.request_such("with the command", has_it).await;
}

#[tokio::test]
async fn plugin_and_market_place_are_valid() {
    let stage = stage(testkit::codex::newest(), Script::new()).await;
    let claude = with_plugin(stage, "Read", |_| Answer::Say(NOTED.to_owned())).await;
    let market = claude.market();
    for directory in [&market, &market.join("plugins/codex-mcp")] {
        let directory = directory.display().to_string();
        let validate = ["plugin", "validate", &directory, "--strict"];
        let said = claude.output(&validate).await;
        assert!(said.contains("Validation passed"), "{said}");
        // The requirements of the public directory of plugins.
        assert!(!said.contains("refuses a submission"), "{said}");
    }
    let listed = claude.output(&["plugin", "list"]).await;
    assert!(listed.contains(env!("CARGO_PKG_VERSION")), "{listed}");
    claude.finish().await;
}

/// The command allows the call, as the tool only reads.
#[tokio::test]
async fn command_of_the_plugin_reaches_the_model_and_our_server() {
    let stage = stage(testkit::codex::newest(), Script::new()).await;
    let tool = format!("{PREFIX}codex_status");
    let answer = calling("Report what Codex is doing", tool, json!({}));
    let claude = with_plugin(stage, "Read", answer).await;
    let said = claude.output(&["-p", "/codex-mcp:status sess_1"]).await;
    assert_eq!(said.trim(), NOTED);
    is_told(&claude, &command("status", "sess_1")).await;
    let result = result(&claude).await;
    assert!(result.contains("activeThreads"), "{result}");
    // With another variable, the plugin's server would have a host of its own.
    let variables = claude.variables_of_the_server();
    assert!(
        variables.contains(&"CLAUDE_PLUGIN_ROOT".to_owned()),
        "{variables:?}"
    );
    for name in variables {
        assert!(is_unknown_to_hosts(OsStr::new(&name)), "{name}");
    }
    claude.finish().await;
}

#[tokio::test]
async fn delegated_task_is_done_by_codex() {
    let script = Script::new().otherwise([Reply::say(RESULT)]);
    let stage = stage(testkit::codex::newest(), script).await;
    let tool = format!("{PREFIX}codex");
    let arguments = job_in(&stage, "write it", json!({}));
    let answer = calling("Delegate this task", tool.clone(), arguments);
    let claude = with_plugin(stage, &tool, answer).await;
    let said = claude.output(&["-p", "/codex-mcp:delegate write it"]).await;
    assert_eq!(said.trim(), NOTED);
    is_told(&claude, &command("delegate", "write it")).await;
    let result = result(&claude).await;
    assert!(result.contains(RESULT), "{result}");
    claude.finish().await;
}

/// Claude Code has the prompts of every server as commands.
#[tokio::test]
async fn prompt_of_our_server_reaches_the_model() {
    let claude = ClaudeCode::new(Script::new(), "codex_status", json!({})).await;
    let said = claude
        .output(&["-p", "/mcp__codex__delegate write-it"])
        .await;
    assert_eq!(said.trim(), NOTED);
    is_told(&claude, &command("delegate", "write-it")).await;
    claude.finish().await;
}
