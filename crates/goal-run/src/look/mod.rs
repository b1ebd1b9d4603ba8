//! How the repository of a run stands: fills the
//! [`Snapshot`] that the run is judged by.
//!
//! Only what the criteria ask for is looked at, and the working tree and what is
//! checked out wherever there is a repository. Git is asked as `git_probe` does,
//! always about the directory and the repository that there were at the start.
//!
//! - `needs`: what the criteria ask for.
//! - `tree`, `refs`, `known`, `lines`, `brought`: what git knows.
//! - `remote`: what the remote says.
//! - `github`, `gh`, `moment`: what GitHub says, through its program.
//! - `files`, `stamp`: the files themselves.
//! - `commands`: commands that are to succeed.
//! - `local`: what a later moment is compared with.

mod brought;
mod commands;
mod error;
mod files;
mod gh;
mod github;
mod known;
mod lines;
mod local;
mod means;
mod moment;
mod needs;
mod refs;
mod remote;
mod repository;
mod stamp;
mod tree;

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::time::Duration;

use git_probe::logic::git_state::GitState;
use git_probe::{Flags, Git, GitError, Layout, Submodules};
use supervise::ceilings::{CEILINGS, ceilings_in};
use supervise::io_thread::IoThread;
use supervise::spawn;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::commands::{end_of, given_up, too_late};
use self::files::Files;
use self::gh::Greeting;
use self::github::told;
use self::known::Known;
use self::lines::Lines;
use self::local::LocalRefs;
use self::needs::Needs;
use self::refs::Refs;
use self::repository::Place;
use crate::logic::criteria::Criteria;
use crate::logic::names::{CommandLine, Issue};
use crate::logic::snapshot::{CommandEnd, Comment, Probe, Snapshot};
use crate::programs;

pub use error::LookError;
pub(crate) use local::LocalState;
pub use means::InspectOptions;

/// How long the first of the commands may take at least.
pub const LEAST_LIMIT: Duration = Duration::from_secs(10);

/// Looks at one repository for one run.
#[derive(Debug)]
pub struct RepoInspector {
    place: Place,
    needs: Needs,
    means: InspectOptions,
    files: Files,
    io_thread: IoThread,
    begin: Option<Begin>,
    _guard: DropGuard,
}

/// What is remembered of the start.
#[derive(Debug)]
struct Begin {
    known: Known,
    /// `None` if git did not tell.
    flags: Option<Flags>,
    greeting: Option<Greeting>,
    /// All that there were, as later only new ones are asked for.
    comments: BTreeMap<Issue, Vec<Comment>>,
}

impl RepoInspector {
    /// For these criteria, in the repository around `directory`, or in the mere directory if
    /// there is none.
    ///
    /// # Errors
    ///
    /// [`LookError`] if what is asked for can never be judged here.
    pub async fn at(
        directory: &Path,
        criteria: &Criteria,
        mut means: InspectOptions,
    ) -> Result<Self, LookError> {
        means.halt = means.halt.child_token();
        let bounds = means.clone();
        bounds
            .until_stopped(Self::here(directory, criteria, means))
            .await
    }

    async fn here(
        directory: &Path,
        criteria: &Criteria,
        means: InspectOptions,
    ) -> Result<Self, LookError> {
        // Dropped half-way, it leaves nothing to go on.
        let guard = means.halt.clone().drop_guard();
        let needs = Needs::of(criteria);
        let place = Place::at(directory, &needs, &means).await?;
        let walker = IoThread::start().map_err(LookError::Thread)?;
        let files = Files::new(walker, place.top(), &needs.globs, &means);
        let looker = Self {
            io_thread: IoThread::start().map_err(LookError::Thread)?,
            place,
            needs,
            means,
            files,
            begin: None,
            _guard: guard,
        };
        for command in &looker.needs.commands {
            let missing = programs::missing(
                command,
                looker.top(),
                &looker.means.env,
                spawn::Lookup::AsTheUser,
            );
            if let Some(program) = missing {
                let command = command.clone();
                return Err(LookError::NoProgram { command, program });
            }
        }
        if let Some(criterion) = &looker.needs.gh {
            let there = looker.gh().is_there().await;
            there.map_err(|error| told(error, criterion))?;
        }
        if let Place::Tree { git } = &looker.place {
            remote::check(git, &looker.needs).await?;
        }
        Ok(looker)
    }

    /// The top of the working tree, or the directory.
    #[must_use]
    pub fn top(&self) -> &Path {
        self.place.top()
    }

