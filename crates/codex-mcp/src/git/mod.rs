//! The git program, asked about a repository that others write to.
//!
//! The repository is Codex's to write to, and its configuration may name programs
//! that git would run, outside the sandbox: none of them is run here, whatever git is
//! told to do. What it is asked changes nothing, waits for no lock, and fetches
//! nothing.
//!
//! - `own`: what the user has set, without what the repository has.
//! - `path`: paths as texts.
//! - `tree`: what differs from commits.
//!
//! Source: git-config(1), gitattributes(5), git(1) for the variables.

mod own;
mod path;
mod tree;

pub(crate) use path::written;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::engine::Exit;
use crate::engine::run::{Extent, Heard, Talk, converse};
use crate::engine::spawn::Program;

/// How many filters of a repository are switched off. Git LFS has one.
const FILTERS_LIMIT: usize = 64;

/// The exit code of a guard that finds no git, see [`crate::engine::spawn`].
const NOT_FOUND: Exit = Exit::Code(127);

/// What every question begins with.
const SAFE: &[&str] = &[
    "--no-optional-locks",
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "submodule.recurse=false",
];

const FILTERS: &[&str] = &[
    "config",
    "--null",
    "--name-only",
    "--get-regexp",
    r"^filter\..*\.(clean|smudge|process|required)$",
];

/// What would lead git to another repository than the one around the folder.
pub(crate) const ELSEWHERE: &[&str] = &[
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// How many settings the environment brings already.
const COUNT: &str = "GIT_CONFIG_COUNT";

/// Why git doesn't tell.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// It can't be started, or took too long.
    #[error("git can't be run: {0}")]
    Unusable(#[from] io::Error),
    /// There is no such program.
    #[error("there is no program git on the PATH")]
    Missing,
    /// It refused.
    #[error("git {exit}: {words}")]
    Failed {
        /// How it ended.
        exit: Exit,
        /// The first line of what it complained.
        words: String,
    },
    /// There are more filters than [`FILTERS_LIMIT`].
    #[error("the repository has more than {FILTERS_LIMIT} settings of filters")]
    TooManyFilters,
    /// It says more than is read.
    #[error("git has more to tell than is read")]
    TooMuch,
    /// Nobody wants to know any more.
    #[error("asking git was given up")]
    GivenUp,
}

impl GitError {
    /// Whether there is no repository.
    pub(crate) fn is_no_repository(&self) -> bool {
        matches!(self, Self::Failed { words, .. } if words.contains("not a git repository"))
    }

    /// Whether git keeps out of the repository, as it is another user's.
    pub(crate) fn is_others(&self) -> bool {
        matches!(self, Self::Failed { words, .. } if words.contains("dubious ownership"))
    }
}

/// What a question may take.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// How long.
    pub(crate) patience: Duration,
    /// How much is kept of the answer, in bytes.
    pub(crate) limit: u64,
    /// Gives it up.
    pub(crate) halt: CancellationToken,
}

/// The git program, in one repository.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    cwd: PathBuf,
    env: Vec<(OsString, OsString)>,
    /// Settings that overrule the repository's, filters switched off among them.
    settings: Vec<(OsString, OsString)>,
    root: PathBuf,
    bounds: Bounds,
}

impl Git {
    /// In the repository around `cwd`; `env` is set on top of our environment. What in
    /// either would lead elsewhere ([`ELSEWHERE`]) is left out.
    pub(crate) async fn begin(
        cwd: &Path,
        env: &[(OsString, OsString)],
        bounds: Bounds,
    ) -> Result<Self, GitError> {
        let mut git = Self {
            cwd: cwd.to_owned(),
            env: env
                .iter()
                .filter(|(name, _)| !leads_elsewhere(name))
                .cloned()
                .collect(),
            settings: Vec::new(),
            root: PathBuf::new(),
            bounds,
        };
        let plain = [
            ("LC_ALL", "C"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
        ];
        for (name, value) in plain {
            git.set(name, value);
        }
        let (top, filters) = futures::join!(
            git.path(&["rev-parse", "--show-toplevel"]),
            git.hear(FILTERS, &[])
        );
        git.root = top?;
        git.settings = switched_off(&filters?.stdout)?;
        Ok(git)
    }

    /// The same, with the filters that there are now.
    pub(crate) async fn again(&self) -> Result<Self, GitError> {
        let filters = self.hear(FILTERS, &[]).await?;
        Ok(Self {
            settings: switched_off(&filters.stdout)?,
            ..self.clone()
        })
    }

    /// The same with questions that may take this long.
    pub(crate) fn patient(&self, patience: Duration) -> Self {
        let mut git = self.clone();
        git.bounds.patience = patience;
        git
    }

    /// The top folder of the working tree.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Asks from there on in this folder.
    pub(crate) fn work_in(&mut self, folder: &Path) {
        self.cwd = folder.to_owned();
    }

    /// Sets a variable on top of our environment.
    pub(crate) fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.env.push((name.into(), value.as_ref().to_owned()));
    }

