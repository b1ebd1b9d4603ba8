//! Installs whatever the tests need and is not here yet.

use std::fs;

use anyhow::Context;

use crate::codex::Codex;
use crate::npm::{Installs, Package, Provided};
use crate::typescript::TypeScript;
use crate::workspace::Workspace;
use crate::{debian, releases};

/// The releases to install, relative to the workspace.
const RELEASES: &str = "crates/testkit/codex-releases.txt";

/// The version of the TypeScript library of MCP, relative to the workspace.
const TYPESCRIPT: &str = "crates/testkit/typescript-version.txt";

/// Installs missing system packages, then each listed Codex release into
/// `codex/VERSION` of the target folder and the TypeScript library of MCP into
/// `typescript/VERSION`. Running it again costs almost nothing.
///
/// # Errors
/// When something is missing that cannot be installed; the error says what to do.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    debian::provide()?;
    let list = workspace.root().join(RELEASES);
    let text = fs::read_to_string(&list).with_context(|| format!("cannot read {RELEASES}"))?;
    let versions = releases::parse(&text).with_context(|| RELEASES.to_owned())?;
    let installs = Installs::open(workspace.target().join("codex"))?;
    for version in versions {
        provide(&installs, &Codex { version })?;
    }
    let file = workspace.root().join(TYPESCRIPT);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {TYPESCRIPT}"))?;
    let version = text.trim().to_owned();
    let installs = Installs::open(workspace.target().join("typescript"))?;
    provide(&installs, &TypeScript { version })
}

fn provide(installs: &Installs, package: &impl Package) -> anyhow::Result<()> {
    let word = match installs.provide(package)? {
        Provided::Present => "present",
        Provided::Installed => "installed",
    };
    println!("{} {}: {word}", package.name(), package.version());
    Ok(())
}
