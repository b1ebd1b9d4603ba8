//! Integration tests of the program: real processes, real Codex.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a failed test panics, and a test starts the processes that it looks at"
)]

// Nothing is adoptable without a subreaper and descriptors of processes.
#[cfg(not(portable))]
mod adoption;
mod aliases;
mod attacks;
mod command_line;
mod config;
mod demo;
mod doctor;
mod eyes_mcp;
mod first_contact;
mod hostile;
mod hosts;
mod jobs;
mod jobs_cli;
mod look;
mod mail;
mod memory;
mod notify;
mod output;
mod packages;
mod png;
mod random;
mod real;
mod runs;
mod setup;
mod shell;
mod stored;
mod terminal;
mod top;

/// The version of MCP that most clients speak today.
const VERSION: &str = "2025-06-18";

/// Marks a directory as trusted by the user, with its current files.
fn trust(home: &testkit::Home, directory: &std::path::Path) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_codex-mcp"))
        .arg("trust")
        .arg(directory)
        .env_clear()
        .envs(home.env())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Defines a test for each release from `async fn name(release: &str)`. Attributes are those of the
/// test on 0.104.0 alone.
macro_rules! on_each_release {
    ($($(#[$on_0_104_0:meta])* $name:ident),* $(,)?) => {
        mod on_0_104_0 {
            $(#[tokio::test] $(#[$on_0_104_0])* async fn $name() { super::$name("0.104.0").await; })*
        }
        mod on_0_153_4 { $(#[tokio::test] async fn $name() { super::$name("0.153.4").await; })* }
        mod on_the_newest {
            $(#[tokio::test] async fn $name() { super::$name(testkit::codex::newest()).await; })*
        }
    };
}
pub(crate) use on_each_release;

/// The same without 0.153.4, for what these two releases show as well. What the releases between
/// them do is seen with `CODEX_MCP_TEST_CODEX`, which takes the place of the newest.
macro_rules! on_oldest_and_newest {
    ($($(#[$on_0_104_0:meta])* $name:ident),* $(,)?) => {
        mod on_0_104_0 {
            $(#[tokio::test] $(#[$on_0_104_0])* async fn $name() { super::$name("0.104.0").await; })*
        }
        mod on_the_newest {
            $(#[tokio::test] async fn $name() { super::$name(testkit::codex::newest()).await; })*
        }
    };
}
pub(crate) use on_oldest_and_newest;

/// Each release but 0.104.0, whose sandbox does not protect `.git`, and which cannot demand a token.
macro_rules! on_both_releases {
    ($($name:ident),* $(,)?) => {
        mod on_0_153_4 { $(#[tokio::test] async fn $name() { super::$name("0.153.4").await; })* }
        mod on_the_newest {
            $(#[tokio::test] async fn $name() { super::$name(testkit::codex::newest()).await; })*
        }
    };
}
pub(crate) use on_both_releases;

/// Before a command that leaves its session, in a script of the shell. Without a subreaper such a
/// process is lost when its parent ends, so it stays in the session there.
pub(crate) const SETSID: &str = if cfg!(portable) { "" } else { "setsid" };
