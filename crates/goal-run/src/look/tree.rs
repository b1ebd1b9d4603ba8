//! The working tree.

use std::path::PathBuf;

use git_probe::Git;
use git_probe::logic::git_state::GitState;
use supervise::converse::Extent;
use supervise::io_thread::IoThread;

use crate::logic::snapshot::{Probe, Tree};

/// How the tree differs from the commit that was checked out at the start, `before`.
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

/// What git says of the tree.
pub(super) async fn state(git: &Git, io_thread: &IoThread) -> Result<GitState, String> {
    let status = git.status().await.map_err(|error| error.to_string())?;
    if status.extent == Extent::Cut {
        return Err("there are more uncommitted files than are looked at".to_owned());
    }
    let root: PathBuf = git.root().to_owned();
    let state = io_thread.ask(move || status.read(&root)).await;
    state.map_err(|ended| ended.to_string())
}
