//! Imports objects, refs, HEAD and index from the private directory.
//!
//! The order of the steps determines the state that a killed run leaves: first the objects, then
//! the new index in git's lock file, then refs and `HEAD`, then the index. So if another process
//! holds the lock, nothing is changed, and no git of the user can change the index while the refs
//! are ahead of it. `takeover.json` is written before the lock is taken.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use common::text::shell_word;
use safe_files::off_runtime;
use supervise::exit::Exit;
use tokio_util::sync::CancellationToken;

use super::aside::AsideRefs;
use super::index::{
    Difference, IndexListing, IndexLock, NewIndex, has_working_tree, remove_stale_lock, stamp,
};
use super::journal::{JOURNAL, Journal};
use super::names::TakenNames;
use super::objects::Transfer;
use super::plan::{ABANDONED, NO_WORKTREE, Plan, PlanContext, RefusedRef};
use super::refs::{Head, Refs};
use super::tracking::confirmed;
use super::trees::{NewCommits, added_submodules};
use super::{BASE, PrivateGit};
use crate::submodules::move_aside;
use crate::{Git, GitError, until_stopped};

/// The message in the reflogs of the repository.
const MESSAGE: &str = "codex-mcp: taken over from Codex";

/// A copy of the private index, below the directory of the run.
const INDEX_COPY: &str = "index.private";

/// The index with which the working tree is compared, in the same directory.
const COMPARED_INDEX: &str = "index.compared";

/// The most refused submodules that are named and moved aside, and the most refused new refs that
/// are named.
const REFUSED_LIMIT: usize = 20;

/// How often a takeover is started again because the repository's index has changed.
const ROUNDS: u32 = 5;

/// How long a takeover may continue after the run was stopped (10 s).
pub(super) const AFTER_STOP: Duration = Duration::from_secs(10);

/// How long each git command may take that moves refs or `HEAD` (10 s). Such a command is not
/// cancelled with the run, as the index must follow at once.
const MOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a takeover.
#[derive(Debug)]
pub struct Takeover {
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Whether the repository has all of Codex's commits on its branches.
    pub complete: bool,
    /// The refs that have been changed or created.
    pub(crate) refs: Vec<String>,
    /// How `HEAD` has changed.
    pub(crate) head: Option<String>,
}

/// The run whose work is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A running run.
    LiveRun,
    /// A run that was interrupted, perhaps long ago.
    InterruptedRun,
    /// An interrupted run whose working tree is gone.
    RemovedWorktree,
}

impl PrivateGit {
    /// Takes over all changes since the last takeover. Codex's commands must not be running. The
    /// takeover is abandoned when `stop` has been cancelled for `AFTER_STOP`.
    ///
    /// # Errors
    ///
    /// [`GitError`]. Anything that was not taken over is still in the private directory then.
    pub async fn take_over(&mut self, stop: &CancellationToken) -> Result<Takeover, GitError> {
        self.take_over_from(Source::LiveRun, stop).await
    }

    /// Takes over the work of this or another run.
    pub(super) async fn take_over_from(
        &mut self,
        source: Source,
        stop: &CancellationToken,
    ) -> Result<Takeover, GitError> {
        self.takeover_incomplete = true;
        let halt = self.git.invocation.bounds.halt.clone();
        let rounds = self.take_over_in_rounds(source);
        let takeover = until_stopped(stop, &halt, AFTER_STOP, rounds).await?;
        self.takeover_incomplete = false;
        Ok(takeover)
    }

    async fn take_over_in_rounds(&mut self, source: Source) -> Result<Takeover, GitError> {
        self.clean_up()?;
        for _ in 0..ROUNDS {
            if let Some(takeover) = self.take_over_once(source).await? {
                return Ok(takeover);
            }
        }
        let busy = "other processes keep changing the repository's index";
        Err(io::Error::other(busy).into())
    }

    /// Removes the lock that an interrupted takeover has left.
    fn clean_up(&self) -> io::Result<()> {
        let lock = Journal::load(&self.directory)?.and_then(|journal| journal.lock);
        match lock {
            Some(lock) => remove_stale_lock(&self.git.layout().git_dir, self.run(), &lock),
            None => Ok(()),
        }
    }

