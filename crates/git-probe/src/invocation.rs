//! Starts the git program and reads its answers.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use supervise::exit::Exit;
use supervise::short_lived::{Extent, ProgramOutput, RunOptions, run_with_input};
use supervise::spawn::Program;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::GitError;

/// The exit code of a guard that finds no git, see [`supervise::spawn`].
const NOT_FOUND: Exit = Exit::Code(127);

/// The arguments with which every question begins. `core.hooksPath` is about the directory of
/// hooks only: git 2.54 and newer also run hooks that settings define. The last three disable
/// these for the events that our questions cause, from git 2.55 on, unless a hook has the
/// name of the event; so the known hooks are disabled one by one as well.
///
/// Source: git-config(1), `hook.<event>.enabled` and `hook.<friendly-name>.enabled`.
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
    "-c",
    "hook.post-checkout.enabled=false",
    "-c",
    "hook.post-index-change.enabled=false",
    "-c",
    "hook.reference-transaction.enabled=false",
];

/// Variables that would lead git to another repository than the one around the directory.
pub const ELSEWHERE: &[&str] = &[
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

/// Keeps git from fetching, even the missing objects of a partial clone.
const NO_PROTOCOL: (&str, &str) = ("GIT_ALLOW_PROTOCOL", "none");

/// The variable with the number of settings in the environment.
pub(super) const COUNT: &str = "GIT_CONFIG_COUNT";

/// Divides the time limit of a question if an earlier one with the same subcommand has timed out:
/// the cause probably persists.
const REDUCED_TIMEOUT_DIVISOR: u32 = 12;

/// The subcommands whose last question has timed out.
pub(super) type TimedOut = Arc<Mutex<BTreeSet<OsString>>>;

/// The bounds of a question.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// The time limit.
    pub timeout: Duration,
    /// How much of the output is read, in bytes.
    pub limit: u64,
    /// Cancels the question.
    pub halt: CancellationToken,
}

/// How the git program is started.
#[derive(Debug, Clone)]
pub(super) struct Invocation {
    pub(super) cwd: PathBuf,
    /// Variables on top of our environment; the last of several with one name counts.
    pub(super) env: Vec<(OsString, OsString)>,
    /// Settings that overrule those in files.
    pub(super) overrides: Vec<(OsString, OsString)>,
    pub(super) bounds: Bounds,
    /// The subcommands that have timed out. `None` for questions to other hosts, which are slow at
    /// times without being unusable.
    pub(super) has_timed_out: Option<TimedOut>,
}

