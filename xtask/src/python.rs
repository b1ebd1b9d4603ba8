//! The official Python library of MCP, which many clients are built on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::debian::on_path;
use crate::installs::Package;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// The library with all that it needs, relative to the workspace.
const REQUIREMENTS: &str = "crates/testkit/python-requirements.txt";

/// The library's name on PyPI.
const NAME: &str = "mcp";

/// The library, in an environment of its own.
pub(crate) struct PythonLibrary {
    version: String,
    /// The file with its packages.
    file: PathBuf,
    /// These packages, as `pip freeze` prints them.
    packages: BTreeSet<String>,
}

impl PythonLibrary {
    /// The version that the tests use.
    ///
    /// # Errors
    /// When the file of the workspace cannot be read, or does not name the library.
    pub(crate) fn of(workspace: &Workspace) -> anyhow::Result<Self> {
        let file = workspace.root().join(REQUIREMENTS);
        let text = fs::read_to_string(&file).context(REQUIREMENTS)?;
        let (version, packages) = parse(&text).context(REQUIREMENTS)?;
        Ok(Self {
            version,
            file,
            packages,
        })
    }
}

/// The library's version, and all packages.
fn parse(text: &str) -> anyhow::Result<(String, BTreeSet<String>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let packages: BTreeSet<String> = lines.map(str::to_owned).collect();
    let pinned = packages.iter().filter_map(|line| line.split_once("=="));
    let mut pinned = pinned.filter(|(name, _)| *name == NAME);
    let (_, version) = pinned.next().context("it does not name the library")?;
    Ok((version.to_owned(), packages))
}

impl Package for PythonLibrary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn version(&self) -> &str {
        &self.version
    }

    /// Without their dependencies, the packages are exactly those that are listed.
    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        ensure!(
            on_path("python3"),
            "`python3` is missing. Install Python 3.10 or newer with its module `venv` (on Debian, the package python3-venv)."
        );
        let environment = path(directory)?;
        let file = path(&self.file)?;
        println!("{NAME} {}: installing", self.version);
        Tool::new("python3", ["-m", "venv", environment]).capture(directory)?;
        Tool::new(&python(directory)?, ["-m", "pip", "install"])
            .args(["--no-deps", "--only-binary", ":all:", "--requirement", file])
            .args(["--no-input", "--disable-pip-version-check", "--quiet"])
            .capture(directory)
            .context("cannot install the Python library of MCP from PyPI")?;
        Ok(())
    }

    fn check(&self, install: &Path, home: &Path) -> anyhow::Result<()> {
        let python = python(install)?;
        let freeze = ["-m", "pip", "freeze", "--disable-pip-version-check"];
        let installed = Tool::new(&python, freeze).capture(home)?;
        let installed: BTreeSet<String> = installed.lines().map(str::to_owned).collect();
        ensure!(
            installed == self.packages,
            "the packages are not those of {REQUIREMENTS}"
        );
        Tool::new(&python, ["-c", "import mcp"]).capture(home)?;
        Ok(())
    }
}

fn python(environment: &Path) -> anyhow::Result<String> {
    Ok(path(&environment.join("bin/python"))?.to_owned())
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the path is not UTF-8")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn own_list_names_the_library_and_pins_all() {
        let text = include_str!("../../crates/testkit/python-requirements.txt");
        let (_, packages) = parse(text).unwrap();
        assert!(packages.len() > 1);
        assert!(packages.iter().all(|line| line.contains("==")));
    }

    #[test]
    fn list_without_the_library_is_refused() {
        assert!(parse("# mcp==1.0.0\nmcp-types==2.3.0\n").is_err());
    }
}
