//! Installs a Codex for the demo on a machine that has none: once, with npm, in the user's cache.
//!
//! A directory with the name of a release is always complete: npm works in another directory next
//! to it, which is then renamed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use codex_engine::binary::{self, CodexBinary, Source};
use safe_files::directory;
use supervise::exit::Exit;
use supervise::spawn::{Program, Streams, spawn};
use tempfile::TempDir;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::tail::{last_words, quoted_output};
use super::workspace;
use crate::environment::user_directory;

/// The npm package of the Codex CLI. The native program comes as an optional
/// dependency, a package for each platform.
const PACKAGE: &str = "@openai/codex";

/// The release that is installed: the newest that the tests run against, the
/// last line of `crates/testkit/codex-releases.txt`.
pub(super) const RELEASE: &str = "0.171.0";

/// How long npm may take. It downloads some 100 MB.
const TIMEOUT: Duration = Duration::from_mins(15);

/// The exit code for a missing program, from a shell or our guard.
const NOT_FOUND: Exit = Exit::Code(127);

/// Why the demo's own Codex could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There is no cache directory.
    #[error(
        "no `codex` found on PATH, and neither HOME nor XDG_CACHE_HOME says where one can be \
         installed. Set one of them, or name a Codex with --codex-bin."
    )]
    NoCache,
    /// npm or the Node.js that it runs in is missing.
    #[error(
        "no `codex` found on PATH, and without npm none can be installed. Install Node.js 18 or \
         newer, which brings npm, or name a Codex with --codex-bin."
    )]
    NoNpm,
    /// npm failed.
    #[error(
        "npm could not install {PACKAGE}@{RELEASE} ({how}). Try again, or name a Codex with \
         --codex-bin.{}", quoted_output(.words)
    )]
    Npm {
        /// How npm ended.
        how: String,
        /// The last output of npm.
        words: String,
    },
    /// npm succeeded without installing the native program.
    #[error(
        "npm installed {PACKAGE}@{RELEASE} without the program for this machine: either there is \
         none, or npm is set to leave out optional dependencies (`npm config get omit`)"
    )]
    NoProgram,
    /// The cache can't be written.
    #[error("{} cannot be used for Codex: {error}. Set XDG_CACHE_HOME to another directory, or name a Codex with --codex-bin.", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The OS error.
        error: io::Error,
    },
    /// The user interrupted the installation.
    #[error("interrupted")]
    Interrupted,
}

/// The directory of our release, which may not exist yet: `$XDG_CACHE_HOME/codex-mcp/codex` and
/// the version, by default in `~/.cache`.
///
/// # Errors
///
/// [`InstallError::NoCache`].
pub(super) fn place() -> Result<PathBuf, InstallError> {
    user_directory("XDG_CACHE_HOME", ".cache")
        .map(|cache| cache.join("codex-mcp/codex").join(RELEASE))
        .ok_or(InstallError::NoCache)
}

/// The Codex in an npm install directory, if it is complete.
pub(super) fn installed(directory: &Path) -> Option<CodexBinary> {
    let script = directory.join("node_modules/.bin/codex");
    let found = binary::find(Some((script, Source::FlagOrVariable))).ok()?;
    (found.native != found.chosen).then_some(found)
}

/// Installs our release into its directory.
///
/// # Errors
///
/// [`InstallError`]; a failed installation leaves nothing behind.
pub(super) async fn install(
    place: &Path,
    stop: &CancellationToken,
) -> Result<CodexBinary, InstallError> {
    let unusable = |error| InstallError::Directory {
        path: place.to_owned(),
        error,
    };
    let parent = place.parent().ok_or(InstallError::NoCache)?;
    let created = directory::create_missing(parent, 0o777).map_err(unusable)?;
    let draft = tempfile::Builder::new()
        .prefix(".installing-")
        .tempdir_in(parent)
        .map_err(unusable)?;
    let npm = fill(&draft, stop).await.and_then(|()| {
        installed(draft.path()).ok_or(InstallError::NoProgram)?;
        // Another demo may have installed it meanwhile, which is as good. An incomplete install
        // in its place is removed.
        if installed(place).is_none() {
            let _ = fs::remove_dir_all(place);
        }
        match fs::rename(draft.path(), place) {
            Err(error) if installed(place).is_none() => Err(unusable(error)),
            _ => installed(place).ok_or(InstallError::NoProgram),
        }
    });
    workspace::remove(draft).await.map_err(unusable)?;
    if npm.is_err() {
        directory::remove_empty(&created);
    }
    npm
}

async fn fill(draft: &TempDir, stop: &CancellationToken) -> Result<(), InstallError> {
    let failed = |how: String, words: String| InstallError::Npm { how, words };
    let (mut process, streams) =
        spawn(&npm(draft.path())).map_err(|error| failed(error.to_string(), String::new()))?;
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    drop(stdin);
    let words = async { tokio::join!(last_words(stderr), last_words(stdout)).0 };
    let words = tokio::spawn(words);
    let exit = tokio::select! {
        exit = process.wait() => exit,
        () = stop.cancelled() => {
            process.terminate();
            let _ = process.wait().await;
            return Err(InstallError::Interrupted);
        }
        () = sleep(TIMEOUT) => {
            process.terminate();
            let _ = process.wait().await;
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    let words = words.await.unwrap_or_default();
    match exit {
        Ok(Exit::Code(0)) => Ok(()),
        Ok(NOT_FOUND) => Err(InstallError::NoNpm),
        Ok(exit) => Err(failed(format!("it {exit}"), words)),
        Err(error) => Err(failed(error.to_string(), words)),
    }
}

fn npm(directory: &Path) -> Program {
    let flags = [
        "install",
        "--no-audit",
        "--no-fund",
        "--no-progress",
        "--no-update-notifier",
        "--ignore-scripts",
        "--include=optional",
        "--prefix",
    ];
    let package = format!("{PACKAGE}@{RELEASE}");
    let args = flags
        .into_iter()
        .map(OsString::from)
        .chain([directory.into(), package.into()]);
    let mut npm = Program::new(Path::new("npm"), args);
    npm.cwd = Some(directory.to_owned());
    npm
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_release_is_the_newest_tested() {
        assert_eq!(RELEASE, testkit::codex::newest());
    }
}
