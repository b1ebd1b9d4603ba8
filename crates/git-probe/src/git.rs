//! The git program, for one repository.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use safe_files::state_directory;
use safe_files::untrusted_file::ReadError;
use serde::{Deserialize, Serialize};
use supervise::search_path::{CEILINGS, ceilings_in};
use supervise::short_lived::ProgramOutput;

use super::error::{GitError, SETTINGS_LIMIT};
use super::invocation::{Bounds, Invocation};
use super::layout::{Layout, LayoutError};
use super::owner;
use super::setting::{self, Setting};
use super::view::{InfoFiles, View};

/// The files at the top of a working tree that git reads.
const IN_TREE: [&str; 4] = [".gitattributes", ".gitignore", ".gitmodules", ".mailmap"];

/// The git program, for one repository.
#[derive(Debug, Clone)]
pub struct Git {
    layout: Arc<Layout>,
    pub(super) view: Arc<View>,
    /// The settings of the user and the repository at the beginning.
    pub(super) settings: Arc<[Setting]>,
    /// The repository's files in `info` at the beginning.
    info: Arc<InfoFiles>,
    pub(super) invocation: Invocation,
}

/// A repository with the settings, ignored files and attributes that it had when it was first opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Repository {
    layout: Arc<Layout>,
    settings: Arc<[Setting]>,
    info: Arc<InfoFiles>,
}

impl Repository {
    /// Whether `git` works on this repository: its top and its git directories are the same.
    pub fn is_of(&self, git: &Git) -> bool {
        self.layout == git.layout
    }
}

impl Git {
    /// Opens the repository around `directory`; `env` is set on top of our environment. Variables
    /// that would lead to another repository ([`ELSEWHERE`](crate::ELSEWHERE)) are left out. The
    /// repository's current settings stay in force, even if they change later.
    ///
    /// # Errors
    ///
    /// [`GitError`].
    pub async fn begin(
        directory: &Path,
        env: &[(OsString, OsString)],
        bounds: Bounds,
    ) -> Result<Self, GitError> {
        let (layout, invocation) = found(directory, env, bounds)?;
        let mut plain = invocation.clone();
        point_to(&mut plain, &layout);
        let settings = setting::read(&plain.output(setting::LIST, &[]).await?);
        if settings.len() > SETTINGS_LIMIT {
            return Err(GitError::TooManySettings);
        }
        let info = InfoFiles::of(&layout).map_err(GitError::View)?;
        let repository = Repository {
            layout: layout.into(),
            settings: settings.into(),
            info: info.into(),
        };
        Self::with(repository, invocation)
    }

    /// Opens a repository again with its earlier settings, ignored files and attributes, so that what
    /// was added to them since cannot hide anything. A repository with another layout is opened as a new one.
    ///
    /// # Errors
    ///
    /// [`GitError`].
    pub async fn reopen(
        earlier: &Repository,
        directory: &Path,
        env: &[(OsString, OsString)],
        bounds: Bounds,
    ) -> Result<Self, GitError> {
        let (layout, invocation) = found(directory, env, bounds.clone())?;
        if layout != *earlier.layout {
            return Self::begin(directory, env, bounds).await;
        }
        Self::with(earlier.clone(), invocation)
    }

    fn with(repository: Repository, mut invocation: Invocation) -> Result<Self, GitError> {
        let Repository {
            layout,
            settings,
            info,
        } = repository;
        owner::check(&layout, &settings, |name| invocation.variable(name))?;
        let view = view_of(&layout, &settings, &info, &invocation).map_err(GitError::View)?;
        invocation.set("GIT_DIR", view.path());
        invocation.set("GIT_WORK_TREE", &layout.top);
        invocation.set("GIT_INDEX_FILE", layout.git_dir.join("index"));
        for (name, value) in recorded(&view) {
            invocation.set(name, value);
        }
        invocation.overrides = overrides(&settings);
        Ok(Self {
            layout,
            view: Arc::new(view),
            settings,
            info,
            invocation,
        })
    }

    /// The repository, to be [reopened](Self::reopen) later.
    pub fn repository(&self) -> Repository {
        Repository {
            layout: Arc::clone(&self.layout),
            settings: Arc::clone(&self.settings),
            info: Arc::clone(&self.info),
        }
    }

