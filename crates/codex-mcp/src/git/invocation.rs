//! Starting the git program, and what it answers.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::GitError;
use crate::engine::Exit;
use crate::engine::run::{Extent, Heard, Talk, converse};
use crate::engine::spawn::Program;

/// The exit code of a guard that finds no git, see [`crate::engine::spawn`].
const NOT_FOUND: Exit = Exit::Code(127);

/// What every question begins with.
pub(super) const SAFE: &[&str] = &[
    "--no-optional-locks",
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.untrackedCache=false",
    "-c",
    "core.alternateRefsCommand=true",
    "-c",
    "submodule.recurse=false",
];

/// What would lead git to another repository than the one around the directory.
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

/// Keeps git from other repositories, also from those that lack objects of this one.
const NO_PROTOCOL: (&str, &str) = ("GIT_ALLOW_PROTOCOL", "none");

/// How many settings the environment brings already.
pub(super) const COUNT: &str = "GIT_CONFIG_COUNT";

/// The share of its time that a question gets once one has not been answered in time:
/// what holds git will hold it again.
const SHARE: u32 = 12;

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

/// How the git program is started.
#[derive(Debug, Clone)]
pub(super) struct Invocation {
    pub(super) cwd: PathBuf,
    /// Variables on top of our environment; of two of one name the last one counts.
    pub(super) env: Vec<(OsString, OsString)>,
    /// Settings that overrule those in files.
    pub(super) overrides: Vec<(OsString, OsString)>,
    pub(super) bounds: Bounds,
    /// Whether a question about the repository has not been answered in time. `None`
    /// where others are asked, who may be slow once.
    pub(super) was_late: Option<Arc<AtomicBool>>,
}

impl Invocation {
    /// In a directory, with variables on top of our environment. What in either would
    /// lead elsewhere ([`ELSEWHERE`]) is left out.
    pub(super) fn new(cwd: &Path, env: &[(OsString, OsString)], bounds: Bounds) -> Self {
        let env = env.iter().filter(|(name, _)| !leads_elsewhere(name));
        let mut invocation = Self {
            cwd: cwd.to_owned(),
            env: env.cloned().collect(),
            overrides: Vec::new(),
            bounds,
            was_late: Some(Arc::default()),
        };
        for (name, value) in [
            ("LC_ALL", "C"),
            ("GIT_NO_LAZY_FETCH", "1"),
            // Git before 2.45 doesn't know that variable.
            NO_PROTOCOL,
            ("GIT_TERMINAL_PROMPT", "0"),
        ] {
            invocation.set(name, value);
        }
        invocation
    }

    /// Sets a variable on top of our environment.
    pub(super) fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.env.push((name.into(), value.as_ref().to_owned()));
    }

    /// Leaves out what leads to a repository.
    pub(super) fn forget_repository(&mut self) {
        self.env.retain(|(name, _)| !leads_elsewhere(name));
    }

    /// Lets git ask other repositories, in the ways that the environment allows.
    pub(super) fn allow_protocols(&mut self) {
        self.env.retain(|(name, value)| {
            (name, value) != (&NO_PROTOCOL.0.into(), &NO_PROTOCOL.1.into())
        });
    }

    /// What git answers. `input` is what it reads.
    pub(super) async fn told<A: AsRef<OsStr>>(
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

    /// What git says, however it ends.
    pub(super) async fn hear<A: AsRef<OsStr>>(
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
        let patience = self.patience();
        let end = async {
            let _ = timeout(patience, self.bounds.halt.cancelled()).await;
        };
        let talk = Talk {
            input,
            limit: self.bounds.limit,
        };
        match converse(&program, &talk, end).await {
            Ok(heard) if heard.exit == NOT_FOUND => Err(GitError::Missing),
            Ok(heard) => Ok(heard),
            Err(_) if self.bounds.halt.is_cancelled() => Err(GitError::GivenUp),
            Err(error) => match &self.was_late {
                Some(was_late) if error.kind() == ErrorKind::TimedOut => {
                    was_late.store(true, Ordering::Relaxed);
                    Err(GitError::Late(patience))
                }
                _ => Err(error.into()),
            },
        }
    }

    fn patience(&self) -> Duration {
        let was_late = self.was_late.as_ref();
        match was_late.is_some_and(|late| late.load(Ordering::Relaxed)) {
            true => self.bounds.patience / SHARE,
            false => self.bounds.patience,
        }
    }

    /// The value of a variable as git gets it.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        let mut set = self.env.iter().rev();
        let own = set.find(|(known, _)| known == name);
        own.map(|(_, value)| value.clone())
            .or_else(|| env::var_os(name))
    }

    /// The overrides as variables: a key may hold what an argument can't. Those that
    /// the environment brings stay.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let count = self.variable(COUNT);
        let before = count.and_then(|count| count.to_str()?.parse().ok());
        let before: usize = before.unwrap_or_default();
        let mut variables = Vec::new();
        for (number, (key, value)) in (before..).zip(&self.overrides) {
            variables.push((format!("GIT_CONFIG_KEY_{number}").into(), key.clone()));
            variables.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.clone()));
        }
        let count = before + self.overrides.len();
        variables.push((COUNT.into(), count.to_string().into()));
        variables
    }
}

/// Whether a variable would lead git to another repository.
fn leads_elsewhere(name: &OsStr) -> bool {
    ELSEWHERE.iter().any(|known| name == *known)
}

/// Whether git did what it was asked to.
pub(super) fn answered(heard: &Heard) -> Result<(), GitError> {
    match heard.exit {
        Exit::Code(0) => Ok(()),
        exit => {
            let words = String::from_utf8_lossy(&heard.stderr);
            let words = words.lines().next().unwrap_or_default().to_owned();
            Err(GitError::Failed { exit, words })
        }
    }
}
