//! The facts that criteria need.

use std::collections::BTreeSet;

use crate::logic::criteria::{Criteria, Criterion};
use crate::logic::glob::Glob;
use crate::logic::names::{BranchName, CommandLine, Issue};

/// The facts that the criteria of a run need.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    pub(super) globs: Vec<Glob>,
    pub(super) branches: BTreeSet<BranchName>,
    pub(super) issues: BTreeSet<Issue>,
    pub(super) commands: Vec<CommandLine>,
    /// Whether changed files are compared with paths.
    pub(super) changes: bool,
    /// The first criterion that needs git, a remote, and so on, as it was written.
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
            Criterion::Clean | Criterion::Review => first(&mut self.git),
            Criterion::DiffWithin(_) => {
                first(&mut self.git);
                self.changes = true;
            }
            Criterion::Command(command) => self.commands.push(command.clone()),
        }
    }
}
