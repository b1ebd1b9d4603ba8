//! The test runner, with and without cargo.
//!
//! Cargo holds a lock on what it builds while it builds. Beside a build, the tests run from a list
//! of their binaries that was made before it began.
//!
//! Source: the page "Reusing builds" of nextest's documentation.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::tool::{Tool, has_nextest};
use crate::workspace::Workspace;

/// Runs the tests: by nextest, where it is installed.
pub(crate) fn tests(workspace: &Workspace) -> Tool {
    match has_nextest(workspace.root()) {
        true => Tool::cargo(["nextest", "run", "--workspace", "--no-fail-fast"]),
        // Not --all-targets: that would run the benches too.
        false => Tool::cargo(["test", "--workspace", "--tests", "--no-fail-fast"]),
    }
}

/// Runs the tests that have been built, without cargo; `None` without nextest, which alone can
/// do that.
///
/// # Errors
/// When the binaries cannot be listed.
pub(crate) fn built_tests(workspace: &Workspace) -> anyhow::Result<Option<Tool>> {
    if !has_nextest(workspace.root()) {
        return Ok(None);
    }
    let binaries = Tool::cargo(["nextest", "list", "--workspace"])
        .args(["--list-type", "binaries-only", "--message-format", "json"])
        .capture(workspace.root())?;
    let metadata = Tool::cargo(["metadata", "--format-version", "1"]).capture(workspace.root())?;
    let run = Tool::cargo(["nextest", "run", "--no-fail-fast"])
        .args([
            "--binaries-metadata".to_owned(),
            written(workspace, "binaries", &binaries)?,
        ])
        .args([
            "--cargo-metadata".to_owned(),
            written(workspace, "metadata", &metadata)?,
        ]);
    Ok(Some(run))
}

/// The tests that are also run with a host process, by the beginnings of their names: those that are
/// about what a host does in another way. It reads the settings of a client in the client's
/// directory, and its clients share identities, notifiers and Codex.
const WITH_HOST: [&str; 18] = [
    "real::alerts::on_the_newest::waiting_or_stalled_session_is_reported_once",
    "real::approvals::on_the_newest",
    "real::calls::",
    "real::classic::on_the_newest",
    "real::library::",
    "real::pictures::threads::on_the_newest",
    "real::review::on_the_newest",
    "real::sessions::approvals::on_the_newest",
    "real::sessions::results::on_the_newest",
    "real::sessions::threads::on_the_newest",
    "real::settings::on_the_newest",
    "real::team::threads::on_the_newest",
    // Another one of these kills the Codex that it finds below its server.
    "real::thread_tools::on_the_newest::concurrent_tool_calls_get_their_own_answers",
    "real::thread_tools::on_the_newest::mail_of_a_member_chosen_by_a_repository_asks_first",
    "real::thread_tools::on_the_newest::switched_off_tools_refuse_calls",
    "real::thread_tools::on_the_newest::thread_begun_without_tools_warns_once",
    "real::thread_tools::on_the_newest::turn_is_interrupted_while_a_call_waits",
    "real::thread_tools::on_the_newest::wrong_arguments_are_reported_to_the_model",
];

/// Those of `tests` that are also run with a host process, and with one.
pub(crate) fn with_host(tests: Tool) -> Tool {
    let tests = tests.env("CODEX_MCP_TEST_HOST", "1").args(["--"]);
    tests.args(WITH_HOST)
}

/// Writes a file for nextest; returns its path from the root of the workspace.
fn written(workspace: &Workspace, name: &str, json: &str) -> anyhow::Result<String> {
    let directory = PathBuf::from("target/nextest");
    let absolute = workspace.root().join(&directory);
    fs::create_dir_all(&absolute)
        .with_context(|| format!("cannot create {}", absolute.display()))?;
    let file = format!("{name}.json");
    let path = absolute.join(&file);
    fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(directory.join(file).to_string_lossy().into_owned())
}
