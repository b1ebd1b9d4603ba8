//! Installs whatever the tests need and is not here yet.

use std::fs;

use anyhow::Context;

use crate::npm::{Installs, Provided};
use crate::workspace::Workspace;
use crate::{debian, releases};

/// The releases to install, relative to the workspace.
const RELEASES: &str = "crates/testkit/codex-releases.txt";

/// Installs missing system packages, then each listed Codex release into
/// `codex/VERSION` of the target folder. Running it again costs almost nothing.
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
        let word = match installs.provide(&version)? {
            Provided::Present => "present",
            Provided::Installed => "installed",
        };
        println!("codex {version}: {word}");
    }
    Ok(())
}
