//! Finds the Codex to run.
//!
//! The npm package of Codex is a Node script that starts the native program, which lies in a
//! separate package for each platform. We start the native program directly: the script costs time
//! and memory, and killing it would leave Codex running.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fmt};

use serde::{Deserialize, Serialize};
use supervise::search_path::{PATH, SearchPaths, find_program, is_executable};

/// The source of the choice of a Codex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The `--codex-bin` flag or the `CODEX_MCP_CODEX_BIN` variable.
    FlagOrVariable,
    /// `codex_bin` in this file.
    File(PathBuf),
    /// The first `codex` on PATH.
    Path,
    /// A job: it was chosen where the job was submitted.
    Job,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FlagOrVariable => f.write_str("--codex-bin or CODEX_MCP_CODEX_BIN"),
            Self::File(path) => write!(f, "codex_bin in {}", path.display()),
            Self::Path => f.write_str("PATH"),
            Self::Job => f.write_str("the job"),
        }
    }
}

/// A Codex to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodexBinary {
    /// The chosen path.
    pub chosen: PathBuf,
    /// The program to run: the native program if `chosen` is npm's script.
    pub native: PathBuf,
    /// A directory of helper programs that older packages expect on PATH.
    pub helpers: Option<PathBuf>,
    /// The source of the choice.
    pub source: Source,
}

/// Why there is no Codex to run.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoCodex {
    /// No Codex was chosen, and PATH contains none.
    #[error("no `codex` found on PATH")]
    NotOnPath,
    /// The chosen file does not exist or is not executable.
    #[error("{} (from {from}) is not an executable file", path.display())]
    NotExecutable {
        /// The chosen path.
        path: PathBuf,
        /// The source of the choice.
        from: Source,
    },
    /// The chosen name is neither on PATH nor in the current directory.
    #[error("there is no `{name}` (from {from}) on PATH or in this directory")]
    NoSuchName {
        /// The chosen name.
        name: String,
        /// The source of the choice.
        from: Source,
    },
}

impl NoCodex {
    /// The error, and what to do about it.
    #[must_use]
    pub fn with_remedy(&self) -> String {
        format!(
            "{self}; install Codex with `npm install -g @openai/codex`, or name it with \
             --codex-bin or CODEX_MCP_CODEX_BIN"
        )
    }
}

/// Finds the Codex to run: `chosen`, or the first on PATH.
///
/// # Errors
///
/// [`NoCodex`].
pub fn find(chosen: Option<(PathBuf, Source)>) -> Result<CodexBinary, NoCodex> {
    find_for(chosen, None)
}

/// Finds the Codex to run for a client in this directory, which need not be ours.
///
/// # Errors
///
/// [`NoCodex`].
pub fn find_for(
    chosen: Option<(PathBuf, Source)>,
    directory: Option<&Path>,
) -> Result<CodexBinary, NoCodex> {
    let on_path = |name: &str| on_path(name, directory);
    let (path, source) = match chosen {
        Some((path, source)) => (in_path_or_directory(path, &source, on_path)?, source),
        None => (on_path("codex").ok_or(NoCodex::NotOnPath)?, Source::Path),
    };
    if !is_executable(&path) {
        return Err(NoCodex::NotExecutable { path, from: source });
    }
    let (native, helpers) = match behind_npm_shim(&path) {
        Some(native) => {
            let helpers = helper_directory(&native);
            (native, helpers)
        }
        None => (path.clone(), None),
    };
    Ok(CodexBinary {
        chosen: path,
        native,
        helpers,
        source,
    })
}

impl CodexBinary {
    /// Variables that this Codex needs on top of our environment.
    #[must_use]
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let Some(helpers) = &self.helpers else {
            return Vec::new();
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = std::iter::once(helpers.clone()).chain(env::split_paths(&path));
        env::join_paths(directories)
            .map(|path| vec![("PATH".into(), path)])
            .unwrap_or_default()
    }
}

/// Makes a path absolute, as the program may be started in another directory than ours.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The absolute path of the chosen program. A bare name is looked up on PATH, as a shell would, and
/// then in the current directory.
fn in_path_or_directory(
    path: PathBuf,
    source: &Source,
    on_path: impl Fn(&str) -> Option<PathBuf>,
) -> Result<PathBuf, NoCodex> {
    let bare = path.components().count() == 1 && path.is_relative();
    let name = path.to_str().filter(|name| bare && !name.starts_with('.'));
    let Some(name) = name else {
        return Ok(absolute(path));
    };
    let found = absolute(on_path(name).unwrap_or_else(|| path.clone()));
    match found.exists() {
        true => Ok(found),
        false => Err(NoCodex::NoSuchName {
            name: name.to_owned(),
            from: source.clone(),
        }),
    }
}

