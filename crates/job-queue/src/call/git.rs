//! What git sees of a run. How it is asked, and why that is safe, is told in
//! [`git_probe`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use codex_engine::logic::work::{Changes, Digest};
use git_probe::logic::git_state::{ChangeKind, GitState};
use git_probe::repository::Repository;
use git_probe::{Bounds, Git, GitError};
use safe_files::off_runtime;
use supervise::converse::Extent;
use tokio_util::sync::CancellationToken;

/// How much of what git says is read, in bytes for each question.
const OUTPUT_LIMIT: u64 = 4 * 1024 * 1024;

/// What git saw.
#[derive(Debug)]
pub(super) enum Seen {
    /// There is no repository, or nobody looked.
    Nothing,
    /// Git doesn't tell, for this reason.
    Unknown(GitError),
    /// This.
    Tree(Tree),
}

/// A working tree.
#[derive(Debug)]
pub(super) struct Tree {
    repository: git_probe::Repository,
    /// Its top directory.
    root: String,
    state: GitState,
    /// Whether that is all that there is.
    extent: Extent,
}

/// Looks at the repository around `cwd`. Each question may take `patience`, and is
/// given up when `halt` is cancelled.
pub(super) async fn look(
    cwd: &Path,
    env: &[(OsString, OsString)],
    patience: Duration,
    halt: &CancellationToken,
) -> Seen {
    let here = cwd.to_owned();
    match off_runtime::run(move || Repository::around(&here, &[])).await {
        Ok(Some(_)) => {}
        Ok(None) => return Seen::Nothing,
        Err(error) => {
            tracing::warn!("cannot look at {}: {error}", cwd.display());
            return Seen::Nothing;
        }
    }
    match Git::begin(cwd, env, bounds(patience, halt)).await {
        Ok(git) => match tree(&git).await {
            Ok(tree) => Seen::Tree(tree),
            Err(error) => Seen::Unknown(error),
        },
        Err(error) if error.is_no_repository() => Seen::Nothing,
        Err(error) => Seen::Unknown(error),
    }
}

/// What git saw before a turn, and after it.
#[derive(Debug)]
pub(super) struct Looks {
    before: Seen,
    /// `None` if there was nothing to compare with.
    after: Option<Result<Since, GitError>>,
}

/// A working tree after a turn, and the files that have changed.
#[derive(Debug)]
struct Since {
    after: Tree,
    changed: BTreeMap<String, ChangeKind>,
}

impl Looks {
    /// Nobody has looked.
    pub(super) fn none() -> Self {
        Self {
            before: Seen::Nothing,
            after: None,
        }
    }

    /// Looks again. Each question may take `patience`.
    pub(super) async fn complete(
        before: Seen,
        cwd: &Path,
        env: &[(OsString, OsString)],
        patience: Duration,
    ) -> Self {
        let after = match &before {
            Seen::Tree(tree) => Some(since(tree, cwd, env, patience).await),
            Seen::Nothing | Seen::Unknown(_) => None,
        };
        Self { before, after }
    }

    /// What has changed, by git and by what Codex reported.
    pub(super) fn changes(self, digest: &Digest) -> Changes {
        let mut changes = Changes::default();
        let mut seen = BTreeMap::new();
        let mut root = None;
        match self.before {
            Seen::Nothing => {}
            Seen::Unknown(error) => changes.incomplete = Some(error.to_string()),
            Seen::Tree(before) => {
                changes.head_before = before.state.head;
                root = Some(before.root);
                match self.after {
                    Some(Ok(Since { after, changed })) => {
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
        changes.tell(&seen, &digest.files, root.as_deref());
        changes
    }
}

async fn since(
    before: &Tree,
    cwd: &Path,
    env: &[(OsString, OsString)],
    patience: Duration,
) -> Result<Since, GitError> {
    let never = CancellationToken::new();
    let git = Git::again(&before.repository, cwd, env, bounds(patience, &never)).await?;
    let after = tree(&git).await?;
    let heads = (before.state.head.as_deref(), after.state.head.as_deref());
    let committed = git.committed(heads.0, heads.1).await?;
    let changed = before.state.changed_until(&after.state, &committed);
    Ok(Since { after, changed })
}

fn bounds(patience: Duration, halt: &CancellationToken) -> Bounds {
    Bounds {
        patience,
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
