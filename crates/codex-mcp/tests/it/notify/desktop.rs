//! `desktop` with a program in place of `notify-send`: the machines of the tests have no desktop.
#![cfg(not(target_os = "macos"))]

use std::fs;

use goal_run::notify::NotifierContext;
use testkit::{Home, write_program};

use super::{tell, tell_text, teller};

/// A home with a `notify-send` of these lines, and a teller that finds it.
fn stage(script: &str) -> (Home, NotifierContext) {
    let home = Home::new("");
    let bin = home.root().join("bin");
    let program = bin.join("notify-send");
    write_program(&program, &format!("#!/bin/sh\n{script}\n"));
    let path = std::env::var("PATH").unwrap();
    let mut env = home.env();
    env.push(("PATH".into(), format!("{}:{path}", bin.display()).into()));
    let teller = NotifierContext {
        env,
        ..teller(home.atm_home(), &home.work())
    };
    (home, teller)
}

#[tokio::test]
async fn line_is_shown_as_text() {
    let (home, teller) = stage("printf '%s\\0' \"$@\" >arguments");
    let line = "APPROVAL :: session 1: waiting for approval to run -x <a href=\"x\">&amp; \\n \
                $(touch x) `touch x` --token=sk-abcdefghijklmnopqrstuvwxyz123456";
    tell_text("desktop", line, &teller).await.unwrap();
    let arguments = fs::read_to_string(home.work().join("arguments")).unwrap();
    let arguments: Vec<&str> = arguments.split_terminator('\0').collect();
    let body = "APPROVAL :: session 1: waiting for approval to run -x &lt;a href=\"x\"&gt;&amp;amp; \
                \\\\n $(touch x) `touch x` --token=[masked]";
    let title = "Codex waits for an answer";
    assert_eq!(arguments, ["--app-name=codex-mcp", "--", title, body]);
    assert!(!home.work().join("x").exists());
    assert_eq!(home.processes(), []);
}

#[tokio::test]
async fn failure_of_the_desktop_is_reported() {
    let (_home, teller) = stage("echo no bus >&2; exit 1");
    let error = tell("desktop", &teller).await.unwrap_err();
    assert_eq!(error, "notify-send exited with code 1; it said: no bus");
}
