//! The isolated home of one test: directories, environment and a work directory.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::launch::Launch;
use crate::process::{self, Process};

/// The environment variable by which the processes of a [`Home`] are known,
/// whatever their parent or session. Its value is the home's root.
///
/// Codex hands it on to the commands that it runs, but not to MCP servers, which
/// get HOME, LANG, PATH and TERM alone: [`Home::processes`] looks for both.
pub const MARKER: &str = "TESTKIT_HOME";

/// How often and how long removing the directory is tried while a dying process may
/// still be writing into it.
const REMOVALS: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// The directories and the environment of one test, below `test-homes` in the target
/// directory (Codex warns about a Codex home in the system's temporary directory).
/// Dropping it kills the processes that carry its marker and removes the directories.
#[derive(Debug)]
pub struct Home {
    root: PathBuf,
}

/// The variable that has the servers of the tests work in a host process.
const WITH_HOST: &str = "CODEX_MCP_TEST_HOST";

/// Whether the servers of the tests work in a host process, unless a test says otherwise.
#[must_use]
pub fn with_host() -> bool {
    std::env::var_os(WITH_HOST).is_some()
}

impl Home {
    /// Makes the directories, writes the given text to Codex's `config.toml` and sets
    /// up the work directory as a git repository with one commit.
    #[must_use]
    pub fn new(codex_config: &str) -> Self {
        let parent = crate::target_dir().join("test-homes");
        fs::create_dir_all(&parent).unwrap();
        let root = tempfile::Builder::new()
            .prefix("")
            .tempdir_in(fs::canonicalize(parent).unwrap())
            .unwrap();
        let home = Self { root: root.keep() };
        for directory in DIRECTORIES {
            // XDG_RUNTIME_DIR must be the user's alone, by its specification.
            fs::DirBuilder::new()
                .mode(0o700)
                .create(home.root.join(directory))
                .unwrap();
        }
        fs::write(home.codex_home().join("config.toml"), codex_config).unwrap();
        home.start_repository();
        home
    }

    /// The same with a Codex home that this release has been started with before.
    #[must_use]
    pub fn of_codex(release: &str, codex_config: &str) -> Self {
        let home = Self::new(codex_config);
        crate::codex::start_before(release, &home.codex_home());
        home
    }

    /// The directory that holds all the others.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// HOME.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// CODEX_HOME.
    #[must_use]
    pub fn codex_home(&self) -> PathBuf {
        self.root.join("codex")
    }

    /// ATM_HOME.
    #[must_use]
    pub fn atm_home(&self) -> PathBuf {
        self.root.join("atm")
    }

    /// XDG_CONFIG_HOME.
    #[must_use]
    pub fn config_home(&self) -> PathBuf {
        self.root.join("config")
    }

    /// XDG_STATE_HOME.
    #[must_use]
    pub fn state_home(&self) -> PathBuf {
        self.root.join("state")
    }

    /// XDG_CACHE_HOME.
    #[must_use]
    pub fn cache_home(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// XDG_RUNTIME_DIR.
    #[must_use]
    pub fn runtime_dir(&self) -> PathBuf {
        self.root.join("run")
    }

    /// TMPDIR.
    #[must_use]
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The work directory: a git repository on branch `main` with one commit, that of
    /// `README.md`.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// The whole environment for a program of this test: the directories, [`MARKER`],
    /// the test's PATH, a plain locale and terminal, git without the machine's
    /// settings, no host process unless [`with_host`], and no summaries at the end of a server.
    #[must_use]
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let directories = [
            (MARKER, self.root.clone()),
            ("HOME", self.home()),
            ("CODEX_HOME", self.codex_home()),
            ("ATM_HOME", self.atm_home()),
            ("XDG_CONFIG_HOME", self.config_home()),
            ("XDG_STATE_HOME", self.state_home()),
            ("XDG_CACHE_HOME", self.cache_home()),
            ("XDG_RUNTIME_DIR", self.runtime_dir()),
            ("TMPDIR", self.tmp()),
            // The homes lie inside the project's own repository.
            ("GIT_CEILING_DIRECTORIES", self.root.clone()),
        ];
        let plain = [
            ("LANG", "C.UTF-8"),
            ("TERM", "dumb"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            // Each summary costs one more turn; only the tests about summaries enable them.
            ("CODEX_MCP_SUMMARIES", "false"),
        ];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let host = with_host().to_string();
        directories
            .into_iter()
            .map(|(name, directory)| (name.into(), directory.into()))
            .chain([("CODEX_MCP_HOST".into(), host.into())])
            .chain(plain.map(|(name, value)| (name.into(), value.into())))
            .chain([("PATH".into(), path)])
            .collect()
    }

    /// A program with exactly this environment, in the work directory.
    #[must_use]
    pub fn launch(&self, program: impl Into<PathBuf>) -> Launch {
        Launch::new(program)
            .envs(self.env())
            .current_dir(self.work())
    }

    /// The same as a command of std.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.env())
            .current_dir(self.work());
        command
    }