    /// Git, where there is a repository.
    pub(crate) fn git(&self) -> Option<&Git> {
        match &self.place {
            Place::Tree { git } => Some(git),
            Place::Directory { .. } => None,
        }
    }

    /// The submodules as they are before Codex does anything, and what the caller has to
    /// know of them.
    pub async fn submodules(&self) -> (Submodules, Vec<String>) {
        let why = match &self.place {
            Place::Tree { git } => match Submodules::note(git).await {
                Ok(noted) => return noted,
                Err(error) => error.to_string(),
            },
            Place::Directory { path, why } => {
                let ceilings = ceilings_in(&env::var_os(CEILINGS).unwrap_or_default());
                if matches!(Layout::around(path, &ceilings), Ok(None)) {
                    return (Submodules::none(), Vec::new());
                }
                why.clone()
            }
        };
        let warning = format!(
            "submodules are not protected: {why}. Look at their .git before you run git in the \
             repository"
        );
        (Submodules::none(), vec![warning])
    }

    /// How it stands before Codex does anything, which is remembered.
    ///
    /// # Errors
    ///
    /// [`LookError`] if something that criteria ask for can't be found out: then it
    /// could not be told later what is new.
    pub async fn start(&mut self) -> Result<Snapshot, LookError> {
        let bounds = self.means.clone();
        bounds.until_stopped(self.begun()).await
    }

    async fn begun(&mut self) -> Result<Snapshot, LookError> {
        let (known, flags) = match &self.place {
            Place::Tree { git } => futures::join!(Known::now(git), git.flags()),
            Place::Directory { .. } => (Ok(Known::default()), Err(GitError::GivenUp)),
        };
        let known = match (known, &self.needs.git) {
            (Ok(known), _) => known,
            (Err(_), None) => Known::default(),
            (Err(error), Some(criterion)) => {
                return Err(LookError::Start {
                    criterion: criterion.clone(),
                    why: error.to_string(),
                });
            }
        };
        let (greeting, comments) = self.greet().await?;
        self.begin = Some(Begin {
            known,
            flags: flags.ok(),
            greeting,
            comments,
        });
        let snapshot = self.snapshot().await;
        self.check(&snapshot)?;
        Ok(snapshot)
    }

