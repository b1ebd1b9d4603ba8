//! The platforms that releases are built for.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};

use crate::tool::Tool;

/// An operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Os {
    Linux,
    MacOs,
}

/// A kind of processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Arch {
    X86_64,
    Aarch64,
}

/// The C library that the program is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Libc {
    /// The one of the system, which has to be there.
    System,
    /// musl, linked into the program.
    Musl,
}

/// A platform, shown as its target triple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    os: Os,
    arch: Arch,
    libc: Libc,
}

/// What a release has to have: one archive for each of these.
pub(crate) const RELEASED: [Target; 4] = [
    Target::new(Os::Linux, Arch::X86_64, Libc::Musl),
    Target::new(Os::Linux, Arch::Aarch64, Libc::Musl),
    Target::new(Os::MacOs, Arch::X86_64, Libc::System),
    Target::new(Os::MacOs, Arch::Aarch64, Libc::System),
];

impl Target {
    const fn new(os: Os, arch: Arch, libc: Libc) -> Self {
        Self { os, arch, libc }
    }

    /// The platform that cargo builds for by default here.
    ///
    /// # Errors
    /// When rustc cannot be asked, or the platform is none that we build for.
    pub(crate) fn this_machine() -> anyhow::Result<Self> {
        let about = Tool::new("rustc", ["--version", "--verbose"]).capture(Path::new("."))?;
        let mut lines = about.lines();
        let host = lines.find_map(|line| line.strip_prefix("host: "));
        host.context("rustc does not name its host")?.parse()
    }

    pub(crate) fn os(self) -> Os {
        self.os
    }

    pub(crate) fn arch(self) -> Arch {
        self.arch
    }

    /// Whether the program needs no library of the system.
    pub(crate) fn is_static(self) -> bool {
        self.libc == Libc::Musl
    }

    /// Whether programs for `self` run on a machine of `other`.
    pub(crate) fn runs_on(self, other: Self) -> bool {
        (self.os, self.arch) == (other.os, other.arch)
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(triple: &str) -> anyhow::Result<Self> {
        let (arch, system) = triple.split_once('-').unwrap_or((triple, ""));
        let arch = match arch {
            "x86_64" => Arch::X86_64,
            "aarch64" => Arch::Aarch64,
            _ => bail!("{triple}: no packages are made for this processor"),
        };
        let (os, libc) = match system {
            "unknown-linux-gnu" => (Os::Linux, Libc::System),
            "unknown-linux-musl" => (Os::Linux, Libc::Musl),
            "apple-darwin" => (Os::MacOs, Libc::System),
            _ => bail!("{triple}: no packages are made for this system"),
        };
        Ok(Self { os, arch, libc })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arch = match self.arch {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        };
        let system = match (self.os, self.libc) {
            (Os::Linux, Libc::System) => "unknown-linux-gnu",
            (Os::Linux, Libc::Musl) => "unknown-linux-musl",
            (Os::MacOs, _) => "apple-darwin",
        };
        write!(f, "{arch}-{system}")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "test code")]

    use super::*;

    #[test]
    fn target_triples_round_trip() {
        for target in RELEASED {
            assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
        }
        let gnu: Target = "x86_64-unknown-linux-gnu".parse().unwrap();
        assert_eq!(gnu.to_string(), "x86_64-unknown-linux-gnu");
        assert!(!gnu.is_static());
    }

    #[test]
    fn other_platforms_are_refused() {
        for triple in ["x86_64-pc-windows-msvc", "riscv64gc-unknown-linux-gnu", ""] {
            let error = triple.parse::<Target>().unwrap_err().to_string();
            assert!(error.starts_with(triple), "{error}");
        }
    }
}
