//! The demo during its run.

use std::path::PathBuf;
use std::process::Stdio;

use testkit::wait::wait_for_file;
use testkit::{Home, codex, write_program};

use super::{assert_nothing_is_left, demo, in_one_line, stderr_of_failed, terminate, text};

/// A Codex that serves the first time, for the call, and behaves differently the second time.
fn serves_once(home: &Home, then: &str) -> PathBuf {
    let directory = home.root().join("once");
    let text = format!(
        "#!/bin/sh
if [ \"$1\" = app-server ]; then
  if [ -e '{directory}/served' ]; then {then}; fi
  : > '{directory}/served'
fi
exec '{codex}' \"$@\"
",
        directory = directory.display(),
        codex = codex::native_binary(codex::newest()).display()
    );
    let program = directory.join("codex");
    write_program(&program, &text);
    program
}

#[tokio::test]
async fn signal_during_the_run_leaves_nothing() {
    let home = Home::new("");
    let reached = home.root().join("reached");
    let then = format!(": > '{}'; exec sleep 600", reached.display());
    let codex = serves_once(&home, &then);
    let child = demo(&home, &["--codex-bin", codex.to_str().unwrap()])
        .spawn()
        .unwrap();
    wait_for_file(&reached).await;

    terminate(&child);

    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
    assert!(text(&output.stdout).contains("$ codex-mcp run"));
    assert_eq!(text(&output.stderr), "");
    assert_nothing_is_left(&home).await;
}

#[tokio::test]
async fn failing_run_is_reported() {
    let home = Home::new("");
    let codex = serves_once(&home, "echo out of order >&2; exit 3");

    let output = demo(&home, &["--codex-bin", codex.to_str().unwrap()])
        .output()
        .unwrap();

    let error = stderr_of_failed(&output);
    assert!(error.contains("codex-mcp run exited with code"), "{error}");
    let told = text(&output.stdout);
    assert!(told.contains("out of order"), "{told}");
    assert_nothing_is_left(&home).await;
}

/// Without user namespaces, bubblewrap cannot set up a sandbox.
#[tokio::test]
async fn codex_asks_where_its_sandbox_does_not_work() {
    let home = Home::new("");
    let codex = codex::npm_shim(codex::newest());
    let shell = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"";
    let mut command = home.command("unshare");
    command
        .args(["--user", "--map-root-user", "sh", "-c", shell, "sh"])
        .arg(env!("CARGO_BIN_EXE_codex-mcp"))
        .args(["demo", "--codex-bin"])
        .arg(codex)
        .stdin(Stdio::null());

    let output = command.output().unwrap();

    let told = in_one_line(&text(&output.stdout));
    assert!(output.status.success(), "{output:?}");
    let (_, asked) = told.split_once("turn 2 of 10").unwrap();
    assert!(
        asked.contains("The sandbox of this machine does not let me commit"),
        "{told}"
    );
    assert!(asked.contains("y (the demo stands in for you)"), "{told}");
    assert!(asked.contains("done after 2 turns"), "{told}");
    assert_nothing_is_left(&home).await;
}
