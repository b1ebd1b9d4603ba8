//! How a copy of the program was installed, by the path of its executable.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use codex_config::logic::codex_servers::OWN_PACKAGE;
use strum::{IntoStaticStr, VariantArray};

/// The way by which a copy of the program has come onto a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Channel {
    /// `npm install`, in a `node_modules` directory.
    Npm,
    /// `npx`, or another program that runs a package from a cache: `bunx`, `pnpm dlx`, `yarn dlx`.
    Npx,
    /// Homebrew, in its Cellar.
    Homebrew,
    /// A Debian package.
    Debian,
    /// `cargo install`.
    Cargo,
    /// The installer's script, or an archive unpacked where the script would have.
    Installer,
    /// Built in a checkout.
    Checkout,
    /// An image of a container.
    Container,
    /// Another way.
    Unknown,
}

/// The directory of the program in our container image. A copy elsewhere in a container was put
/// there by hand.
const IN_IMAGE: &str = "/usr/local/bin";

/// The facts that decide in addition to the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InstallFacts {
    /// The user's home.
    pub(crate) home: Option<PathBuf>,
    /// The directory of `cargo install`, which has `bin` in it.
    pub(crate) cargo_home: Option<PathBuf>,
    /// Whether the package manager dpkg lists the executable.
    pub(crate) is_listed_by_dpkg: bool,
    /// Whether the executable lies in a target directory of cargo.
    pub(crate) is_in_cargo_target: bool,
    /// Whether the process runs in a container.
    pub(crate) is_in_container: bool,
}

impl Channel {
    /// The channel of the executable at `program`, a path without links. If only one channel uses
    /// that place, the place decides: a container can contain copies from every channel.
    pub(crate) fn of(program: &Path, facts: &InstallFacts) -> Self {
        let has = |name: &str| program.components().any(|part| part.as_os_str() == name);
        let is_in = |directory: Option<&PathBuf>, below: &str| {
            let directory = directory.map(|directory| directory.join(below));
            directory.is_some_and(|directory| program.parent() == Some(&directory))
        };
        if facts.is_in_cargo_target {
            Self::Checkout
        } else if program.iter().any(is_cache) && has("node_modules") {
            Self::Npx
        } else if has("node_modules") {
            Self::Npm
        } else if has("Cellar") {
            // Source: https://docs.brew.sh/Formula-Cookbook#homebrew-terminology
            Self::Homebrew
        } else if is_in(facts.cargo_home.as_ref(), "bin") {
            Self::Cargo
        } else if facts.is_listed_by_dpkg {
            Self::Debian
        } else if is_in(facts.home.as_ref(), ".local/bin") {
            Self::Installer
        } else if facts.is_in_container && program.parent() == Some(Path::new(IN_IMAGE)) {
            Self::Container
        } else {
            Self::Unknown
        }
    }

    /// The name, for programs and in `--version`.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// The way to update this copy: a command, or an explanation if there is no single command. The
    /// address of the `repository` is empty if it is not known.
    pub(crate) fn update(self, repository: &str) -> String {
        let words = match self {
            Self::Npm => return format!("`npm install -g {OWN_PACKAGE}@latest`"),
            Self::Npx => return format!("`npx -y {OWN_PACKAGE}@latest`"),
            Self::Installer if !repository.is_empty() => {
                return format!(
                    "`curl -fsSL {repository}/releases/latest/download/install.sh | sh`"
                );
            }
            Self::Homebrew => "`brew upgrade codex-mcp`",
            Self::Debian => "download the new package, then `sudo apt install ./codex-mcp_*.deb`",
            Self::Cargo => {
                "`cargo install` or `cargo binstall` with the words that installed it, and `--force`"
            }
            Self::Installer => "run the installer of the new release",
            Self::Checkout => "`git pull`, then build it again",
            Self::Container => "build the image anew with the Containerfile of the new release",
            Self::Unknown => "install the new release as you installed this one",
        };
        words.to_owned()
    }
}

/// Whether a directory of this name has packages that are run without being installed: `_npx` of
/// npm, `bunx-1000-PACKAGE` and `.bunx-1000` of Bun, `dlx` and `dlx-PID` of pnpm and Yarn.
///
/// Sources: <https://docs.npmjs.com/cli/v11/commands/npm-exec>,
/// <https://github.com/oven-sh/bun/pull/31447>, <https://github.com/pnpm/pnpm.io/pull/580>,
/// <https://github.com/yarnpkg/berry/issues/3187>
fn is_cache(directory: &OsStr) -> bool {
    let name = directory.to_string_lossy();
    let begins = |start: &&str| name.starts_with(*start);
    matches!(&*name, "_npx" | "dlx") || ["bunx-", ".bunx-", "dlx-"].iter().any(begins)
}

/// The path of a program that pnpm has installed which stays when an update moves the program to a
/// directory with another version in its name; `None` if pnpm has not installed it. The path may
/// lead to nothing.
///
/// Source: `hoist` in <https://pnpm.io/settings/node-modules>
pub(crate) fn pnpm_link(program: &Path) -> Option<PathBuf> {
    let store = program.ancestors().find(|path| path.ends_with(".pnpm"))?;
    let versioned = program.strip_prefix(store).ok()?;
    let inside: PathBuf = versioned.iter().skip(1).collect();
    Some(store.join(inside))
}

/// The directories in which cargo may have its mark above an executable: `TARGET/PROFILE/` and
/// `TARGET/TRIPLE/PROFILE/`, and in both also `deps`.
pub(super) fn possible_targets(program: &Path) -> impl Iterator<Item = &Path> {
    program.ancestors().skip(2).take(3)
}

