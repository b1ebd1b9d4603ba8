//! The workspace of the demo: one temporary directory below the state directory.
//!
//! ```text
//! XXXXXX/
//!   project/   a git repository with one commit, for Codex to work in
//!   codex/     CODEX_HOME, with a config.toml that names the scripted model
//!   home/      HOME, with a .gitconfig, and the XDG directories below it
//!   run/       XDG_RUNTIME_DIR
//!   tmp/       TMPDIR: Codex's sandbox leaves files there
//! ```
//!
//! Codex warns about a CODEX_HOME below the directory for temporary files. It takes that
//! directory from our TMPDIR, so `codex/` is not below it.
#![expect(
    clippy::disallowed_methods,
    reason = "new files in a directory that is the demo's alone"
)]

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use git_probe::ELSEWHERE;
use safe_files::{directory, scratch};
use supervise::exit::Exit;
use supervise::short_lived::run;
use supervise::spawn::Program;
use tempfile::TempDir;
use tokio::time::sleep;

use super::tail::quoted_output;
use crate::writable_state::{REMEDY, WritableState};

/// The directory for demos, below the state directory. Their own directories have short names, as
/// a question with a long path is broken within the path.
const PLACE: &str = "demo";

/// How long git may take for one of our commands.
const GIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that is ending may still write files: removing the directory is tried this often, with
/// a pause after each attempt.
const ATTEMPTS: u32 = 60;
const PAUSE: Duration = Duration::from_millis(50);

/// Keeps Codex from checking for a newer release, from sending analytics and from downloading
/// plugins from GitHub, as 0.153.4 and 0.169.0 do at their start. Releases without such a setting
/// ignore it.
const OFFLINE_CONFIG: &str = "\
check_for_update_on_startup = false
analytics.enabled = false
features.plugins = false
";

/// git's settings. Without the first, git would leave a process in the background.
const GIT_CONFIG: &str = "\
[maintenance]
	auto = false
[init]
	defaultBranch = main
";

/// Why the workspace cannot be created, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// A file or directory cannot be created.
    #[error("the demo's directory {} cannot be set up: {error}. Set XDG_STATE_HOME to a directory that can be written.", path.display())]
    Directory {
        /// The file or directory.
        path: PathBuf,
        /// The OS error.
        error: io::Error,
    },
    /// Codex's commands could write to the state directory.
    #[error("{0}. {REMEDY}")]
    WritableState(#[from] WritableState),
    /// git is not installed.
    #[error("`git` is missing, and the demo shows what Codex commits. Install git.")]
    NoGit,
    /// A git command failed.
    #[error("`git {command}` {how}{}", quoted_output(.words))]
    Git {
        /// The arguments of git.
        command: String,
        /// How git ended.
        how: String,
        /// The output of git.
        words: String,
    },
    /// The directory can't be removed.
    #[error("{} cannot be removed: {error}. Remove it by hand.", path.display())]
    Remove {
        /// The file or directory.
        path: PathBuf,
        /// The OS error.
        error: io::Error,
    },
}

/// The demo's directory.
pub(super) struct Workspace {
    directory: TempDir,
    /// The directory without symbolic links.
    root: PathBuf,
    /// The directories above it that did not exist.
    created: Vec<PathBuf>,
}

impl Workspace {
    /// Creates the directory and its content, except the repository.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Directory`].
    pub(super) fn set(codex_config: &str) -> Result<Self, WorkspaceError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |error| WorkspaceError::Directory { path, error }
        };
        let parent = scratch::path(PLACE).map_err(unusable(Path::new(PLACE)))?;
        let created = directory::create_missing(&parent, 0o700).map_err(unusable(&parent))?;
        let directory = TempDir::with_prefix_in("", &parent).map_err(unusable(&parent))?;
        let root = fs::canonicalize(directory.path()).map_err(unusable(directory.path()))?;
        let workspace = Self {
            directory,
            root,
            created,
        };
        for name in ["project", "codex", "home", "run", "tmp"] {
            let path = workspace.root.join(name);
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .map_err(unusable(&path))?;
        }
        let files = [
            (
                "codex/config.toml",
                format!("{codex_config}{OFFLINE_CONFIG}"),
            ),
            ("home/.gitconfig", GIT_CONFIG.to_owned()),
            ("project/README.md", "# A project for the demo\n".to_owned()),
        ];
        for (name, text) in files {
            let path = workspace.root.join(name);
            fs::write(&path, text).map_err(unusable(&path))?;
        }
        Ok(workspace)
    }

    /// The root of the workspace.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that Codex works in.
    pub(super) fn project(&self) -> PathBuf {
        self.root.join("project")
    }

    /// A program that uses only this directory: it sees no files of the user, no repository from
    /// our environment (which a git hook would set), and no proxy between itself and the model.
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
            // The demo sets the server's identity and role; an empty variable counts as unset.
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

    /// Turns the project into a repository with one commit.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError`].
    pub(super) async fn start_repository(&self) -> Result<(), WorkspaceError> {
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
    /// [`WorkspaceError::NoGit`] and [`WorkspaceError::Git`].
    pub(super) async fn git(&self, args: &[&str]) -> Result<String, WorkspaceError> {
        let git = self.program(Path::new("git"), args);
        let failed = |how: String, words: String| WorkspaceError::Git {
            command: args.join(" "),
            how,
            words,
        };
        match run(&git, GIT_TIMEOUT).await {
            Ok(done) if done.succeeded() => Ok(done.stdout),
            Ok(done) if done.exit == Exit::Code(127) => Err(WorkspaceError::NoGit),
            Ok(done) => Err(failed(done.exit.to_string(), done.stderr.trim().to_owned())),
            Err(error) => Err(failed(format!("failed: {error}"), String::new())),
        }
    }

    /// Keeps the directory for the user to inspect.
    pub(super) fn keep(self) {
        let _ = self.directory.keep();
    }

    /// Removes the directory, and those above it that were created for it and are empty.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Remove`].
    pub(super) async fn clear(self) -> Result<(), WorkspaceError> {
        let path = self.root;
        remove(self.directory)
            .await
            .map_err(|error| WorkspaceError::Remove { path, error })?;
        directory::remove_empty(&self.created);
        Ok(())
    }
}

/// Removes a directory with its content. A missing directory does not count as an error.
///
/// # Errors
///
/// If the directory cannot be removed within three seconds of retries.
pub(super) async fn remove(directory: TempDir) -> io::Result<()> {
    let mut attempt = 1;
    loop {
        match fs::remove_dir_all(directory.path()) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if attempt == ATTEMPTS => return Err(error),
            Err(_) => {}
        }
        attempt += 1;
        sleep(PAUSE).await;
    }
}
