//! Reviews of code.

use serde::{Deserialize, Serialize};

use super::ThreadId;

/// Parameters of `review/start`. Its answer is that of `turn/start`: the review is a turn of
/// the thread, and its text the last message. (The other `delivery`, `detached`, is broken
/// or gone on most releases from 0.104.0 to 0.169.0.)
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewStartParams<'a> {
    /// The thread that reviews. It is begun for the review, with the review's sandbox.
    pub thread_id: &'a ThreadId,
    /// The changes to review.
    pub target: &'a ReviewTarget,
}

/// The changes that a review looks at. Codex knows `baseBranch` too, and asks git itself
/// for the merge base, outside of its sandbox. It cannot do so here, as its `GIT_DIR`
/// leads nowhere, so such a review is requested by instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ReviewTarget {
    /// Staged, unstaged and untracked changes.
    UncommittedChanges,
    /// What a commit changed. Codex does not refuse a commit that does not exist.
    Commit {
        /// Its id.
        sha: String,
    },
    /// A review by instructions.
    Custom {
        /// The instructions; not empty.
        instructions: String,
    },
}
