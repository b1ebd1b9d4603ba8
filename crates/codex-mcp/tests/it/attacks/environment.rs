//! Secrets of the environment, and who can read them.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use scripted_model::{Reply, Script, ScriptedModel};
use testkit::Home;
use tokio::process::Command;

/// Passwords, and files that hold some.
const SECRETS: [&str; 5] = [
    "CODEX_MCP_STORE",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICEFILE",
    "PGSSLKEY",
];

/// The control: it reaches every program.
const ORDINARY: &str = "ATTACKS_ORDINARY";

/// What a program has written of its environment.
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
async fn secrets_of_the_store_reach_no_program() {
    let command = "env > of-a-command; echo made > made";
    let script = Script::new().otherwise([Reply::shell(command), Reply::say("done")]);
    let model = ScriptedModel::start(script).await.unwrap();
    let home = Home::new(&format!(
        "{}\nfeatures.plugins = false\n[shell_environment_policy]\ninherit = \"all\"\n",
        model.codex_config()
    ));
    let codex = testkit::codex::native_binary(testkit::codex::newest());
    let store = home.state_home().join("jobs.db");
    let output = Command::new(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["run", "--json", "--sandbox", "danger-full-access"])
        .args(["--until", "files=made"])
        .args(["--until", "command=sh -c 'env > of-a-criterion'"])
        .args(["--notify", "command:sh -c 'env > of-a-notifier'"])
        .arg("work")
        .env_clear()
        .envs(home.env())
        .env("CODEX_MCP_CODEX_BIN", codex)
        .envs(SECRETS.map(|name| (name, store.as_os_str())))
        .env(ORDINARY, "x")
        .current_dir(home.work())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    for program in ["a-command", "a-criterion", "a-notifier"] {
        assert_has_no_secret(&home.work().join(format!("of-{program}")));
    }
    assert_eq!(home.processes(), []);
}
