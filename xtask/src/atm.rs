//! A release of atm, the program that the tests exchange mail with.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::installs::Package;
use crate::tool::Tool;

/// A release, built from its source.
pub(crate) struct Atm {
    pub(crate) version: String,
    /// Where it is built; what releases have in common is built once.
    pub(crate) build: PathBuf,
}

impl Package for Atm {
    fn name(&self) -> &'static str {
        "agent-team-mail"
    }

    fn version(&self) -> &str {
        &self.version
    }

    /// Not optimised: in a test, the program mostly starts, and a release build takes several
    /// times as long.
    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        let root = directory.to_str().context("the path is not UTF-8")?;
        let build = self.build.to_str().context("the path is not UTF-8")?;
        let version = &self.version;
        println!("{} {version}: installing", self.name());
        Tool::cargo(["install", self.name(), "--version", version, "--locked"])
            .args(["--root", root, "--target-dir", build])
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .capture(directory)
            .with_context(|| format!("cannot install {} {version}", self.name()))?;
        Ok(())
    }

    fn check(&self, install: &Path, home: &Path) -> anyhow::Result<()> {
        let program = install.join("bin/atm");
        let program = program.to_str().context("the path is not UTF-8")?;
        let home_of_it = home.to_str().context("the path is not UTF-8")?;
        let answer = Tool::new(program, ["--version"])
            .env("HOME", home_of_it)
            .env("ATM_HOME", home_of_it)
            .capture(home)?;
        self.check_version(program, &answer, answer.split_whitespace().last())
    }
}
