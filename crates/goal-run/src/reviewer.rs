//! Reviews of changes by a separate, read-only thread.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use codex_engine::command::{McpServers, Prompt, Settings, StartThread, TurnRef};
use codex_engine::logic::progress::CurrentStep;
use codex_engine::logic::session::TurnEnding;
use codex_engine::logic::work::in_words;
use codex_engine::{Engine, EngineError};
use codex_protocol::codex::{ApprovalPolicy, ReviewTarget, SandboxMode, ThreadId};
use common::text::first_names;
use git_probe::{Bounds, Git, GitError};
use supervise::exit::Exit;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How long git may take to look up a commit (10 s).
const GIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most of git's output that is read, in bytes. The longest outputs are the list of settings of
/// the user and the repository, and the index.
const GIT_LIMIT: u64 = 4 * 1024 * 1024;

/// The time limit of the search for changes in the repository and its submodules (10 s).
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);

/// How many submodules with changes the instructions name.
const SUBMODULES_NAMED: usize = 20;

/// How git begins the record of a submodule in the index.
const SUBMODULE: &[u8] = b"160000 ";

/// How long an interrupted review may take to end (3 s).
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(3);

/// The changes to review, as a person or a client names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReviewScope {
    /// Uncommitted changes.
    Uncommitted,
    /// Changes since the merge base with a branch.
    Since(String),
    /// Changes of a commit, by any name that git knows.
    Commit(String),
    /// Changes that a text describes.
    Described(String),
}

/// The name of a commit that git was asked for.
#[derive(Debug)]
pub struct CommitQuery {
    /// The name as given.
    name: String,
    /// A directory in the repository.
    directory: PathBuf,
}

/// Why there is no review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// There is no such commit.
    #[error("there is no commit {:?} in {}; `git log --all` lists the commits", .0.name, .0.directory.display())]
    NoCommit(CommitQuery),
    /// There is no such branch, nor another commit of that name.
    #[error(
        "there is no branch {:?} in {}; `git branch --all` shows the branches, and `git fetch` \
         brings those of a remote",
        .0.name, .0.directory.display()
    )]
    NoBase(CommitQuery),
    /// The repository has no commit that could be compared with the branch.
    #[error(
        "HEAD has no commit in {} that could be compared with {:?}; review what is not \
         committed instead",
        .0.directory.display(), .0.name
    )]
    NoHead(CommitQuery),
    /// The branch and HEAD have no common ancestor.
    #[error(
        "{:?} and HEAD have no common ancestor in {}; name another branch, or run \
         `git fetch --unshallow` if the clone is shallow",
        .0.name, .0.directory.display()
    )]
    NoMergeBase(CommitQuery),
    /// Nothing has changed since the merge base, as on a branch that was moved back.
    #[error(
        "there is nothing to review in {}: no tracked file differs from the merge base of HEAD and \
         {:?}; name another branch or a commit, or add new files with `git add`",
        .0.directory.display(), .0.name
    )]
    NoChanges(CommitQuery),
    /// The repository has no uncommitted changes.
    #[error(
        "there is nothing to review in {}: git finds neither uncommitted changes nor untracked \
         files; name a branch or a commit, or say in words what to review",
        .0.display()
    )]
    Clean(PathBuf),
    /// The commit changes nothing.
    #[error(
        "there is nothing to review in {}: the commit {:?} changes no file; name another commit \
         or a branch",
        .0.directory.display(), .0.name
    )]
    EmptyCommit(CommitQuery),
    /// Codex cannot be used.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The review ended early.
    #[error("the review failed: {0}")]
    Failed(String),
    /// The review took too long.
    #[error("the review took longer than {} s and was interrupted{}", limit.as_secs(), last_step(.step))]
    TimedOut {
        /// The time limit of the review.
        limit: Duration,
        /// The reviewer's last step.
        step: String,
    },
    /// The review was cancelled.
    #[error("the review was interrupted")]
    Interrupted,
}

fn last_step(step: &str) -> String {
    match step {
        "" => String::new(),
        step => format!("; last step: {step}"),
    }
}

