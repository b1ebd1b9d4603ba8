//! A release of the Codex CLI, as npm installs it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::installs::Package;
use crate::npm;
use crate::tool::Tool;

/// The package of npm's.
pub(crate) const PACKAGE: &str = "@openai/codex";

/// Where the native binary lies below `vendor/TRIPLE` of the platform's package:
/// `codex/` up to 0.104, `bin/` from 0.153 on at the latest.
const BINARIES: [&str; 2] = ["bin/codex", "codex/codex"];

/// A release. The native binary comes as an optional dependency, a package for
/// each platform.
pub(crate) struct Codex {
    pub(crate) version: String,
}

impl Package for Codex {
    fn name(&self) -> &'static str {
        PACKAGE
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        npm::install(self, directory)
    }

    /// Asks the native binary for its version, with a HOME of its own so that it
    /// neither reads nor writes the user's.
    fn check(&self, install: &Path, home: &Path) -> anyhow::Result<()> {
        let binary = native_binary(install)?;
        let program = binary.to_str().context("the path is not UTF-8")?;
        let isolated = home.to_str().context("the path is not UTF-8")?;
        let answer = Tool::new(program, ["--version"])
            .env("HOME", isolated)
            .env("CODEX_HOME", isolated)
            .capture(home)?;
        self.check_version(program, &answer, answer.split_whitespace().last())
    }
}

/// The binary for this machine's processor. npm reports success also when it left
/// out the optional package that has it, so its absence is an error of its own.
fn native_binary(install: &Path) -> anyhow::Result<PathBuf> {
    let scope = install.join("node_modules/@openai");
    for package in subdirectories(&scope)? {
        let vendor = package.join("vendor");
        if !vendor.is_dir() {
            continue;
        }
        for triple in subdirectories(&vendor)? {
            let ours = triple
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(std::env::consts::ARCH));
            let found = BINARIES.map(|path| triple.join(path));
            if let Some(binary) = found.into_iter().find(|path| ours && path.is_file()) {
                return Ok(binary);
            }
        }
    }
    bail!(
        "no native binary for {} below {}; npm may be set to leave out optional dependencies",
        std::env::consts::ARCH,
        scope.display()
    )
}

/// The directories in a directory, sorted.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn subdirectories(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut directories = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            directories.push(path);
        }
    }
    directories.sort();
    Ok(directories)
}