    /// Whether all that is needed was found out.
    fn check(&self, snapshot: &Snapshot) -> Result<(), LookError> {
        let tree = snapshot.tree.get().map(drop);
        let head = snapshot.head.get().map(drop);
        let remote = snapshot.remote.get().map(drop);
        let requests = snapshot.pull_requests.get().map(drop);
        let files = snapshot.files.get().map(drop);
        let globs = self.needs.globs.first().map(|glob| format!("files={glob}"));
        for (needed, found) in [
            (&self.needs.git, tree),
            (&self.needs.git, head),
            (&self.needs.pushed, remote),
            (&self.needs.pull_requests, requests),
            (&globs, files),
        ] {
            if let (Some(criterion), Err(why)) = (needed, found) {
                return Err(LookError::Start {
                    criterion: criterion.clone(),
                    why: why.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// How it stands now. No command is run.
    pub async fn now(&self) -> Snapshot {
        self.means.until_stopped(self.snapshot()).await
    }

    /// The local state alone, which takes fewer questions to git than all of it.
    pub(crate) async fn local(&self) -> LocalState {
        let state = async {
            let (git, files) = futures::join!(self.local_git(), self.files.look());
            let (tree, refs) = git.unwrap_or_default();
            LocalState {
                tree,
                refs,
                files: files.found().cloned(),
            }
        };
        self.means.until_stopped(state).await
    }

    async fn local_git(&self) -> Option<(Option<GitState>, Option<LocalRefs>)> {
        let (Place::Tree { git }, Some(begin)) = (&self.place, &self.begin) else {
            return None;
        };
        let git = self.as_it_is(git, begin).await.ok()?;
        let (tree, refs) = futures::join!(tree::state(&git, &self.io_thread), Refs::read(&git));
        let refs = refs
            .ok()
            .map(|refs| LocalRefs::new(refs, &self.needs.branches));
        Some((tree.ok(), refs))
    }

    async fn snapshot(&self) -> Snapshot {
        let Some(begin) = &self.begin else {
            return Snapshot::default();
        };
        let (mut snapshot, files, comments) = futures::join!(
            self.repository(begin),
            self.files.look(),
            self.comments(begin)
        );
        snapshot.files = files;
        snapshot.comments = comments;
        snapshot
    }

    /// What git, the remote and GitHub know of the repository.
    async fn repository(&self, begin: &Begin) -> Snapshot {
        let git = match &self.place {
            Place::Tree { git } => git,
            Place::Directory { why, .. } => return self.unknown(why),
        };
        let git = match self.as_it_is(git, begin).await {
            Ok(git) => git,
            Err(error) => return self.unknown(&error.to_string()),
        };
        let before = begin.known.refs.tip.as_deref();
        let (tree, mut snapshot) = futures::join!(
            tree::look(&git, before, &self.io_thread),
            self.history(&git, begin)
        );
        snapshot.tree = tree;
        snapshot
    }

    /// Git for a look at what there is now, whatever has been marked as unchanged since.
    async fn as_it_is(&self, git: &Git, begin: &Begin) -> Result<Git, GitError> {
        git.refresh()?;
        git.check_pipes()?;
        match &begin.flags {
            Some(flags) => git.seeing_through(flags).await,
            None => Ok(git.clone()),
        }
    }

    async fn history(&self, git: &Git, begin: &Begin) -> Snapshot {
        let refs = match Refs::read(git).await {
            Ok(refs) => refs,
            Err(error) => return self.unknown(&error.to_string()),
        };
        let branch = refs.branch.as_deref();
        let (lines, remote, pull_requests) = futures::join!(
            Lines::look(git, &begin.known, &refs, &self.needs.branches),
            self.remote(git, branch),
            self.pull_requests(&refs, begin)
        );
        Snapshot {
            head: lines.head,
            branches: lines.branches,
            remote,
            pull_requests,
            ..Snapshot::default()
        }
    }

    /// A snapshot in which what git knows counts for nothing, for this reason.
    pub(crate) fn without_git(&self, now: Snapshot, why: &str) -> Snapshot {
        Snapshot {
            files: now.files,
            comments: now.comments,
            ..self.unknown(why)
        }
    }

    /// A snapshot for which nothing could be looked at, for this reason.
    pub(crate) fn nothing(&self, why: &str) -> Snapshot {
        let failed = |issue: &Issue| (issue.clone(), Probe::Failed(why.to_owned()));
        let command = |command: &CommandLine| (command.clone(), Probe::Failed(why.to_owned()));
        Snapshot {
            files: Probe::Failed(why.to_owned()),
            comments: self.needs.issues.iter().map(failed).collect(),
            commands: self.needs.commands.iter().map(command).collect(),
            ..self.unknown(why)
        }
    }

    /// What is known when git doesn't tell.
    fn unknown(&self, why: &str) -> Snapshot {
        let lines = Lines::failed(why, &self.needs.branches);
        Snapshot {
            tree: Probe::Failed(why.to_owned()),
            head: lines.head,
            branches: lines.branches,
            remote: Probe::Failed(why.to_owned()),
            pull_requests: Probe::Failed(why.to_owned()),
            ..Snapshot::default()
        }
    }

    async fn remote(&self, git: &Git, branch: Option<&str>) -> Probe<BTreeMap<String, String>> {
        match self.needs.pushed {
            Some(_) => remote::look(&git.patient(self.means.network_patience), branch).await,
            None => Probe::default(),
        }
    }

    /// Whether criteria name commands.
    pub(crate) fn has_commands(&self) -> bool {
        !self.needs.commands.is_empty()
    }

    /// Runs the commands, one after the other, in the top directory: each may take
    /// `limit`, and none longer than `until`, but that the first may take
    /// [`LEAST_LIMIT`] however late it is. Then it is ended with all that it has
    /// started. None is begun after `until`, nor once `halt` is cancelled.
    pub async fn commands(
        &self,
        limit: Duration,
        until: Instant,
        halt: &CancellationToken,
    ) -> BTreeMap<CommandLine, Probe<CommandEnd>> {
        let mut ends = BTreeMap::new();
        let mut least = LEAST_LIMIT;
        for command in &self.needs.commands {
            let left = until.saturating_duration_since(Instant::now()).max(least);
            least = Duration::ZERO;
            let mut program = commands::program(command, self.top());
            program.env.clone_from(&self.means.env);
            let end = match halt.is_cancelled() {
                true => given_up(),
                false if left.is_zero() => too_late(),
                false => end_of(&program, limit.min(left), halt).await,
            };
            ends.insert(command.clone(), end);
        }
        ends
    }
}
