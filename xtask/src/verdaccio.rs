//! Verdaccio, a registry for npm packages. The tests publish our own packages in it.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::installs::Package;
use crate::npm;
use crate::tool::Tool;

/// A dependency asks for the release that the public registry tags with `cjs`. Mirrors do not have
/// all tags.
const MANIFEST: &str = r#"{ "private": true, "overrides": { "node-fetch": "2.6.7" } }"#;

/// Its program, for Node.
const PROGRAM: &str = "node_modules/verdaccio/bin/verdaccio";

pub(crate) struct Verdaccio {
    pub(crate) version: String,
}

impl Package for Verdaccio {
    fn name(&self) -> &'static str {
        "verdaccio"
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        fs::write(directory.join("package.json"), MANIFEST)?;
        npm::install(self, directory)
    }

    fn check(&self, install: &Path, home: &Path) -> anyhow::Result<()> {
        let program = install.join(PROGRAM);
        let program = program.to_str().context("the path is not UTF-8")?;
        let answer = Tool::new("node", [program, "--version"]).capture(home)?;
        let found = answer.trim().trim_start_matches('v');
        self.check_version(program, &answer, Some(found))
    }
}