    /// Every live process that was started with this home's environment.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        process::processes_with_any_env(&[
            (MARKER, self.root.as_os_str()),
            ("HOME", self.home().as_os_str()),
        ])
    }

    /// Runs git in the work directory and returns what it printed, trimmed.
    ///
    /// # Panics
    /// If git fails.
    pub fn git(&self, args: &[&str]) -> String {
        let output = self
            .command("git")
            .args(args)
            .env("GIT_AUTHOR_DATE", COMMIT_DATE)
            .env("GIT_COMMITTER_DATE", COMMIT_DATE)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?} failed: {stderr}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Makes an empty bare repository, which is the remote `origin` of the work directory.
    ///
    /// # Panics
    /// If git fails, or the path is not UTF-8.
    pub fn add_remote(&self, bare: &Path) {
        let bare = bare.to_str().unwrap();
        self.git(&["init", "--quiet", "--bare", bare]);
        self.git(&["remote", "add", "origin", bare]);
    }

    fn start_repository(&self) {
        fs::write(
            self.work().join("README.md"),
            "A work directory for a test.\n",
        )
        .unwrap();
        self.write_empty_repository();
        self.git(&["add", "README.md"]);
        self.git(&["commit", "--quiet", "--message", "Start"]);
    }

    /// What `git init` and three calls of `git config` would make, without four processes for each
    /// test. Format: gitrepository-layout(5).
    fn write_empty_repository(&self) {
        let git = self.work().join(".git");
        for directory in ["objects/info", "objects/pack", "refs/heads", "refs/tags"] {
            fs::create_dir_all(git.join(directory)).unwrap();
        }
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(git.join("config"), GIT_CONFIG).unwrap();
    }
}

/// The configuration of the repository. With maintenance, git would leave a process in the
/// background.
const GIT_CONFIG: &str = "\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[user]
\tname = Test
\temail = test@example.com
[maintenance]
\tauto = false
";

/// A fixed date, so that a commit's id depends on its content alone.
const COMMIT_DATE: &str = "2026-01-01T00:00:00Z";

const DIRECTORIES: [&str; 9] = [
    "home", "codex", "atm", "config", "state", "cache", "run", "tmp", "work",
];

impl Drop for Home {
    fn drop(&mut self) {
        for process in self.processes() {
            let _ = kill(
                Pid::from_raw(process.pid.try_into().unwrap()),
                Signal::SIGKILL,
            );
        }
        for _ in 0..REMOVALS {
            match fs::remove_dir_all(&self.root) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Ok(()) => return,
                Err(_) => make_writable(&self.root),
            }
            thread::sleep(REMOVAL_PAUSE);
        }
        if !thread::panicking() {
            panic!("can't remove {}: remove it by hand", self.root.display());
        }
    }
}

fn make_writable(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_isolated_and_leaves_nothing() {
        let home = Home::new("model = \"mock-model\"\n");
        let root = home.root().to_owned();

        assert_eq!(
            fs::read_to_string(home.codex_home().join("config.toml")).unwrap(),
            "model = \"mock-model\"\n"
        );
        assert_eq!(home.git(&["rev-list", "--count", "HEAD"]), "1");
        assert_eq!(home.git(&["status", "--porcelain"]), "");
        let read_only = Permissions::from_mode(0o500);
        fs::set_permissions(home.codex_home(), read_only).unwrap();
        drop(home);

        assert!(!root.exists());
    }

    #[test]
    fn home_ends_the_processes_with_its_marker() {
        let home = Home::new("");
        let mut child = Command::new("setsid")
            .args(["sleep", "600"])
            .envs(home.env())
            .spawn()
            .unwrap();

        drop(home);

        assert!(!child.wait().unwrap().success());
    }
}