    /// What git answers. `input` is what it reads.
    pub(crate) async fn told<A: AsRef<OsStr>>(
        &self,
        question: &[A],
        input: &[u8],
    ) -> Result<Vec<u8>, GitError> {
        let heard = self.hear(question, input).await?;
        let stdout = answered(&heard).map(|()| heard.stdout)?;
        match heard.extent {
            Extent::Whole => Ok(stdout),
            Extent::Cut => Err(GitError::TooMuch),
        }
    }

    /// The same for answers that are texts.
    pub(crate) async fn text<A: AsRef<OsStr>>(
        &self,
        question: &[A],
        input: &[u8],
    ) -> Result<String, GitError> {
        let told = self.told(question, input).await?;
        Ok(String::from_utf8_lossy(&told).into_owned())
    }

    /// A path that git tells; it may end with a newline of its own.
    pub(crate) async fn path(&self, question: &[&str]) -> Result<PathBuf, GitError> {
        let mut told = self.told(question, &[]).await?;
        if told.last() == Some(&b'\n') {
            told.pop();
        }
        Ok(self.cwd.join(OsString::from_vec(told)))
    }

    /// What git says, however it ends.
    pub(crate) async fn hear<A: AsRef<OsStr>>(
        &self,
        question: &[A],
        input: &[u8],
    ) -> Result<Heard, GitError> {
        let args = SAFE.iter().map(OsStr::new);
        let args = args.chain(question.iter().map(AsRef::as_ref));
        let mut program = Program::new(Path::new("git"), args);
        program.cwd = Some(self.cwd.clone());
        program.env = [self.env.as_slice(), &self.variables()].concat();
        program.without = ELSEWHERE;
        let end = async {
            let _ = timeout(self.bounds.patience, self.bounds.halt.cancelled()).await;
        };
        let talk = Talk {
            input,
            limit: self.bounds.limit,
        };
        match converse(&program, &talk, end).await {
            Ok(heard) if heard.exit == NOT_FOUND => Err(GitError::Missing),
            Ok(heard) => Ok(heard),
            Err(_) if self.bounds.halt.is_cancelled() => Err(GitError::GivenUp),
            Err(error) => Err(error.into()),
        }
    }

    /// The value of a variable as git gets it.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        let mut set = self.env.iter().rev();
        let own = set.find(|(known, _)| known == name);
        own.map(|(_, value)| value.clone())
            .or_else(|| env::var_os(name))
    }

    /// The settings as variables: a key may hold what an argument can't. Those that
    /// the environment brings stay.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let count = self.variable(COUNT);
        let before = count.and_then(|count| count.to_str()?.parse().ok());
        let before: usize = before.unwrap_or_default();
        let mut variables = Vec::new();
        for (number, (key, value)) in (before..).zip(&self.settings) {
            variables.push((format!("GIT_CONFIG_KEY_{number}").into(), key.clone()));
            variables.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.clone()));
        }
        let count = before + self.settings.len();
        variables.push((COUNT.into(), count.to_string().into()));
        variables
    }
}

/// Whether a variable would lead git to another repository.
fn leads_elsewhere(name: &OsStr) -> bool {
    ELSEWHERE.iter().any(|known| name == *known)
}

/// Whether git did what it was asked to.
fn answered(heard: &Heard) -> Result<(), GitError> {
    match heard.exit {
        Exit::Code(0) => Ok(()),
        exit => {
            let words = String::from_utf8_lossy(&heard.stderr);
            let words = words.lines().next().unwrap_or_default().to_owned();
            Err(GitError::Failed { exit, words })
        }
    }
}

/// Filters are programs of the repository's choice, and git runs them to see
/// whether a file has changed: they are set to nothing.
fn switched_off(filters: &[u8]) -> Result<Vec<(OsString, OsString)>, GitError> {
    let names: Vec<&[u8]> = filters
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    if names.len() > FILTERS_LIMIT {
        return Err(GitError::TooManyFilters);
    }
    let nothing = |name: &[u8]| match name.ends_with(b".required") {
        true => "false",
        false => "",
    };
    let settings = names.into_iter().map(|name| {
        let key = OsString::from_vec(name.to_owned());
        (key, nothing(name).into())
    });
    Ok(settings.collect())
}
