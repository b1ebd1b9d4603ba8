//! This copy of the program: its version, the commit that it was built from, and how it was
//! installed.

pub(crate) mod channel;
#[cfg(test)]
mod commit_tests;

use std::env;
use std::path::{Path, PathBuf};

use safe_files::untrusted_file::{self, Links};

use channel::{Channel, InstallFacts};

use crate::environment::{home, variable};

/// The version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, from the build script.
const COMMIT: Option<&str> = option_env!("CODEX_MCP_BUILT_FROM");

/// The list of the files of our Debian package. Source: dpkg(1), "FILES".
const DPKG_LIST: &str = "/var/lib/dpkg/info/codex-mcp.list";

/// The longest such list that is read, in bytes.
const LIST_LIMIT: u64 = 1024 * 1024;

/// The files that Docker and Podman make in each container.
const CONTAINER_MARKS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

/// The file that cargo keeps in each of its target directories.
const TARGET_MARK: &str = ".rustc_info.json";

/// A copy of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installation {
    /// The first digits of the commit's hash, if they are known.
    pub(crate) commit: Option<&'static str>,
    /// How it was installed.
    pub(crate) channel: Channel,
    /// The executable, if its path is known.
    pub(crate) program: Option<PathBuf>,
}

impl Installation {
    /// The copy that runs. Reads some files, and runs nothing.
    pub(crate) fn of_this_process() -> Self {
        let program = env::current_exe().ok();
        let program = program.map(channel::without_deletion_mark);
        let program = program.map(|path| path.canonicalize().unwrap_or(path));
        let channel = program.as_deref().map_or(Channel::Unknown, |program| {
            Channel::of(program, &install_facts(program))
        });
        Self {
            commit: COMMIT,
            channel,
            program,
        }
    }

    /// The version, the commit and the channel: `0.1.0 (1d66ea9b, npm)`.
    pub(crate) fn in_words(&self) -> String {
        let channel = match self.channel {
            Channel::Unknown => None,
            known => Some(known.name()),
        };
        let known: Vec<&str> = self.commit.into_iter().chain(channel).collect();
        match known.is_empty() {
            true => VERSION.to_owned(),
            false => format!("{VERSION} ({})", known.join(", ")),
        }
    }
}

fn install_facts(program: &Path) -> InstallFacts {
    let cargo_home = variable("CARGO_HOME").map(PathBuf::from);
    let has_mark = |directory: &Path| directory.join(TARGET_MARK).is_file();
    InstallFacts {
        cargo_home: cargo_home.or_else(|| Some(home()?.join(".cargo"))),
        home: home(),
        is_listed_by_dpkg: is_listed(program, Path::new(DPKG_LIST)),
        is_in_cargo_target: channel::possible_targets(program).any(has_mark),
        is_in_container: is_in_container(),
    }
}

fn is_listed(program: &Path, list: &Path) -> bool {
    let list = untrusted_file::read_text(list, LIST_LIMIT, Links::Refused);
    list.is_ok_and(|list| list.lines().any(|line| Path::new(line) == program))
}

/// Podman and systemd set the variable `container` too.
fn is_in_container() -> bool {
    CONTAINER_MARKS.iter().any(|mark| Path::new(mark).exists()) || variable("container").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(commit: Option<&'static str>, channel: Channel) -> Installation {
        Installation {
            commit,
            channel,
            program: None,
        }
    }

    #[test]
    fn version_names_commit_and_channel_as_far_as_known() {
        for (commit, channel, expected) in [
            (Some("1d66ea9b"), Channel::Npm, " (1d66ea9b, npm)"),
            (Some("1d66ea9b"), Channel::Unknown, " (1d66ea9b)"),
            (None, Channel::Checkout, " (checkout)"),
            (None, Channel::Unknown, ""),
        ] {
            let words = installation(commit, channel).in_words();
            assert_eq!(words, format!("{VERSION}{expected}"));
        }
    }

    #[test]
    fn test_runs_from_a_checkout() {
        let found = Installation::of_this_process();
        assert_eq!(found.channel, Channel::Checkout);
        assert!(found.program.is_some_and(|program| program.is_file()));
    }

    #[test]
    fn package_list_names_the_whole_path() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("codex-mcp.list");
        let program = Path::new("/usr/bin/codex-mcp");
        assert!(!is_listed(program, &list));
        std::fs::write(&list, "/.\n/usr\n/usr/bin\n/usr/bin/codex-mcp\n").unwrap();
        assert!(is_listed(program, &list));
        assert!(!is_listed(Path::new("/opt/usr/bin/codex-mcp"), &list));
    }
}
