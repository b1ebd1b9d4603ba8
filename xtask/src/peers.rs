//! The clients and the test programs of others: those that CI runs, and the Python library, which
//! CI does not install.

use anyhow::ensure;

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
        &[
            "real::web::conformance::",
            "real::web::approval_card::",
            "real::stdio_conformance::",
        ],
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
/// When a peer cannot be installed, a test fails, or a module of a peer has no test.
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
fn passed(workspace: &Workspace, modules: &[&str]) -> anyhow::Result<usize> {
    let test = ["test", "--package", "codex-mcp", "--test", "it", "--"];
    let test = Tool::cargo(test).args(["--include-ignored"]);
    let output = test
        .args(modules.iter().copied())
        .capture(workspace.root())?;
    let mut passed = 0;
    for module in modules {
        let tests = count(&output, module);
        ensure!(tests > 0, "no test is in {module}");
        passed += tests;
    }
    Ok(passed)
}

/// The number of passed tests of a module, in the output of a test program.
fn count(output: &str, module: &str) -> usize {
    let tests = output.lines().filter_map(|line| line.strip_prefix("test "));
    let passed = tests.filter(|test| test.starts_with(module) && test.ends_with(" ... ok"));
    passed.count()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn passed_tests_are_counted_by_module() {
        let output = "running 4 tests\ntest a::one ... ok\ntest a::b::two ... ok\n\
            test a::three ... ignored\ntest c::four ... ok\n\n\
            test result: ok. 3 passed; 0 failed; 1 ignored\n\n";
        assert_eq!(count(output, "a::"), 2);
        assert_eq!(count(output, "c::"), 1);
        assert_eq!(count(output, "d::"), 0);
    }

    #[test]
    fn each_module_of_a_peer_is_there() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/codex-mcp/tests/it");
        for module in PEERS.iter().flat_map(|(_, modules)| *modules) {
            let path = module.trim_end_matches("::").replace("::", "/");
            let file = tests.join(format!("{path}.rs"));
            let is_there = file.is_file() || tests.join(path).join("mod.rs").is_file();
            assert!(is_there, "{module}");
        }
    }
}