/// Directories that Codex's commands can write are searched last, relative ones not at
/// all.
fn on_path(name: &str, directory: Option<&Path>) -> Option<PathBuf> {
    let path = env::var_os(PATH)?;
    let protected = SearchPaths::of_client(directory).without_writable(&path);
    [protected, Some(path)]
        .into_iter()
        .flatten()
        .find_map(|path| find_program(name, &path))
}

/// npm's names for this platform: the package and its directory.
fn platform() -> Option<(&'static str, &'static str)> {
    match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => Some(("codex-linux-x64", "x86_64-unknown-linux-musl")),
        ("linux", "aarch64") => Some(("codex-linux-arm64", "aarch64-unknown-linux-musl")),
        ("macos", "x86_64") => Some(("codex-darwin-x64", "x86_64-apple-darwin")),
        ("macos", "aarch64") => Some(("codex-darwin-arm64", "aarch64-apple-darwin")),
        _ => None,
    }
}

/// The native program behind `path`, if that is the script of the npm package.
///
/// Source: `bin/codex.js` of `@openai/codex` 0.104.0 and 0.169.0. The platform
/// package lies in a `node_modules` directory of the script's package or of a
/// directory above it; the oldest releases have `vendor` in the script's package.
fn behind_npm_shim(path: &Path) -> Option<PathBuf> {
    let script = path.canonicalize().ok()?;
    if script.extension()? != "js" {
        return None;
    }
    let (package, triple) = platform()?;
    let in_vendor = |root: &Path| {
        let vendor = root.join("vendor").join(triple);
        ["bin/codex", "codex/codex"]
            .iter()
            .map(|program| vendor.join(program))
            .find(|program| is_executable(program))
    };
    script.ancestors().skip(1).find_map(|directory| {
        let modules = directory.join("node_modules/@openai").join(package);
        in_vendor(&modules).or_else(|| in_vendor(directory))
    })
}

/// The helper directory `vendor/TRIPLE/path`, a sibling of the directory of
/// `vendor/TRIPLE/codex/codex`, in packages that have it (0.104.0; newer programs find their
/// helpers themselves).
fn helper_directory(native: &Path) -> Option<PathBuf> {
    let directory = native.parent()?.parent()?.join("path");
    directory.is_dir().then_some(directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn chosen(path: &Path) -> Result<CodexBinary, NoCodex> {
        find(Some((path.to_owned(), Source::FlagOrVariable)))
    }

    #[test]
    fn native_program_is_found_behind_a_linked_script() {
        let (package, triple) = platform().unwrap();
        for (layout, helpers) in [("bin/codex", false), ("codex/codex", true)] {
            let root = tempfile::tempdir().unwrap();
            let root = root.path().canonicalize().unwrap();
            let modules = root.join("lib/node_modules/@openai");
            let script = modules.join("codex/bin/codex.js");
            let vendor = modules.join(package).join("vendor").join(triple);
            program(&script);
            program(&vendor.join(layout));
            if helpers {
                std::fs::create_dir_all(vendor.join("path")).unwrap();
            }
            let link = root.join("codex");
            std::os::unix::fs::symlink(&script, &link).unwrap();

            let found = chosen(&link).unwrap();
            assert_eq!(found.native, vendor.join(layout));
            assert_eq!(found.helpers.is_some(), helpers);
        }
    }

    #[test]
    fn program_that_is_no_script_is_run_directly() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("codex");
        program(&path);
        assert_eq!(chosen(&path).unwrap().native, path);
    }

    #[test]
    fn name_that_is_no_program_is_refused_as_a_name() {
        let error = chosen(Path::new("no-such-program-on-path")).unwrap_err();
        assert!(matches!(error, NoCodex::NoSuchName { .. }), "{error}");
        let told = error.with_remedy();
        assert!(
            told.starts_with("there is no `no-such-program-on-path` (from"),
            "{told}"
        );
        assert!(told.contains("npm install -g @openai/codex"), "{told}");
    }

    #[test]
    fn non_executable_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let text = root.path().join("codex");
        assert!(matches!(chosen(&text), Err(NoCodex::NotExecutable { .. })));
        std::fs::write(&text, "").unwrap();
        assert!(matches!(chosen(&text), Err(NoCodex::NotExecutable { .. })));
        assert!(matches!(
            chosen(root.path()),
            Err(NoCodex::NotExecutable { .. })
        ));
    }
}