    /// The name of the run.
    fn run(&self) -> &OsStr {
        self.directory.file_name().unwrap_or_default()
    }

    /// One attempt at a takeover. `None` if the repository's index has changed meanwhile: then the
    /// whole attempt must be repeated.
    async fn take_over_once(&mut self, source: Source) -> Result<Option<Takeover>, GitError> {
        self.git.check_pipes()?;
        let path = self.path();
        let theirs = self.with_files(move || Refs::of_directory(&path)).await?;
        let index = match source {
            Source::RemovedWorktree => self.synced.index.clone(),
            _ => stamp(&self.path().join("index")),
        };
        self.copy_logs().await?;
        self.git.view.note_private_refs(&theirs.all);
        if theirs == self.synced.refs && index == self.synced.index {
            Journal::remove(&self.directory)?;
            return Ok(Some(Takeover::nothing()));
        }
        self.git.refresh()?;
        let now = Refs::of_repository(&self.git).await?;
        let (staged, difference) = self.bring_objects(&theirs, &now, index.as_deref()).await?;
        self.check_submodules(source, &theirs, &now, &difference)
            .await?;
        let private_state = PrivateState {
            refs: &theirs,
            index: index.as_deref(),
            staged: &staged,
        };
        let mut plan = self.plan(source, &now, &private_state).await?;
        let mut takeover = Takeover {
            warnings: Vec::new(),
            complete: !plan.keeps_checkout,
            refs: plan.changed().map(str::to_owned).collect(),
            head: plan.head_change(&now),
        };
        let mut aside = AsideRefs::of_run(&self.git, self.run()).await?;
        if plan.keeps_checkout {
            self.move_refs(&mut plan, &mut aside).await?;
            self.note_moved(&plan, &theirs)?;
            self.keep_aside(&mut plan, &mut aside, &theirs).await?;
            Journal::remove(&self.directory)?;
        } else {
            let Some(lock) = self.lock_index(&difference, &private_state).await? else {
                return Ok(None);
            };
            self.move_refs(&mut plan, &mut aside).await?;
            self.move_head(&plan).await?;
            plan.warnings.extend(difference.warning());
            let imported = self.without(&plan.unconfirmed, theirs);
            self.publish(lock, &staged, imported, index)?;
        }
        takeover.warnings = plan.warnings;
        Ok(Some(takeover))
    }

    /// Makes the plan. The checkout of an interrupted run is taken over only if the working tree
    /// still matches the run's index.
    async fn plan(
        &self,
        source: Source,
        now: &Refs,
        private_state: &PrivateState<'_>,
    ) -> Result<Plan, GitError> {
        let before = &self.synced.refs;
        let is_current = match source {
            Source::LiveRun => true,
            Source::InterruptedRun => {
                self.has_begun(now, private_state)?
                    || self.is_still_checked_out(now, private_state).await?
            }
            Source::RemovedWorktree => false,
        };
        match source {
            _ if is_current => {
                let around = PlanContext {
                    elsewhere: self.checked_out_elsewhere().await?,
                    names: TakenNames::of_repository(&self.git).await?,
                    confirmed: confirmed(&self.git, now, private_state.refs).await?,
                };
                let mut plan = Plan::of(before, now, private_state.refs, &around);
                self.note_rewritten(&mut plan, private_state.refs).await?;
                Ok(plan)
            }
            Source::RemovedWorktree => Ok(Plan::aside(before, private_state.refs, NO_WORKTREE)),
            _ => Ok(Plan::aside(before, private_state.refs, ABANDONED)),
        }
    }

    /// Finds the branches that have lost commits since the run began.
    async fn note_rewritten(&self, plan: &mut Plan, theirs: &Refs) -> Result<(), GitError> {
        let moved: Vec<String> = plan.changed().map(str::to_owned).collect();
        for name in moved.iter().filter(|name| name.starts_with("refs/heads/")) {
            if let (Some(old), Some(new)) = (self.first.all.get(name), theirs.all.get(name)) {
                let question = ["merge-base", "--is-ancestor", old, new];
                if self.git.run(&question, &[]).await?.exit != Exit::Code(0) {
                    plan.rewritten.push((name.clone(), old.clone()));
                }
            }
        }
        Ok(())
    }

