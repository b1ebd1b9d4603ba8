//! Other MCP servers for Codex, which `cargo xtask bench --against` measures.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use crate::installs::{Installs, Package, ProvideOutcome};
use crate::npm;
use crate::tool::Tool;
use crate::workspace::Workspace;

/// Their packages.
const LIST: &str = include_str!("../../crates/testkit/peers.txt");

/// The reason why a package is not installed, in the directory for its versions. The bench shows
/// it.
const REASON: &str = "not-installed.txt";

/// Where pip puts packages, in the directory of a version.
const PYTHON_PACKAGES: &str = "site-packages";

/// A registry of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registry {
    Npm,
    PyPi,
}

/// A package in the version that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    registry: Registry,
    name: &'static str,
    version: &'static str,
    /// A further requirement of pip's.
    with: Option<&'static str>,
}

/// Installs each listed package into `peers/NAME/VERSION` of the target directory. One that cannot
/// be installed is left out.
///
/// # Errors
/// When the list is wrong, or a directory cannot be written.
pub(crate) fn provide(workspace: &Workspace) -> anyhow::Result<()> {
    for peer in listed(LIST)? {
        let directory = workspace.target().join("peers").join(peer.name);
        let installs = Installs::open(directory.clone())?;
        let reason = directory.join(REASON);
        match installs.provide(&peer) {
            Ok(outcome) => {
                let word = match outcome {
                    ProvideOutcome::Present => "present",
                    ProvideOutcome::Installed => "installed",
                };
                println!("{} {}: {word}", peer.name, peer.version);
                fs::write(reason, "")?;
            }
            Err(error) => {
                println!("{} {}: not installed: {error:#}", peer.name, peer.version);
                fs::write(reason, error.to_string())?;
            }
        }
    }
    Ok(())
}

fn listed(list: &'static str) -> anyhow::Result<Vec<Peer>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let peers = lines.map(|line| peer(line).with_context(|| format!("peers.txt: `{line}`")));
    peers.collect()
}

fn peer(line: &'static str) -> anyhow::Result<Peer> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (registry, name, version, with) = match words[..] {
        ["npm", name, version] => (Registry::Npm, name, version, None),
        ["pypi", name, version] => (Registry::PyPi, name, version, None),
        ["pypi", name, version, with] => (Registry::PyPi, name, version, Some(with)),
        _ => bail!("not a registry, a package and a version"),
    };
    Ok(Peer {
        registry,
        name,
        version,
        with,
    })
}

impl Package for Peer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> &str {
        self.version
    }

    fn install(&self, directory: &Path) -> anyhow::Result<()> {
        match self.registry {
            Registry::Npm => npm::install(self, directory),
            Registry::PyPi => install_from_pypi(self, directory),
        }
    }

    fn check(&self, install: &Path, _home: &Path) -> anyhow::Result<()> {
        let packages = match self.registry {
            Registry::Npm => install.join("node_modules").join(self.name),
            Registry::PyPi => install.join(PYTHON_PACKAGES),
        };
        ensure!(packages.is_dir(), "{} is missing", packages.display());
        Ok(())
    }
}

/// Wheels only: to build a package would run its scripts.
fn install_from_pypi(package: &Peer, directory: &Path) -> anyhow::Result<()> {
    let wanted = format!("{}=={}", package.name, package.version);
    println!("{wanted}: installing");
    Tool::new("python3", ["-m", "pip", "install", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--no-warn-conflicts"])
        .args(["--only-binary", ":all:", "--target", PYTHON_PACKAGES])
        .args([wanted.as_str()].into_iter().chain(package.with))
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .capture(directory)
        .with_context(|| format!("cannot install {wanted}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn list_is_read() {
        assert!(!listed(LIST).unwrap().is_empty());
        let listed = listed("# why\npypi a-server 2026.6.29.1 mcp<2\n").unwrap();
        let expected = Peer {
            registry: Registry::PyPi,
            name: "a-server",
            version: "2026.6.29.1",
            with: Some("mcp<2"),
        };
        assert_eq!(listed, [expected]);
    }

    #[test]
    fn line_of_another_form_is_an_error() {
        for line in ["npm a-server", "", "cargo a-server 1.0.0"] {
            assert!(peer(line).is_err(), "{line}");
        }
    }
}
