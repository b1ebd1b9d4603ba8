//! What is wanted of a run.

use std::path::PathBuf;

use codex_engine::command::Settings;
use codex_protocol::codex::ThreadId;
use serde::{Deserialize, Serialize};

use crate::logic::criteria::Criteria;
use crate::logic::machine::Limits;
use crate::logic::notifier::Notifier;
use crate::logic::snapshot::Preexisting;

/// The longest task, in bytes. Codex takes prompts of 1 MiB (2^20 characters, what
/// its own input takes).
pub const LONGEST_TASK: usize = 1 << 20;

/// How many can be told of the end of a run.
pub const MOST_NOTIFIERS: usize = 20;

/// A run that somebody wants. As JSON it is kept with its job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What is to be done.
    pub task: String,
    /// Where, an absolute path: the repository, or a directory in it. Codex works at its
    /// top.
    pub repo: PathBuf,
    /// What must hold.
    #[serde(rename = "exit_criteria", default)]
    pub criteria: Criteria,
    /// How much it may take.
    #[serde(flatten)]
    pub limits: Limits,
    /// Whether what was there before counts.
    #[serde(default)]
    pub preexisting: Preexisting,
    /// The thread to go on in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// Where it works in the repository.
    #[serde(default)]
    pub place: Place,
    /// How the thread and its turns are to be.
    #[serde(default)]
    pub settings: Settings,
    /// What Codex's questions are answered.
    #[serde(default)]
    pub approve: Approve,
    /// Who is told when it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Notifier>,
}

/// Where in a repository a run works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the directory that was named.
    #[default]
    Here,
    /// In a git worktree of its own.
    Worktree,
}

/// What Codex's questions are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Approve {
    /// What a person says, where there is a terminal; else no.
    Ask,
    /// No.
    #[default]
    Never,
    /// Yes.
    Always,
}

/// Why an order can't be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOrder {
    /// There is nothing to do.
    #[error("the task is empty; say what Codex is to do")]
    NoTask,
    /// The task is too long.
    #[error(
        "the task has {0} bytes, and at most {LONGEST_TASK} are taken; put it into a file of the repository and name that"
    )]
    LongTask(usize),
    /// No directory is named.
    #[error("repo must not be empty; name the repository's directory, `.` for the current one")]
    NoRepo,
    /// The directory isn't there.
    #[error("there is no directory {}; name the repository's", .0.display())]
    NoDirectory(PathBuf),
    /// There are too many to tell.
    #[error("{0} are to be told of the end, and at most {MOST_NOTIFIERS} can be")]
    Notifiers(usize),
}

impl Order {
    /// A run with what is usual, for nothing in particular.
    #[must_use]
    pub fn new(task: impl Into<String>, repo: impl Into<PathBuf>) -> Self {
        Self {
            task: task.into(),
            repo: repo.into(),
            criteria: Criteria::default(),
            limits: Limits::default(),
            preexisting: Preexisting::default(),
            thread: None,
            place: Place::default(),
            settings: Settings::default(),
            approve: Approve::default(),
            notify: Vec::new(),
        }
    }

    /// Whether it can be begun, as far as can be told without asking anybody.
    ///
    /// # Errors
    ///
    /// [`BadOrder`], which says what to do.
    pub fn check(&self) -> Result<(), BadOrder> {
        if self.task.trim().is_empty() {
            return Err(BadOrder::NoTask);
        }
        if self.task.len() > LONGEST_TASK {
            return Err(BadOrder::LongTask(self.task.len()));
        }
        if self.notify.len() > MOST_NOTIFIERS {
            return Err(BadOrder::Notifiers(self.notify.len()));
        }
        self.check_repo_is_named()?;
        match self.repo.is_dir() {
            true => Ok(()),
            false => Err(BadOrder::NoDirectory(self.repo.clone())),
        }
    }

    /// Whether a repository is named at all. An empty path would be the working directory of
    /// whichever process resolves it.
    ///
    /// # Errors
    ///
    /// [`BadOrder::NoRepo`].
    pub fn check_repo_is_named(&self) -> Result<(), BadOrder> {
        match self.repo.to_string_lossy().trim().is_empty() {
            true => Err(BadOrder::NoRepo),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_order_is_read_by_the_names_of_the_specification() {
        let written = json!({
            "task": "do it",
            "repo": "/tmp",
            "exit_criteria": { "commits": 1, "clean": true },
            "max_turns": 3,
            "turn_timeout_ms": 1000,
            "total_timeout_ms": 5000,
            "notify": ["mail:lead"],
        });
        let order: Order = serde_json::from_value(written).unwrap();
        assert_eq!(order.criteria.iter().count(), 2);
        assert_eq!(order.limits.turns(), 3);
        assert_eq!(order.approve, Approve::Never);
        let text = serde_json::to_string(&order).unwrap();
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order);
        assert_eq!(order.check(), Ok(()));
    }

    #[test]
    fn what_can_not_be_begun_is_refused() {
        let refused = |order: &Order| order.check().unwrap_err().to_string();
        assert!(refused(&Order::new(" \n", "/tmp")).contains("empty"));
        let long = "x".repeat(LONGEST_TASK + 1);
        assert!(refused(&Order::new(long, "/tmp")).contains("1048577 bytes"));
        assert!(refused(&Order::new("x", "/nowhere")).contains("/nowhere"));
        for unnamed in ["", " "] {
            assert!(refused(&Order::new("x", unnamed)).contains("repo must not be empty"));
        }
    }
}
