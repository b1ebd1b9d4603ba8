//! Claude Code, which the tests drive as an MCP client.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::codex::subdirectories;
use crate::installs::Package;
use crate::npm;
use crate::tool::Tool;

/// A release. The native binary comes as an optional dependency, a package for each
/// platform, so the package's install script, which only links it, is not needed.
pub(crate) struct ClaudeCode {
    pub(crate) version: String,
}

impl Package for ClaudeCode {
    fn name(&self) -> &'static str {
        "@anthropic-ai/claude-code"
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        npm::install(self, directory)
    }

    /// Asks the native binary for its version, with a HOME of its own.
    fn check(&self, install: &Path, home: &Path) -> anyhow::Result<()> {
        let binary = native_binary(install)?;
        let program = binary.to_str().context("the path is not UTF-8")?;
        let isolated = home.to_str().context("the path is not UTF-8")?;
        let answer = Tool::new(program, ["--version"])
            .env("HOME", isolated)
            .env("DISABLE_AUTOUPDATER", "1")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .capture(home)?;
        self.check_version(program, &answer, answer.split_whitespace().next())
    }
}

/// The binary for this machine. npm reports success also when it left out the optional
/// package that has it, so its absence is an error of its own.
fn native_binary(install: &Path) -> anyhow::Result<PathBuf> {
    let scope = install.join("node_modules/@anthropic-ai");
    let packages = subdirectories(&scope)?.into_iter();
    let mut binaries = packages.map(|package| package.join("claude"));
    let found = binaries.find(|binary| binary.is_file());
    found.with_context(|| {
        format!(
            "no native binary below {}; npm may be set to leave out optional dependencies",
            scope.display()
        )
    })
}