    fn has_begun(&self, now: &Refs, private_state: &PrivateState<'_>) -> io::Result<bool> {
        let journal = Journal::load(&self.directory)?;
        let before = &self.synced.refs;
        Ok(journal.is_some_and(|journal| {
            journal.has_begun(before, now, private_state.refs, private_state.index)
        }))
    }

    /// Whether the working tree still has the contents that Codex has staged and committed.
    async fn is_still_checked_out(
        &self,
        now: &Refs,
        private_state: &PrivateState<'_>,
    ) -> Result<bool, GitError> {
        if now.head != self.synced.refs.head {
            return Ok(false);
        }
        if private_state.index == self.synced.index.as_deref() {
            // The commits were made without changing the index.
            return Ok(private_state.refs.tip() == self.synced.refs.tip());
        }
        let base = IndexListing(fs::read(self.directory.join(BASE))?);
        let compared = self.directory.join(COMPARED_INDEX);
        match has_working_tree(&self.git, &compared, &base, private_state.staged).await {
            Err(GitError::Cancelled) => Err(GitError::Cancelled),
            compared => Ok(compared.unwrap_or(false)),
        }
    }

    /// Takes git's lock on the index; the lock file contains the new index. Notes that the
    /// repository is about to change. `None` if another process has changed the index.
    async fn lock_index(
        &self,
        difference: &Difference,
        private_state: &PrivateState<'_>,
    ) -> Result<Option<Option<IndexLock>>, GitError> {
        let new = self.directory.join("index.new");
        let new = difference.stage(&self.git, &new, self.run()).await?;
        let stamp = new.as_ref().and_then(NewIndex::stamp);
        let journal = Journal::new(private_state.refs, private_state.index, stamp);
        let journal = serde_json::to_vec(&journal).map_err(io::Error::from)?;
        self.replace(JOURNAL, &journal)?;
        match new {
            Some(new) => Ok(new.lock().await?.map(Some)),
            None => Ok(Some(None)),
        }
    }

    /// The refs that both sides have after a takeover that left out these refs. The next takeover
    /// tries them again.
    fn without(&self, left_out: &BTreeSet<String>, mut theirs: Refs) -> Refs {
        for name in left_out {
            match self.synced.refs.all.get(name) {
                Some(before) => theirs.all.insert(name.clone(), before.clone()),
                None => theirs.all.remove(name),
            };
        }
        theirs
    }

    /// Records the refs that were moved though the checkout stays: in the next takeover, they are
    /// not changed by another process.
    fn note_moved(&mut self, plan: &Plan, theirs: &Refs) -> io::Result<()> {
        for name in plan.changed() {
            if let Some(id) = theirs.all.get(name) {
                self.synced.refs.all.insert(name.to_owned(), id.clone());
            }
        }
        self.save()
    }

    /// Puts the new index in place, and records that the takeover is complete.
    fn publish(
        &mut self,
        lock: Option<IndexLock>,
        staged: &IndexListing,
        theirs: Refs,
        index: Option<String>,
    ) -> io::Result<()> {
        if let Some(lock) = lock {
            lock.publish()?;
        }
        self.replace(BASE, &staged.0)?;
        self.synced.refs = Refs {
            others: 0,
            ..theirs
        };
        self.synced.index = index;
        self.save()?;
        Journal::remove(&self.directory)
    }

    /// Transfers the new objects into the repository. Returns the entries of the private index,
    /// which has this stamp, and the differences that the repository has to stage.
    async fn bring_objects(
        &self,
        theirs: &Refs,
        now: &Refs,
        index: Option<&str>,
    ) -> Result<(IndexListing, Difference), GitError> {
        let has_moved = now.head != self.synced.refs.head && now.head != theirs.head;
        let transfer = self.transfer().await.map_err(GitError::View)?;
        let copy = self.directory.join(INDEX_COPY);
        let base = IndexListing(fs::read(self.directory.join(BASE))?);
        let staged = match index == self.synced.index.as_deref() || has_moved {
            true => IndexListing(base.0.clone()),
            false => {
                let git = transfer.without_objects()?;
                IndexListing::of_private(git, &self.path(), &copy).await?
            }
        };
        let difference = Difference::read(&staged, &base, &self.git, self.id_length()).await?;
        let wanted = wanted(&self.synced.refs, theirs, &difference);
        transfer.bring(&wanted, now).await?;
        Ok((staged, difference))
    }

