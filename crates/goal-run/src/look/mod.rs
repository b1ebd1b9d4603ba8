//! Inspection of the repository of a run: fills the [`Snapshot`] by which the run is judged.
//!
//! Only facts that the criteria need are collected, and the working tree and HEAD wherever
//! there is a repository. Git is asked by `git_probe`, always about the directory and the
//! repository of the start.
//!
//! - `needs`: the facts that the criteria need.
//! - `tree`, `refs`, `initial`, `histories`, `foreign_commits`, `branch_changes`: facts from
//!   git.
//! - `remote`: the branches of the remote.
//! - `github`, `gh`, `github_time`: facts from GitHub, through its program.
//! - `files`, `fingerprint`: the files themselves.
//! - `commands`: commands of criteria.
//! - `local`: the local state, for a comparison with a later one.

mod branch_changes;
mod commands;
mod error;
mod files;
mod fingerprint;
mod foreign_commits;
mod gh;
mod github;
mod github_time;
mod histories;
mod initial;
mod local;
mod needs;
mod options;
mod refs;
mod remote;
mod repository;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::Path;
use std::time::Duration;

use git_probe::logic::git_state::GitState;
use git_probe::{Flags, Git, GitError, Layout, Submodules};
use serde::{Deserialize, Serialize};
use supervise::io_thread::IoThread;
use supervise::search_path::{CEILINGS, ceilings_in};
use supervise::spawn;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::commands::{cancelled, no_time_left, run_command};
use self::files::FileScanner;
use self::gh::GithubIdentity;
use self::github::look_error;
use self::histories::Histories;
use self::initial::InitialRefs;
use self::local::LocalRefs;
use self::needs::Needs;
use self::refs::Refs;
use self::repository::{LocationRecord, RepoLocation};
use crate::logic::criteria::Criteria;
use crate::logic::names::{CommandLine, Issue};
use crate::logic::snapshot::{CommandEnd, Comment, Probe, Snapshot};
use crate::programs;

pub use error::LookError;
pub(crate) use local::LocalState;
pub use options::InspectOptions;

/// The time that the first command gets at least (2 s), to judge a turn that the end of the run has
/// interrupted.
const LEAST_LIMIT: Duration = Duration::from_secs(2);

/// Inspects one repository for one run.
#[derive(Debug)]
pub struct RepoInspector {
    location: RepoLocation,
    needs: Needs,
    options: InspectOptions,
    files: FileScanner,
    io_thread: IoThread,
    at_start: Option<StartState>,
    _guard: DropGuard,
}

/// The state at the start of the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StartState {
    location: LocationRecord,
    initial: InitialRefs,
    /// The last commits of the remote's branches.
    remote_tips: BTreeSet<String>,
    /// `None` if git could not be asked.
    flags: Option<Flags>,
    identity: Option<GithubIdentity>,
    /// All comments; later only new ones are asked for.
    comments: BTreeMap<Issue, Vec<Comment>>,
}

impl RepoInspector {
    /// An inspector for these criteria, of the repository around `directory`, or of the
    /// directory alone if there is none.
    ///
    /// # Errors
    ///
    /// [`LookError`] if a criterion can never be judged here.
    pub async fn at(
        directory: &Path,
        criteria: &Criteria,
        mut options: InspectOptions,
    ) -> Result<Self, LookError> {
        options.halt = options.halt.child_token();
        let bounds = options.clone();
        bounds
            .until_stopped(Self::open(directory, criteria, options))
            .await
    }

    /// An inspector for a run with these criteria that another process has begun, and whose Codex may be
    /// working. What was known at the start is not checked again.
    pub(crate) async fn continuing(
        at_start: StartState,
        criteria: &Criteria,
        mut options: InspectOptions,
    ) -> Result<Self, LookError> {
        options.halt = options.halt.child_token();
        let guard = options.halt.clone().drop_guard();
        let bounds = options.clone();
        let location = RepoLocation::continuing(&at_start.location, &options);
        let location = bounds.until_stopped(location).await?;
        let needs = Needs::of(criteria);
        Self::new(location, needs, options, Some(at_start), guard)
    }