    /// Git with the repository's own git directory and configuration, for commands that change its
    /// refs and worktrees. No hooks are run. Questions that would use a filter must be asked
    /// through the view instead.
    ///
    /// # Errors
    ///
    /// [`GitError::Layout`] where git would write to another place than the repository.
    pub fn in_repository(&self) -> Result<Self, GitError> {
        self.layout.check_writable()?;
        let mut git = self.clone();
        git.invocation.forget_repository();
        point_to(&mut git.invocation, &self.layout);
        // The name is written to reflogs. Set here because the repository may have set another one.
        git.set("GIT_COMMITTER_NAME", "codex-mcp");
        git.set("GIT_COMMITTER_EMAIL", "codex-mcp@localhost");
        Ok(git)
    }

    /// Updates the view to the current HEAD.
    ///
    /// # Errors
    ///
    /// [`GitError::View`].
    pub fn refresh(&self) -> Result<(), GitError> {
        self.view.copy_head(&self.layout).map_err(GitError::View)
    }

    /// Refuses named pipes in place of the files that git reads for most questions: git would
    /// wait for a writer. Pipes in place of other files make git time out.
    ///
    /// # Errors
    ///
    /// [`GitError::Layout`] names the pipe.
    pub fn check_pipes(&self) -> Result<(), GitError> {
        Ok(reject_fifos(&self.layout)?)
    }

    /// The same git with another time limit for questions.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let mut git = self.clone();
        git.invocation.bounds.timeout = timeout;
        git
    }

    /// The layout of the repository.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The top of the working tree.
    pub fn root(&self) -> &Path {
        &self.layout.top
    }

    /// The state directory of this program, according to the environment that git gets.
    pub fn state_directory(&self) -> Option<PathBuf> {
        state_directory::state_directory(|name| self.variable(name))
    }

    /// The git directory that git gets in place of the repository's.
    pub fn view(&self) -> &Path {
        self.view.path()
    }

    /// The refs of the private git directory whose reflogs are read in place of the repository's:
    /// each change of one of them must have left an entry there. `None` if the repository's are
    /// read.
    pub fn private_refs(&self) -> Option<BTreeMap<String, String>> {
        self.view.private_refs()
    }

    /// Sets a variable on top of our environment.
    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.invocation.set(name, value);
    }

    /// The value of a variable in git's environment.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        self.invocation.variable(name)
    }

    /// Git with the user's settings read from their files, as Codex's commands read them.
    pub(super) fn with_files_of_user(&self) -> Self {
        let mut git = self.clone();
        let recorded = recorded(&self.view);
        let is_recorded = |name: &OsString, value: &OsString| {
            let mut all = recorded.iter();
            all.any(|(known, recorded)| name == known && value == recorded)
        };
        git.invocation
            .env
            .retain(|(name, value)| !is_recorded(name, value));
        git
    }

    /// Git's stdout for a question. `input` is its stdin.
    pub async fn output<A: AsRef<OsStr>>(
        &self,
        question: &[A],
        input: &[u8],
    ) -> Result<Vec<u8>, GitError> {
        self.invocation.output(question, input).await
    }

    /// Git's stdout as a text.
    pub async fn text<A: AsRef<OsStr>>(
        &self,
        question: &[A],
        input: &[u8],
    ) -> Result<String, GitError> {
        let output = self.output(question, input).await?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Git's exit and output, even if it fails.
    pub async fn run<A: AsRef<OsStr>>(
        &self,
        question: &[A],
        input: &[u8],
    ) -> Result<ProgramOutput, GitError> {
        self.invocation.run(question, input).await
    }
}

/// Finds the repository around a directory, and refuses special files for which git would
/// wait.
fn found(
    directory: &Path,
    env: &[(OsString, OsString)],
    bounds: Bounds,
) -> Result<(Layout, Invocation), GitError> {
    let none = || GitError::NoRepository(directory.to_owned());
    let absolute = env::current_dir()?.join(directory);
    let mut invocation = Invocation::new(&absolute, env, bounds);
    let ceilings = invocation.variable(CEILINGS).unwrap_or_default();
    let layout = Layout::around(&absolute, &ceilings_in(&ceilings))?.ok_or_else(none)?;
    layout.head().map_err(LayoutError::from)?;
    for file in [
        layout.git_dir.join("index"),
        layout.common_dir.join("packed-refs"),
    ] {
        not_special(file)?;
    }
    reject_fifos(&layout)?;
    invocation.cwd.clone_from(&layout.top);
    Ok((layout, invocation))
}

/// Points git to a repository's own git directory.
fn point_to(invocation: &mut Invocation, layout: &Layout) {
    invocation.set("GIT_DIR", &layout.git_dir);
    invocation.set("GIT_WORK_TREE", &layout.top);
}

