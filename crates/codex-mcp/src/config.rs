//! Where settings come from: the command line and the environment first, then
//! the repository's `.atm.toml`, then `~/.config/atm/config.toml`, then the
//! defaults. In a file they stand in `[plugins.codex-mcp]`.
//!
//! A repository doesn't get to say which program is run: `codex_bin` in its file
//! is left aside, or opening a stranger's repository would run what is in it.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::engine::binary::Source;

/// The default of `request_timeout_secs` (FR-14: 300 s).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The longest time-out that a file may set: a day.
const LONGEST_TIMEOUT_SECS: u64 = 86_400;

/// The settings, each from the first place that has it.
#[derive(Debug)]
pub struct Config {
    /// The Codex to run and where that was said.
    pub codex_bin: Option<(PathBuf, Source)>,
    /// How long a call may take.
    pub request_timeout: Duration,
    /// Codex's home folder: `CODEX_HOME`, else `~/.codex`.
    pub codex_home: PathBuf,
    /// What was not taken, and what to do instead; for the user.
    pub warnings: Vec<Warning>,
}

/// Something in a file that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What.
    pub message: String,
    /// What to do instead.
    pub hint: &'static str,
}

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file can't be read.
    #[error("{} can't be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is not as it should be.
    #[error("{}: {error}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and what.
        error: Box<toml::de::Error>,
    },
    /// A time-out that is no time-out.
    #[error("{}: request_timeout_secs must be between 1 and {LONGEST_TIMEOUT_SECS}", path.display())]
    Timeout {
        /// The file.
        path: PathBuf,
    },
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Repository,
    User,
}

/// The files hold other programs' settings too.
#[derive(Debug, Default, Deserialize)]
struct File {
    #[serde(default)]
    plugins: Plugins,
}

#[derive(Debug, Default, Deserialize)]
struct Plugins {
    #[serde(default, rename = "codex-mcp")]
    codex_mcp: Section,
}

#[derive(Debug, Default, Deserialize)]
struct Section {
    codex_bin: Option<PathBuf>,
    request_timeout_secs: Option<u64>,
}

/// Gathers the settings. What the command line and the environment say is
/// given; the rest is looked up.
///
/// # Errors
///
/// [`ConfigError`] when a file that is there can't be used.
pub fn load(codex_bin: Option<PathBuf>, timeout_secs: Option<u64>) -> Result<Config, ConfigError> {
    let here = env::current_dir().unwrap_or_default();
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let files = [
        repository_file(&here).map(|path| (Scope::Repository, path)),
        Some((Scope::User, home.join(".config/atm/config.toml"))),
    ];
    // Codex takes an empty variable for one that isn't set.
    let codex_home = env::var_os("CODEX_HOME")
        .filter(|folder| !folder.is_empty())
        .map_or_else(|| home.join(".codex"), PathBuf::from);
    let mut config = Config {
        codex_bin: codex_bin.map(|path| (path, Source::FlagOrVariable)),
        request_timeout: DEFAULT_TIMEOUT,
        codex_home,
        warnings: Vec::new(),
    };
    let mut timeout = timeout_secs.map(Duration::from_secs);
    for (scope, path) in files.into_iter().flatten() {
        let Some(mut section) = read(&path)? else {
            continue;
        };
        if scope == Scope::Repository && section.codex_bin.take().is_some() {
            config.warnings.push(Warning {
                message: format!(
                    "codex_bin in {} is left aside: a repository may not choose the program",
                    path.display()
                ),
                hint: "Set it in ~/.config/atm/config.toml, or use --codex-bin.",
            });
        }
        if let (None, Some(bin)) = (&config.codex_bin, section.codex_bin) {
            config.codex_bin = Some((beside(&path, bin), Source::File(path.clone())));
        }
        if let (None, Some(seconds)) = (timeout, section.request_timeout_secs) {
            if !(1..=LONGEST_TIMEOUT_SECS).contains(&seconds) {
                return Err(ConfigError::Timeout { path });
            }
            timeout = Some(Duration::from_secs(seconds));
        }
    }
    config.request_timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
    Ok(config)
}

/// The nearest `.atm.toml`, from `start` upwards.
fn repository_file(start: &Path) -> Option<PathBuf> {
    start
        .ancestors()
        .map(|folder| folder.join(".atm.toml"))
        .find(|file| file.is_file())
}

fn read(path: &Path) -> Result<Option<Section>, ConfigError> {
    let path = path.to_owned();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ConfigError::Unreadable { path, error }),
    };
    match toml::from_str::<File>(&text) {
        Ok(file) => Ok(Some(file.plugins.codex_mcp)),
        Err(error) => Err(ConfigError::Malformed {
            path,
            error: Box::new(error),
        }),
    }
}

/// A path with folders in it is relative to its file, a bare name is one on
/// PATH.
fn beside(file: &Path, path: PathBuf) -> PathBuf {
    match file.parent() {
        Some(folder) if path.is_relative() && path.components().count() > 1 => folder.join(path),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> Result<Option<Section>, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".atm.toml");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn settings_of_others_are_left_alone() {
        let text = "[core]\nidentity = \"a\"\n[plugins.other]\nx = 1\n[plugins.codex-mcp]\ncodex_bin = \"c\"\n";
        let section = section(text).unwrap().unwrap();
        assert_eq!(section.codex_bin, Some("c".into()));
    }

    #[test]
    fn a_malformed_file_is_an_error_with_its_place() {
        let error = section("[plugins.codex-mcp]\ncodex_bin = 7\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 2, column 13"), "{error}");
    }

    #[test]
    fn no_file_is_no_error() {
        assert!(read(Path::new("/nonexistent/.atm.toml")).unwrap().is_none());
    }

    #[test]
    fn the_nearest_file_is_taken_and_paths_are_relative_to_it() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(root.path().join(".atm.toml"), "").unwrap();
        let file = repository_file(&deep).unwrap();
        assert_eq!(file, root.path().join(".atm.toml"));
        assert_eq!(
            beside(&file, "bin/codex".into()),
            root.path().join("bin/codex")
        );
        assert_eq!(beside(&file, "codex".into()), PathBuf::from("codex"));
    }
}
