//! The location of the project on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The directories that every chore starts from, as absolute paths.
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// Finds the workspace that xtask belongs to, whatever the current directory is.
    ///
    /// # Errors
    /// When xtask's own directory has no parent or the current directory is gone.
    pub(crate) fn find() -> anyhow::Result<Self> {
        // `cargo run` sets the variable. The fallback serves a binary started by hand.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .context("xtask's directory has no parent")?
            .to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(directory) if !directory.is_empty() => std::path::absolute(directory)?,
            _ => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// The directory of the workspace's `Cargo.toml`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target directory, `CARGO_TARGET_DIR` respected.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }
}

/// Turns what a check found into its result: nothing is success, anything else an
/// error with one line for each finding.
///
/// # Errors
/// When there are findings.
pub(crate) fn verdict(check: &str, findings: &[String]) -> anyhow::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{check}:\n  {}", findings.join("\n  "))
}
