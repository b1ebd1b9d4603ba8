//! The bounds of a run.

use std::path::{Path, PathBuf};

use codex_config::trust::top_of;
use codex_protocol::codex::SandboxMode;
use goal_run::logic::criteria::{Criteria, Criterion, Grant};
use goal_run::logic::notifier::Notifier;

use super::error::OutOfBounds;
use super::{Bounds, Commands};

impl Bounds {
    /// The resolved directory of a run, if the run may work in its whole repository: Codex works at
    /// the top of the repository. A run's worktree lies in the state directory under a name that no
    /// client chooses; it is allowed if the repository is.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Directory`] if work may not be done in the whole repository.
    pub fn repository(&self, directory: &Path) -> Result<PathBuf, OutOfBounds> {
        let directory = self.directory(directory)?;
        if self.directories.is_some() {
            self.directory(&top_of(&directory))?;
        }
        Ok(directory)
    }

    /// Checks the parts of a run other than its thread: its commands, and its automatic approvals.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`] if one of them exceeds a bound.
    pub fn check_run(
        &self,
        criteria: &Criteria,
        notify: &[Notifier],
        approves_all: bool,
    ) -> Result<(), OutOfBounds> {
        if self.commands == Commands::Refused {
            let refused = |what| OutOfBounds::Command {
                what,
                by: self.commands_bound(),
            };
            if criteria.iter().any(Criterion::runs_program) {
                return Err(refused("the criterion command"));
            }
            if let Some(name) = notify.iter().find_map(Notifier::bounded_name) {
                return Err(refused(name));
            }
        }
        let most = self
            .max_sandbox
            .filter(|most| *most != SandboxMode::DangerFullAccess);
        match most {
            Some(_) if approves_all => Err(OutOfBounds::ApproveAll(self.sandbox_bound())),
            Some(_) => self.check_network_of(criteria),
            None => Ok(()),
        }
    }

    fn check_network_of(&self, criteria: &Criteria) -> Result<(), OutOfBounds> {
        let needs = |one: &&Criterion| one.grants().contains(&Grant::Network);
        let what = match criteria.iter().find(needs) {
            None => return Ok(()),
            Some(Criterion::Pushed) => "the criterion pushed",
            Some(Criterion::PullRequest) => "the criterion pr",
            Some(_) => "the criterion issue_comment",
        };
        self.check_network(what, || vec![self.sandbox_bound()])
    }
}