impl ReviewScope {
    /// Resolves the scope to a review target for Codex. Commits are looked up here, since Codex
    /// does not refuse a commit that does not exist. The merge base with a branch is determined
    /// here too, since Codex's own git must not run on the repository.
    ///
    /// # Errors
    ///
    /// [`ReviewError`] if git fails, if a commit or the merge base does not exist, or if there are
    /// no changes.
    pub async fn target(self, directory: &Path) -> Result<ReviewTarget, ReviewError> {
        Ok(match self {
            Self::Uncommitted => {
                let repository = Repository::around(directory).await?;
                match repository.changed_trees().await {
                    Some(changed) if changed.is_empty() => {
                        return Err(ReviewError::Clean(directory.to_owned()));
                    }
                    changed => uncommitted(repository.git.root(), &changed.unwrap_or_default()),
                }
            }
            Self::Since(branch) => {
                let repository = Repository::around(directory).await?;
                let base = repository.merge_base(&branch).await?;
                if repository.is_unchanged_since(&base).await {
                    return Err(ReviewError::NoChanges(repository.query(&branch)));
                }
                let instructions = since(&branch, &base);
                ReviewTarget::Custom { instructions }
            }
            Self::Commit(name) => {
                let repository = Repository::around(directory).await?;
                let sha = repository.commit(&name).await?;
                let missing = || ReviewError::NoCommit(repository.query(&name));
                let sha = sha.ok_or_else(missing)?;
                if repository.is_empty_commit(&sha).await {
                    return Err(ReviewError::EmptyCommit(repository.query(&name)));
                }
                ReviewTarget::Commit { sha }
            }
            Self::Described(instructions) => ReviewTarget::Custom { instructions },
        })
    }
}

/// What a reviewer is to report, where the instructions are ours.
const REPORT: &str = "Report the faults that the author should fix, each with its priority and its \
    place, the gravest first.";

/// The instructions to review the changes since the merge base with a branch.
fn since(branch: &str, base: &str) -> String {
    format!(
        "Review the changes since the branch {branch:?}. The merge base of HEAD and that branch \
         is the commit {base}; `git diff {base}` shows the changes. {REPORT}"
    )
}

/// The target for uncommitted changes in these working trees. Codex's own instructions name none, and
/// git in the repository shows no changes inside of submodules.
fn uncommitted(root: &Path, changed: &[PathBuf]) -> ReviewTarget {
    let submodules = changed.iter().filter(|tree| *tree != root);
    // The names are those of the author of the changes.
    let names: Vec<String> = submodules.map(|tree| format!("{tree:?}")).collect();
    if names.is_empty() {
        return ReviewTarget::UncommittedChanges;
    }
    let instructions = format!(
        "Review the uncommitted changes: staged, unstaged and untracked files. These submodules \
         have some, which `git diff` shows only inside of them, as in `git -C DIRECTORY diff HEAD` \
         and `git -C DIRECTORY status`: {}. {REPORT}",
        first_names(names, SUBMODULES_NAMED)
    );
    ReviewTarget::Custom { instructions }
}

/// A repository in which commits are looked up.
struct Repository<'a> {
    directory: &'a Path,
    git: Git,
}

impl<'a> Repository<'a> {
    async fn around(directory: &'a Path) -> Result<Self, GitError> {
        let bounds = Bounds {
            timeout: GIT_TIMEOUT,
            limit: GIT_LIMIT,
            halt: CancellationToken::new(),
        };
        let git = Git::begin(directory, &[], bounds).await?;
        Ok(Self { directory, git })
    }

