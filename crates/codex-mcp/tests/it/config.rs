//! `codex-mcp config`: the settings and their sources.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::Home;

use crate::output::CommandOutput;
use crate::trust;

const FILE: &str = "[core]\nidentity = \"arch\"\ndefault_team = \"builders\"\n\
    [plugins.codex-mcp]\nmodel = \"m\"\nsandbx = \"read-only\"\n\
    [plugins.codex-mcp.roles.reviewer]\nmodel = \"r\"\nsandbox = \"read-only\"\n";

fn config(home: &Home, args: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let output = home
        .command(env!("CARGO_BIN_EXE_codex-mcp"))
        .arg("config")
        .args(args)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    output.into()
}

fn home_with(file: &str) -> Home {
    let home = Home::new("");
    fs::write(home.work().join(".atm.toml"), file).unwrap();
    trust(&home, &home.work());
    home
}

#[test]
fn setting_shows_its_source_and_typo_suggests_the_name() {
    let home = home_with(FILE);
    let said = config(
        &home,
        &["--json", "--role", "reviewer"],
        &[("ATM_TEAM", "t")],
    );
    assert_eq!(said.code, 0, "{}", said.stderr);
    let file = home.work().join(".atm.toml");
    let told: Value = serde_json::from_str(&said.stdout).unwrap();
    let role = format!("role reviewer in {}", file.display());
    for (key, value, source) in [
        (
            "identity",
            json!("arch"),
            format!("[core] in {}", file.display()),
        ),
        ("team", json!("t"), "$ATM_TEAM".to_owned()),
        ("role", json!("reviewer"), "--role".to_owned()),
        ("model", json!("r"), role.clone()),
        ("sandbox", json!("read-only"), role),
        ("approval_policy", Value::Null, "default".to_owned()),
        ("request_timeout_secs", json!(300), "default".to_owned()),
    ] {
        assert_eq!(
            told[key],
            json!({"value": value, "source": source}),
            "{key}"
        );
    }
    let words = "has no key `sandbx`. Did you mean `sandbox`?";
    assert!(said.stderr.contains(words), "{}", said.stderr);
}

#[test]
fn wrong_value_is_left_out_with_a_warning() {
    let home = home_with("[plugins.codex-mcp]\nnotify = 3\nmodel = \"m\"\n");
    let said = config(&home, &["--json"], &[]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let words = "`notify`: it must be a list in brackets";
    assert!(said.stderr.contains(words), "{}", said.stderr);
    let told: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(told["model"]["value"], "m");
    assert_eq!(told["notify"]["source"], "default");
}

#[test]
fn table_is_plain_in_a_pipe() {
    let said = config(&home_with(FILE), &[], &[]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(!said.stdout.contains('\u{1b}'));
    let identity = said.stdout.lines().next().unwrap();
    assert!(identity.starts_with("identity  "), "{identity}");
    assert!(
        identity.contains("arch") && identity.contains("[core] in "),
        "{identity}"
    );
}

#[test]
fn unusable_setting_names_its_file_and_line() {
    for (file, args, code, words) in [
        (
            "[plugins.codex-mcp]\nmax_sandbox = \"none\"\n",
            &[][..],
            1,
            "line 2, column 15",
        ),
        ("[plugins\n", &[], 1, ".atm.toml: line 1, column "),
        (FILE, &["--role", "writer"], 1, "there are reviewer"),
        (FILE, &["--identity", "../x"], 2, "is not a name"),
        (FILE, &["--team", "a/b"], 2, "is not a name"),
    ] {
        let said = config(&home_with(file), args, &[]);
        assert_eq!(said.code, code, "{}", said.stderr);
        assert!(said.stderr.contains(words), "{}", said.stderr);
        assert_eq!(said.stdout, "");
    }
}
