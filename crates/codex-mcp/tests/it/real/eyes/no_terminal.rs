//! `codex-mcp eyes` without a terminal.

use std::process::{Output, Stdio};

use image_request::logic::contract;
use testkit::Home;

fn eyes(args: &[&str]) -> Output {
    eyes_in(&Home::new(""), args)
}

fn eyes_in(home: &Home, args: &[&str]) -> Output {
    home.command(env!("CARGO_BIN_EXE_codex-mcp"))
        .arg("eyes")
        .args(args)
        .env(
            "CODEX_MCP_CODEX_BIN",
            testkit::codex::native_binary(testkit::codex::newest()),
        )
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn assert_refused(output: &Output, code: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(words), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn contract_is_printed() {
    let output = eyes(&["--print-contract"]);
    assert_eq!(output.status.code(), Some(0));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, contract::instructions());
}

#[test]
fn eyes_without_a_terminal_is_refused() {
    let hint = "Without a terminal there are `codex-mcp run` and `codex-mcp jobs`";
    assert_refused(&eyes(&[]), 1, hint);
    let home = Home::new("");
    let output = eyes_in(&home, &[]);
    assert_refused(&output, 1, hint);
    assert!(!home.work().join(".codex-eyes").exists());
}

#[test]
fn other_codex_commands_are_refused() {
    let words = "`codex exec` is not the interactive Codex";
    assert_refused(&eyes(&["exec", "x"]), 2, words);
}