    /// A transfer of the private directory's objects.
    async fn transfer(&self) -> io::Result<Transfer> {
        let (git, io_thread) = (self.git.clone(), self.io_thread.clone());
        let (run, private) = (self.directory.clone(), self.path());
        self.with_files(move || {
            let transfer = Transfer::new(&git, &run, &io_thread)?;
            transfer.fill_quarantine(&private)?;
            Ok(transfer)
        })
        .await
    }

    /// Refuses submodules that did not exist before. Git reads the settings in a submodule's
    /// directory, and Codex may have written them.
    async fn check_submodules(
        &mut self,
        source: Source,
        theirs: &Refs,
        now: &Refs,
        difference: &Difference,
    ) -> Result<(), GitError> {
        let new = theirs
            .all
            .values()
            .filter(|id| !now.all.values().any(|one| one == *id));
        let mut tips: BTreeSet<&str> = new.map(String::as_str).collect();
        if let Some(Head::Commit(id)) = theirs.head() {
            tips.insert(id);
        }
        let mut added: BTreeSet<PathBuf> = difference.submodules.iter().cloned().collect();
        if !tips.is_empty() {
            let new = NewCommits {
                tips,
                known: now,
                // An interrupted run is compared with its state at its last import.
                before: match self.first.all.is_empty() {
                    true => &self.synced.refs,
                    false => &self.first,
                },
            };
            added.extend(added_submodules(&self.git, self.id_length(), &new).await?);
        }
        let Some(first) = added.first().cloned() else {
            self.refused.clear();
            return Ok(());
        };
        self.refused = added.into_iter().take(REFUSED_LIMIT).collect();
        // The remains of an interrupted run may belong to the user by now.
        let moved = match source {
            Source::LiveRun => self.move_refused().await?,
            Source::InterruptedRun | Source::RemovedWorktree => String::new(),
        };
        Err(io::Error::other(format!(
            "they add the submodule {first:?}, whose settings your git would read; commit the \
             files of that directory instead{moved}"
        ))
        .into())
    }

    /// Moves aside the repositories in the directories that were refused as submodules: git
    /// would read their settings once the commits are merged.
    async fn move_refused(&self) -> Result<String, GitError> {
        let (top, refused) = (self.git.root().to_owned(), self.refused.clone());
        let move_all = move || -> String {
            let moved = refused.iter().filter_map(|path| move_aside(&top, path));
            moved.map(|warning| format!("; {warning}")).collect()
        };
        let moved = off_runtime::run(move_all).await;
        Ok(moved.map_err(io::Error::other)?)
    }

    /// Git for changes of the repository that must not be cancelled halfway.
    fn git_for_moves(&self) -> Result<Git, GitError> {
        let mut git = self.git.in_repository()?.with_timeout(MOVE_TIMEOUT);
        git.invocation.bounds.halt = CancellationToken::new();
        Ok(git)
    }

    /// Moves refs, and keeps the earlier tips of rewritten branches.
    async fn move_refs(&self, plan: &mut Plan, aside: &mut AsideRefs) -> Result<(), GitError> {
        let mut lines = plan.updates.concat();
        let (mut rewritten, mut refused) = (Vec::new(), Vec::new());
        for (name, old) in &plan.rewritten {
            let kept = aside.keep_former(name, old);
            let last = kept.last().map(|kept| format!("update {kept} {old}\n"));
            lines.extend(last);
            rewritten.push(format!(
                "Codex has rewritten {name}: the commits that it had before the run are kept at {}",
                kept.join(", ")
            ));
        }
        for RefusedRef { name, id, why } in &plan.refused {
            let kept = aside.keep(name);
            lines.push_str(&format!("update {kept} {id}\n"));
            refused.push(format!(
                "Codex has created {name}, which was not imported: {why}. Its commit is kept at \
                 {kept}"
            ));
        }
        plan.warn_of_each(rewritten, "rewritten branches are kept like this");
        plan.warn_of_each(refused, "new refs like this are kept aside");
        match lines.is_empty() {
            true => Ok(()),
            false => update(&self.git_for_moves()?, &lines).await,
        }
    }

