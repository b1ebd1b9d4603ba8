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
    /// Its top folder.
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

/// What has changed since `before`, by git and by what Codex reported.
pub(super) async fn changes(
    cwd: &Path,
    env: &[(OsString, OsString)],
    before: &Seen,
    digest: &Digest,
    patience: Duration,
) -> Changes {
    let mut changes = Changes::default();
    let mut seen = BTreeMap::new();
    match before {
        Seen::Nothing => {}
        Seen::Unknown(error) => changes.incomplete = Some(error.to_string()),
        Seen::Tree(tree) => {
            changes.head_before.clone_from(&tree.state.head);
            match since(tree, cwd, env, patience).await {
                Ok((after, changed)) => {
                    changes.head_after = after.state.head;
                    seen = changed;
                    if [tree.extent, after.extent].contains(&Extent::Cut) {
                        let cut = "there are more files than could be looked at";
                        changes.incomplete = Some(cut.to_owned());
                    }
                }
                Err(error) => changes.incomplete = Some(error.to_string()),
            }
        }
    }
    let root = match before {
        Seen::Tree(tree) => Some(tree.root.as_str()),
        _ => None,
    };
    changes.tell(&seen, &digest.files, root);
    changes
}

async fn since(
    before: &Tree,
    cwd: &Path,
    env: &[(OsString, OsString)],
    patience: Duration,
) -> Result<(Tree, BTreeMap<String, ChangeKind>), GitError> {
    let never = CancellationToken::new();
    let git = Git::begin(cwd, env, bounds(patience, &never)).await?;
    let after = tree(&git).await?;
    let heads = (before.state.head.as_deref(), after.state.head.as_deref());
    let committed = git.committed(heads.0, heads.1).await?;
    let changed = before.state.changed_until(&after.state, &committed);
    Ok((after, changed))
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
        root: git.root().to_string_lossy().into_owned(),
        state: status.read(git.root()),
        extent: status.extent,
    })
}