/// The path of a running program, without the word that Linux adds if the program's file was
/// replaced.
///
/// Source: `/proc/pid/exe` in proc_pid_exe(5).
pub(super) fn without_deletion_mark(program: PathBuf) -> PathBuf {
    const MARK: &str = " (deleted)";
    let name = program.file_name().and_then(OsStr::to_str);
    match name.and_then(|name| name.strip_suffix(MARK)) {
        Some(name) => program.with_file_name(name),
        None => program,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::VariantArray as _;

    use super::*;

    fn facts() -> InstallFacts {
        InstallFacts {
            home: Some("/home/you".into()),
            cargo_home: Some("/home/you/.cargo".into()),
            ..InstallFacts::default()
        }
    }

    fn of(program: &str, facts: &InstallFacts) -> Channel {
        Channel::of(Path::new(program), facts)
    }

    #[test]
    fn path_decides_the_channel() {
        for (program, channel) in [
            (
                "/usr/lib/node_modules/codex-mcp/node_modules/codex-mcp-linux-x64/bin/codex-mcp",
                Channel::Npm,
            ),
            (
                "/home/you/.npm/_npx/3f1b/node_modules/codex-mcp-linux-x64/bin/codex-mcp",
                Channel::Npx,
            ),
            (
                "/tmp/bunx-1000-codex-mcp@latest/node_modules/codex-mcp-linux-x64/bin/codex-mcp",
                Channel::Npx,
            ),
            (
                "/home/you/.bun/install/cache/.bunx-1000/codex-mcp@latest/node_modules/\
                 codex-mcp-linux-x64/bin/codex-mcp",
                Channel::Npx,
            ),
            (
                "/home/you/.cache/pnpm/dlx/3f1b/19a/node_modules/.pnpm/codex-mcp-linux-x64@0.1.0/\
                 node_modules/codex-mcp-linux-x64/bin/codex-mcp",
                Channel::Npx,
            ),
            (
                "/tmp/xfs-3f1b/dlx-7/node_modules/codex-mcp-linux-x64/bin/codex-mcp",
                Channel::Npx,
            ),
            (
                "/home/you/.local/share/pnpm/global/5/.pnpm/codex-mcp-linux-x64@0.1.0/\
                 node_modules/codex-mcp-linux-x64/bin/codex-mcp",
                Channel::Npm,
            ),
            (
                "/opt/homebrew/Cellar/codex-mcp/0.1.0/bin/codex-mcp",
                Channel::Homebrew,
            ),
            (
                "/home/linuxbrew/.linuxbrew/Cellar/codex-mcp/0.1.0/bin/codex-mcp",
                Channel::Homebrew,
            ),
            ("/home/you/.cargo/bin/codex-mcp", Channel::Cargo),
            ("/home/you/.local/bin/codex-mcp", Channel::Installer),
            ("/home/other/.local/bin/codex-mcp", Channel::Unknown),
            ("/home/you/.cargo/bin/deeper/codex-mcp", Channel::Unknown),
            ("/usr/bin/codex-mcp", Channel::Unknown),
            ("/usr/local/bin/codex-mcp", Channel::Unknown),
        ] {
            assert_eq!(of(program, &facts()), channel, "{program}");
        }
    }

    #[test]
    fn facts_decide_where_the_path_does_not() {
        let packaged = InstallFacts {
            is_listed_by_dpkg: true,
            ..facts()
        };
        let contained = InstallFacts {
            is_in_container: true,
            ..facts()
        };
        let built = InstallFacts {
            is_in_cargo_target: true,
            is_in_container: true,
            ..facts()
        };
        let program = "/usr/bin/codex-mcp";
        assert_eq!(of(program, &packaged), Channel::Debian);
        assert_eq!(of(program, &contained), Channel::Unknown);
        let program = "/usr/local/bin/codex-mcp";
        assert_eq!(of(program, &contained), Channel::Container);
        // In a container, too, a place that only one channel uses decides.
        let npm = "/usr/lib/node_modules/codex-mcp-linux-x64/bin/codex-mcp";
        assert_eq!(of(npm, &contained), Channel::Npm);
        let home = "/home/you/.local/bin/codex-mcp";
        assert_eq!(of(home, &contained), Channel::Installer);
        let target = "/home/you/codex-mcp/target/debug/codex-mcp";
        assert_eq!(of(target, &built), Channel::Checkout);
    }

    #[test]
    fn target_directory_is_looked_for_above_the_profile() {
        let found = |path: &'static str| -> Vec<&str> {
            let all = possible_targets(Path::new(path));
            all.filter_map(Path::to_str).collect()
        };
        assert_eq!(found("/a/target/debug/codex-mcp"), ["/a/target", "/a", "/"]);
        let triple = found("/a/target/x86_64-unknown-linux-musl/release/codex-mcp");
        assert!(triple.contains(&"/a/target"), "{triple:?}");
    }

    #[test]
    fn replaced_program_is_found_at_its_path() {
        let path = |path: &str| without_deletion_mark(path.into());
        assert_eq!(path("/b/codex-mcp (deleted)"), Path::new("/b/codex-mcp"));
        assert_eq!(path("/b/codex-mcp"), Path::new("/b/codex-mcp"));
    }

    #[test]
    fn every_channel_names_its_update() {
        let all = Channel::VARIANTS.iter();
        let updates: BTreeSet<String> = all.map(|one| one.update("")).collect();
        assert_eq!(updates.len(), Channel::VARIANTS.len(), "{updates:#?}");
        let installer = Channel::Installer.update("https://forge.example/acme/codex-mcp");
        assert_eq!(
            installer,
            "`curl -fsSL https://forge.example/acme/codex-mcp/releases/latest/download/install.sh | sh`"
        );
        assert_eq!(Channel::Npm.name(), "npm");
        assert_eq!(Channel::Installer.name(), "installer");
    }
}