    fn new(
        location: RepoLocation,
        needs: Needs,
        options: InspectOptions,
        at_start: Option<StartState>,
        guard: DropGuard,
    ) -> Result<Self, LookError> {
        let walker = IoThread::start().map_err(LookError::Thread)?;
        Ok(Self {
            files: FileScanner::new(walker, location.top(), &needs.globs, &options),
            io_thread: IoThread::start().map_err(LookError::Thread)?,
            location,
            needs,
            options,
            at_start,
            _guard: guard,
        })
    }

    async fn open(
        directory: &Path,
        criteria: &Criteria,
        options: InspectOptions,
    ) -> Result<Self, LookError> {
        // When this future is dropped, everything that it has started is cancelled.
        let guard = options.halt.clone().drop_guard();
        let needs = Needs::of(criteria);
        let location = RepoLocation::at(directory, &needs, &options).await?;
        let inspector = Self::new(location, needs, options, None, guard)?;
        for command in &inspector.needs.commands {
            let missing = programs::missing(
                command,
                inspector.top(),
                &inspector.options.env,
                spawn::Lookup::AsTheUser,
            );
            if let Some(program) = missing {
                let command = command.clone();
                return Err(LookError::NoProgram { command, program });
            }
        }
        if let Some(criterion) = &inspector.needs.gh {
            let there = inspector.gh().check_installed().await;
            there.map_err(|error| look_error(error, criterion))?;
        }
        if let RepoLocation::Tree { git } = &inspector.location {
            remote::check(git, &inspector.needs).await?;
        }
        Ok(inspector)
    }

    /// The top of the working tree, or the directory itself if there is no repository.
    #[must_use]
    pub fn top(&self) -> &Path {
        self.location.top()
    }

    /// Git, where there is a repository.
    pub(crate) fn git(&self) -> Option<&Git> {
        match &self.location {
            RepoLocation::Tree { git } => Some(git),
            RepoLocation::Directory { .. } => None,
        }
    }

