//! `codex-mcp top` in a terminal that takes no output.

use std::process::Stdio;

use nix::pty::openpty;
use nix::sys::signal::Signal;
use nix::sys::termios::{FlowArg, LocalFlags, tcflow, tcgetattr};
use testkit::Home;
use testkit::process::signal;
use testkit::wait::{wait_for, within};
use tokio::process::Command;

#[tokio::test]
async fn modes_of_a_terminal_that_takes_no_output_are_restored_after_a_signal() {
    let home = Home::new("");
    let pty = openpty(None, None).unwrap();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let usual = LocalFlags::ICANON | LocalFlags::ECHO;
    let modes = || tcgetattr(&pty.slave).unwrap().local_flags & usual;
    assert_eq!(modes(), usual);
    let mut top = Command::from(home.command(env!("CARGO_BIN_EXE_codex-mcp")))
        .arg("top")
        .env("TERM", "xterm-256color")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_for("raw modes", async || modes().is_empty().then_some(())).await;
    // Whatever is written next waits.
    tcflow(&pty.slave, FlowArg::TCOOFF).unwrap();
    signal(top.id().unwrap(), Signal::SIGTERM);
    let ended = within("the end", top.wait()).await.unwrap();
    assert_eq!(ended.code(), Some(143), "ended by the watchdog");
    assert_eq!(modes(), usual);
}
