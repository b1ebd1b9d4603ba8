//! The specification of a run.

use std::path::PathBuf;

use codex_engine::command::Settings;
use codex_protocol::codex::{SandboxMode, ThreadId};
use serde::{Deserialize, Serialize};

use crate::logic::criteria::{Basis, Criteria};
use crate::logic::machine::Limits;
use crate::logic::notifier::Notifier;
use crate::logic::snapshot::Preexisting;

/// The longest task, in bytes (1 MiB): Codex's own input takes 2^20 characters.
pub const LONGEST_TASK: usize = 1 << 20;

/// How many notifiers a run can have.
pub const MOST_NOTIFIERS: usize = 20;

/// The specification of a run. It is stored as JSON with its job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The task for Codex.
    pub task: String,
    /// The repository, or a directory in it: an absolute path. Codex works at the top of the
    /// repository.
    pub repo: PathBuf,
    /// The criteria that must be met.
    #[serde(rename = "exit_criteria", default)]
    pub criteria: Criteria,
    /// The limits of turns, time and tokens.
    #[serde(flatten)]
    pub limits: Limits,
    /// Whether state from before the run meets criteria.
    #[serde(default)]
    pub preexisting: Preexisting,
    /// The thread to resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadId>,
    /// The working tree of the run.
    #[serde(rename = "place", default)]
    pub workspace: WorkspaceMode,
    /// The settings of the thread and its turns.
    #[serde(default)]
    pub settings: Settings,
    /// The answer to Codex's questions.
    #[serde(default)]
    pub approve: Approve,
    /// The notifiers of the end and of alerts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Notifier>,
}

/// The working tree in which a run works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceMode {
    /// The working tree of the directory that was named.
    #[default]
    Here,
    /// A separate git worktree.
    Worktree,
}

/// The answer to Codex's questions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Approve {
    /// Asks a person if there is a terminal, and declines otherwise.
    Ask,
    /// Declines.
    #[default]
    Never,
    /// Approves.
    Always,
}

/// Why the specification of a run is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRunSpec {
    /// The task is empty.
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
    /// The directory does not exist.
    #[error("there is no directory {}; `repo` names the repository", .0.display())]
    NoDirectory(PathBuf),
    /// There are too many notifiers.
    #[error("{0} notifiers given; at most {MOST_NOTIFIERS} are allowed")]
    Notifiers(usize),
}

impl BadRunSpec {
    /// The message at a shell, where options have other names than parameters.
    #[must_use]
    pub fn at_a_shell(&self) -> String {
        match self {
            Self::NoRepo => {
                "--cwd must not be empty; name the repository's directory, `.` for the \
                             current one"
                    .to_owned()
            }
            Self::NoDirectory(directory) => format!(
                "there is no directory {}; --cwd names the repository",
                directory.display()
            ),
            other => other.to_string(),
        }
    }
}

impl RunSpec {
    /// A run with default settings and without criteria.
    #[must_use]
    pub fn new(task: impl Into<String>, repo: impl Into<PathBuf>) -> Self {
        Self {
            task: task.into(),
            repo: repo.into(),
            criteria: Criteria::default(),
            limits: Limits::default(),
            preexisting: Preexisting::default(),
            thread: None,
            workspace: WorkspaceMode::default(),
            settings: Settings::default(),
            approve: Approve::default(),
            notify: Vec::new(),
        }
    }

    /// Checks the specification as far as possible without git or the network.
    ///
    /// # Errors
    ///
    /// [`BadRunSpec`], with advice.
    pub fn check(&self) -> Result<(), BadRunSpec> {
        if self.task.trim().is_empty() {
            return Err(BadRunSpec::NoTask);
        }
        if self.task.len() > LONGEST_TASK {
            return Err(BadRunSpec::LongTask(self.task.len()));
        }
        if self.notify.len() > MOST_NOTIFIERS {
            return Err(BadRunSpec::Notifiers(self.notify.len()));
        }
        self.check_repo_is_named()?;
        match self.repo.is_dir() {
            true => Ok(()),
            false => Err(BadRunSpec::NoDirectory(self.repo.clone())),
        }
    }

    /// Whether a criterion can be met only by new work.
    #[must_use]
    pub fn needs_to_write(&self) -> bool {
        let mut criteria = self.criteria.iter();
        criteria.any(|criterion| criterion.basis() == Basis::NewWork)
    }

    /// Whether the settings of the run make the sandbox read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.settings.thread.sandbox == Some(SandboxMode::ReadOnly)
    }

    /// Checks that a repository is named. An empty path would mean the working directory of
    /// the process that resolves it.
    ///
    /// # Errors
    ///
    /// [`BadRunSpec::NoRepo`].
    pub fn check_repo_is_named(&self) -> Result<(), BadRunSpec> {
        match self.repo.to_string_lossy().trim().is_empty() {
            true => Err(BadRunSpec::NoRepo),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn run_spec_is_read_by_the_names_of_the_specification() {
        let written = json!({
            "task": "do it",
            "repo": "/tmp",
            "exit_criteria": { "commits": 1, "clean": true },
            "max_turns": 3,
            "turn_timeout_ms": 1000,
            "total_timeout_ms": 5000,
            "notify": ["mail:lead"],
        });
        let spec: RunSpec = serde_json::from_value(written).unwrap();
        assert_eq!(spec.criteria.iter().count(), 2);
        assert_eq!(spec.limits.turns(), 3);
        assert_eq!(spec.approve, Approve::Never);
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<RunSpec>(&text).unwrap(), spec);
        assert_eq!(spec.check(), Ok(()));
    }

    #[test]
    fn invalid_run_spec_is_refused() {
        let refused = |spec: &RunSpec| spec.check().unwrap_err().to_string();
        assert!(refused(&RunSpec::new(" \n", "/tmp")).contains("empty"));
        let long = "x".repeat(LONGEST_TASK + 1);
        assert!(refused(&RunSpec::new(long, "/tmp")).contains("1048577 bytes"));
        assert!(refused(&RunSpec::new("x", "/nowhere")).contains("/nowhere"));
        for unnamed in ["", " "] {
            assert!(refused(&RunSpec::new("x", unnamed)).contains("repo must not be empty"));
        }
    }

    #[test]
    fn only_criteria_of_new_work_need_a_sandbox_that_can_write() {
        let needs = |criterion: &str| {
            let mut spec = RunSpec::new("x", "/tmp");
            spec.criteria = Criteria::new([criterion.parse().unwrap()]).unwrap();
            assert!(!spec.is_read_only());
            spec.settings.thread.sandbox = Some(SandboxMode::ReadOnly);
            assert!(spec.is_read_only());
            spec.needs_to_write()
        };
        assert!(
            ["files=a", "commits=1", "branch=b", "pushed", "pr"]
                .into_iter()
                .all(needs)
        );
        assert!(
            !["clean", "command=true", "review", "diff_within=a"]
                .into_iter()
                .any(needs)
        );
        assert!(!RunSpec::new("x", "/tmp").needs_to_write());
    }

    #[test]
    fn refusal_names_the_option_at_a_shell_and_the_parameter_over_mcp() {
        for directory in ["", "/nowhere"] {
            let refused = RunSpec::new("x", directory).check().unwrap_err();
            let (over_mcp, at_a_shell) = (refused.to_string(), refused.at_a_shell());
            assert!(over_mcp.contains("repo") && !over_mcp.contains("--cwd"));
            assert!(at_a_shell.contains("--cwd"), "{at_a_shell}");
        }
        let no_task = RunSpec::new("", "/tmp").check().unwrap_err();
        assert_eq!(no_task.at_a_shell(), no_task.to_string());
    }
}
