//! Where the demo plays: one temporary directory in the state directory that holds everything.
//!
//! ```text
//! codex-mcp-demo-XXXXXX/
//!   project/   a git repository with one commit, for Codex to work in
//!   codex/     CODEX_HOME, with a config.toml that names the scripted model
//!   home/      HOME, with a .gitconfig, and the XDG directories below it
//!   run/       XDG_RUNTIME_DIR
//!   tmp/       TMPDIR: Codex's sandbox leaves files there
//! ```
//!
//! Codex warns of a CODEX_HOME below the directory for temporary files. It asks
//! for that directory as we set it, so `codex/` is not below it.
#![expect(
    clippy::disallowed_methods,
    reason = "new files in a directory that is the demo's alone"
)]

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use git_probe::ELSEWHERE;
use safe_files::scratch;
use supervise::converse::run;
use supervise::exit::Exit;
use supervise::spawn::Program;
use tempfile::TempDir;

use super::directory;
use super::tail::said;

/// Where demos play, in the state directory.
const PLACE: &str = "demo";

/// How long git may take for one of our commands.
const GIT_PATIENCE: Duration = Duration::from_secs(30);

/// Keeps Codex from asking its makers for a newer release, from telling them
/// about its use, and from fetching their plugins from GitHub, as 0.153.4 and
/// 0.169.0 do when they start. Releases without such a setting ignore it.
const KEEP_TO_YOURSELF: &str = "\
check_for_update_on_startup = false
analytics.enabled = false
features.plugins = false
";

/// git's settings. Without the first, it would leave a process in the background.
const GIT_CONFIG: &str = "\
[maintenance]
	auto = false
[init]
	defaultBranch = main
";

/// Why the stage can't be set.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A file or directory can't be made.
    #[error("the demo's directory {} can't be set up: {error}. Set XDG_STATE_HOME to a directory that can be written.", path.display())]
    Directory {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// git is not installed.
    #[error("`git` is missing, and the demo shows what Codex commits. Install git.")]
    NoGit,
    /// git does not do what it is told.
    #[error("`git {command}` {how}{}", said(.words))]
    Git {
        /// Its arguments.
        command: String,
        /// How it ended.
        how: String,
        /// What it said.
        words: String,
    },
    /// The directory can't be removed.
    #[error("{} can't be removed: {error}. Remove it by hand.", path.display())]
    Remove {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The demo's directory.
pub(super) struct Stage {
    directory: TempDir,
    /// The directory without symbolic links.
    root: PathBuf,
}

impl Stage {
    /// Makes the directory and what lies in it, the repository excepted.
    ///
    /// # Errors
    ///
    /// [`StageError::Directory`].
    pub(super) fn set(codex_config: &str) -> Result<Self, StageError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |error| StageError::Directory { path, error }
        };
        let parent = scratch::place(PLACE).map_err(unusable(Path::new(PLACE)))?;
        let directory = tempfile::Builder::new()
            .prefix("codex-mcp-demo-")
            .tempdir_in(&parent)
            .map_err(unusable(&parent))?;
        let root = fs::canonicalize(directory.path()).map_err(unusable(directory.path()))?;
        let stage = Self { directory, root };
        for name in ["project", "codex", "home", "run", "tmp"] {
            let path = stage.root.join(name);
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .map_err(unusable(&path))?;
        }
        let files = [
            (
                "codex/config.toml",
                format!("{codex_config}{KEEP_TO_YOURSELF}"),
            ),
            ("home/.gitconfig", GIT_CONFIG.to_owned()),
            ("project/README.md", "# A project for the demo\n".to_owned()),
        ];
        for (name, text) in files {
            let path = stage.root.join(name);
            fs::write(&path, text).map_err(unusable(&path))?;
        }
        Ok(stage)
    }

    /// Where everything lies.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Where Codex works.
    pub(super) fn project(&self) -> PathBuf {
        self.root.join("project")
    }

    /// A program that lives in this directory alone: it finds nothing of the
    /// user's, no repository that our own environment names (a hook's does), and
    /// no proxy between it and the model.
    pub(super) fn program<A: AsRef<std::ffi::OsStr>>(
        &self,
        path: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Program {
        let home = self.root.join("home");
        let directories = [
            ("HOME", home.clone()),
            ("CODEX_HOME", self.root.join("codex")),
            ("ATM_HOME", home.clone()),
            ("TMPDIR", self.root.join("tmp")),
            ("XDG_CACHE_HOME", home.join(".cache")),
            ("XDG_CONFIG_HOME", home.join(".config")),
            ("XDG_DATA_HOME", home.join(".local/share")),
            ("XDG_STATE_HOME", home.join(".local/state")),
            ("XDG_RUNTIME_DIR", self.root.join("run")),
            ("GIT_CONFIG_GLOBAL", home.join(".gitconfig")),
        ];
        let plain = [
            ("NO_PROXY", "127.0.0.1"),
            ("no_proxy", "127.0.0.1"),
            // Who and what the server is, is the demo's own; an empty one is none.
            ("ATM_IDENTITY", ""),
            ("ATM_TEAM", ""),
            ("CODEX_MCP_ROLE", ""),
            ("CODEX_MCP_SUMMARIES", "false"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "codex-mcp demo"),
            ("GIT_AUTHOR_EMAIL", "demo@example.com"),
            ("GIT_COMMITTER_NAME", "codex-mcp demo"),
            ("GIT_COMMITTER_EMAIL", "demo@example.com"),
        ];
        let mut program = Program::new(path, args);
        program.cwd = Some(self.project());
        program.without = ELSEWHERE;
        program.env = directories
            .into_iter()
            .map(|(name, path)| (name.into(), path.into()))
            .chain(plain.map(|(name, value)| (name.into(), value.into())))
            .collect();
        program
    }

    /// Makes the project a repository with one commit.
    ///
    /// # Errors
    ///
    /// [`StageError`].
    pub(super) async fn start_repository(&self) -> Result<(), StageError> {
        self.git(&["init", "--quiet", "--template="]).await?;
        self.git(&["add", "README.md"]).await?;
        self.git(&["commit", "--quiet", "--message", "Start"])
            .await?;
        Ok(())
    }

    /// Runs git in the project and returns what it printed.
    ///
    /// # Errors
    ///
    /// [`StageError::NoGit`] and [`StageError::Git`].
    pub(super) async fn git(&self, args: &[&str]) -> Result<String, StageError> {
        let git = self.program(Path::new("git"), args);
        let failed = |how: String, words: String| StageError::Git {
            command: args.join(" "),
            how,
            words,
        };
        match run(&git, GIT_PATIENCE).await {
            Ok(done) if done.succeeded() => Ok(done.stdout),
            Ok(done) if done.exit == Exit::Code(127) => Err(StageError::NoGit),
            Ok(done) => Err(failed(done.exit.to_string(), done.stderr.trim().to_owned())),
            Err(error) => Err(failed(format!("failed: {error}"), String::new())),
        }
    }

    /// Leaves the directory for the user to look at.
    pub(super) fn keep(self) {
        let _ = self.directory.keep();
    }

    /// Removes the directory.
    ///
    /// # Errors
    ///
    /// [`StageError::Remove`].
    pub(super) async fn clear(self) -> Result<(), StageError> {
        let path = self.root;
        directory::remove(self.directory)
            .await
            .map_err(|error| StageError::Remove { path, error })
    }
}
