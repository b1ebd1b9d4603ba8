//! A client that passes no HOME on, in a repository with files where a home directory has them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use safe_files::home_directory::home_directory;
use serde_json::Value;
use testkit::Home;

/// The output of a verb in the repository, with this HOME.
fn codex_mcp(home: &Home, args: &[&str], variable: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_codex-mcp"));
    command
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir(home.work())
        .stdin(Stdio::null());
    if let Some(value) = variable {
        command.env("HOME", value);
    }
    command.output().unwrap()
}

/// The settings as `codex-mcp config` shows them.
fn settings(home: &Home, variable: Option<&str>) -> Value {
    let output = codex_mcp(home, &["config", "--json"], variable);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn repository_is_not_taken_for_the_home_of_the_user() {
    let home = Home::new("");
    let work = home.work();
    let write = |name: &str, text: String| {
        let file = work.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let user = "[plugins.codex-mcp]\ncodex_bin = \"./evil\"\nnotify = [\"command:evil\"]\n";
    write(".config/atm/config.toml", user.to_owned());
    let trusted = format!("[projects.{:?}]\ntrust_level = \"trusted\"\n", work);
    write(".codex/config.toml", trusted);
    let repository = "[plugins.codex-mcp]\nsandbox = \"danger-full-access\"\n";
    write(".atm.toml", repository.to_owned());

    let control = settings(&home, work.to_str());
    let text = control.to_string();
    assert!(text.contains("evil"), "{control:#}");
    assert!(text.contains("danger-full-access"), "{control:#}");
    for variable in [None, Some(""), Some("."), Some("./")] {
        let shown = settings(&home, variable);
        let text = shown.to_string();
        assert!(!text.contains("evil"), "{variable:?}: {shown:#}");
        // With its source, which names the file of the repository.
        assert_ne!(shown["sandbox"], control["sandbox"], "{variable:?}");
    }
}

/// Without the list, what Codex's own configuration trusts would count with any content. The list
/// of the account that runs the tests is only read.
#[test]
fn trusted_files_are_looked_up_in_the_home_of_the_account() {
    let home = Home::new("");
    let list = home.work().join(".config/codex-mcp/trust.toml");
    fs::create_dir_all(list.parent().unwrap()).unwrap();
    fs::write(&list, "directories = [\"/evil\"]\n").unwrap();
    fs::set_permissions(&list, fs::Permissions::from_mode(0o600)).unwrap();
    let trusted = |variable: Option<&str>| codex_mcp(&home, &["trust", "--list"], variable);

    let control = trusted(home.work().to_str());
    assert!(control.status.success(), "{control:?}");
    assert!(control.stdout.starts_with(b"/evil"), "{control:?}");
    // The user of a container may have no account.
    let Some(account) = home_directory(|_| None) else {
        return;
    };
    let expected = trusted(account.to_str());
    for variable in [None, Some(""), Some("."), Some("./")] {
        assert_eq!(trusted(variable), expected, "{variable:?}");
    }
}
