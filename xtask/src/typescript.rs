//! The official TypeScript library of MCP, which clients are tested with: many are
//! built on it, and it checks what a server sends.

use std::path::Path;

use anyhow::ensure;

use crate::installs::Package;
use crate::npm;

/// A module of it that the tests load.
const MODULE: &str = "node_modules/@modelcontextprotocol/sdk/dist/esm/client/stdio.js";

pub(crate) struct TypeScript {
    pub(crate) version: String,
}

impl Package for TypeScript {
    fn name(&self) -> &'static str {
        "@modelcontextprotocol/sdk"
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        npm::install(self, directory)
    }

    fn check(&self, install: &Path, _home: &Path) -> anyhow::Result<()> {
        ensure!(install.join(MODULE).is_file(), "{MODULE} is missing");
        Ok(())
    }
}