    /// The id of a commit by a name that git knows. The name may look like an option.
    async fn commit(&self, name: &str) -> Result<Option<String>, GitError> {
        let wanted = format!("{name}^{{commit}}");
        let question = ["rev-parse", "--verify", "--quiet", "--end-of-options"];
        let question = [&question[..], &[&wanted]].concat();
        match self.git.text(&question, &[]).await {
            Ok(id) => Ok(Some(id.trim().to_owned())),
            Err(GitError::Failed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The id of the best common ancestor of a branch and HEAD.
    async fn merge_base(&self, branch: &str) -> Result<String, ReviewError> {
        let no_head = || ReviewError::NoHead(self.query(branch));
        let no_base = || ReviewError::NoBase(self.query(branch));
        let head = self.commit("HEAD").await?.ok_or_else(no_head)?;
        let tip = self.commit(branch).await?.ok_or_else(no_base)?;
        match self.git.text(&["merge-base", &tip, &head], &[]).await {
            Ok(base) => Ok(base.trim().to_owned()),
            Err(GitError::Failed {
                exit: Exit::Code(1),
                ..
            }) => Err(ReviewError::NoMergeBase(self.query(branch))),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether git finds every tracked file unchanged since a commit. `false` if git cannot tell:
    /// then the reviewer has to look.
    async fn is_unchanged_since(&self, commit: &str) -> bool {
        let question = [
            "diff",
            "--quiet",
            "--no-ext-diff",
            "--no-textconv",
            // Git would look for changes with the settings of the submodule.
            "--ignore-submodules=dirty",
            commit,
        ];
        self.git.output(&question, &[]).await.is_ok()
    }

    /// The working trees in which git finds uncommitted changes or untracked files, which are what
    /// Codex reviews: this one and those of the submodules. Each submodule is visited as a repository
    /// of its own, since git would look into it with the submodule's settings. `None` if git cannot
    /// tell: then the reviewer has to look.
    async fn changed_trees(&self) -> Option<Vec<PathBuf>> {
        let found = timeout(SEARCH_TIMEOUT, self.search_changed_trees()).await;
        found.ok().flatten()
    }

    async fn search_changed_trees(&self) -> Option<Vec<PathBuf>> {
        let mut changed = Vec::new();
        if self.has_changes().await? {
            changed.push(self.git.root().to_owned());
        }
        let mut unvisited = self.submodules().await?;
        while let Some(top) = unvisited.pop() {
            let submodule = Repository::around(&top).await.ok()?;
            // A `.git` that leads to nothing, or a link in the path: this is another repository.
            if submodule.git.root() != top {
                return None;
            }
            if submodule.has_changes().await? {
                changed.push(top.clone());
            }
            unvisited.extend(submodule.submodules().await?);
        }
        changed.sort();
        Some(changed)
    }

    /// Whether git finds changes, apart from those inside of submodules. `None` if git cannot tell.
    async fn has_changes(&self) -> Option<bool> {
        let question = [
            "status",
            "--porcelain",
            "--untracked-files=normal",
            "--ignore-submodules=dirty",
        ];
        let changes = self.git.output(&question, &[]).await.ok()?;
        Some(!changes.is_empty())
    }

    /// The working trees of the checked-out submodules. `None` if git cannot tell.
    async fn submodules(&self) -> Option<Vec<PathBuf>> {
        let listed = self.git.output(&["ls-files", "-z", "--stage"], &[]).await;
        let index = listed.ok()?;
        let mut checked_out = Vec::new();
        for path in index.split(|byte| *byte == 0).filter_map(submodule) {
            // Anybody can write an index. What is not below its repository could be visited for ever.
            if !is_below_root(path) {
                return None;
            }
            let top = self.git.root().join(path);
            // Git looks into the submodule even if this leads to nothing.
            if top.join(".git").symlink_metadata().is_ok() {
                checked_out.push(top);
            }
        }
        Some(checked_out)
    }

    /// Whether git finds no difference between a commit and its first parent, or no file in a
    /// commit without parents. `false` if git cannot tell.
    async fn is_empty_commit(&self, sha: &str) -> bool {
        let Ok(parent) = self.commit(&format!("{sha}^")).await else {
            return false;
        };
        let changes = self.git.committed(parent.as_deref(), Some(sha)).await;
        changes.is_ok_and(|changes| changes.is_empty())
    }

    fn query(&self, name: &str) -> CommitQuery {
        CommitQuery {
            name: name.to_owned(),
            directory: self.directory.to_owned(),
        }
    }
}

/// The settings of a reviewing thread: read-only, and without approvals, MCP servers and the
/// repository's instructions. The sandbox would not keep the tools of MCP servers from writing, and
/// the changes under review may include an AGENTS.md.
pub fn read_only(mut settings: Settings) -> Settings {
    settings.thread.sandbox = Some(SandboxMode::ReadOnly);
    settings.thread.approval_policy = Some(ApprovalPolicy::Never);
    settings.mcp_servers = McpServers::Off;
    settings
}

/// A request for a review.
pub struct ReviewRequest<'a> {
    /// The changes to review.
    pub target: ReviewTarget,
    /// How long the review may take.
    pub limit: Duration,
    /// Cancelled when the review is no longer wanted.
    pub stop: &'a CancellationToken,
    /// Called with each step of the reviewer.
    pub on_step: &'a dyn Fn(&CurrentStep),
}

/// A finished review.
pub struct ReviewResult {
    /// The thread of the reviewer.
    pub thread: ThreadId,
    /// Its text, see [`codex_engine::logic::review`]. Codex reports no tokens of reviews
    /// (0.104.0 to 0.169.0).
    pub text: String,
}

/// Has a new thread review changes. Its session is over afterwards.
///
/// # Errors
///
/// [`ReviewError`].
pub async fn run_review(
    engine: &Engine,
    settings: Settings,
    request: ReviewRequest<'_>,
) -> Result<ReviewResult, ReviewError> {
    let start = StartThread {
        settings: read_only(settings),
        ..StartThread::default()
    };
    let until = Instant::now() + request.limit;
    let too_late = |step| ReviewError::TimedOut {
        limit: request.limit,
        step,
    };
    let opened = tokio::select! {
        opened = engine.start(start) => opened?,
        () = sleep_until(until) => return Err(too_late("starting the reviewer".to_owned())),
        () = request.stop.cancelled() => return Err(ReviewError::Interrupted),
    };
    let reviewing = async {
        let prompt = Prompt::review(request.target.clone());
        let turn = engine.prompt(&opened.session, prompt).await?;
        let late = tokio::select! {
            ended = wait_for_end(engine, &turn, request.on_step) => return ended,
            () = sleep_until(until) => too_late(engine.inspect(&turn.session)?.progress.words),
            () = request.stop.cancelled() => ReviewError::Interrupted,
        };
        // The session is cancelled afterwards in any case.
        let _ = engine.interrupt(&turn);
        let _ = tokio::time::timeout(INTERRUPT_TIMEOUT, wait_for_end(engine, &turn, &|_| {})).await;
        Err(late)
    };
    let reviewed = reviewing.await;
    engine.cancel(&opened.session, "the review is over").await?;
    Ok(ReviewResult {
        thread: opened.thread,
        text: reviewed?,
    })
}

/// The text of a review once it has ended.
async fn wait_for_end(
    engine: &Engine,
    turn: &TurnRef,
    on_step: &dyn Fn(&CurrentStep),
) -> Result<String, ReviewError> {
    let mut reported = CurrentStep::default();
    loop {
        let view = engine.inspect(&turn.session)?;
        if (reported.number, &reported.words) != (view.progress.number, &view.progress.words) {
            on_step(&view.progress);
            reported = view.progress;
        }
        if let Some((number, outcome)) = &view.outcome
            && *number >= turn.number
        {
            return match &outcome.ending {
                TurnEnding::Completed => Ok(outcome.text.clone()),
                TurnEnding::Interrupted => Err(ReviewError::Interrupted),
                TurnEnding::Failed(error) => Err(ReviewError::Failed(in_words(error))),
                TurnEnding::Lost(how) => Err(ReviewError::Failed(how.clone())),
            };
        }
        engine.changed(&turn.session, view.revision).await?;
    }
}

/// The path in a record of the index that is that of a submodule.
fn submodule(record: &[u8]) -> Option<&Path> {
    let rest = record.strip_prefix(SUBMODULE)?;
    let start = rest.iter().position(|byte| *byte == b'\t')? + 1;
    rest.get(start..)
        .map(|path| Path::new(OsStr::from_bytes(path)))
}

/// Whether a path of the index lies below the root of the repository. Every path that git itself writes
/// does.
fn is_below_root(path: &Path) -> bool {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let names: PathBuf = path.components().filter(is_name).collect();
    !path.as_os_str().is_empty() && names.as_os_str() == path.as_os_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviewer_is_told_which_submodules_have_changes() {
        let root = Path::new("/r");
        let instructions = |changed: &[&str]| {
            let changed: Vec<PathBuf> = changed.iter().map(PathBuf::from).collect();
            match uncommitted(root, &changed) {
                ReviewTarget::Custom { instructions } => Some(instructions),
                ReviewTarget::UncommittedChanges => None,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(instructions(&[]), None);
        assert_eq!(instructions(&["/r"]), None);
        let told = instructions(&["/r", "/r/libs/a", "/r/b\n"]).unwrap();
        let names = r#": "/r/libs/a", "/r/b\n". Report"#;
        assert!(told.starts_with("Review the uncommitted changes"), "{told}");
        assert!(told.contains(names), "{told}");
    }

    #[test]
    fn submodule_of_a_forged_index_is_not_looked_for_elsewhere() {
        for path in ["", ".", "./", "/x", "../x", "a/../x", "a/./b", "a//b", "x/"] {
            let record = format!("160000 {} 0\t{path}", "0".repeat(40));
            let path = submodule(record.as_bytes()).unwrap();
            assert!(!is_below_root(path), "{path:?}");
        }
        assert!(is_below_root(Path::new("a/b")));
        assert_eq!(submodule(b"100644 0 0\tfile"), None);
    }
}
