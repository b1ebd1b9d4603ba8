//! Ring 4: the real Codex, in several releases, on a scripted model.

mod alerts;
mod approvals;
// It takes a Codex that listens on a port, as for adoption.
#[cfg(not(portable))]
mod attach;
mod calls;
mod chaos;
mod classic;
mod claude_code;
mod codex_client;
mod codex_config;
mod context;
mod drop_in;
mod eyes;
mod host;
// Without adoption, the turns of a killed host end.
#[cfg(not(portable))]
mod host_killed;
mod job_questions;
mod job_results;
mod job_tools;
mod jobs;
mod jobs_cli;
mod json_lines;
mod kill_storm;
mod killed_runs;
mod killed_workers;
mod library;
mod limits;
mod login;
mod parameter_names;
mod pictures;
mod processes;
mod proxy;
mod python;
mod recovery;
mod review;
mod run_tool;
mod runs;
mod sessions;
mod settings;
mod setup;
mod soak;
mod source_builds;
mod stdio_conformance;
mod stored_files;
mod story;
mod tasks;
mod team;
mod thread_tools;
mod tool_groups;
mod top;
mod typescript;
mod web;
mod work;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use scripted_model::{Script, ScriptedModel};
use serde_json::{Value, json};
use testkit::{Home, Launch, McpClient};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::{VERSION, on_each_release, on_oldest_and_newest};

/// The limit for the end of all processes of a test, and how often they are looked at.
const ENDING: Duration = Duration::from_secs(120);
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// A home, a model and a release of Codex.
struct CodexFixture {
    home: Home,
    model: ScriptedModel,
    release: String,
}

impl CodexFixture {
    /// Waits until the server's own Codex has started. Two that start at once in a new
    /// CODEX_HOME can disturb each other (seen with 0.153.4: one exits with code 1).
    async fn codex_is_ready(&self, client: &mut McpClient) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = client.call_tool("codex_status", json!({})).await;
            if structured(&status)["codex"]["state"] == "ready" {
                return;
            }
            assert!(Instant::now() < deadline, "Codex is not ready: {status:#}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn new(release: &str, script: Script) -> Self {
        Self::with_config(release, script, "").await
    }

    /// The same with more lines for `config.toml`.
    async fn with_config(release: &str, script: Script, config: &str) -> Self {
        let model = ScriptedModel::start(script).await.unwrap();
        // With plugins, Codex asks git about its marketplace over the network.
        let plugins = "features.plugins = false";
        let config = format!("{}\n{plugins}\n{config}", model.codex_config());
        let home = Home::of_codex(release, &config);
        Self {
            home,
            model,
            release: release.to_owned(),
        }
    }

    /// Writes our program's configuration of the user.
    fn configure(&self, settings: &str) {
        let directory = self.home.atm_home().join(".config/atm");
        fs::create_dir_all(&directory).unwrap();
        let text = format!("[plugins.codex-mcp]\n{settings}\n");
        fs::write(directory.join("config.toml"), text).unwrap();
    }

    /// Ends the client, and waits until the worker and all other processes are gone.
    async fn finish_with_worker(&self, client: McpClient) {
        assert!(client.finish().await.success());
        self.until_processes_end().await;
    }

    /// Waits until all processes have ended, as an idle worker does after a while.
    async fn until_processes_end(&self) {
        self.stop_own_hosts().await;
        let ends = timeout(ENDING, async {
            while !self.home.processes().is_empty() {
                sleep(LOOK_AFTER).await;
            }
        });
        if ends.await.is_err() {
            panic!("some processes do not end: {:#?}", self.home.processes());
        }
    }

    /// Ends the hosts that a test has without asking for them.
    async fn stop_own_hosts(&self) {
        if testkit::with_host() {
            self.stop_hosts().await;
        }
    }

    /// Ends the hosts.
    async fn stop_hosts(&self) {
        said(self.program(&["host", "stop"])).await;
    }

    /// Our program with these arguments, without input.
    fn program(&self, args: &[&str]) -> Command {
        let mut command = Command::from(self.home.command(env!("CARGO_BIN_EXE_codex-mcp")));
        command
            .args(args)
            .env(
                "CODEX_MCP_CODEX_BIN",
                testkit::codex::native_binary(&self.release),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn launch(&self, args: &[&str]) -> Launch {
        self.launch_program(env!("CARGO_BIN_EXE_codex-mcp").as_ref(), args)
    }

    /// Starts a copy of our program.
    fn launch_program(&self, program: &Path, args: &[&str]) -> Launch {
        let launch = Launch::new(program).args(["serve"]);
        self.in_environment(launch.args(args.iter().copied()))
    }

    /// The program of `launch` in the work directory, with this Codex.
    fn in_environment(&self, launch: Launch) -> Launch {
        launch
            .envs(self.home.env())
            .env(
                "CODEX_MCP_CODEX_BIN",
                testkit::codex::native_binary(&self.release),
            )
            .current_dir(self.home.work())
    }

    /// A client of a new server, without elicitation.
    async fn client(&self, args: &[&str]) -> McpClient {
        self.client_with(args, json!({})).await
    }

    /// A client of a new server, with elicitation.
    async fn asking_client(&self, args: &[&str]) -> McpClient {
        self.client_with(args, json!({"elicitation": {}})).await
    }

    async fn client_with(&self, args: &[&str], capabilities: Value) -> McpClient {
        McpClient::connect(&self.launch(args), VERSION, capabilities).await
    }

    /// A client of a new server, as [`quiet_client`].
    async fn quiet_client(&self, args: &[&str]) -> McpClient {
        quiet_client(&self.launch(args)).await
    }

    /// Ends the client, and checks that no process is left.
    async fn finish(&self, client: McpClient) {
        assert!(client.finish().await.success());
        self.stop_own_hosts().await;
        assert_eq!(self.home.processes(), []);
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.home.work().join(name)
    }
}

/// A client that ignores the notifications that only a `codex mcp-server` sends.
async fn quiet_client(launch: &Launch) -> McpClient {
    let mut client = McpClient::start(launch);
    client.ignore("codex/event");
    client.ignore("notifications/tools/list_changed");
    client.initialize(VERSION, json!({})).await;
    client
}

/// The stdout of a command, which must succeed.
async fn said(mut command: Command) -> String {
    let output = command.kill_on_drop(true).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn structured(result: &Value) -> &Value {
    &result["structuredContent"]
}

fn thread_of(result: &Value) -> String {
    structured(result)["threadId"].as_str().unwrap().to_owned()
}

fn text(result: &Value, block: usize) -> &str {
    result["content"][block]["text"].as_str().unwrap()
}

#[track_caller]
fn assert_error(result: &Value, code: &str) {
    assert_eq!(result["isError"], true, "{result:#}");
    assert_eq!(structured(result)["error"]["code"], code, "{result:#}");
    let prefix = format!("Error [{code}]: ");
    assert!(text(result, 0).starts_with(&prefix), "{result:#}");
}

#[track_caller]
fn assert_completed(result: &Value, content: &str) {
    assert!(result.get("isError").is_none(), "{result:#}");
    assert_eq!(structured(result)["status"], "completed", "{result:#}");
    assert_eq!(structured(result)["content"], content, "{result:#}");
}
