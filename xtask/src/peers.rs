//! The clients and the test programs of others: those that CI runs, and the Python library, which
//! CI does not install.

use anyhow::{Context, ensure};

use crate::provision;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// The peers, and where their tests are.
const PEERS: &[(&str, &[&str])] = &[
    (
        "MCP Python library",
        &["real::python::", "real::web::python::"],
    ),
    (
        "MCP conformance suite and inspector",
        &["real::web::conformance::", "real::stdio_conformance::"],
    ),
    ("MCP TypeScript and Rust libraries", &["real::library::"]),
    (
        "Codex as the client",
        &["real::codex_client::", "real::setup::"],
    ),
    ("Claude Code", &["real::claude_code::"]),
    (
        "atm",
        &["mail::interop::", "mail::locks::", "mail::concurrency::"],
    ),
];

/// Provides the peers, and runs their tests, one peer after the other.
///
/// # Errors
/// When a peer cannot be installed, a test fails, or a peer has no test.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    provision::run(workspace)?;
    provision::python(workspace)?;
    let mut failed = Vec::new();
    for (peer, modules) in PEERS {
        match passed(workspace, modules) {
            Ok(passed) => println!("{peer}: {passed} tests passed"),
            Err(error) => {
                println!("{peer}: failed\n{error:#}");
                failed.push(*peer);
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Runs the tests of these modules, and returns how many have passed.
fn passed(workspace: &Workspace, modules: &[&str]) -> anyhow::Result<u32> {
    let test = ["test", "--package", "codex-mcp", "--test", "it", "--"];
    let test = Tool::cargo(test).args(["--include-ignored"]);
    let output = test
        .args(modules.iter().copied())
        .capture(workspace.root())?;
    let passed = count(&output).context("the tests have no result")?;
    ensure!(passed > 0, "no test is in {}", modules.join(", "));
    Ok(passed)
}

/// The number of passed tests, in the output of a test program.
fn count(output: &str) -> Option<u32> {
    let mut lines = output.lines().rev();
    let result = lines.find_map(|line| line.strip_prefix("test result: ok. "))?;
    result.split_once(" passed")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_counted() {
        let output = "running 2 tests\n\ntest result: ok. 2 passed; 0 failed; 1 ignored\n\n";
        assert_eq!(count(output), Some(2));
        assert_eq!(count("test result: FAILED. 1 passed; 1 failed"), None);
    }
}
