//! Installs what the tests need, if it is missing.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::atm::Atm;
use crate::claude_code::ClaudeCode;
use crate::codex::Codex;
use crate::installs::{Installs, Package, ProvideOutcome};
use crate::node::Node;
use crate::node_module::NodeModule;
use crate::python::PythonLibrary;
use crate::verdaccio::Verdaccio;
use crate::workspace::Workspace;
use crate::{debian, installs, releases};

/// The releases to install, relative to the workspace.
const RELEASES: &str = "crates/testkit/codex-releases.txt";

/// The version of the TypeScript library of MCP, relative to the workspace.
const TYPESCRIPT: &str = "crates/testkit/typescript-version.txt";

/// The version of axe-core, relative to the workspace.
const AXE_CORE: &str = "crates/testkit/axe-core-version.txt";

/// The version of the conformance suite of MCP, relative to the workspace.
const CONFORMANCE: &str = "crates/testkit/conformance-version.txt";

/// The version of the inspector of MCP, relative to the workspace.
const INSPECTOR: &str = "crates/testkit/inspector-version.txt";

/// The version of Claude Code, relative to the workspace.
const CLAUDE_CODE: &str = "crates/testkit/claude-code-version.txt";

/// The version of verdaccio, relative to the workspace.
const VERDACCIO: &str = "crates/testkit/verdaccio-version.txt";

/// The version of the newer Node, relative to the workspace.
const NODE: &str = "crates/testkit/node-version.txt";

/// The versions of atm, relative to the workspace.
const ATM: &str = "crates/testkit/atm-versions.txt";

/// Installs missing system packages, then each listed Codex release into
/// `codex/VERSION` of the target directory, the TypeScript library of MCP into
/// `typescript/VERSION`, axe-core, the conformance suite and the inspector of MCP beside it, Claude Code into `claude-code/VERSION`, verdaccio into `verdaccio/VERSION`,
/// a newer Node into `node/VERSION` and each listed version of atm into `atm/VERSION`. Running it
/// again costs almost nothing.
///
/// # Errors
/// When something is missing that cannot be installed; the error says what to do.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    debian::provide()?;
    let versions = listed(workspace, RELEASES)?;
    let installs = Installs::open(workspace.target().join("codex"))?;
    for version in versions {
        provide(&installs, &Codex { version })?;
    }
    let typescript = NodeModule::typescript(only(workspace, TYPESCRIPT)?);
    provide_in(workspace, "typescript", &typescript)?;
    let axe_core = NodeModule::axe_core(only(workspace, AXE_CORE)?);
    provide_in(workspace, "axe-core", &axe_core)?;
    let conformance = NodeModule::conformance(only(workspace, CONFORMANCE)?);
    provide_in(workspace, "conformance", &conformance)?;
    let inspector = NodeModule::inspector(only(workspace, INSPECTOR)?);
    provide_in(workspace, "inspector", &inspector)?;
    let version = only(workspace, CLAUDE_CODE)?;
    provide_in(workspace, "claude-code", &ClaudeCode { version })?;
    let version = only(workspace, VERDACCIO)?;
    provide_in(workspace, "verdaccio", &Verdaccio { version })?;
    if let Some(node) = Node::for_this_machine(only(workspace, NODE)?) {
        provide_in(workspace, "node", &node)?;
    }
    provide_atm(workspace)
}

/// Installs the Python library of MCP into `python/VERSION`. It comes from PyPI, which the other tests
/// do not need.
///
/// # Errors
/// When Python is missing, or PyPI is not reached.
pub(crate) fn python(workspace: &Workspace) -> anyhow::Result<()> {
    provide_in(workspace, "python", &PythonLibrary::of(workspace)?)
}

/// All versions are built in one directory, which is removed afterwards.
fn provide_atm(workspace: &Workspace) -> anyhow::Result<()> {
    let directory = workspace.target().join("atm");
    let installs = Installs::open(directory.clone())?;
    let build = directory.join(".build");
    for version in listed(workspace, ATM)? {
        let build = build.clone();
        provide(&installs, &Atm { version, build })?;
    }
    installs::remove(&build)
}

/// The newest of the listed Codex releases, as npm's script for it.
///
/// # Errors
/// When it is not installed.
pub(crate) fn newest_codex(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let newest = listed(workspace, RELEASES)?.pop();
    let version = newest.context("no version is listed")?;
    let install = workspace.target().join("codex").join(version);
    let script = install.join("node_modules/.bin/codex");
    let resolved = script.canonicalize();
    resolved.with_context(|| format!("no {}; run cargo xtask provision", script.display()))
}

fn listed(workspace: &Workspace, list: &str) -> anyhow::Result<Vec<String>> {
    releases::parse(&read(workspace, list)?).with_context(|| list.to_owned())
}

/// A file of the workspace.
fn read(workspace: &Workspace, file: &str) -> anyhow::Result<String> {
    fs::read_to_string(workspace.root().join(file)).with_context(|| format!("cannot read {file}"))
}

/// The version in a file that has one.
fn only(workspace: &Workspace, file: &str) -> anyhow::Result<String> {
    Ok(read(workspace, file)?.trim().to_owned())
}

/// Provides a package in a directory of its own in the target directory.
fn provide_in(
    workspace: &Workspace,
    directory: &str,
    package: &impl Package,
) -> anyhow::Result<()> {
    let installs = Installs::open(workspace.target().join(directory))?;
    provide(&installs, package)
}

fn provide(installs: &Installs, package: &impl Package) -> anyhow::Result<()> {
    let word = match installs.provide(package)? {
        ProvideOutcome::Present => "present",
        ProvideOutcome::Installed => "installed",
    };
    println!("{} {}: {word}", package.name(), package.version());
    Ok(())
}
