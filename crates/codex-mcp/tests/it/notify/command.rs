//! `command:` notifiers with real programs.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::wait::wait_for_file;
use testkit::{Home, write_program};

use super::{LONG, NotifierContext, result, tell, tell_text, teller};

/// A home with a program of these lines, and a teller that runs there.
fn stage(script: &str) -> (Home, NotifierContext) {
    let home = Home::new("");
    let program = program(&home);
    write_program(&program, &format!("#!/bin/sh\n{script}\n"));
    let teller = NotifierContext {
        env: home.env(),
        ..teller(home.atm_home(), &home.work())
    };
    (home, teller)
}

fn program(home: &Home) -> PathBuf {
    home.root().join("program")
}

fn command(home: &Home, arguments: &str) -> String {
    format!("command:{} {arguments}", program(home).display())
}

fn read(home: &Home, file: &str) -> String {
    fs::read_to_string(home.work().join(file)).unwrap()
}

#[tokio::test]
async fn program_gets_the_line_as_an_argument_and_the_result_on_stdin() {
    let (home, teller) = stage("printf '%s\\0' \"$@\" >arguments; cat >result");
    let line = "DONE #7 :: it's \"a\"\nb $(touch x) `touch x` * \\ ;& -- é";
    let command = command(&home, "-a 'b c' \"$(d)\"");
    tell_text(&command, line, &teller).await.unwrap();
    let arguments = read(&home, "arguments");
    let arguments: Vec<&str> = arguments.split_terminator('\0').collect();
    assert_eq!(arguments, ["-a", "b c", "$(d)", line]);
    let told: Value = serde_json::from_str(&read(&home, "result")).unwrap();
    assert_eq!(told, result());
    assert!(!home.work().join("x").exists());
    assert_eq!(home.processes(), []);
}

#[tokio::test]
async fn failed_program_is_reported_with_the_end_of_its_stderr() {
    let (home, teller) = stage(
        "i=0; while [ $i -lt 2000 ]; do echo noise; echo noise >&2; i=$((i+1)); done\n\
         printf '\\033[31mno \\033[0m\\nroute\\n' >&2; exit 1",
    );
    let error = tell(&command(&home, ""), &teller).await.unwrap_err();
    assert!(
        error.contains("program exited with code 1; it said: "),
        "{error}"
    );
    assert!(error.ends_with("noise noise no route"), "{error}");
    assert!(error.len() < 600, "{error}");

    let (home, teller) = stage("kill -9 $$");
    let error = tell(&command(&home, ""), &teller).await.unwrap_err();
    assert!(
        error.ends_with("was ended by signal 9 (SIGKILL)"),
        "{error}"
    );
}

#[tokio::test]
async fn missing_or_unrunnable_program_is_reported() {
    let (home, teller) = stage("");
    let error = tell("command:no-such-program x", &teller)
        .await
        .unwrap_err();
    let words = "no-such-program exited with code 127; it said: cannot start no-such-program";
    assert!(error.starts_with(words), "{error}");
    let error = tell(&format!("command:{}", home.work().display()), &teller).await;
    let error = error.unwrap_err();
    assert!(error.contains("exited with code 126"), "{error}");
    let gone = NotifierContext {
        directory: home.root().join("gone"),
        ..teller
    };
    let error = tell("command:true", &gone).await.unwrap_err();
    assert!(error.starts_with("true cannot be started"), "{error}");
}

#[tokio::test]
async fn hanging_program_is_ended_with_its_descendants() {
    let (home, mut teller) = stage("trap '' TERM; echo waiting >&2; setsid sleep 600 & sleep 600");
    teller.timeouts.command = Duration::from_secs(15);
    let began = Instant::now();
    let error = tell(&command(&home, ""), &teller).await.unwrap_err();
    assert!(
        error.ends_with("took longer than 15 s and was ended; it said: waiting"),
        "{error}"
    );
    assert!(began.elapsed() < LONG);
    assert_eq!(home.processes(), []);
}

#[tokio::test]
async fn program_that_does_not_read_stdin_is_not_waited_for() {
    let (home, teller) = stage("exit 0");
    let result = serde_json::json!({"missing": "x".repeat(4 << 20)});
    let telling = goal_run::notify::Notification {
        line: "BLOCKED :: x",
        result: &result,
    };
    let notifiers = [super::notifier(&command(&home, ""))];
    let told = goal_run::notify::notify_all(&notifiers, telling, &teller).await;
    assert!(told[0].result.is_ok(), "{told:?}");

    let (home, teller) = stage("exec 0<&-; sleep 0.2; exit 3");
    let notifiers = [super::notifier(&command(&home, ""))];
    let told = goal_run::notify::notify_all(&notifiers, telling, &teller).await;
    let error = told[0].result.as_ref().unwrap_err().to_string();
    assert!(error.ends_with("exited with code 3"), "{error}");
}

#[tokio::test]
#[cfg_attr(
    portable,
    ignore = "without a subreaper, a process that has lost its parent stays"
)]
async fn background_process_ends_with_its_program() {
    let (home, teller) = stage("setsid sleep 600 & exit 0");
    tell(&command(&home, ""), &teller).await.unwrap();
    assert_eq!(home.processes(), []);
}

#[tokio::test]
async fn program_is_ended_when_its_call_is_dropped() {
    let (home, teller) = stage("touch started; sleep 600");
    let command = command(&home, "");
    let started = async {
        wait_for_file(&home.work().join("started")).await;
        let processes = home.processes();
        processes.iter().map(|process| process.pid).collect()
    };
    let left: Vec<u32> = tokio::select! {
        told = tell(&command, &teller) => panic!("{told:?}"),
        left = started => left,
    };
    assert!(!left.is_empty());
    assert_eq!(testkit::process::wait_until_gone(&left, LONG).await, []);
}
