//! The program that is packaged: a release build, or one that is given.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::release::NAME;
use super::target::Target;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// Builds the release for a platform, and returns where it is.
///
/// # Errors
/// When cargo or git fails.
pub(super) fn build(workspace: &Workspace, target: Target) -> anyhow::Result<PathBuf> {
    let triple = target.to_string();
    let build = cargo(&["--release", "--target", &triple])
        .env("CODEX_MCP_CHANNEL", "release")
        .env("CODEX_MCP_COMMIT", commit(workspace)?);
    println!("{build}");
    build.run(workspace.root())?;
    Ok(workspace.target().join(triple).join("release").join(NAME))
}

/// A program that can run here and prints the pages of the one that is packaged: that one itself
/// unless it is for another kind of machine, else a debug build.
///
/// # Errors
/// When cargo fails.
pub(super) fn printer(
    workspace: &Workspace,
    target: Target,
    program: &Path,
) -> anyhow::Result<PathBuf> {
    if target.runs_on(Target::this_machine()?) {
        return Ok(program.to_owned());
    }
    let build = cargo(&[]);
    println!("{build}");
    build.run(workspace.root())?;
    Ok(workspace.target().join("debug").join(NAME))
}

fn cargo(options: &[&str]) -> Tool {
    Tool::cargo(["build", "--locked", "--package", NAME, "--bin", NAME])
        .args(options.iter().copied())
}

/// The commit of the working tree; with a plus sign if files differ from it.
fn commit(workspace: &Workspace) -> anyhow::Result<String> {
    let git = |args: &[&str]| {
        let git = Tool::new("git", args.iter().copied());
        git.capture(workspace.root())
            .context("the commit is not known")
    };
    let id = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let mark = if changes.is_empty() { "" } else { "+" };
    Ok(format!("{}{mark}", id.trim()))
}
