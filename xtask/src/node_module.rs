//! Packages of npm that the tests load as they are.

use std::path::Path;

use anyhow::ensure;

use crate::installs::Package;
use crate::npm;

/// A package, and a file of it that the tests load.
pub(crate) struct NodeModule {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    pub(crate) version: String,
}

impl NodeModule {
    /// The official TypeScript library of MCP: many clients are built on it, and it checks what a
    /// server sends.
    pub(crate) fn typescript(version: String) -> Self {
        Self {
            name: "@modelcontextprotocol/sdk",
            file: "dist/esm/client/stdio.js",
            version,
        }
    }

    /// Checks whether everybody can use a page.
    pub(crate) fn axe_core(version: String) -> Self {
        Self {
            name: "axe-core",
            file: "axe.min.js",
            version,
        }
    }

    /// The conformance suite of MCP.
    pub(crate) fn conformance(version: String) -> Self {
        Self {
            name: "@modelcontextprotocol/conformance",
            file: "package.json",
            version,
        }
    }

    /// The inspector of MCP, a client for those who write servers.
    pub(crate) fn inspector(version: String) -> Self {
        Self {
            name: "@modelcontextprotocol/inspector",
            file: "package.json",
            version,
        }
    }
}

impl Package for NodeModule {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        npm::install(self, directory)
    }

    fn check(&self, install: &Path, _home: &Path) -> anyhow::Result<()> {
        let file = install.join("node_modules").join(self.name).join(self.file);
        ensure!(file.is_file(), "{} is missing", file.display());
        Ok(())
    }
}
