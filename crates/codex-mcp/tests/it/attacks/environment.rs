//! Secrets in the environment, and the programs that could read them.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use scripted_model::{Reply, Script, ScriptedModel};
use testkit::Home;
use tokio::process::Command;

/// Variables that hold passwords, name files with passwords, or lead into an MCP client.
const SECRETS: [&str; 7] = [
    "CODEX_MCP_STORE",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICEFILE",
    "PGSSLKEY",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
];

/// The control: this variable reaches every program.
const ORDINARY: &str = "ATTACKS_ORDINARY";

/// Checks the environment that a program has written to a file.
#[track_caller]
fn assert_has_no_secret(file: &Path) {
    let seen = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    let has = |name: &str| {
        let start = format!("{name}=");
        seen.lines().any(|line| line.starts_with(&start))
    };
    assert!(has(ORDINARY), "{file:?}: {seen}");
    for secret in SECRETS {
        assert!(!has(secret), "{file:?}: {secret}");
    }
}

#[tokio::test]
async fn secrets_reach_no_program() {
    let command = "env > of-a-command; echo made > made";
    let script = Script::new().otherwise([Reply::shell(command), Reply::say("done")]);
    let model = ScriptedModel::start(script).await.unwrap();
    let home = Home::new(&format!(
        "{}\nfeatures.plugins = false\n[shell_environment_policy]\ninherit = \"all\"\n",
        model.codex_config()
    ));
    let codex = testkit::codex::native_binary(testkit::codex::newest());
    let store = home.state_home().join("jobs.db");
    let output = Command::from(home.command(env!("CARGO_BIN_EXE_codex-mcp")))
        .args(["run", "--json", "--sandbox", "danger-full-access"])
        .args(["--until", "files=made"])
        .args(["--until", "command=sh -c 'env > of-a-criterion'"])
        .args(["--notify", "command:sh -c 'env > of-a-notifier'"])
        .arg("work")
        .env("CODEX_MCP_CODEX_BIN", codex)
        .envs(SECRETS.map(|name| (name, store.as_os_str())))
        .env(ORDINARY, "x")
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    for program in ["a-command", "a-criterion", "a-notifier"] {
        assert_has_no_secret(&home.work().join(format!("of-{program}")));
    }
    assert_eq!(home.processes(), []);
}
