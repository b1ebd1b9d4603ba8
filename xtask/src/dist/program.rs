//! The program that is packaged: a release build, or one that is given.

use std::path::{Path, PathBuf};

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
    let build = cargo(&["--release", "--target", &triple]);
    note_changes(workspace)?;
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

/// Says so if the program has more or less in it than the commit that it names.
fn note_changes(workspace: &Workspace) -> anyhow::Result<()> {
    let changes = Tool::new("git", ["status", "--porcelain", "--untracked-files=no"])
        .capture(workspace.root())?;
    if !changes.is_empty() {
        println!("Note: files differ from the commit that `--version` will name.");
    }
    Ok(())
}
