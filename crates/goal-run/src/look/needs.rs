//! What has to be looked at.

use std::collections::BTreeSet;

use crate::logic::criteria::{Criteria, Criterion};
use crate::logic::glob::Glob;
use crate::logic::names::{BranchName, CommandLine, Issue};

/// What criteria ask about.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    pub(super) globs: Vec<Glob>,
    pub(super) branches: BTreeSet<BranchName>,
    pub(super) issues: BTreeSet<Issue>,
    pub(super) commands: Vec<CommandLine>,
    /// Criteria for which something must be there, as they were written: the first
    /// of each kind.
    pub(super) git: Option<String>,
    pub(super) pushed: Option<String>,
    pub(super) pull_requests: Option<String>,
    pub(super) gh: Option<String>,
}

impl Needs {
    pub(super) fn of(criteria: &Criteria) -> Self {
        let mut needs = Self::default();
        for criterion in criteria.iter() {
            needs.add(criterion);
        }
        needs
    }

    fn add(&mut self, criterion: &Criterion) {
        let first = |place: &mut Option<String>| {
            place.get_or_insert_with(|| criterion.to_string());
        };
        match criterion {
            Criterion::Files(glob) => self.globs.push(glob.clone()),
            Criterion::Commits { branch, .. } => {
                first(&mut self.git);
                self.branches.extend(branch.clone());
            }
            Criterion::Branch(branch) => {
                first(&mut self.git);
                self.branches.insert(branch.clone());
            }
            Criterion::Pushed => {
                first(&mut self.git);
                first(&mut self.pushed);
            }
            Criterion::PullRequest => {
                first(&mut self.git);
                first(&mut self.pull_requests);
                first(&mut self.gh);
            }
            Criterion::IssueComment(issue) => {
                first(&mut self.gh);
                self.issues.insert(issue.clone());
            }
            Criterion::Clean | Criterion::Review | Criterion::DiffWithin(_) => first(&mut self.git),
            Criterion::Command(command) => self.commands.push(command.clone()),
        }
    }
}