impl Invocation {
    /// Git in a directory, with variables on top of our environment. Variables that would lead
    /// elsewhere ([`ELSEWHERE`]) are left out.
    pub(super) fn new(cwd: &Path, env: &[(OsString, OsString)], bounds: Bounds) -> Self {
        let env = env.iter().filter(|(name, _)| !leads_elsewhere(name));
        let mut invocation = Self {
            cwd: cwd.to_owned(),
            env: env.cloned().collect(),
            overrides: Vec::new(),
            bounds,
            has_timed_out: Some(Arc::default()),
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

    /// Removes the variables that name a repository.
    pub(super) fn forget_repository(&mut self) {
        self.env.retain(|(name, _)| !leads_elsewhere(name));
    }

    /// Lets git ask other repositories, by the protocols that the environment allows.
    pub(super) fn allow_protocols(&mut self) {
        self.env.retain(|(name, value)| {
            (name, value) != (&NO_PROTOCOL.0.into(), &NO_PROTOCOL.1.into())
        });
    }

    /// Git's stdout for a question. `input` is its stdin.
    pub(super) async fn output<A: AsRef<OsStr>>(
        &self,
        question: &[A],
        input: &[u8],
    ) -> Result<Vec<u8>, GitError> {
        let output = self.run(question, input).await?;
        let stdout = answered(&output).map(|()| output.stdout)?;
        match output.extent {
            Extent::Whole => Ok(stdout),
            Extent::Cut => Err(GitError::TooMuch),
        }
    }

    /// Git's exit and output, even if it fails.
    pub(super) async fn run<A: AsRef<OsStr>>(
        &self,
        question: &[A],
        input: &[u8],
    ) -> Result<ProgramOutput, GitError> {
        let args = SAFE.iter().map(OsStr::new);
        let args = args.chain(question.iter().map(AsRef::as_ref));
        let mut program = Program::new(Path::new("git"), args);
        program.cwd = Some(self.cwd.clone());
        program.env = [self.env.as_slice(), &self.variables()].concat();
        program.without = ELSEWHERE;
        let kind = subcommand(question);
        let limit = self.timeout_of(&kind);
        let end = async {
            let _ = timeout(limit, self.bounds.halt.cancelled()).await;
        };
        let talk = RunOptions {
            input,
            limit: self.bounds.limit,
        };
        match run_with_input(&program, &talk, end).await {
            Ok(output) if output.exit == NOT_FOUND => Err(GitError::Missing),
            Ok(output) => {
                self.note(|kinds| kinds.remove(&kind));
                Ok(output)
            }
            Err(_) if self.bounds.halt.is_cancelled() => Err(GitError::Cancelled),
            Err(error) if error.kind() == ErrorKind::TimedOut && self.has_timed_out.is_some() => {
                self.note(|kinds| kinds.insert(kind));
                Err(GitError::TimedOut(limit))
            }
            Err(error) => Err(GitError::Unusable(error)),
        }
    }

    fn timeout_of(&self, kind: &OsStr) -> Duration {
        match self.note(|kinds| kinds.contains(kind)) {
            true => self.bounds.timeout / REDUCED_TIMEOUT_DIVISOR,
            false => self.bounds.timeout,
        }
    }

    /// Reads or changes the subcommands that have timed out.
    fn note(&self, change: impl FnOnce(&mut BTreeSet<OsString>) -> bool) -> bool {
        let kinds = self.has_timed_out.as_ref();
        kinds.is_some_and(|kinds| change(&mut lock(kinds)))
    }

    /// The value of a variable as git gets it.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        let mut set = self.env.iter().rev();
        let own = set.find(|(known, _)| known == name);
        own.map(|(_, value)| value.clone())
            .or_else(|| env::var_os(name))
    }

    /// The overrides as variables, as a key may have characters that an argument cannot have.
    /// Overrides from the environment stay.
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

/// The subcommand of a question, after the settings that precede it.
fn subcommand<A: AsRef<OsStr>>(question: &[A]) -> OsString {
    let mut words = question.iter().map(AsRef::as_ref);
    while let Some(word) = words.next() {
        match word == "-c" {
            true => drop(words.next()),
            false => return word.to_owned(),
        }
    }
    OsString::new()
}

/// Does work that `halt` cancels, and cancels `halt` when `stop` has been cancelled for
/// `grace`.
pub async fn until_stopped<T>(
    stop: &CancellationToken,
    halt: &CancellationToken,
    grace: Duration,
    work: impl Future<Output = T>,
) -> T {
    let stopped = async {
        stop.cancelled().await;
        sleep(grace).await;
    };
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = stopped => halt.cancel(),
    }
    work.await
}

/// Whether a variable would lead git to another repository.
fn leads_elsewhere(name: &OsStr) -> bool {
    ELSEWHERE.iter().any(|known| name == *known)
}

/// The error, if git failed.
pub(super) fn answered(output: &ProgramOutput) -> Result<(), GitError> {
    match output.exit {
        Exit::Code(0) => Ok(()),
        exit => {
            let words = String::from_utf8_lossy(&output.stderr);
            let words = words.lines().next().unwrap_or_default().to_owned();
            Err(GitError::Failed { exit, words })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invocation() -> Invocation {
        let bounds = Bounds {
            timeout: Duration::from_secs(60),
            limit: 0,
            halt: CancellationToken::new(),
        };
        Invocation::new(Path::new("/"), &[], bounds)
    }

    #[test]
    fn timeout_shortens_only_questions_of_the_same_subcommand() {
        let invocation = invocation();
        let status = subcommand(&["-c", "log.showRoot=true", "status", "-z"]);
        assert_eq!(status, "status");
        invocation.note(|kinds| kinds.insert(status.clone()));
        let seconds = |kind: &str| invocation.timeout_of(OsStr::new(kind)).as_secs();
        assert_eq!((seconds("status"), seconds("log")), (5, 60));
        invocation.note(|kinds| kinds.remove(&status));
        assert_eq!(seconds("status"), 60);
    }
}
