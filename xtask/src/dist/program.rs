//! The program that is packaged, a release build or one that is given, and what goes with it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::licences;
use super::pages::Pages;
use super::release::{NAME, Release};
use super::target::Target;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// What the packages of a platform are made of.
pub(super) struct Contents {
    pub(super) target: Target,
    /// The executable.
    pub(super) program: Vec<u8>,
    pub(super) pages: Pages,
    /// The licences of the crates that are linked into it.
    pub(super) third_party: String,
}

impl Contents {
    /// Builds the program unless `path` is one, has it print its pages, and collects the licences.
    ///
    /// # Errors
    /// When one of these fails.
    pub(super) fn collect(
        workspace: &Workspace,
        release: &Release,
        target: Target,
        path: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let path = match path {
            Some(path) => std::path::absolute(path)?,
            None => build(workspace, target)?,
        };
        let program = fs::read(&path);
        Ok(Self {
            target,
            program: program.with_context(|| format!("cannot read {}", path.display()))?,
            pages: Pages::print(&printer(workspace, target, &path)?)?,
            third_party: licences::collect(workspace, release, target)?,
        })
    }
}

/// Builds the release for a platform, and returns where it is.
///
/// # Errors
/// When cargo or git fails.
fn build(workspace: &Workspace, target: Target) -> anyhow::Result<PathBuf> {
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
fn printer(workspace: &Workspace, target: Target, program: &Path) -> anyhow::Result<PathBuf> {
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