    /// The submodules before Codex does anything, and warnings about them.
    pub async fn submodules(&self) -> (Submodules, Vec<String>) {
        let why = match &self.location {
            RepoLocation::Tree { git } => match Submodules::note(git).await {
                Ok(noted) => return noted,
                Err(error) => error.to_string(),
            },
            RepoLocation::Directory { path, why } => {
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

    /// Takes and remembers the snapshot before Codex does anything.
    ///
    /// # Errors
    ///
    /// [`LookError`] if a fact that criteria need cannot be found out: nobody could tell later
    /// what is new.
    pub async fn start(&mut self) -> Result<Snapshot, LookError> {
        let bounds = self.options.clone();
        bounds.until_stopped(self.record_start()).await
    }

    async fn record_start(&mut self) -> Result<Snapshot, LookError> {
        let (initial, flags) = match &self.location {
            RepoLocation::Tree { git } => futures::join!(InitialRefs::read(git), git.flags()),
            RepoLocation::Directory { .. } => {
                (Ok(InitialRefs::default()), Err(GitError::Cancelled))
            }
        };
        let initial = match (initial, &self.needs.git) {
            (Ok(initial), _) => initial,
            (Err(_), None) => InitialRefs::default(),
            (Err(error), Some(criterion)) => {
                return Err(LookError::Start {
                    criterion: criterion.clone(),
                    why: error.to_string(),
                });
            }
        };
        let (identity, comments) = self.identify().await?;
        self.at_start = Some(StartState {
            location: self.location.record(),
            initial,
            remote_tips: BTreeSet::new(),
            flags: flags.ok(),
            identity,
            comments,
        });
        let snapshot = self.snapshot(None).await;
        self.check(&snapshot)?;
        if let (Some(at_start), Some(remote)) = (&mut self.at_start, snapshot.remote.found()) {
            at_start.remote_tips = remote.values().cloned().collect();
        }
        Ok(snapshot)
    }

    /// The state at the start of the run, for a process that continues it.
    pub(crate) fn at_start(&self) -> Option<&StartState> {
        self.at_start.as_ref()
    }

    /// Checks that every fact that criteria need was found out.
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

    /// The snapshot of now. No command is run.
    pub async fn now(&self) -> Snapshot {
        self.options.until_stopped(self.snapshot(None)).await
    }

    /// The snapshot after the commands of criteria, which can change the repository. `before` is
    /// the snapshot before them. Its facts from the remote and from GitHub are reused, unless
    /// something else is checked out now.
    pub async fn after_commands(&self, before: &Snapshot) -> Snapshot {
        let snapshot = self.snapshot(Some(before));
        self.options.until_stopped(snapshot).await
    }

    /// The local state alone, which needs fewer questions to git than a snapshot.
    pub(crate) async fn local(&self) -> LocalState {
        let state = async {
            let (git, files) = futures::join!(self.local_git(), self.files.scan());
            let (tree, refs) = git.unwrap_or_default();
            LocalState {
                tree,
                refs,
                files: files.found().cloned(),
            }
        };
        self.options.until_stopped(state).await
    }

    async fn local_git(&self) -> Option<(Option<GitState>, Option<LocalRefs>)> {
        let (RepoLocation::Tree { git }, Some(at_start)) = (&self.location, &self.at_start) else {
            return None;
        };
        let git = self.refreshed_git(git, at_start).await.ok()?;
        let (tree, refs) = futures::join!(tree::state(&git, &self.io_thread), Refs::read(&git));
        let refs = refs
            .ok()
            .map(|refs| LocalRefs::new(refs, &self.needs.branches));
        Some((tree.ok(), refs))
    }

    /// The snapshot. Local facts are read; others are taken from `known`, if it is given.
    async fn snapshot(&self, known: Option<&Snapshot>) -> Snapshot {
        let Some(at_start) = &self.at_start else {
            return Snapshot::default();
        };
        let comments = async {
            match known {
                Some(known) => known.comments.clone(),
                None => self.comments(at_start).await,
            }
        };
        let (mut snapshot, files, comments) = futures::join!(
            self.repository(at_start, known),
            self.files.scan(),
            comments
        );
        snapshot.files = files;
        snapshot.comments = comments;
        snapshot
    }

    /// The facts from git, the remote and GitHub.
    async fn repository(&self, at_start: &StartState, known: Option<&Snapshot>) -> Snapshot {
        let git = match &self.location {
            RepoLocation::Tree { git } => git,
            RepoLocation::Directory { why, .. } => return self.failed_git_snapshot(why),
        };
        let git = match self.refreshed_git(git, at_start).await {
            Ok(git) => git,
            Err(error) => return self.failed_git_snapshot(&error.to_string()),
        };
        let before = at_start.initial.refs.tip.as_deref();
        let (tree, mut snapshot) = futures::join!(
            tree::look(&git, before, &self.io_thread),
            self.history(&git, at_start, known)
        );
        snapshot.tree = tree;
        snapshot
    }

    /// Git for an inspection of the current state. It ignores marks that declare files unchanged,
    /// if they were set after the start.
    async fn refreshed_git(&self, git: &Git, at_start: &StartState) -> Result<Git, GitError> {
        git.refresh()?;
        git.check_pipes()?;
        match &at_start.flags {
            Some(flags) => git.seeing_through(flags).await,
            None => Ok(git.clone()),
        }
    }

    async fn history(
        &self,
        git: &Git,
        at_start: &StartState,
        known: Option<&Snapshot>,
    ) -> Snapshot {
        let refs = match Refs::read(git).await {
            Ok(refs) => refs,
            Err(error) => return self.failed_git_snapshot(&error.to_string()),
        };
        let (histories, published) = futures::join!(
            Histories::look(git, &at_start.initial, &refs, &self.needs.branches),
            self.published(git, &refs, at_start, known)
        );
        let branch_changes = match self.needs.changes {
            true => branch_changes::look(git, &at_start.initial, &histories.branches).await,
            false => BTreeMap::new(),
        };
        Snapshot {
            head: histories.head,
            branches: histories.branches,
            branch_changes,
            ..published
        }
    }

    /// The branches of the remote and the pull requests, which depend on the checked-out branch and
    /// commit. If `known` has the same checked out, its facts are reused.
    async fn published(
        &self,
        git: &Git,
        refs: &Refs,
        at_start: &StartState,
        known: Option<&Snapshot>,
    ) -> Snapshot {
        if let Some(known) = known.filter(|known| refs.is_checked_out_in(known)) {
            return Snapshot {
                remote: known.remote.clone(),
                remote_had_tip: known.remote_had_tip,
                pull_requests: known.pull_requests.clone(),
                ..Snapshot::default()
            };
        }
        let ((remote, remote_had_tip), pull_requests) = futures::join!(
            self.remote(git, refs, at_start),
            self.pull_requests(refs, at_start)
        );
        Snapshot {
            remote,
            remote_had_tip,
            pull_requests,
            ..Snapshot::default()
        }
    }

    /// The snapshot with all facts from git replaced by a failure for this reason.
    pub(crate) fn without_git(&self, now: Snapshot, why: &str) -> Snapshot {
        Snapshot {
            files: now.files,
            comments: now.comments,
            ..self.failed_git_snapshot(why)
        }
    }

    /// A snapshot in which every fact has failed for this reason.
    pub(crate) fn failed_snapshot(&self, why: &str) -> Snapshot {
        let failed = |issue: &Issue| (issue.clone(), Probe::Failed(why.to_owned()));
        let command = |command: &CommandLine| (command.clone(), Probe::Failed(why.to_owned()));
        Snapshot {
            files: Probe::Failed(why.to_owned()),
            comments: self.needs.issues.iter().map(failed).collect(),
            commands: self.needs.commands.iter().map(command).collect(),
            ..self.failed_git_snapshot(why)
        }
    }

    /// A snapshot in which every fact from git has failed for this reason.
    fn failed_git_snapshot(&self, why: &str) -> Snapshot {
        let histories = Histories::failed(why, &self.needs.branches);
        Snapshot {
            tree: Probe::Failed(why.to_owned()),
            head: histories.head,
            branches: histories.branches,
            remote: Probe::Failed(why.to_owned()),
            pull_requests: Probe::Failed(why.to_owned()),
            ..Snapshot::default()
        }
    }

    /// The branches of the remote, and whether they led to the checked-out commit at the start.
    async fn remote(
        &self,
        git: &Git,
        refs: &Refs,
        at_start: &StartState,
    ) -> (Probe<BTreeMap<String, String>>, bool) {
        if self.needs.pushed.is_none() {
            return (Probe::default(), false);
        }
        let patient = git.with_timeout(self.options.network_timeout);
        let remote = remote::look(&patient, refs.branch.as_deref()).await;
        let is_there = |tip: &&String| {
            let branches = remote.found();
            branches.is_some_and(|branches| branches.values().any(|commit| commit == *tip))
        };
        let Some(tip) = refs.tip.as_ref().filter(is_there) else {
            return (remote, false);
        };
        match remote::leads_to(git, &at_start.remote_tips, tip).await {
            Ok(had) => (remote, had),
            Err(error) => (Probe::Failed(error.to_string()), false),
        }
    }

    /// Whether criteria name commands.
    pub(crate) fn has_commands(&self) -> bool {
        !self.needs.commands.is_empty()
    }

    /// Runs the commands one after the other in the top directory. Each may take `limit`, and none
    /// may run beyond `until`, except that the first gets at least 2 s. At its limit, a command is
    /// ended with all processes that it has started. No command begins after `until`, or once
    /// `halt` is cancelled.
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
            program.env.clone_from(&self.options.env);
            let end = match halt.is_cancelled() {
                true => cancelled(),
                false if left.is_zero() => no_time_left(),
                false => run_command(&program, limit.min(left), halt).await,
            };
            ends.insert(command.clone(), end);
        }
        ends
    }
}