/// The variables that make git read the user's settings as recorded in the view, in place of the
/// user's files.
fn recorded(view: &View) -> [(&'static str, OsString); 3] {
    [
        ("GIT_CONFIG_GLOBAL", view.users().into_os_string()),
        ("GIT_CONFIG_SYSTEM", "/dev/null".into()),
        // `true` instead of `1`, to distinguish it from a value that the user may have set.
        ("GIT_CONFIG_NOSYSTEM", "true".into()),
    ]
}

/// Refuses a special file: git would wait for a pipe.
fn not_special(path: PathBuf) -> Result<(), LayoutError> {
    match path.metadata() {
        Ok(about) if !about.is_file() => Err(ReadError::NotRegular { path }.into()),
        _ => Ok(()),
    }
}

fn reject_fifos(layout: &Layout) -> Result<(), LayoutError> {
    let logs = [layout.git_dir.join("logs/HEAD")].into_iter();
    let info = ["info/exclude", "info/attributes"].map(|name| layout.common_dir.join(name));
    let in_tree = IN_TREE.map(|name| layout.top.join(name));
    let is_pipe = |path: &PathBuf| {
        let about = path.metadata();
        about.is_ok_and(|about| about.file_type().is_fifo())
    };
    match logs.chain(info).chain(in_tree).find(is_pipe) {
        Some(path) => Err(ReadError::NotRegular { path }.into()),
        None => Ok(()),
    }
}

fn view_of(
    layout: &Layout,
    settings: &[Setting],
    info: &InfoFiles,
    invocation: &Invocation,
) -> io::Result<View> {
    let no_home = || io::Error::other("neither HOME nor XDG_STATE_HOME is set");
    let state =
        state_directory::state_directory(|name| invocation.variable(name)).ok_or_else(no_home)?;
    View::new(layout, settings, info, &state)
}

/// The overrides that disable the programs that git would run for our questions.
fn overrides(settings: &[Setting]) -> Vec<(OsString, OsString)> {
    // Filters from configuration files are in no view, but git in the repository would run
    // configured hooks.
    let users = settings.iter().filter(|one| one.is_of_environment);
    let hooks: BTreeSet<&[u8]> = settings.iter().filter_map(configured_hook).collect();
    let hooks = hooks.into_iter().map(|hook| {
        let key = OsString::from_vec([hook, b".enabled"].concat());
        (key, OsString::from("false"))
    });
    users.filter_map(switched_off).chain(hooks).collect()
}

/// The key of a configured hook without its last part: `hook.NAME`.
fn configured_hook(setting: &Setting) -> Option<&[u8]> {
    let key = setting.key.as_bytes();
    let end = key.iter().rposition(|byte| *byte == b'.')?;
    key.get(..end).filter(|hook| hook.starts_with(b"hook."))
}

/// The override that disables a filter of the user: a program that would get the contents of
/// the repository's files.
fn switched_off(setting: &Setting) -> Option<(OsString, OsString)> {
    let key = setting.key.as_bytes();
    let is = |end: &str| key.ends_with(end.as_bytes());
    let nothing = match key.starts_with(b"filter.") {
        true if is(".required") => "false",
        true if is(".clean") || is(".smudge") || is(".process") => "",
        _ => return None,
    };
    Some((setting.key.clone(), nothing.into()))
}

#[cfg(test)]
mod tests {
    use super::setting::Scope;
    use super::*;

    /// Git before 2.54 runs no configured hook, so this is what shows that none is run.
    #[test]
    fn configured_hooks_and_filters_of_the_environment_are_disabled() {
        let setting = |scope: Scope, is_of_environment: bool, key: &str| Setting {
            scope,
            is_of_environment,
            key: key.into(),
            value: Some("x".into()),
        };
        let settings = [
            setting(Scope::Repository, false, "hook.jobs"),
            setting(Scope::Repository, false, "hook.a b.C.event"),
            setting(Scope::Repository, false, "hook.a b.C.command"),
            setting(Scope::User, false, "hook.users.command"),
            setting(Scope::User, true, "hook.variable.command"),
            setting(Scope::Repository, false, "filter.x.clean"),
            setting(Scope::User, true, "filter.y.clean"),
        ];
        let expected = [
            ("filter.y.clean", ""),
            ("hook.a b.C.enabled", "false"),
            ("hook.users.enabled", "false"),
            ("hook.variable.enabled", "false"),
        ];
        let expected: [(OsString, OsString); 4] =
            expected.map(|(key, value)| (key.into(), value.into()));
        assert_eq!(overrides(&settings), expected);
    }
}