    async fn move_head(&self, plan: &Plan) -> Result<(), GitError> {
        let Some(head) = plan.head.as_deref() else {
            return Ok(());
        };
        let question = match head.strip_prefix("refs/") {
            Some(_) => vec!["symbolic-ref", "-m", MESSAGE, "HEAD", head],
            None => vec!["update-ref", "-m", MESSAGE, "--no-deref", "HEAD", head],
        };
        self.git_for_moves()?.output(&question, &[]).await.map(drop)
    }

    /// Keeps tips that are not taken over.
    async fn keep_aside(
        &self,
        plan: &mut Plan,
        aside: &mut AsideRefs,
        theirs: &Refs,
    ) -> Result<(), GitError> {
        if plan.aside.is_empty() {
            let why = plan.why_aside;
            plan.warnings
                .push(format!("what Codex has staged was not imported: {why}"));
            return Ok(());
        }
        let (mut lines, mut kept) = (String::new(), Vec::new());
        for (name, id) in &plan.aside {
            let at = aside.keep(name);
            lines.push_str(&format!("update {at} {id}\n"));
            kept.push((theirs.head() == Some(Head::Branch(name)), at));
        }
        update(&self.git_for_moves()?, &lines).await?;
        let checked_out = kept.iter().find(|(is_checked_out, _)| *is_checked_out);
        let wanted = checked_out.or(kept.first()).map(|(_, at)| at.as_str());
        plan.warnings.push(format!(
            "Codex's commits of {} are kept below {}: {}; to get them, run `git merge {}`",
            plan.aside_names(),
            aside.base(),
            plan.why_aside,
            shell_word(wanted.unwrap_or_default())
        ));
        Ok(())
    }

    /// The branches that other working trees of the repository have checked out.
    async fn checked_out_elsewhere(&self) -> Result<BTreeSet<String>, GitError> {
        let layout = self.git.layout();
        if !layout.common_dir.join("worktrees").exists() {
            return Ok(BTreeSet::new());
        }
        let git = self.git.in_repository()?;
        let output = git.text(&["worktree", "list", "--porcelain"], &[]).await?;
        let mut branches = BTreeSet::new();
        for (number, block) in output.split("\n\n").enumerate() {
            let line = |key: &str| block.lines().find_map(|line| line.strip_prefix(key));
            let path = line("worktree ").map(PathBuf::from);
            let is_here = |path: PathBuf| path.canonicalize().is_ok_and(|it| it == layout.top);
            // The main working tree comes first; if its git directory lies elsewhere, it is listed
            // by that.
            let is_ours = match layout.is_linked() {
                true => path.is_some_and(is_here),
                false => number == 0,
            };
            if let (false, Some(branch)) = (is_ours, line("branch ")) {
                branches.insert(branch.to_owned());
            }
        }
        Ok(branches)
    }
}

/// The state of the private directory.
struct PrivateState<'a> {
    refs: &'a Refs,
    /// The stamp of its index.
    index: Option<&'a str>,
    /// The entries staged in it, if they are to be taken over.
    staged: &'a IndexListing,
}

impl Takeover {
    fn nothing() -> Self {
        Self {
            warnings: Vec::new(),
            complete: true,
            refs: Vec::new(),
            head: None,
        }
    }
}

/// The objects that the repository has to have.
fn wanted<'a>(before: &Refs, theirs: &'a Refs, difference: &'a Difference) -> BTreeSet<&'a str> {
    let changed = theirs
        .all
        .iter()
        .filter(|(name, id)| before.all.get(*name) != Some(*id));
    let mut wanted: BTreeSet<&str> = changed.map(|(_, id)| id.as_str()).collect();
    if let Some(Head::Commit(id)) = theirs.head() {
        wanted.insert(id);
    }
    wanted.extend(difference.objects.iter().map(String::as_str));
    wanted
}

async fn update(git: &Git, input: &str) -> Result<(), GitError> {
    let question = ["update-ref", "--create-reflog", "-m", MESSAGE, "--stdin"];
    git.output(&question, input.as_bytes()).await.map(drop)
}
