//! The programs of the system that the tests call, and their Debian packages.

use std::path::Path;

use anyhow::{Context, bail};

use crate::tool::Tool;

/// A package is there if its program is, however it got there.
struct Package {
    name: &'static str,
    program: Program,
}

/// Where a program is looked for.
enum Program {
    /// In the directories of `PATH`.
    OnPath(&'static str),
    /// In the directory of servers, which only root has on `PATH`.
    Server(&'static str),
    /// Below `/usr/lib/postgresql`, where each version has a directory.
    Postgres(&'static str),
}

impl Program {
    fn is_there(&self) -> bool {
        match self {
            Self::OnPath(name) => on_path(name),
            Self::Server(name) => on_path(name) || Path::new("/usr/sbin").join(name).is_file(),
            Self::Postgres(name) => {
                let versions = std::fs::read_dir("/usr/lib/postgresql");
                let mut versions = versions.into_iter().flatten().flatten();
                versions.any(|version| version.path().join("bin").join(name).is_file())
            }
        }
    }
}

/// `ps` of procps shows the tests which processes are left over. The servers that
/// PostgreSQL, pgbouncer and ngircd start by themselves are of no use to them: they start theirs. The packages
/// of a release are stripped, installed and downloaded by the tools of their users, whose shells and
/// `man` read our completions and pages. Chromium shows our page.
const PACKAGES: &[Package] = &[
    Package {
        name: "git",
        program: Program::OnPath("git"),
    },
    Package {
        name: "procps",
        program: Program::OnPath("ps"),
    },
    Package {
        name: "postgresql",
        program: Program::Postgres("initdb"),
    },
    Package {
        name: "pgbouncer",
        program: Program::Server("pgbouncer"),
    },
    Package {
        name: "openssl",
        program: Program::OnPath("openssl"),
    },
    Package {
        name: "tmux",
        program: Program::OnPath("tmux"),
    },
    Package {
        name: "ngircd",
        program: Program::Server("ngircd"),
    },
    Package {
        name: "binutils",
        program: Program::OnPath("strip"),
    },
    Package {
        name: "curl",
        program: Program::OnPath("curl"),
    },
    Package {
        name: "dpkg",
        program: Program::OnPath("dpkg-deb"),
    },
    Package {
        name: "wget",
        program: Program::OnPath("wget"),
    },
    Package {
        name: "chromium",
        program: Program::OnPath("chromium"),
    },
    Package {
        name: "chromium-driver",
        program: Program::OnPath("chromedriver"),
    },
    Package {
        name: "fish",
        program: Program::OnPath("fish"),
    },
    Package {
        name: "man-db",
        program: Program::OnPath("mandb"),
    },
    Package {
        name: "zsh",
        program: Program::OnPath("zsh"),
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
        .filter(|package| !package.program.is_there())
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

/// Whether a program of this name is in a directory of `PATH`.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn apt_get<const N: usize>(args: [&str; N]) -> Tool {
    Tool::new("apt-get", args).env("DEBIAN_FRONTEND", "noninteractive")
}

fn is_root() -> bool {
    Tool::new("id", ["-u"])
        .capture(Path::new("/"))
        .is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_where_they_are_installed_by_hand() {
        let texts = [
            include_str!("../../.github/workflows/ci.yml"),
            include_str!("../../CONTRIBUTING.md"),
        ];
        for package in PACKAGES {
            for text in texts {
                let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                assert!(words.any(|word| word == package.name), "{}", package.name);
            }
        }
    }
}
