//! The working tree.

use std::path::PathBuf;

use git_probe::Git;
use git_probe::logic::git_state::GitState;
use supervise::io_thread::IoThread;
use supervise::short_lived::Extent;

use crate::logic::snapshot::{Probe, Tree};

/// The state of the tree, and its differences from `before`, the HEAD of the start.
pub(super) async fn look(git: &Git, before: Option<&str>, io_thread: &IoThread) -> Probe<Tree> {
    match differences(git, before, io_thread).await {
        Ok(tree) => Probe::Found(tree),
        Err(why) => Probe::Failed(why),
    }
}

async fn differences(
    git: &Git,
    before: Option<&str>,
    io_thread: &IoThread,
) -> Result<Tree, String> {
    let state = state(git, io_thread).await?;
    let committed = git.committed(before, state.head.as_deref()).await;
    Ok(Tree {
        state,
        committed: committed.map_err(|error| error.to_string())?,
    })
}

/// The state of the tree by git.
pub(super) async fn state(git: &Git, io_thread: &IoThread) -> Result<GitState, String> {
    let status = git.status().await.map_err(|error| error.to_string())?;
    if status.extent == Extent::Cut {
        return Err("git lists more uncommitted files than the limit allows".to_owned());
    }
    let root: PathBuf = git.root().to_owned();
    let state = io_thread.run(move || status.read(&root)).await;
    state.map_err(|ended| ended.to_string())
}
