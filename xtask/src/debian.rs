//! The programs of the system that the tests call, and their Debian packages.

use std::path::Path;

use anyhow::{Context, bail};

use crate::tool::Tool;

/// A package is there if its program is on `PATH`, however it got there.
struct Package {
    name: &'static str,
    program: &'static str,
}

/// `ps` of procps shows the tests which processes are left over.
const PACKAGES: &[Package] = &[
    Package {
        name: "git",
        program: "git",
    },
    Package {
        name: "procps",
        program: "ps",
    },
];

/// Installs what is missing where it can: as root on a Debian-like system.
///
/// # Errors
/// When something is missing that cannot be installed from here; the error names it
/// and the command that installs it.
pub(crate) fn provide() -> anyhow::Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|package| !on_path(package.program))
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !on_path("apt-get") {
        bail!("missing: {names}. Install them with the package manager of this system.");
    }
    if !is_root() {
        bail!("missing: {names}. Install them with: sudo apt-get install --yes {names}");
    }
    println!("installing Debian packages: {names}");
    let update = apt_get(["update", "--quiet"]);
    let install = apt_get(["install", "--yes", "--quiet", "--no-install-recommends"]).args(missing);
    for step in [update, install] {
        step.capture(Path::new("/"))
            .with_context(|| format!("cannot install {names}"))?;
    }
    Ok(())
}

/// Whether a program of this name is in a folder of `PATH`.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn apt_get<const N: usize>(args: [&str; N]) -> Tool {
    Tool::new("apt-get", args).env("DEBIAN_FRONTEND", "noninteractive")
}

fn is_root() -> bool {
    Tool::new("id", ["-u"])
        .capture(Path::new("/"))
        .is_ok_and(|id| id.trim() == "0")
}
