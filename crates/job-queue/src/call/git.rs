//! Compares the working tree before and after a turn. [`git_probe`] explains how git is asked
//! safely.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use codex_engine::logic::work::{Changes, Digest};
use git_probe::logic::git_state::{ChangeKind, GitState};
use git_probe::repository::Repository;
use git_probe::{Bounds, Git, GitError};
use safe_files::off_runtime;
use serde::{Deserialize, Serialize};
use supervise::short_lived::Extent;
use tokio_util::sync::CancellationToken;

/// The limit of git's output, in bytes for each question.
const OUTPUT_LIMIT: u64 = 4 * 1024 * 1024;

/// The state of the working tree at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum TreeState {
    /// There is no repository, or it was not inspected.
    NotInspected,
    /// Git has failed, for this reason.
    Unknown(String),
    /// The inspected working tree.
    Tree(Tree),
}

/// A working tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Tree {
    repository: git_probe::Repository,
    /// The top directory.
    root: String,
    state: GitState,
    /// Whether git's output was complete or cut.
    extent: Extent,
}

/// Inspects the repository around `cwd`. Each question may take `timeout`, and is
/// given up when `halt` is cancelled.
pub(super) async fn inspect(
    cwd: &Path,
    env: &[(OsString, OsString)],
    timeout: Duration,
    halt: &CancellationToken,
) -> TreeState {
    let here = cwd.to_owned();
    match off_runtime::run(move || Repository::around(&here, &[])).await {
        Ok(Some(_)) => {}
        Ok(None) => return TreeState::NotInspected,
        Err(error) => {
            tracing::warn!("cannot look at {}: {error}", cwd.display());
            return TreeState::NotInspected;
        }
    }
    match Git::begin(cwd, env, bounds(timeout, halt)).await {
        Ok(git) => match tree(&git).await {
            Ok(tree) => TreeState::Tree(tree),
            Err(error) => TreeState::Unknown(error.to_string()),
        },
        Err(error) if error.is_no_repository() => TreeState::NotInspected,
        Err(error) => TreeState::Unknown(error.to_string()),
    }
}

/// The working tree before a turn, and its changes after it.
#[derive(Debug)]
pub(super) struct TreeComparison {
    before: TreeState,
    /// `None` if there was no state to compare with.
    after: Option<Result<TreeChange, GitError>>,
}

/// A working tree after a turn, and the files that have changed.
#[derive(Debug)]
struct TreeChange {
    after: Tree,
    changed: BTreeMap<String, ChangeKind>,
}

impl TreeComparison {
    /// A comparison without any inspection.
    pub(super) fn none() -> Self {
        Self {
            before: TreeState::NotInspected,
            after: None,
        }
    }

    /// Inspects the tree again. Each question may take `timeout`.
    pub(super) async fn complete(
        before: TreeState,
        cwd: &Path,
        env: &[(OsString, OsString)],
        timeout: Duration,
    ) -> Self {
        let after = match &before {
            TreeState::Tree(tree) => Some(changes_since(tree, cwd, env, timeout).await),
            TreeState::NotInspected | TreeState::Unknown(_) => None,
        };
        Self { before, after }
    }

    /// The changed files, as git and Codex report them.
    pub(super) fn changes(self, digest: &Digest) -> Changes {
        let mut changes = Changes::default();
        let mut seen = BTreeMap::new();
        let mut root = None;
        match self.before {
            TreeState::NotInspected => {}
            TreeState::Unknown(error) => changes.incomplete = Some(error),
            TreeState::Tree(before) => {
                changes.head_before = before.state.head;
                root = Some(before.root);
                match self.after {
                    Some(Ok(TreeChange { after, changed })) => {
                        changes.head_after = after.state.head;
                        seen = changed;
                        if [before.extent, after.extent].contains(&Extent::Cut) {
                            let cut = "there are more files than could be looked at";
                            changes.incomplete = Some(cut.to_owned());
                        }
                    }
                    Some(Err(error)) => changes.incomplete = Some(error.to_string()),
                    None => {}
                }
            }
        }
        changes.merge(&seen, &digest.files, root.as_deref());
        changes
    }
}

async fn changes_since(
    before: &Tree,
    cwd: &Path,
    env: &[(OsString, OsString)],
    timeout: Duration,
) -> Result<TreeChange, GitError> {
    let never = CancellationToken::new();
    let git = Git::reopen(&before.repository, cwd, env, bounds(timeout, &never)).await?;
    let after = tree(&git).await?;
    let heads = (before.state.head.as_deref(), after.state.head.as_deref());
    let committed = git.committed(heads.0, heads.1).await?;
    let changed = before.state.changed_until(&after.state, &committed);
    Ok(TreeChange { after, changed })
}

fn bounds(timeout: Duration, halt: &CancellationToken) -> Bounds {
    Bounds {
        timeout,
        limit: OUTPUT_LIMIT,
        halt: halt.clone(),
    }
}

async fn tree(git: &Git) -> Result<Tree, GitError> {
    let status = git.status().await?;
    Ok(Tree {
        repository: git.repository(),
        root: git.root().to_string_lossy().into_owned(),
        state: status.read(git.root()),
        extent: status.extent,
    })
}
